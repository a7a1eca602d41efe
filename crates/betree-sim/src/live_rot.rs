//! Histories of volumes whose blocks rot while they are used: whatever else is done, readers get what is
//! right or an error that names the damage, and nothing that was accepted is lost with what cannot be read.

mod compare;
mod fresh;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use betree::debug::Inspector;
use betree::{Batch, Cut, DictId, Env, Error, FindingCode, OpenMode, Options, State};
use betree_platform::{BLOCK_BYTES, Device, DeviceError, DeviceOp};
use seeded::Rng;

use crate::append_capped::AppendCapped;
use crate::damage::open_as;
use crate::history::History;
use crate::mix::Mix;
use crate::model::{Edit, ModelEnv, batch_of};
use crate::rotting_disk::{Rot, RottingDisk};
use crate::runner::{format_env, open_env};
use crate::sim_disk::SimDisk;
use crate::step::{Setup, Step, history_of_seed};

/// The most pieces of background work in a row: more count as an endless loop.
const PUMPS_MAX: usize = 20_000;
/// So much may wait above something that cannot be read, in nodes. The engine has the same number.
const HELD_NODES: usize = 16;
/// A header is damaged by a bit of these bytes.
const HEADER_BYTES: usize = 53;
/// Clones are left out of a model with more keys: all are read again and again.
const KEYS_MAX: usize = 400;
/// The share of a volume that its node table may take.
const TABLE_PART: u64 = 64;

/// What is done in a history.
#[derive(Clone, Debug)]
pub enum RotAct {
    /// A step without anything rotting.
    Step(Step),
    /// Some nodes rot, chosen by a seed.
    Rot(u64),
    /// Everything heals.
    Heal,
    /// The power is cut, with a seed for what is left.
    Crash(u64),
    /// All background work is done, everything is compared and checked.
    Look,
}

/// Of what kind a history is.
#[derive(Clone, Copy, Debug)]
pub struct RotKind {
    /// Whether interior nodes rot too: then a root may be lost, and changes be refused.
    pub has_interior: bool,
    /// Whether blocks become unreadable too, and bits flip in what nodes hold, not in their headers alone.
    /// Nodes that are made of a cached one may be written with that damage, which then does not heal.
    pub is_copied: bool,
    /// Whether there are clones.
    pub has_clones: bool,
    /// Whether a repair ends it. Otherwise everything heals.
    pub is_repaired: bool,
}

/// What histories with rot have reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RotReached {
    /// Nodes that rotted.
    pub rotten: usize,
    /// Reads that damage made fail.
    pub unread: usize,
    /// Keys that were changed over something lost, and read.
    pub over_lost: usize,
    /// Batches with clones that were refused for something lost.
    pub refused_clones: usize,
    /// Environments that accepted no more changes.
    pub read_only: usize,
    /// Volumes that did not open with what was lost.
    pub unopened: usize,
    /// Openings of which all was right once it was healed.
    pub healed: usize,
    /// Keys that a repair noted as lost.
    pub noted: usize,
}

impl RotReached {
    /// Adds what another history has reached.
    pub fn add(&mut self, other: &RotReached) {
        self.rotten += other.rotten;
        self.unread += other.unread;
        self.over_lost += other.over_lost;
        self.refused_clones += other.refused_clones;
        self.read_only += other.read_only;
        self.unopened += other.unopened;
        self.healed += other.healed;
        self.noted += other.noted;
    }
}

/// The volume of a seed, of what kind its history is, and what is done in it.
pub fn rot_history_of_seed(seed: u64, steps: usize) -> (Setup, RotKind, Vec<RotAct>) {
    let (setup, steps) = history_of_seed(seed, steps, Mix::ROT);
    let mut rng = Rng::of_stream(seed, 1);
    let kind = RotKind {
        has_interior: rng.percent(25),
        is_copied: rng.percent(35),
        has_clones: rng.percent(50),
        is_repaired: rng.percent(30),
    };
    let rots = *rng.pick(&[1, 2, 4, 8]);
    let crashes = *rng.pick(&[0, 2, 4]);
    let heals = *rng.pick(&[0, 1, 3]);
    let mut acts = Vec::new();
    for step in steps {
        acts.push(RotAct::Step(step));
        match rng.below(100) {
            at if at < rots => acts.push(RotAct::Rot(rng.next_u64())),
            at if at < rots + crashes => acts.push(RotAct::Crash(rng.next_u64())),
            at if at < rots + crashes + heals => acts.push(RotAct::Heal),
            at if at < rots + crashes + heals + 3 => acts.push(RotAct::Look),
            _ => {}
        }
    }
    (setup, kind, acts)
}

