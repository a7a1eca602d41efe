//! Histories: lists of steps from a seed.

mod compact;
mod ingest;

use std::collections::VecDeque;

use betree::{Cut, DictId, Geometry, Isolation};
use seeded::Rng;

use crate::expiry::{timed, timed_alone};
use crate::mix::{Kind, Mix};
use crate::model::{Edit, batch_of};
use crate::transactions::InTransaction;
use crate::universe::Universe;
pub use compact::Compaction;
pub use ingest::Ingest;

/// The largest batch that the smallest log of a setup takes, in bytes.
const BATCH_BYTES_MAX: usize = 12 << 10;
/// How many prefixes of clones the generator remembers.
const CLONED_MAX: usize = 6;
/// How many transactions a history has at the same time, at most.
pub(crate) const TRANSACTIONS_MAX: usize = 4;
/// How many views a history has at the same time, at most.
pub(crate) const VIEWS_MAX: usize = 6;
/// The size of the volume of a history with ingests and compactions, in those of others.
const INGEST_VOLUMES: u64 = 8;
/// The chance that a key gets one of these prefixes, in per cent.
const NEAR_KEYS_PERCENT: usize = 30;

/// One dictionary of small nodes, so that some hundred pairs make a tree of several levels, with a log that
/// no test fills by the way.
pub const SMALL_NODES: Geometry =
    Geometry { node_bytes: 4096, basement_bytes: 1024, fanout_max: 6, log_bytes: 1 << 20, dicts: 1 };

/// The volume of a history.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The shape of the volume.
    pub geometry: Geometry,
    /// The budget of the node cache in bytes.
    pub cache_bytes: usize,
    /// The size of the disk in bytes.
    pub volume_bytes: u64,
    /// Whether the disk seeks; if not, nodes are written in part.
    pub seeks: bool,
}

impl Setup {
    /// Tiny nodes, so that a few hundred keys cause every split, merge and flush; and a tiny cache, so that
    /// nodes are evicted and read again.
    pub fn of_seed(rng: &mut Rng) -> Setup {
        let geometry = Geometry {
            node_bytes: *rng.pick(&[512, 1024, 2048]),
            basement_bytes: *rng.pick(&[128, 256, 512]),
            fanout_max: rng.between(4, 8) as u32,
            log_bytes: *rng.pick(&[128, 256, 512]) << 10,
            dicts: *rng.pick(&[1, 1, 2, 4]),
        };
        Setup {
            geometry,
            cache_bytes: *rng.pick(&[4, 16, 64]) << 10,
            volume_bytes: *rng.pick(&[4, 8, 16]) << 20,
            seeks: true,
        }
    }

    /// Nodes of several blocks, on a disk that does not seek.
    pub fn of_blocks(rng: &mut Rng) -> Setup {
        let tiny = Setup::of_seed(rng);
        let geometry = Geometry {
            node_bytes: *rng.pick(&[8, 16, 32]) << 10,
            basement_bytes: *rng.pick(&[512, 1024, 2048, 4096]),
            ..tiny.geometry
        };
        Setup { geometry, cache_bytes: *rng.pick(&[32, 128]) << 10, seeks: false, ..tiny }
    }
}

/// A move of a cursor.
#[derive(Clone, Debug)]
pub enum Move {
    /// To the next pair.
    Next,
    /// To the pair before.
    Prev,
    /// To a cut.
    Seek(Cut),
    /// Not a move: a commit while the cursor is open.
    Commit(Vec<Edit>),
}

