//! A volume beside its model: takes the steps of a history and compares.

use std::collections::BTreeMap;
use std::sync::Arc;

use betree_platform::Device;
use betree_sim::SimDisk;
use betrfs::Volume;

use crate::at::{At, SlotId};
use crate::compare::{Inos, difference};
use crate::drive::Drive;
use crate::failure::{Failure, wrong};
use crate::listing::Listing;
use crate::model::{Refusal, Rules, Spot, State, Why};
use crate::nodes::Nodes;
use crate::op::Op;
use crate::past::Past;
use crate::perform::Answer;
use crate::platform::{START_NS, SimPlatform};
use crate::reached::Reached;
use crate::setup::Setup;
use crate::step::{Crash, Step};
use crate::tree::read_volume;

/// The time between two steps.
const STEP_NS: i64 = 1_000_000;

/// After a pause this long, names of a listing may leave memory.
const LISTING_IDLE_MS: u32 = 600_000;

/// A volume beside its model.
pub struct World {
    pub(crate) setup: Setup,
    pub(crate) rules: Rules,
    pub(crate) platform: Arc<SimPlatform>,
    pub(crate) disk: Arc<Drive>,
    /// Absent once an opening has failed.
    pub(crate) nodes: Option<Nodes>,
    pub(crate) past: Past,
    pub(crate) inos: Inos,
    pub(crate) listings: BTreeMap<SlotId, Listing>,
    /// The cut of the power that is to come.
    pub(crate) coming: Option<Crash>,
    /// Whether stored data may be lost: the history ends with the next opening.
    pub(crate) is_damaged: bool,
    /// Whether the history has ended early.
    pub(crate) is_over: bool,
    /// What was reached.
    pub reached: Reached,
}

impl World {
    /// Makes an empty volume and opens it.
    ///
    /// # Errors
    /// The library's.
    pub fn new(setup: Setup, seed: u64) -> Result<World, Failure> {
        let platform = Arc::new(SimPlatform::new(seed));
        let disk = SimDisk::new(setup.volume_bytes).which_seeks(setup.seeks);
        let disk = Arc::new(Drive::new(disk, setup.first_extent()));
        setup.format(Arc::clone(&disk) as Arc<dyn Device>, &platform)?;
        let volume = setup.open(Arc::clone(&disk) as Arc<dyn Device>, &platform)?;
        Ok(World {
            rules: setup.rules(),
            setup,
            platform,
            disk,
            nodes: Some(Nodes::of(volume)),
            past: Past::of(State::new(START_NS)),
            inos: Inos::default(),
            listings: BTreeMap::new(),
            coming: None,
            is_damaged: false,
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
        let done = match step {
            Step::Op(op) => self.operate(op, now_ns),
            Step::Pump(pieces) => self.pump(*pieces),
            Step::Checkpoint => self.volume()?.env().checkpoint().map_err(|e| Failure::Library(e.into())),
            Step::Wait(ms) => {
                self.wait(*ms);
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
        if self.disk.disk().is_cut() {
            // Whatever the step met: from the cut on every call fails.
            return match done {
                Ok(()) | Err(Failure::Library(_)) => self.recover(),
                wrong => wrong,
            };
        }
        match done {
            Err(Failure::Library(error)) if self.is_of_fault(&error) => {
                self.reached.note("failed by a fault");
                Ok(())
            }
            done => done,
        }
    }

    fn wait(&mut self, ms: u32) {
        self.platform.pass(i64::from(ms) * 1_000_000);
        if ms >= LISTING_IDLE_MS {
            self.listings.values_mut().for_each(Listing::has_paused);
        }
    }

    pub(crate) fn volume(&self) -> Result<&Volume, Failure> {
        self.nodes
            .as_ref()
            .map(|nodes| &nodes.volume)
            .ok_or_else(|| Failure::Wrong("no volume is open".into()))
    }

    /// Does an operation on both sides.
    fn operate(&mut self, op: &Op, now_ns: i64) -> Result<(), Failure> {
        let mut next = self.past.latest().clone();
        let right = next.apply(op, now_ns, &self.rules);
        let right = match right {
            Ok(done) => Ok(done),
            Err(Refusal::With(whys)) => Err(whys),
            Err(Refusal::Unsaid) => {
                self.reached.note("left out");
                return Ok(());
            }
        };
        let cookie = match op {
            Op::ListOn { slot, .. } => self.listings.entry(*slot).or_default().cookie(),
            _ => 0,
        };
        let Some(nodes) = &mut self.nodes else { return wrong("no volume is open") };
        if let Op::Close { slot } = op
            && let Some(held) = self.past.latest().slots().get(slot)
        {
            nodes.close(*slot, held.is_open);
            self.listings.remove(slot);
        }
        let result = nodes.perform(op, cookie);
        if let (Op::CopyRange { from, .. }, Err(_)) = (op, &result) {
            self.may_have_read(from, now_ns);
        }
        match (result, right) {
            (Err(error), right) if self.disk.disk().is_cut() => {
                if let Ok(done) = right {
                    self.past.unfinished(done.between, next);
                }
                Err(error.into())
            }
            (Ok(Answer::Written(count)), Ok(done)) if count != done.written && self.disk.disk().is_cut() => {
                self.past.unfinished(done.between, next);
                Ok(())
            }
            (Ok(Answer::Written(count)), Ok(done)) if count < done.written && self.disk.has_struck() => {
                self.stopped_early(op, count, now_ns)
            }
            // Nothing was changed.
            (Err(error), _) if self.is_of_fault(&error) => Err(error.into()),
            (Ok(answer), Ok(done)) => {
                if let Answer::Written(count) = answer
                    && count != done.written
                {
                    return wrong(format!("it took {count} bytes, and should take {}", done.written));
                }
                self.past.add(done.between, next);
                if matches!(op, Op::Fsync { .. } | Op::Sync) {
                    self.past.is_durable();
                }
                self.names_may_have_changed();
                self.judge(op, &answer).or_else(wrong)
            }
            (Err(error), Ok(done)) if done.or.contains(&Why::of(&error)) => Ok(()),
            (Err(error), Err(whys)) if whys.contains(&Why::of(&error)) => {
                self.reached.note("refused");
                Ok(())
            }
            (Err(error), Err(whys)) => {
                wrong(format!("it was refused with \"{error}\", and should be with one of {whys:?}"))
            }
            (Err(error), Ok(_)) => wrong(format!("it failed with \"{error}\", and should not")),
            (Ok(_), Err(whys)) => wrong(format!("it succeeded, and should be refused with one of {whys:?}")),
        }
    }

    /// Notes that an operation may have read an object before it failed.
    fn may_have_read(&mut self, at: &At, now_ns: i64) {
        let mut state = self.past.latest().clone();
        if let Ok(Spot::Object(id)) = state.resolve(at) {
            state.read_by_history(id, now_ns, &self.rules);
            self.past.amend(state);
        }
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