/// Does what a history has, and lets all heal or repairs the volume at the end.
///
/// # Errors
/// The first law that does not hold, as a sentence.
pub fn rot_history(setup: Setup, kind: RotKind, acts: &[RotAct]) -> Result<RotReached, String> {
    let mut life = Life::begin(setup, kind)?;
    for (index, act) in acts.iter().enumerate() {
        life.act(act).map_err(|what| format!("act {index}, {act:?}: {what}"))?;
    }
    life.look().map_err(|what| format!("at the end: {what}"))?;
    if kind.is_repaired && !kind.has_interior {
        life.repair().map_err(|what| format!("a repair: {what}"))?;
    } else {
        life.heal().map_err(|what| format!("healed: {what}"))?;
        life.empty().map_err(|what| format!("emptied: {what}"))?;
    }
    Ok(life.reached)
}

/// A volume in use, with its model.
struct Life {
    setup: Setup,
    kind: RotKind,
    disk: Arc<RottingDisk>,
    env: Option<Env>,
    history: History,
    /// The keys that were named or there.
    keys: Vec<BTreeSet<Vec<u8>>>,
    /// The keys of which nothing that could rot since decides the value.
    fresh: Vec<BTreeSet<Vec<u8>>>,
    /// The bytes of all batches.
    accepted_bytes: usize,
    /// Whether a clone may be in the log.
    has_logged_clones: bool,
    /// Whether a crash may take something back.
    has_unsynced: bool,
    /// Whether anything has rotted since the volume was opened: nodes that could not be freed wait for the
    /// next opening.
    has_rotted: bool,
    /// Whether something has rotted that nodes may have copied.
    is_tainted: bool,
    free_at_first: u64,
    reached: RotReached,
}

fn told(what: &'static str) -> impl Fn(Error) -> String {
    move |error| format!("{what}: {error}")
}

impl Life {
    fn begin(setup: Setup, kind: RotKind) -> Result<Life, String> {
        let disk = RottingDisk::new(SimDisk::new(setup.volume_bytes).which_seeks(setup.seeks));
        let disk = Arc::new(disk);
        let device: Arc<dyn Device> = disk.clone();
        format_env(&device, &setup).map_err(told("format"))?;
        let env = open_env(&device, &setup).map_err(told("open"))?;
        let dicts = usize::from(setup.geometry.dicts);
        Ok(Life {
            setup,
            kind,
            disk,
            free_at_first: env.space().free_bytes,
            env: Some(env),
            history: History::of(ModelEnv::new(setup.geometry.dicts)),
            keys: vec![BTreeSet::new(); dicts],
            fresh: vec![BTreeSet::new(); dicts],
            accepted_bytes: 0,
            has_logged_clones: false,
            has_unsynced: false,
            has_rotted: false,
            is_tainted: false,
            reached: RotReached::default(),
        })
    }

    fn env(&self) -> Result<&Env, String> {
        self.env.as_ref().ok_or_else(|| "the volume is not open".into())
    }

    fn is_read_only(&self) -> bool {
        self.env.as_ref().is_some_and(|env| matches!(env.state(), State::ReadOnly(_)))
    }

    fn act(&mut self, act: &RotAct) -> Result<(), String> {
        match act {
            RotAct::Step(step) => self.step(step),
            RotAct::Rot(seed) => self.rot(*seed),
            RotAct::Heal => self.heal(),
            RotAct::Crash(seed) => self.crash(*seed),
            RotAct::Look => self.look(),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Commit(edits) => self.commit(edits),
            Step::Get(dict, key) => self.get(*dict, key),
            Step::Walk(dict, lo, hi, moves) => self.walk(*dict, lo, hi, moves),
            Step::Sync => self.sync(),
            Step::Checkpoint => self.checkpoint(),
            Step::Pump(times) => {
                for _ in 0..*times {
                    match self.env()?.run_due_work() {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(error) => return self.may_be_read_only(&error),
                    }
                }
                Ok(())
            }
            Step::Check => self.check(),
            Step::Reopen => {
                let closed = self.env()?.close();
                match closed {
                    Ok(()) => self.synced(),
                    Err(error) => self.may_be_read_only(&error)?,
                }
                self.reopen()
            }
            Step::Abandon => self.reopen(),
            _ => Ok(()),
        }
    }