/// One step of a history. It carries all its choices, so any part of a list replays alike.
#[derive(Clone, Debug)]
pub enum Step {
    /// Commits a batch.
    Commit(Vec<Edit>),
    /// Reads one key.
    Get(DictId, Vec<u8>),
    /// Walks a cursor over a range.
    Walk(DictId, Cut, Cut, Vec<Move>),
    /// Ingests pairs.
    Ingest(Ingest),
    /// Compacts a range.
    Compact(Compaction),
    /// Makes everything durable.
    Sync,
    /// Writes a checkpoint.
    Checkpoint,
    /// Reads a number of pieces of a backup, which is begun if there is none.
    Backup(usize),
    /// Freezes the volume, reads keys meanwhile, and has a batch wait for the end.
    Freeze(Vec<(DictId, Vec<u8>)>, Vec<Edit>),
    /// Begins a view.
    BeginView,
    /// Ends one of the views, by a number.
    EndView(usize),
    /// Reads one key in one of the views.
    GetInView(usize, DictId, Vec<u8>),
    /// Reads all of one of the views.
    ReadView(usize),
    /// Begins a transaction.
    BeginTransaction(Isolation),
    /// Takes steps in one of the transactions, by a number.
    InTransaction(usize, Vec<InTransaction>),
    /// Commits one of the transactions.
    CommitTransaction(usize),
    /// Drops one of the transactions.
    DropTransaction(usize),
    /// Does a number of pieces of background work.
    Pump(usize),
    /// Checks the volume.
    Check,
    /// Closes and opens it.
    Reopen,
    /// Opens it without closing it, as after the death of the process.
    Abandon,
    /// Lets time pass, in nanoseconds.
    Pass(i64),
    /// Removes all of a dictionary that has expired.
    Sweep(DictId),
    /// Makes the volume larger by a number of blocks.
    Grow(u64),
}

/// Makes the steps of one history.
pub struct Generator {
    rng: Rng,
    universe: Universe,
    dicts: u8,
    mix: Mix,
    /// The number of the last value, so that each value is new.
    values: u64,
    /// The time that has passed, in nanoseconds.
    now_ns: i64,
    /// Whether values outgrow basements and nodes now and then.
    has_large_values: bool,
    /// The factor of the lengths of values over those for tiny nodes.
    value_factor: usize,
    /// Range deletes in per cent of all edits; they keep trees small.
    range_percent: usize,
    /// Batches that clone or rename ranges, in per cent of all.
    clone_percent: usize,
    /// Prefixes near those of earlier clones, in per cent of all prefixes of clones. Their pending messages
    /// meet at several levels.
    near_percent: usize,
    /// The prefixes of the last clones.
    cloned: VecDeque<Vec<u8>>,
    /// How many more commits put many keys at once, and do nothing else.
    loads: usize,
}

impl Generator {
    /// The generator of a history over a number of dictionaries.
    pub fn new(mut rng: Rng, dicts: u8, mix: Mix) -> Generator {
        let universe = *rng.pick(&Universe::ALL);
        let has_large_values = rng.percent(40);
        let range_percent = *rng.pick(&[0, 2, 2, 8]);
        let loads = *rng.pick(&[0, 4, 12, 30]);
        let clone_percent = *rng.pick(&[0, 10, 20, 30]);
        let near_percent = *rng.pick(&[0, 50, 80]);
        Generator {
            rng,
            universe,
            dicts,
            mix,
            values: 0,
            now_ns: 0,
            has_large_values,
            value_factor: 1,
            range_percent,
            clone_percent,
            near_percent,
            cloned: VecDeque::new(),
            loads,
        }
    }

    /// The same with values for nodes of several blocks.
    pub fn of_long_values(self) -> Generator {
        Generator { value_factor: 16, ..self }
    }

    /// The next `count` steps.
    pub fn steps(&mut self, count: usize) -> Vec<Step> {
        (0..count).map(|_| self.step()).collect()
    }

    fn step(&mut self) -> Step {
        match self.mix.choose(&mut self.rng) {
            Kind::Commit => Step::Commit(self.batch()),
            Kind::Get => Step::Get(self.dict(), self.key()),
            Kind::Walk => self.walk(),
            Kind::Ingest => self.ingest(),
            Kind::Compact => self.compact(),
            Kind::Sync => Step::Sync,
            Kind::Checkpoint => Step::Checkpoint,
            Kind::Backup => Step::Backup(self.rng.between(1, 30)),
            Kind::Freeze => {
                let count = self.rng.between(0, 12);
                let gets = (0..count).map(|_| (self.dict(), self.key())).collect();
                Step::Freeze(gets, self.batch())
            }
            Kind::Views => self.views(),
            Kind::Transactions => self.transactions(),
            Kind::Pump => Step::Pump(self.rng.between(1, 8)),
            Kind::Check => Step::Check,
            Kind::Reopen => Step::Reopen,
            Kind::Abandon => Step::Abandon,
            Kind::Expiry => self.expiry(),
            Kind::Grow => Step::Grow(self.rng.between(1, 200) as u64),
        }
    }

