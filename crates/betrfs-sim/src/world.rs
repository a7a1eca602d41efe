//! A volume beside its model: takes the steps of a history and compares.

use std::collections::BTreeMap;
use std::sync::Arc;

use betree_platform::Device;
use betree_sim::SimDisk;
use betrfs::Volume;

use crate::at::SlotId;
use crate::client::{By, Client};
use crate::compare::{Inos, difference};
use crate::drive::Drive;
use crate::failure::{Failure, wrong};
use crate::kernel::Kernel;
use crate::listing::Listing;
use crate::model::{ObjectId, Rules, State};
use crate::nodes::Nodes;
use crate::other_syncs;
use crate::past::Past;
use crate::platform::{START_NS, SimPlatform};
use crate::reached::Reached;
use crate::setup::Setup;
use crate::step::{Act, Crash, Step};
use crate::tree::read_volume;

/// The time between two steps.
const STEP_NS: i64 = 1_000_000;

/// What does the operations on an open volume.
pub(crate) fn client_of(volume: Volume, by: By, platform: &Arc<SimPlatform>, seed: u64) -> Box<dyn Client> {
    match by {
        By::Calls => Box::new(Nodes::of(volume)),
        By::Requests => Box::new(Kernel::new(Arc::new(volume), Arc::clone(platform), seed)),
    }
}

/// A volume beside its model.
pub struct World {
    pub(crate) setup: Setup,
    pub(crate) rules: Rules,
    pub(crate) platform: Arc<SimPlatform>,
    pub(crate) disk: Arc<Drive>,
    pub(crate) by: By,
    pub(crate) seed: u64,
    /// Absent once an opening has failed.
    pub(crate) client: Option<Box<dyn Client>>,
    pub(crate) past: Past,
    pub(crate) inos: Inos,
    pub(crate) listings: BTreeMap<SlotId, Listing>,
    /// The first object that a restore made whose end is not on the disk: the next opening makes it anew.
    pub(crate) remade_from: Option<ObjectId>,
    /// The cut of the power that is to come.
    pub(crate) coming: Option<Crash>,
    /// Whether stored data may be lost: the history ends with the next opening.
    pub(crate) is_damaged: bool,
    /// Whether a fault has struck an opening since the volume was opened without one.
    pub(crate) may_lack_copies: bool,
    /// Whether the history has ended early.
    pub(crate) is_over: bool,
    /// What was reached.
    pub reached: Reached,
}

impl World {
    /// Makes an empty volume and opens it, for operations by calls or by requests.
    ///
    /// # Errors
    /// The library's.
    pub fn new(setup: Setup, by: By, seed: u64) -> Result<World, Failure> {
        // Of a history before that failed.
        other_syncs::clear();
        let platform = Arc::new(SimPlatform::new(seed));
        let disk = SimDisk::new(setup.volume_bytes).which_seeks(setup.seeks);
        let disk = Arc::new(Drive::new(disk, setup.first_extent()));
        setup.format(Arc::clone(&disk) as Arc<dyn Device>, &platform)?;
        let volume = setup.open(Arc::clone(&disk) as Arc<dyn Device>, &platform)?;
        let client = client_of(volume, by, &platform, seed);
        Ok(World {
            rules: setup.rules(),
            setup,
            platform,
            disk,
            by,
            seed,
            client: Some(client),
            past: Past::of(State::new(START_NS)),
            inos: Inos::default(),
            listings: BTreeMap::new(),
            remade_from: None,
            coming: None,
            is_damaged: false,
            may_lack_copies: false,
            is_over: false,
            reached: Reached::default(),
        })
    }

    /// Takes one step.
    ///
    /// # Errors
    /// Why it was wrong.
    pub fn step(&mut self, step: &Step) -> Result<(), Failure> {
        if self.is_over {
            return Ok(());
        }
        let now_ns = self.platform.pass(STEP_NS + self.disk.take_waited_ns());
        self.listings.values_mut().for_each(|listing| listing.time_is(now_ns));
        let done = match step {
            Step::Op(op) => self.operate(op, now_ns),
            Step::Act(act) => self.act(*act),
            Step::Pump(pieces) => self.pump(*pieces),
            Step::Checkpoint => self.volume()?.env().checkpoint().map_err(|e| Failure::Library(e.into())),
            Step::Wait(ms) => {
                self.platform.pass(i64::from(*ms) * 1_000_000);
                Ok(())
            }
            Step::Check => self.check_if_sound(),
            Step::Compare => self.compare(now_ns),
            Step::Reopen => self.reopen(),
            Step::Kill => self.kill(),
            Step::Crash(crash) => self.arm(crash),
            Step::Fault(fault) => self.fault(*fault),
            Step::Heal => self.heal(),
        };
        self.reached.note(step.kind());
        self.client.iter_mut().for_each(|client| client.count(&mut self.reached));
        if self.disk.disk().is_cut() {
            // Whatever the step met: from the cut on every call fails.
            return match done {
                Ok(()) | Err(Failure::Library(_) | Failure::Request(_)) => self.recover(),
                wrong => wrong,
            };
        }
        match done {
            Err(failure) if self.is_excused(&failure) => {
                self.reached.note("failed by a fault");
                Ok(())
            }
            done => done,
        }
    }

    pub(crate) fn volume(&self) -> Result<&Volume, Failure> {
        self.client
            .as_ref()
            .map(|client| client.volume())
            .ok_or_else(|| Failure::Wrong("no volume is open".into()))
    }

    fn act(&mut self, act: Act) -> Result<(), Failure> {
        let Some(client) = &mut self.client else { return wrong("no volume is open") };
        client.take(act)?;
        self.check_memory()
    }

    fn pump(&mut self, pieces: usize) -> Result<(), Failure> {
        for _ in 0..pieces {
            if !self.volume()?.env().run_due_work().map_err(|e| Failure::Library(e.into()))? {
                break;
            }
        }
        Ok(())
    }

    /// Checks the volume.
    ///
    /// # Errors
    /// The problems that it has.
    pub fn check(&mut self) -> Result<(), Failure> {
        let report = self.volume()?.check(&mut |_, _| ())?;
        if let Some(problem) = report.problems.first() {
            return wrong(format!("a check finds: {problem} (and {} more)", report.problems.len() - 1));
        }
        // A crash may leave a copy of the superblock that was being written.
        match report.notes.iter().find(|note| !note.starts_with("the superblock's copy")) {
            Some(note) => wrong(format!("a check notes: {note}")),
            None => Ok(()),
        }
    }

    /// Compares everything that can be read with the model.
    fn compare(&mut self, now_ns: i64) -> Result<(), Failure> {
        let (found, unread) = match read_volume(self.volume()?) {
            Ok(read) => read,
            Err((_, error)) => return Err(error.into()),
        };
        if let Some((path, error)) = unread.into_iter().find(|(_, error)| !self.is_of_fault(error)) {
            if self.disk.disk().is_cut() {
                return Err(error.into());
            }
            return wrong(format!("{path} cannot be read: {error}"));
        }
        let mut state = self.past.latest().clone();
        if self.rules.reads_count {
            state.all_read(now_ns);
        }
        let differs = difference(&state, &found, &mut self.inos);
        self.past.amend(state);
        differs.map_or(Ok(()), wrong)
    }

    /// What must hold at the end: everything equals the model, before the volume is opened anew and after
    /// that, and a check finds nothing.
    ///
    /// # Errors
    /// What is wrong.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.power_off()?;
        for step in [Step::Heal, Step::Compare, Step::Check, Step::Reopen] {
            self.step(&step)?;
        }
        Ok(())
    }
}