    fn commit(&mut self, edits: &[Edit]) -> Result<(), String> {
        let may_clone = self.kind.has_clones && self.history.latest().size().0 < KEYS_MAX;
        let is_taken = |edit: &&Edit| may_clone || !matches!(edit, Edit::Clone(..));
        let edits: Vec<Edit> = self.history.bounded(edits).iter().filter(is_taken).cloned().collect();
        let has_clones = edits.iter().any(|edit| matches!(edit, Edit::Clone(..)));
        let batch = batch_of(&edits);
        self.history.attempt(&edits);
        let env = self.env.as_ref().ok_or("the volume is not open")?;
        match env.throttle(batch.bytes()).and_then(|()| env.commit(&batch)) {
            Ok(()) => {
                self.has_unsynced = true;
                self.accepted_bytes += batch.bytes();
                self.has_logged_clones |= has_clones;
                self.freshen(&edits);
                self.history.accepted();
                self.note_keys(&edits);
                Ok(())
            }
            Err(error) => {
                self.history.refused();
                match error {
                    Error::NoSpace | Error::KeyTooLong { .. } => Ok(()),
                    error if has_clones && !self.is_read_only() && self.names_rot(&error) => {
                        self.reached.refused_clones += 1;
                        Ok(())
                    }
                    error => self.may_be_read_only(&error),
                }
            }
        }
    }