    fn expiry(&mut self) -> Step {
        if self.rng.percent(20) {
            return Step::Sweep(self.dict());
        }
        let by_ns = self.rng.between(1, 20) as i64;
        self.now_ns += by_ns;
        Step::Pass(by_ns)
    }

    /// The value with a time, in histories in which values expire.
    fn with_time(&mut self, dict: DictId, value: Vec<u8>) -> Vec<u8> {
        if self.mix.expiry == 0 || self.rng.percent(40) {
            return value;
        }
        let time_ns = self.now_ns + self.rng.between(1, 60) as i64;
        if self.gets_deltas(dict) { timed(time_ns, &value) } else { timed_alone(time_ns, &value) }
    }

    /// The delta with the time at which it is made, in such histories.
    fn with_own_time(&self, delta: Vec<u8>) -> Vec<u8> {
        if self.mix.expiry == 0 { delta } else { timed(self.now_ns, &delta) }
    }

    /// Whether a dictionary gets deltas: in such histories every second one does not.
    fn gets_deltas(&self, dict: DictId) -> bool {
        self.mix.expiry == 0 || dict.0.is_multiple_of(2)
    }

    fn put(&mut self, dict: DictId, key: Vec<u8>) -> Edit {
        let value = self.value();
        Edit::Put(dict, key, self.with_time(dict, value))
    }

    fn views(&mut self) -> Step {
        let which = self.rng.below(VIEWS_MAX);
        match self.rng.below(100) {
            0..30 => Step::BeginView,
            30..45 => Step::EndView(which),
            45..75 => Step::GetInView(which, self.dict(), self.key()),
            _ => Step::ReadView(which),
        }
    }

    fn transactions(&mut self) -> Step {
        let which = self.rng.below(TRANSACTIONS_MAX);
        match self.rng.below(100) {
            0..20 if self.rng.percent(50) => Step::BeginTransaction(Isolation::Snapshot),
            0..20 => Step::BeginTransaction(Isolation::Serializable),
            20..75 => {
                let count = self.rng.between(1, 5);
                Step::InTransaction(which, (0..count).map(|_| self.in_transaction()).collect())
            }
            75..97 => Step::CommitTransaction(which),
            _ => Step::DropTransaction(which),
        }
    }

    fn in_transaction(&mut self) -> InTransaction {
        match self.rng.below(100) {
            0..40 => InTransaction::Edit(self.change()),
            40..45 => {
                self.values += 1;
                let (dict, key) = (self.dict(), self.key());
                if !self.gets_deltas(dict) {
                    return InTransaction::Edit(self.put(dict, key));
                }
                let delta = format!("{},", self.values).into_bytes();
                InTransaction::Blind(dict, key, self.with_own_time(delta))
            }
            45..53 => self.clone_in_transaction(),
            53..70 => InTransaction::Get(self.dict(), self.key()),
            70..85 => {
                let (lo, hi) = self.universe.range(&mut self.rng);
                let (pairs, is_backward) = (self.rng.between(1, 6), self.rng.percent(50));
                InTransaction::Scan { dict: self.dict(), lo, hi, pairs, is_backward }
            }
            85..94 => InTransaction::Save,
            _ => InTransaction::RollBack,
        }
    }

    fn clone_in_transaction(&mut self) -> InTransaction {
        let (dict, (from, to)) = (self.dict(), self.source_and_target());
        match self.rng.percent(60) {
            true => InTransaction::Clone(dict, from, to),
            false => InTransaction::Rename(dict, from, to),
        }
    }

    fn dict(&mut self) -> DictId {
        DictId(self.rng.below(usize::from(self.dicts)) as u8)
    }

