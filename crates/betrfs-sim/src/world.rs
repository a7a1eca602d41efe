//! A volume beside its model: takes the steps of a history and compares.

use std::collections::BTreeMap;
use std::sync::Arc;

use betree_platform::Device;
use betree_sim::SimDisk;
use betrfs::{Error, InodeId, Volume};

use crate::at::{At, SlotId};
use crate::compare::{Inos, difference, take_atimes};
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
    setup: Setup,
    rules: Rules,
    platform: Arc<SimPlatform>,
    disk: Arc<SimDisk>,
    /// Absent once an opening has failed.
    pub(crate) nodes: Option<Nodes>,
    pub(crate) past: Past,
    pub(crate) inos: Inos,
    pub(crate) listings: BTreeMap<SlotId, Listing>,
    /// The cut of the power that is to come.
    coming: Option<Crash>,
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
        let disk = Arc::new(SimDisk::new(setup.volume_bytes).which_seeks(setup.seeks));
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
            reached: Reached::default(),
        })
    }

    /// Takes one step.
    ///
    /// # Errors
    /// Why it was wrong.
    pub fn step(&mut self, step: &Step) -> Result<(), Failure> {
        let now_ns = self.platform.pass(STEP_NS);
        let done = match step {
            Step::Op(op) => self.operate(op, now_ns),
            Step::Pump(pieces) => self.pump(*pieces),
            Step::Checkpoint => self.volume()?.env().checkpoint().map_err(|e| Failure::Library(e.into())),
            Step::Wait(ms) => {
                self.platform.pass(i64::from(*ms) * 1_000_000);
                if *ms >= LISTING_IDLE_MS {
                    self.listings.values_mut().for_each(Listing::has_paused);
                }
                Ok(())
            }
            Step::Check => self.check(),
            Step::Compare => self.compare(now_ns),
            Step::Reopen => self.reopen(),
            Step::Kill => self.kill(),
            Step::Crash(crash) => self.arm(crash),
        };
        self.reached.note(step.kind());
        if self.disk.is_cut() {
            // Whatever the step met: from the cut on every call fails.
            return match done {
                Ok(()) | Err(Failure::Library(_)) => self.recover(),
                wrong => wrong,
            };
        }
        done
    }

    /// Cuts the power if a cut is still to come, and recovers.
    ///
    /// # Errors
    /// A promise does not hold.
    pub fn power_off(&mut self) -> Result<(), Failure> {
        if self.coming.is_some() { self.recover() } else { Ok(()) }
    }

    fn volume(&self) -> Result<&Volume, Failure> {
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
            (Err(error), right) if self.disk.is_cut() => {
                if let Ok(done) = right {
                    self.past.unfinished(done.between, next);
                }
                Err(error.into())
            }
            (Ok(Answer::Written(count)), Ok(done)) if self.disk.is_cut() && count != done.written => {
                self.past.unfinished(done.between, next);
                Ok(())
            }
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

    /// Compares everything with the model.
    fn compare(&mut self, now_ns: i64) -> Result<(), Failure> {
        let found = read_volume(self.volume()?).map_err(unreadable)?;
        let mut state = self.past.latest().clone();
        if self.rules.reads_count {
            state.all_read(now_ns);
        }
        let differs = difference(&state, &found, &mut self.inos);
        self.past.amend(state);
        differs.map_or(Ok(()), wrong)
    }

    fn reopen(&mut self) -> Result<(), Failure> {
        self.volume()?.close()?;
        self.past.is_durable();
        self.nodes = None;
        self.open_again()
    }

    fn kill(&mut self) -> Result<(), Failure> {
        if let Some(nodes) = self.nodes.take() {
            nodes.volume.env().abandon();
        }
        self.open_again()
    }

    fn arm(&mut self, crash: &Crash) -> Result<(), Failure> {
        // One that is still to come comes now.
        self.power_off()?;
        self.disk.cut_power_at(crash.call);
        self.coming = Some(crash.clone());
        Ok(())
    }

    /// Opens the volume after a crash, with crashes of the recovery if there are to be any.
    fn recover(&mut self) -> Result<(), Failure> {
        if let Some(nodes) = self.nodes.take() {
            nodes.volume.env().abandon();
        }
        let Some(crash) = self.coming.take() else { return wrong("the power was cut by nobody") };
        self.disk = Arc::new(self.disk.crash(crash.seed));
        self.reached.note("recovery");
        for (call, seed) in crash.recoveries {
            self.disk.cut_power_at(call);
            match self.setup.open(Arc::clone(&self.disk) as Arc<dyn Device>, &self.platform) {
                Ok(volume) => volume.env().abandon(),
                Err(_) if self.disk.is_cut() => {}
                Err(error) => return wrong(format!("recovery fails: {error}")),
            }
            if self.disk.is_cut() {
                self.reached.note("crash in a recovery");
            }
            self.disk = Arc::new(self.disk.crash(seed));
        }
        self.open_again()
    }

    /// Opens the volume after its program has ended, finds the state that it holds, and goes on with that.
    fn open_again(&mut self) -> Result<(), Failure> {
        self.listings.clear();
        let opened = self.setup.open(Arc::clone(&self.disk) as Arc<dyn Device>, &self.platform);
        let volume = match opened {
            Ok(volume) => volume,
            Err(error) if self.disk.is_cut() => return Err(error.into()),
            Err(error) => return wrong(format!("the volume cannot be opened: {error}")),
        };
        let replayed = volume.env().replayed_batches();
        self.nodes = Some(Nodes::of(volume));
        // Before anything is in memory.
        let by_number = self.find_by_numbers()?;
        let found = match read_volume(self.volume()?) {
            Ok(found) => found,
            Err((_, error)) if self.disk.is_cut() => return Err(error.into()),
            Err(error) => return Err(unreadable(error)),
        };
        let (number, mut state) = self
            .past
            .recovered(&found, &mut self.inos)
            .map_err(|what| Failure::Wrong(format!("after opening: {what}")))?;
        self.reached.add("batches replayed", replayed);
        self.reached.note(if number == 0 { "found the durable state" } else { "found a later state" });
        if number + 1 < self.past.possible() {
            self.reached.note("lost undurable states");
        }
        state.let_go();
        take_atimes(&mut state, &found);
        if self.rules.reads_count {
            state.all_read(self.platform.pass(0));
        }
        // Objects that are gone have numbers no longer: a crash may have taken the record that reserved them.
        self.inos = Inos::default();
        if let Some(what) = difference(&state, &found, &mut self.inos) {
            return wrong(format!("after opening: {what}"));
        }
        if let Some(ino) = by_number.iter().find(|(ino, is_found)| self.inos.has(*ino) != *is_found) {
            return wrong(format!("after opening: (number, whether an object has it) is wrong: {ino:?}"));
        }
        let found_by_number = by_number.iter().filter(|(_, is_found)| *is_found).count();
        self.reached.add("objects found by number", found_by_number as u64);
        self.reached.add("numbers of objects that are gone", (by_number.len() - found_by_number) as u64);
        self.past = Past::of(state);
        self.check()
    }

    /// Whether an object is found by each inode number that was seen before.
    fn find_by_numbers(&mut self) -> Result<Vec<(u64, bool)>, Failure> {
        let numbers: Vec<u64> = self.inos.numbers().collect();
        let volume = self.volume()?;
        let mut found = Vec::with_capacity(numbers.len());
        for ino in numbers {
            match volume.find_inode(InodeId(ino)) {
                Ok(entry) if (entry.node, entry.attr.ino) == (InodeId(ino), ino) => {
                    volume.forget(entry.node, 1);
                    found.push((ino, true));
                }
                Ok(entry) => return wrong(format!("the search for the number {ino} finds {entry:?}")),
                Err(Error::Stale) => found.push((ino, false)),
                Err(error) if self.disk.is_cut() => return Err(error.into()),
                Err(error) => return wrong(format!("the search for the number {ino} fails: {error}")),
            }
        }
        Ok(found)
    }

    /// The sum of what may be wrong at the end: everything is compared, checked and opened again; then
    /// everything is removed, and the room must be there again.
    ///
    /// # Errors
    /// What is wrong.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.power_off()?;
        for step in [Step::Compare, Step::Check, Step::Reopen] {
            self.step(&step)?;
        }
        Ok(())
    }
}

fn unreadable((path, error): (String, Error)) -> Failure {
    Failure::Wrong(format!("{path} cannot be read: {error}"))
}