    fn sync(&mut self) -> Result<(), String> {
        match self.env()?.sync() {
            Ok(()) => {
                self.history.synced();
                self.has_unsynced = false;
            }
            Err(error) => self.may_fail_to_sync(&error)?,
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        match self.env()?.checkpoint() {
            Ok(()) => self.synced(),
            Err(error) => self.may_fail_to_sync(&error)?,
        }
        Ok(())
    }

    /// A checkpoint has been written.
    fn synced(&mut self) {
        self.history.synced();
        self.has_unsynced = false;
        self.has_logged_clones = false;
    }

    fn may_fail_to_sync(&mut self, error: &Error) -> Result<(), String> {
        match self.kind.has_interior && self.is_read_only() {
            true => Ok(()),
            false => Err(format!("nothing becomes durable: {error}")),
        }
    }

    /// An error of a change or of background work: the environment takes no more changes, and for a reason.
    fn may_be_read_only(&mut self, error: &Error) -> Result<(), String> {
        if !self.is_read_only() {
            return Err(format!("an error, and the environment is writable: {error}"));
        }
        if !matches!(error, Error::ReadOnly { .. }) && !self.names_rot(error) {
            return Err(format!("an error without damage: {error}"));
        }
        let held_bytes = self.held_bytes();
        if !self.kind.has_interior && self.accepted_bytes < held_bytes {
            let all = self.accepted_bytes;
            return Err(format!("no more changes after {all} bytes, and {held_bytes} may wait: {error}"));
        }
        Ok(())
    }

    /// What may wait above something lost, in bytes.
    fn held_bytes(&self) -> usize {
        self.setup.geometry.node_bytes as usize * HELD_NODES
    }

    /// Whether an error is about something rotten.
    fn names_rot(&self, error: &Error) -> bool {
        let (offset, len) = match error {
            Error::Corrupt { offset, len, .. } => (*offset, *len),
            Error::Device(DeviceError { op: DeviceOp::Read, offset, len, .. }) => (*offset, *len),
            _ => return false,
        };
        // A structure of several parts is named by its first one.
        self.is_tainted
            || self.disk.is_rotten(offset, len)
            || !self.setup.seeks && self.disk.rotten_blocks() > 0
    }

    /// Lets some nodes of the last checkpoint rot.
    fn rot(&mut self, seed: u64) -> Result<(), String> {
        let mut rng = Rng::new(seed);
        let device: Arc<dyn Device> = self.disk.clone();
        let options = Options::new(1 << 20, Arc::new(AppendCapped));
        let inspector = Inspector::open(device, options, &mut |_| ()).map_err(told("inspect"))?;
        let is_of_interior = self.kind.has_interior && rng.percent(50);
        let nodes = inspector.ids().into_iter().filter_map(|id| inspector.node(id, &mut |_| ()));
        let mut nodes: Vec<_> = nodes.filter(|node| (node.height > 0) == is_of_interior).collect();
        let count = match rng.below(100) {
            0..50 => 1,
            50..85 => rng.between(2, 6),
            _ => rng.between(17, 30),
        };
        for _ in 0..count.min(nodes.len()) {
            let node = nodes.swap_remove(rng.below(nodes.len()));
            let blocks: Vec<u64> = node
                .extent
                .iter()
                .flat_map(|part| part.start_block..part.start_block + part.len_blocks)
                .collect();
            let (Some(first), any) = (blocks.first().copied(), *rng.pick(&blocks)) else { continue };
            let flipped =
                |rng: &mut Rng, bytes| Rot::Flipped { at: rng.below(bytes), bit: rng.below(8) as u8 };
            let (block, rot) = match rng.below(if self.kind.is_copied { 6 } else { 1 }) {
                0 => (first, flipped(&mut rng, HEADER_BYTES)),
                1 => (first, Rot::Unreadable),
                2 => (any, Rot::Unreadable),
                _ => (any, flipped(&mut rng, BLOCK_BYTES)),
            };
            self.disk.rot(block * BLOCK_BYTES as u64, rot);
            self.reached.rotten += 1;
        }
        self.is_tainted |= self.kind.is_copied;
        self.fresh.iter_mut().for_each(BTreeSet::clear);
        self.has_rotted |= self.disk.rotten_blocks() > 0;
        Ok(())
    }

    /// Everything heals under the environment.
    fn heal(&mut self) -> Result<(), String> {
        self.disk.heal();
        if self.is_read_only() {
            self.sync()?;
            self.reached.read_only += 1;
            self.reopen()?;
        }
        self.look()
    }

    /// The power is cut.
    fn crash(&mut self, seed: u64) -> Result<(), String> {
        if self.is_tainted {
            // What is left cannot be read whole, to find which changes are there.
            self.sync()?;
        }
        let disk = self.disk.crash(seed);
        self.end();
        self.disk = Arc::new(disk);
        self.open()
    }

    fn end(&mut self) {
        if let Some(env) = self.env.take() {
            env.abandon();
        }
    }

    /// Ends the environment and opens the volume again.
    fn reopen(&mut self) -> Result<(), String> {
        if self.is_tainted {
            self.sync()?;
        }
        self.end();
        self.open()
    }

    /// Opens the volume, of which a healed copy has what it should.
    fn open(&mut self) -> Result<(), String> {
        if !self.is_tainted {
            let found = self.healed().map_err(|what| format!("on a healed copy: {what}"))?;
            // A change that makes no difference may be gone too.
            if self.has_unsynced {
                self.fresh.iter_mut().for_each(BTreeSet::clear);
            }
            self.history = History::of(found);
            self.reached.healed += 1;
        }
        let device: Arc<dyn Device> = self.disk.clone();
        self.env = match open_env(&device, &self.setup) {
            Ok(env) => Some(env),
            Err(error) => {
                let needs_it = self.has_logged_clones || self.kind.has_interior;
                let waits = !needs_it && self.accepted_bytes >= self.held_bytes();
                if !needs_it && !waits || !self.names_rot(&error) {
                    return Err(format!("open: {error}"));
                }
                self.reached.unopened += 1;
                if waits {
                    // Who reads gets all that waits, however much.
                    let reader = open_as(&device, &self.setup, OpenMode::ReadOnly);
                    self.env = Some(reader.map_err(told("open for reading"))?);
                    self.has_rotted = true;
                    self.compare()?;
                    self.env = None;
                }
                self.disk.heal();
                Some(open_env(&device, &self.setup).map_err(told("open the healed"))?)
            }
        };
        self.has_rotted = self.disk.rotten_blocks() > 0;
        // The opening has written a checkpoint.
        self.synced();
        self.compare()
    }

    /// What a healed copy of the volume has; it works as it should.
    fn healed(&self) -> Result<ModelEnv, String> {
        let copy: Arc<dyn Device> = Arc::new(self.disk.healed_copy());
        let env = open_env(&copy, &self.setup).map_err(told("open"))?;
        let read = |env: &Env| {
            ModelEnv::read(env, self.setup.geometry.dicts).map_err(|failure| format!("read: {failure}"))
        };
        let found = read(&env)?;
        self.history.prefix_check(&found)?;
        work(&env)?.map_err(told("work"))?;
        env.checkpoint().map_err(told("checkpoint"))?;
        if let Some(difference) = read(&env)?.difference(&found) {
            return Err(format!("after all work: {difference}"));
        }
        let problems = problems(&env)?;
        env.abandon();
        if problems.is_empty() { Ok(found) } else { Err(format!("a check finds {problems:?}")) }
    }

    /// Does all background work, compares everything, and checks.
    fn look(&mut self) -> Result<(), String> {
        self.compare()?;
        if let Err(error) = work(self.env()?)? {
            self.may_be_read_only(&error)?;
        }
        self.compare()?;
        self.check()
    }

    fn check(&mut self) -> Result<(), String> {
        let (found, checked) = findings(self.env()?);
        if let Err(error) = checked {
            // It begins with a checkpoint.
            self.may_fail_to_sync(&error).map_err(|what| format!("a check: {what}"))?;
        }
        let is_rotten = self.is_tainted || self.disk.rotten_blocks() > 0;
        let may_be = |code: &FindingCode| match code {
            FindingCode::BadNode | FindingCode::BadPiece => is_rotten,
            FindingCode::NotFreed => is_rotten || self.has_rotted,
            _ => false,
        };
        match found.iter().find(|(code, _)| !may_be(code)) {
            Some(found) => Err(format!("a check finds {found:?}")),
            None => Ok(()),
        }
    }

    /// Deletes everything, of a volume that has healed: its space is free again.
    fn empty(&mut self) -> Result<(), String> {
        if self.is_tainted {
            return Ok(());
        }
        self.step(&Step::Reopen)?;
        let all =
            (0..self.setup.geometry.dicts).map(|dict| Edit::DeleteRange(DictId(dict), Cut::LOW, Cut::HIGH));
        self.commit(&all.collect::<Vec<_>>())?;
        self.look()?;
        self.checkpoint()?;
        self.checkpoint()?;
        self.look()?;
        let free = self.env()?.space().free_bytes;
        match free + self.setup.volume_bytes / TABLE_PART < self.free_at_first {
            true => Err(format!("{free} bytes are free, {} at first", self.free_at_first)),
            false => Ok(()),
        }
    }

    /// Repairs the volume: what is not lost is as it was.
    fn repair(&mut self) -> Result<(), String> {
        self.sync()?;
        self.end();
        let device: Arc<dyn Device> = self.disk.clone();
        let options = || Options::new(self.setup.cache_bytes, Arc::new(AppendCapped));
        let env = Env::open_for_repair(device.clone(), options(), &mut |_| ()).map_err(told("open"))?;
        let has_given_up = env.log_loss().is_some();
        env.note_damage().map_err(told("note"))?;
        env.mend_references(&mut |_, _| ControlFlow::Continue(())).map_err(told("references"))?;
        env.write_repair().map_err(told("write"))?;
        drop(env);
        let env = open_env(&device, &self.setup).map_err(told("open the repaired"))?;
        let problems = problems(&env)?;
        if !problems.is_empty() {
            return Err(format!("a check finds {problems:?}"));
        }
        self.env = Some(env);
        if has_given_up {
            return Ok(());
        }
        self.reached.noted += self.compare_repaired()?;
        let env = self.env()?;
        let mut all = Batch::new();
        (0..self.setup.geometry.dicts).for_each(|dict| all.delete_range(DictId(dict), &Cut::LOW, &Cut::HIGH));
        env.commit(&all).map_err(told("delete everything"))?;
        work(env)?.map_err(told("work"))?;
        env.close().map_err(told("close"))?;
        self.env = None;
        let env = open_as(&device, &self.setup, OpenMode::ReadOnly).map_err(told("open the emptied"))?;
        let found = ModelEnv::read(&env, self.setup.geometry.dicts).map_err(|failure| failure.to_string())?;
        found.difference(&ModelEnv::new(self.setup.geometry.dicts)).map_or(Ok(()), Err)
    }
}

/// Does all background work, and a little more.
fn work(env: &Env) -> Result<Result<(), Error>, String> {
    for _ in 0..PUMPS_MAX {
        match env.run_due_work() {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        }
    }
    Err(format!("background work goes on after {PUMPS_MAX} pieces of it"))
}

/// The problems that a check finds, and whether it came to its end.
fn findings(env: &Env) -> (Vec<(FindingCode, String)>, Result<(), Error>) {
    let mut problems = Vec::new();
    let mut tell = |found: betree::Finding| {
        if found.is_problem {
            problems.push((found.code, found.what));
        }
    };
    let checked = env.check(&mut tell, &mut |_, _| ());
    (problems, checked)
}

/// The problems that a check finds.
fn problems(env: &Env) -> Result<Vec<(FindingCode, String)>, String> {
    let (problems, checked) = findings(env);
    checked.map_err(told("a check")).map(|()| problems)
}
