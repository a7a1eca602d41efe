//! The history of a seed: its volume and its steps.

use seeded::Rng;

use crate::client::By;
use crate::draw::Draw;
use crate::reached::Reached;
use crate::setup::Setup;
use crate::step::Step;
use crate::swarm::{Kind, Swarm};
use crate::world::World;

/// Tells the numbers that decide on properties and quotas from all others of a seed.
const SETTINGS_SALT: u64 = 0x7365_7474_696e_6773;

/// What a history may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trials {
    /// Reopening and killed programs, but no loss of power.
    Operations,
    /// Power cuts as well.
    Crashes,
    /// Power cuts and failing disks as well.
    Faults,
    /// Power cuts, and at the end damage and a repair.
    Repairs,
    /// Power cuts, and operations as requests of a kernel.
    Protocol,
}

impl Trials {
    fn includes(self, kind: Kind) -> bool {
        match kind {
            Kind::Crash => self != Trials::Operations,
            Kind::Fault | Kind::Heal => self == Trials::Faults,
            _ => true,
        }
    }
}

/// A history.
#[derive(Clone, Debug)]
pub struct History {
    /// Its seed.
    pub seed: u64,
    /// Its volume.
    pub setup: Setup,
    /// By what its operations come to the volume.
    pub by: By,
    /// Whether the volume is damaged and repaired at the end.
    pub is_repaired: bool,
    /// Its steps.
    pub steps: Vec<Step>,
}

impl History {
    /// The history of a seed, of `steps` steps.
    pub fn of_seed(seed: u64, steps: usize, trials: Trials) -> History {
        let mut rng = Rng::new(seed);
        let setup = Setup::draw(&mut rng);
        let swarm = Swarm::draw(&mut rng);
        let mut swarm = swarm.only(|kind| trials.includes(kind));
        if trials == Trials::Protocol {
            swarm = swarm.and(Kind::Shrink, 4).and(Kind::Forget, 3).and(Kind::Provoke, 8);
        }
        if trials != Trials::Protocol {
            // By numbers of their own, so that other histories are as they would be without. What a quota
            // refuses is not done: so most histories have none.
            let mut rng = Rng::new(seed ^ SETTINGS_SALT);
            if rng.percent(40) {
                swarm = swarm.and(Kind::SetProperties, *rng.pick(&[5, 20, 60]));
            }
            if rng.percent(30) {
                swarm = swarm.and(Kind::SetQuota, *rng.pick(&[8, 25, 60]));
            }
        }
        let steps = Draw::new(rng, swarm, setup.rules()).steps(steps);
        let by = if trials == Trials::Protocol { By::Requests } else { By::Calls };
        History { seed, setup, by, is_repaired: trials == Trials::Repairs, steps }
    }

    /// Takes these steps on the volume of this history; returns what was reached.
    ///
    /// # Errors
    /// The first failure, with its step.
    pub fn run(&self, steps: &[Step]) -> Result<Reached, String> {
        let mut world = World::new(self.setup, self.by, self.seed)
            .map_err(|failure| format!("making the volume: {failure}"))?;
        for (number, step) in steps.iter().enumerate() {
            world.step(step).map_err(|failure| format!("step {number}, {step}: {failure}"))?;
        }
        let end = if self.is_repaired { World::damage_and_repair } else { World::finish };
        end(&mut world).map_err(|failure| format!("at the end: {failure}"))?;
        Ok(world.reached)
    }
}
