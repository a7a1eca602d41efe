//! Takes steps on an environment, and compares its answers with the model.

mod backup;
mod compact;
mod freeze;
mod ingest;

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use betree::{Cut, DictId, Env, Error, Growth, Options, View};
use betree_platform::{BLOCK_BYTES, Device, Platform};

use crate::append_capped::AppendCapped;
use crate::compare::{ModelCursor, compare_many, compare_pair, compare_value};
use crate::expiry::SimClock;
use crate::failure::{Failure, wrong};
use crate::history::History;
use crate::model::{Edit, ModelEnv, batch_of};
use crate::step::{Move, Setup, Step, TRANSACTIONS_MAX, VIEWS_MAX};
use crate::transactions::ModelTransaction;
use backup::BackupUnderWay;

/// The most pieces of background work in a row: more count as an endless loop.
const PUMPS_MAX: usize = 100_000;
/// The bytes of pairs that a step of a sweep reads.
const SWEPT_BYTES: usize = 1000;
/// The id of every volume, fixed so that runs repeat.
const VOLUME_ID: [u8; 16] = *b"a simulated disk";

/// An environment beside its model.
pub struct Runner {
    device: Arc<dyn Device>,
    setup: Setup,
    /// It stays when the volume is opened again.
    clock: Arc<SimClock>,
    /// Absent once an open has failed.
    env: Option<Arc<Env>>,
    history: History,
    /// The views, each with the contents at its beginning.
    views: Vec<(View, ModelEnv)>,
    /// The transactions, each with whether others have committed since.
    transactions: Vec<(ModelTransaction, bool)>,
    backup: Option<BackupUnderWay>,
    /// The number of complete backups.
    backups: usize,
    /// Commits of transactions that changed something.
    transaction_commits: u64,
}

/// Makes the empty volume of a setup.
///
/// # Errors
/// The engine's.
pub fn format_env(device: &Arc<dyn Device>, setup: &Setup) -> Result<(), Error> {
    Env::format(Arc::clone(device), &setup.geometry, VOLUME_ID)
}

/// Opens the environment of a setup.
///
/// # Errors
/// The engine's.
pub fn open_env(device: &Arc<dyn Device>, setup: &Setup) -> Result<Env, Error> {
    open_with(device, setup, None)
}

fn open_with(
    device: &Arc<dyn Device>,
    setup: &Setup,
    clock: Option<Arc<dyn Platform>>,
) -> Result<Env, Error> {
    let mut options = Options::new(setup.cache_bytes, Arc::new(AppendCapped));
    // Half of the volumes, and not a draw of its own: that would make other histories of all seeds.
    options.discard = !setup.seeks;
    options.clock = clock;
    Env::open(Arc::clone(device), options)
}

impl Runner {
    /// Makes an empty volume and opens it.
    ///
    /// # Errors
    /// The engine's.
    pub fn format(device: Arc<dyn Device>, setup: Setup) -> Result<Runner, Failure> {
        format_env(&device, &setup)?;
        Runner::open(device, setup, &History::of(ModelEnv::new(setup.geometry.dicts)))
    }

    /// Opens a volume after a crash and checks that `history` allows its contents; the model goes on from
    /// them.
    ///
    /// # Errors
    /// The engine's, or the contents are wrong.
    pub fn open(device: Arc<dyn Device>, setup: Setup, history: &History) -> Result<Runner, Failure> {
        Runner::open_by(device, setup, history, Arc::default())
    }

    fn open_by(
        device: Arc<dyn Device>,
        setup: Setup,
        history: &History,
        clock: Arc<SimClock>,
    ) -> Result<Runner, Failure> {
        let env = Arc::new(open_with(&device, &setup, Some(clock.clone()))?);
        let found = ModelEnv::read(&env, setup.geometry.dicts)?;
        let checked = history.prefix_check_at(&found, clock.now_ns());
        checked.map_err(|e| Failure::Wrong(format!("after opening: {e}")))?;
        // What has expired is forgotten: deltas that come later do not find it.
        Ok(Runner {
            device,
            setup,
            clock,
            env: Some(env),
            history: History::of(found),
            views: Vec::new(),
            transactions: Vec::new(),
            backup: None,
            backups: 0,
            transaction_commits: 0,
        })
    }

    /// The commits and syncs so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// How many transactions have committed changes.
    pub fn transaction_commits(&self) -> u64 {
        self.transaction_commits
    }