    fn batch(&mut self) -> Vec<Edit> {
        let is_load = self.loads > 0 && self.rng.percent(70);
        self.loads -= usize::from(is_load);
        let count = match self.rng.percent(50) {
            _ if is_load => self.rng.between(10, 40),
            true => 1,
            false => self.rng.between(2, 6),
        };
        let mut batch: Vec<Edit> = Vec::new();
        if !is_load && self.rng.percent(self.clone_percent) {
            for _ in 0..*self.rng.pick(&[1, 1, 1, 2, 3]) {
                self.clone_into(&mut batch);
            }
            if self.rng.percent(60) {
                return batch;
            }
        }
        for _ in 0..count {
            let change = if is_load { self.load() } else { self.change() };
            batch.push(change);
            if batch_of(&batch).bytes() > BATCH_BYTES_MAX {
                batch.truncate(1.max(batch.len() - 1));
                break;
            }
        }
        batch
    }

    /// Adds a clone of a part or the whole, a rename or an exchange; sometimes into itself or out of itself.
    fn clone_into(&mut self, batch: &mut Vec<Edit>) {
        let (dict, (from, to)) = (self.dict(), self.source_and_target());
        let whole = |prefix: &Vec<u8>| (Cut::before(prefix.clone()), Cut::after(prefix.clone()));
        let kind = self.rng.below(100);
        if kind < 8 {
            let (lo, hi) = self.universe.range(&mut self.rng);
            batch.push(Edit::Clone(dict, from, to, lo, hi));
            return;
        }
        if kind >= 50 {
            let (lo, hi) = whole(&from);
            batch.push(Edit::DeleteRange(dict, lo, hi));
        }
        batch.push(Edit::Clone(dict, from.clone(), to.clone(), Cut::LOW, Cut::HIGH));
        if kind >= 90 {
            batch.push(Edit::Clone(dict, to, from, Cut::LOW, Cut::HIGH));
        }
    }

    /// The prefixes of a clone: mostly from one above that of an earlier clone, and to one below.
    fn source_and_target(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (mut from, mut to) = (self.prefix(60, 20), self.prefix(20, 60));
        match self.rng.below(100) {
            0..15 => to = [from.as_slice(), &self.universe.prefix(&mut self.rng)].concat(),
            15..30 => from = [to.as_slice(), &self.universe.prefix(&mut self.rng)].concat(),
            _ => {}
        }
        self.cloned.truncate(CLONED_MAX - 2);
        self.cloned.push_front(from.clone());
        self.cloned.push_front(to.clone());
        (from, to)
    }

    /// A prefix for a clone: any, that of an earlier clone, or one above or below that.
    fn prefix(&mut self, above_percent: usize, below_percent: usize) -> Vec<u8> {
        let prefix = self.universe.prefix(&mut self.rng);
        let Some(near) = self.near() else { return prefix };
        match self.rng.below(100) {
            at if at < above_percent => near[..near.len() - self.rng.below(near.len().min(3) + 1)].to_vec(),
            at if at < above_percent + below_percent => [near, prefix].concat(),
            _ => near,
        }
    }

    /// Sometimes a prefix of one of the last clones.
    fn near(&mut self) -> Option<Vec<u8>> {
        let is_near = !self.cloned.is_empty() && self.rng.percent(self.near_percent);
        is_near.then(|| self.cloned[self.rng.below(self.cloned.len())].clone())
    }

    /// A key; sometimes with a prefix of one of the last clones.
    fn key(&mut self) -> Vec<u8> {
        let key = self.universe.key(&mut self.rng);
        match self.near().filter(|_| self.rng.percent(NEAR_KEYS_PERCENT)) {
            Some(near) => [near, key].concat(),
            None => key,
        }
    }

    fn load(&mut self) -> Edit {
        let (dict, key) = (self.dict(), self.universe.key(&mut self.rng));
        self.put(dict, key)
    }