    /// What a reader should see now.
    fn seen(&self) -> Cow<'_, ModelEnv> {
        self.history.latest().seen_at(self.clock.now_ns())
    }

    /// Abandons the environment, and returns the commits and syncs so far.
    pub fn into_history(mut self) -> History {
        let nothing = History::of(ModelEnv::new(self.setup.geometry.dicts));
        std::mem::replace(&mut self.history, nothing)
    }

    /// The environment.
    ///
    /// # Errors
    /// The volume was not opened again.
    pub fn env(&self) -> Result<&Arc<Env>, Failure> {
        self.env.as_ref().ok_or_else(|| Failure::Wrong("the volume is not open".into()))
    }

    /// Takes the steps in turn.
    ///
    /// # Errors
    /// The first failure, with the number of its step.
    pub fn run(&mut self, steps: &[Step]) -> Result<(), (usize, Failure)> {
        steps.iter().enumerate().try_for_each(|(i, step)| self.step(step).map_err(|e| (i, e)))
    }

    /// Takes one step.
    ///
    /// # Errors
    /// Why it was wrong.
    pub fn step(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Commit(changes) => self.commit(changes),
            Step::Get(dict, key) => {
                self.get(*dict, key)?;
                self.get_many(*dict, key)
            }
            Step::Walk(dict, lo, hi, moves) => self.walk(*dict, lo, hi, moves),
            Step::Ingest(ingest) => self.ingest(ingest),
            Step::Compact(compaction) => self.compact(compaction),
            Step::Sync => {
                self.env()?.sync()?;
                self.history.synced();
                Ok(())
            }
            Step::Checkpoint => {
                self.env()?.checkpoint()?;
                self.history.synced();
                Ok(())
            }
            Step::Backup(pieces) => self.back_up(*pieces),
            Step::Freeze(gets, changes) => self.freeze(gets, changes),
            Step::BeginView => {
                if self.views.len() < VIEWS_MAX {
                    let view = self.env()?.view();
                    self.views.push((view, self.seen().into_owned()));
                }
                Ok(())
            }
            Step::EndView(which) => {
                if !self.views.is_empty() {
                    self.views.swap_remove(which % self.views.len());
                }
                Ok(())
            }
            Step::GetInView(which, dict, key) => match self.view(*which) {
                Some((view, then)) => {
                    compare_value(*dict, key, view.get(*dict, key)?, then.dict(*dict).get(key))
                        .map_err(|error| Failure::Wrong(format!("in {view:?}: {error}")))?;
                    compare_many(then, *dict, key, |keys| view.get_many(*dict, keys))
                }
                None => Ok(()),
            },
            Step::ReadView(which) => self.view(*which).map_or(Ok(()), |seen| {
                self.compare_view(seen)?;
                // Not of all: it ends epochs, and a view is also to be read in one that goes on.
                if which % 2 == 0 { self.look_at_usage(&seen.0) } else { Ok(()) }
            }),
            Step::BeginTransaction(isolation) => {
                if self.transactions.len() < TRANSACTIONS_MAX {
                    let (contents, now_ns) = (self.history.latest(), self.clock.now_ns());
                    let begun = ModelTransaction::begin(self.env()?, *isolation, contents, now_ns);
                    self.transactions.push((begun, false));
                }
                Ok(())
            }
            Step::InTransaction(which, steps) => {
                let count = self.transactions.len().max(1);
                match self.transactions.get_mut(which % count) {
                    Some((transaction, _)) => steps.iter().try_for_each(|step| transaction.step(step)),
                    None => Ok(()),
                }
            }
            Step::CommitTransaction(which) => self.commit_transaction(*which),
            Step::DropTransaction(which) => {
                if !self.transactions.is_empty() {
                    self.transactions.swap_remove(which % self.transactions.len());
                }
                Ok(())
            }
            Step::Pump(times) => {
                let env = self.env()?;
                for _ in 0..*times {
                    if !env.run_due_work()? {
                        break;
                    }
                }
                Ok(())
            }
            Step::Check => {
                self.check_in_use()?;
                self.check()
            }
            Step::Reopen => {
                self.end_views()?;
                self.env()?.close()?;
                self.history.synced();
                self.reopen()
            }
            Step::Abandon => self.reopen(),
            Step::Pass(by_ns) => {
                self.clock.pass(*by_ns);
                Ok(())
            }
            Step::Sweep(dict) => self.sweep(*dict),
            Step::Grow(blocks) => self.grow(*blocks),
        }
    }

    /// Makes the volume larger: all of it is there at once.
    fn grow(&mut self, blocks: u64) -> Result<(), Failure> {
        let more_bytes = blocks * BLOCK_BYTES as u64;
        let env = self.env()?;
        let (has, total) = (env.volume_bytes(), env.space().total_bytes);
        let grown = env.grow(Growth::By(more_bytes))?;
        if (grown, env.space().total_bytes) != (has + more_bytes, total + more_bytes) {
            return Err(Failure::Wrong(format!("{has} bytes and {more_bytes} more are {grown}")));
        }
        self.history.synced();
        Ok(())
    }

    /// Removes all of a dictionary that has expired, some bytes at a time.
    fn sweep(&mut self, dict: DictId) -> Result<(), Failure> {
        let expired = self.history.latest().expired(dict, self.clock.now_ns());
        let deletes: Vec<Edit> = expired.into_iter().map(|key| Edit::Delete(dict, key)).collect();
        self.history.attempt(&deletes);
        let mut lo = Some(Cut::LOW);
        while let Some(from) = lo {
            lo = self.env()?.remove_expired(dict, &from, &Cut::HIGH, SWEPT_BYTES)?.next;
        }
        self.history.accepted();
        self.others_have_committed();
        Ok(())
    }

    fn commit_transaction(&mut self, which: usize) -> Result<(), Failure> {
        if self.transactions.is_empty() {
            return Ok(());
        }
        let (transaction, others) = self.transactions.swap_remove(which % self.transactions.len());
        let now = self.history.latest().clone();
        let is_empty = transaction.is_empty();
        self.history.attempt(&transaction.changes_of(&now));
        match transaction.commit(&now, !others) {
            Ok(true) => {
                self.history.accepted();
                if !is_empty {
                    self.transaction_commits += 1;
                    self.others_have_committed();
                }
                Ok(())
            }
            Ok(false) => {
                self.history.refused();
                Ok(())
            }
            Err(error) => {
                // After another error it may have taken effect, as a batch may.
                if !matches!(&error, Failure::Engine(error) if !is_refusal(error)) {
                    self.history.refused();
                }
                Err(error)
            }
        }
    }

    fn others_have_committed(&mut self) {
        self.transactions.iter_mut().for_each(|(_, others)| *others = true);
    }

    fn view(&self, which: usize) -> Option<&(View, ModelEnv)> {
        self.views.get(which % self.views.len().max(1))
    }

    fn compare_view(&self, (view, then): &(View, ModelEnv)) -> Result<(), Failure> {
        let found = ModelEnv::read_view(view, self.setup.geometry.dicts)?;
        found.difference(then).map_or(Ok(()), |difference| wrong(format!("in {view:?}: {difference}")))
    }

    /// What each dictionary takes in a view: what is its own is a part of all.
    fn look_at_usage(&self, view: &View) -> Result<(), Failure> {
        for dict in (0..self.setup.geometry.dicts).map(DictId) {
            let usage = view.usage(dict, &Cut::LOW, &Cut::HIGH)?;
            if usage.exclusive_bytes > usage.stored_bytes {
                return wrong(format!("in {view:?}: {dict:?} takes {usage:?}"));
            }
        }
        Ok(())
    }

    /// Compares all views with what they began with, and ends them. Drops all transactions and the backup.
    ///
    /// # Errors
    /// The engine's, or the first difference.
    pub fn end_views(&mut self) -> Result<(), Failure> {
        self.transactions.clear();
        self.backup = None;
        self.views.iter().try_for_each(|seen| self.compare_view(seen))?;
        self.views.clear();
        Ok(())
    }

    /// Does all background work.
    ///
    /// # Errors
    /// The engine's, or the work never ends.
    pub fn drain(&self) -> Result<(), Failure> {
        let env = self.env()?;
        for _ in 0..PUMPS_MAX {
            if !env.run_due_work()? {
                return Ok(());
            }
        }
        wrong(format!("background work goes on after {PUMPS_MAX} pieces of it"))
    }

    /// Compares everything with the model, in both directions and key by key.
    ///
    /// # Errors
    /// The engine's, or the first difference.
    pub fn compare_all(&self) -> Result<(), Failure> {
        let env = self.env()?;
        let mut found = ModelEnv::read(env, self.setup.geometry.dicts)?;
        if let Some(difference) = found.difference(&self.seen()) {
            return wrong(difference);
        }
        found.dicts().try_for_each(|(dict, map)| map.keys().try_for_each(|key| self.get(dict, key)))
    }

    /// Lets the engine check the volume.
    ///
    /// # Errors
    /// The engine's, or the problems it finds.
    pub fn check(&self) -> Result<(), Failure> {
        let mut problems = Vec::new();
        self.env()?.check(&mut |found| problems.extend(found.into_problem()), &mut |_, _| ())?;
        if problems.is_empty() { Ok(()) } else { wrong(format!("check finds: {}", problems.join("; "))) }
    }

    /// Runs the check of a volume in use, which reports no problem, while background work is done at each
    /// node.
    fn check_in_use(&self) -> Result<(), Failure> {
        let env = self.env()?;
        let mut problems = Vec::new();
        let mut failed = None;
        let mut tell = |found: betree::Finding| problems.extend(found.into_problem());
        let checked = env.check_in_use(&mut tell, &mut |_, _| {
            failed = failed.take().or(env.run_due_work().err());
            ControlFlow::Continue(())
        });
        match (checked, failed) {
            (_, Some(error)) => Err(error.into()),
            // Space was short.
            (Err(Error::ViewEnded), None) => Ok(()),
            (Err(error), None) => Err(error.into()),
            (Ok(()), None) if problems.is_empty() => Ok(()),
            (Ok(()), None) => wrong(format!("check in use finds: {}", problems.join("; "))),
        }
    }

    fn commit(&mut self, changes: &[Edit]) -> Result<(), Failure> {
        let changes = &self.history.bounded(changes);
        let batch = batch_of(changes);
        let env = self.env.as_ref().ok_or_else(|| Failure::Wrong("the volume is not open".into()))?;
        env.throttle(batch.bytes())?;
        self.history.attempt(changes);
        match env.commit(&batch) {
            Ok(()) => {
                self.history.accepted();
                self.others_have_committed();
                Ok(())
            }
            Err(error) => {
                if is_refusal(&error) {
                    self.history.refused();
                }
                Err(error.into())
            }
        }
    }

    fn get(&self, dict: DictId, key: &[u8]) -> Result<(), Failure> {
        let found = self.env()?.get(dict, key)?;
        let seen = self.seen();
        compare_value(dict, key, found, seen.dict(dict).get(key)).map_err(Failure::Wrong)
    }

    /// Reads a key together with others around it.
    fn get_many(&self, dict: DictId, key: &[u8]) -> Result<(), Failure> {
        let env = self.env()?;
        compare_many(&self.seen(), dict, key, |keys| env.get_many(dict, keys))
    }

    fn walk(&mut self, dict: DictId, lo: &Cut, hi: &Cut, moves: &[Move]) -> Result<(), Failure> {
        // The cursor borrows the environment and commits borrow all of self, so it steps out meanwhile.
        let env = self.env.take().ok_or_else(|| Failure::Wrong("the volume is not open".into()))?;
        let mut walked = Ok(());
        {
            let mut cursor = env.cursor(dict, lo.clone(), hi.clone());
            let mut model = ModelCursor { lo: lo.clone(), hi: hi.clone(), at: lo.clone() };
            for (i, step) in moves.iter().enumerate() {
                let seen = self.seen();
                let moved = match step {
                    Move::Next => {
                        let should = model.next(seen.dict(dict));
                        cursor.next().map(|is| compare_pair(is, should)).map_err(Failure::Engine)
                    }
                    Move::Prev => {
                        let should = model.prev(seen.dict(dict));
                        cursor.prev().map(|is| compare_pair(is, should)).map_err(Failure::Engine)
                    }
                    Move::Seek(to) => {
                        model.seek(to);
                        cursor.seek(to);
                        Ok(Ok(()))
                    }
                    Move::Commit(changes) => {
                        drop(seen);
                        let changes = &self.history.bounded(changes);
                        let batch = batch_of(changes);
                        self.history.attempt(changes);
                        env.throttle(batch.bytes())
                            .and_then(|()| env.commit(&batch))
                            .map_err(Failure::Engine)
                            .map(|()| {
                                self.history.accepted();
                                self.transactions.iter_mut().for_each(|(_, others)| *others = true);
                                // A cursor is sure to see a commit only after a seek.
                                let at = model.at.clone();
                                cursor.seek(&at);
                                Ok(())
                            })
                    }
                };
                walked = moved.and_then(|compared| {
                    compared.map_err(|e| {
                        Failure::Wrong(format!("{dict:?}: cursor over [{lo:?}, {hi:?}), move {i}: {e}"))
                    })
                });
                if walked.is_err() {
                    break;
                }
            }
        }
        self.env = Some(env);
        walked
    }

    fn reopen(&mut self) -> Result<(), Failure> {
        // The old environment must be gone before the new one reads: there is one at a time.
        self.abandon();
        let (device, clock) = (Arc::clone(&self.device), Arc::clone(&self.clock));
        let mut opened = Runner::open_by(device, self.setup, &self.history, clock)?;
        self.env = opened.env.take();
        self.history = opened.into_history();
        Ok(())
    }

    fn abandon(&mut self) {
        self.transactions.clear();
        self.views.clear();
        self.backup = None;
        if let Some(env) = self.env.take() {
            env.abandon();
        }
    }
}

/// An environment that no step closed has crashed when it is dropped.
impl Drop for Runner {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Whether an error of a commit says that nothing was changed.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::NoSpace
            | Error::DeviceFull(_)
            | Error::ReadOnly { .. }
            | Error::KeyTooLong { .. }
            | Error::ViewEnded
    )
}