    fn change(&mut self) -> Edit {
        if self.rng.percent(self.range_percent) {
            let (lo, hi) = self.universe.range(&mut self.rng);
            return Edit::DeleteRange(self.dict(), lo, hi);
        }
        match self.rng.below(100) {
            0..60 => {
                let (dict, key) = (self.dict(), self.key());
                self.put(dict, key)
            }
            60..75 => Edit::Delete(self.dict(), self.key()),
            _ => {
                self.values += 1;
                let removes = self.rng.percent(5);
                let delta = if removes { Vec::new() } else { format!("{},", self.values).into_bytes() };
                let (dict, key) = (self.dict(), self.key());
                if !self.gets_deltas(dict) {
                    return self.put(dict, key);
                }
                Edit::Upsert(dict, key, self.with_own_time(delta))
            }
        }
    }

    fn value(&mut self) -> Vec<u8> {
        self.values += 1;
        let len = match self.rng.below(100) {
            0..10 => return Vec::new(),
            10..80 => self.rng.between(1, 40) * self.value_factor,
            80..97 => self.rng.between(40, 300) * self.value_factor.min(8),
            _ if self.has_large_values => self.rng.between(300, 6000),
            _ => 100,
        };
        let mut value = format!("{}:", self.values).into_bytes();
        // Bytes that do not compress, so that sizes on the disk are what they seem.
        let mut filler = Rng::new(self.values);
        value.resize_with(len.max(value.len()), || filler.next_u64() as u8);
        value
    }

    fn walk(&mut self) -> Step {
        let dict = self.dict();
        let (lo, hi) =
            if self.rng.percent(30) { (Cut::LOW, Cut::HIGH) } else { self.universe.range(&mut self.rng) };
        let moves = (0..self.rng.between(1, 16)).map(|_| self.cursor_move()).collect();
        Step::Walk(dict, lo, hi, moves)
    }

    fn cursor_move(&mut self) -> Move {
        match self.rng.below(100) {
            0..50 => Move::Next,
            50..85 => Move::Prev,
            85..95 => Move::Seek(self.universe.cut(&mut self.rng)),
            _ => Move::Commit(self.batch()),
        }
    }
}

/// The setup and the steps of a seed.
pub fn history_of_seed(seed: u64, steps: usize, mix: Mix) -> (Setup, Vec<Step>) {
    let mut rng = Rng::new(seed);
    // A leaf of an ingest takes a block of the disk, however small it is. A full disk would end views.
    let roomy = |setup: Setup| match mix.ingest {
        0 => setup,
        _ => Setup { volume_bytes: setup.volume_bytes * INGEST_VOLUMES, ..setup },
    };
    if seed % 4 == 3 {
        let setup = roomy(Setup::of_blocks(&mut rng));
        return (setup, Generator::new(rng, setup.geometry.dicts, mix).of_long_values().steps(steps));
    }
    let setup = roomy(Setup::of_seed(&mut rng));
    let steps = Generator::new(rng, setup.geometry.dicts, mix).steps(steps);
    (setup, steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_history_and_another_seed_another() {
        let show = |seed| format!("{:?}", history_of_seed(seed, 50, Mix::LAWS));
        assert_eq!(show(5), show(5));
        assert_ne!(show(5), show(6));
    }

    #[test]
    fn every_kind_of_step_and_change_comes() {
        let mixes = [Mix::VIEWS, Mix::TRANSACTIONS, Mix::EXPIRY];
        let history = |mix| (0..20).flat_map(move |seed| history_of_seed(seed, 200, mix).1);
        let steps: Vec<Step> = mixes.into_iter().flat_map(history).collect();
        let shown = format!("{steps:?}");
        let kinds = ["Commit", "Get", "Walk", "Sync", "Checkpoint", "Pump", "Check", "Reopen", "Abandon"];
        let of_views = ["BeginView", "EndView", "GetInView", "ReadView"];
        let of_transactions = [
            "BeginTransaction",
            "CommitTransaction",
            "DropTransaction",
            "Blind",
            "Scan",
            "RollBack",
            "Clone(",
        ];
        let of_expiry = ["Pass(", "Sweep("];
        for kind in kinds.into_iter().chain(of_views).chain(of_transactions).chain(of_expiry) {
            assert!(shown.contains(kind), "{kind}");
        }
        for kind in ["put(", "delete(", "upsert(", "delete_range(", "clone(", "Next", "Prev", "Seek"] {
            assert!(shown.contains(kind), "{kind}");
        }
    }
}
