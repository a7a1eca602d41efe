//! Checks the whole volume: first the engine's structures, then whether keys and records of the three
//! dictionaries fit together. Keeps a count for each directory with names still to come and for each linked
//! file in memory, up to a bound.
//!
//! The engine's walk reports each unreadable structure once. The scans here skip it and find the files that
//! lose something by it. Checks that need the unreadable part are noted as not made.

mod code;
mod contents;
mod damaged_keys;
mod gaps;
mod losses;
mod lost_links;
mod memory;
mod mends;
mod nameless;
mod names;
mod quotas;
mod repair;
mod report;
mod rounds;
mod scrub;
mod unowned;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use betree::{Cursor, Cut, DictId, Env, KeyRange, Unreadable};
use betree_platform::Device;

use crate::error::{Error, Result};
use crate::op::{AllCounts, Op, OpKind};
use crate::schema::{Detached, META, VolumeRecord, key};
use crate::types::{OpenMode, OpenOptions};
use crate::volume::{Volume, each_marker, first_records};
use code::Code;
use gaps::{Gap, Gaps};
use losses::{Lost, ObjectNames};
use mends::Mends;
use names::{DirCount, LinkCount, Unchecked};
use report::Findings;
use unowned::{Incomplete, Known};

pub use code::{is_of_later_version, problem_codes};
pub use mends::{Mended, Mending};
pub use repair::Repair;
pub use report::{Problem, Report};
pub use scrub::Scrubbed;

const EVERYTHING: (Cut, Cut) = (Cut::LOW, Cut::HIGH);
/// How many pairs of a scan come between two questions whether the check goes on.
const PAIRS_AT_ONCE: u32 = 256;
/// How many damaged structures are looked through for files that can still be read.
const DAMAGED_MAX: usize = 1000;
/// How many ranges of keys, by all ways to them.
const WAYS_MAX: usize = 10_000;

/// A check under way.
struct Check<'a> {
    op: Op<'a>,
    /// Whether the check goes on.
    go_on: &'a mut dyn FnMut() -> ControlFlow<()>,
    /// Why it does not.
    stopped: Option<Error>,
    pairs: u32,
    findings: Findings,
    gaps: Gaps,
    /// Known damage that scans have met.
    known: Known,
    /// Where names may have been lost.
    incomplete: Incomplete,
    /// Whether blocks have no record yet, so that nothing tells which others their file has.
    lacks_records: bool,
    /// The numbers of files whose records are lost.
    lost_objects: BTreeSet<u64>,
    /// The parts of the list of links that are made anew.
    relisting: Gaps,
    /// By path.
    dirs: BTreeMap<Vec<u8>, DirCount>,
    /// By object id.
    links: BTreeMap<u64, LinkCount>,
    /// The keys with blocks of unlinked files.
    orphans: BTreeSet<Vec<u8>>,
    /// Whether there are names that cannot be read and that no repair has noted as lost: they may be there.
    unread_names: bool,
    /// The trees that are being removed or copied, by number.
    detached: BTreeMap<u64, Detached>,
    /// The paths of directories with quotas.
    quotas: Vec<Vec<u8>>,
    /// The lowest ids that were never reserved.
    volume: Option<VolumeRecord>,
    redirects: u64,
    unchecked: Unchecked,
    /// Whether all dictionaries are in the state of one moment.
    is_of_one_moment: bool,
    /// What would mend the problems, if the caller wants to know.
    mends: Option<Mends>,
}

/// The result of a scan.
struct Scanned {
    report: Report,
    mends: Option<Mends>,
}

impl Volume {
    /// Checks the volume from the device up, and skips unreadable parts; `progress` gets the number of the
    /// engine's nodes done, and of all. Nothing is changed, and other operations on the volume wait.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// volume.create_with(InodeId::ROOT, b"file", &new_file, b"text")?;
    /// let report = volume.check(&mut |done, all| assert!(done <= all))?;
    /// assert!(report.problems.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The engine could not write its changes in memory before the check.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Report> {
        let _exclusive = self.namespace.exclusive();
        let mut findings = Findings::default();
        self.env.check(&mut |found| findings.found(found), progress)?;
        self.check_memory(&mut findings);
        check(&self.env, self.query(OpKind::Internal), findings, &[], &mut goes_on)
    }

    /// As [`check`](Volume::check) while others use the volume: by a [view](betree::View), as of one moment.
    /// Nothing is written, no lock is held for long, and what the engine checks on the device is read past
    /// its cache. The tables in memory and the use of blocks are not looked at. `progress` ends it with
    /// `Break`; while names and contents are compared, all nodes are done.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use std::ops::ControlFlow;
    ///
    /// use betrfs::InodeId;
    ///
    /// volume.create_with(InodeId::ROOT, b"file", &new_file, b"text")?;
    /// let checkpoints = volume.env().stats().checkpoints;
    /// let report = volume.check_in_use(&mut |_, _| ControlFlow::Continue(()))?;
    /// assert!(report.problems.is_empty());
    /// assert_eq!(volume.env().stats().checkpoints, checkpoints);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`betree::Error::Interrupted`] by `progress`; [`Error::StateGivenUp`] if space is short.
    pub fn check_in_use(&self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<Report> {
        let mut findings = Findings::default();
        let mut damaged = Vec::new();
        let mut tell = |found: betree::Finding| {
            note_damaged(&mut damaged, &found);
            findings.found(found);
        };
        let mut nodes = 0;
        self.env.check_in_use(&mut tell, &mut |done, total| {
            nodes = total;
            progress(done, total)
        })?;
        // Alone for this moment: operations of several batches are done, or have not begun.
        let view = {
            let _exclusive = self.namespace.exclusive();
            self.env.view()
        };
        let op = self.query(OpKind::Internal).reading(&view);
        check(&self.env, op, findings, &damaged, &mut || progress(nodes, nodes))
    }

    /// Opens the volume on a device for reading, and checks it: nothing is ever written, and the log is
    /// replayed in memory. If damage keeps the engine from opening, the volume is checked as far as it can be
    /// read.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (device, platform) = doc::device();
    /// use betrfs::{FormatOptions, OpenOptions, Volume};
    ///
    /// Volume::format(device.clone(), &FormatOptions::default(), &*platform)?;
    /// let options = OpenOptions::new(platform);
    /// let report = Volume::examine(device.clone(), options.clone(), &mut |_, _| ())?;
    /// assert!(report.problems.is_empty() && report.refused.is_none());
    ///
    /// // One bit of the first superblock flips.
    /// device.rot(100, 3);
    /// let report = Volume::examine(device, options, &mut |_, _| ())?;
    /// assert_eq!(report.problems.len(), 1);
    /// assert!(report.problems[0].what.contains("superblock"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// There is nothing to check: no volume, a volume of a later version, or no memory.
    pub fn examine(
        device: Arc<dyn Device>,
        options: OpenOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Report> {
        let mut findings = Findings::default();
        let mut engine_options = Volume::engine_options_of(&options);
        engine_options.mode = OpenMode::ReadOnly;
        let refused = match Env::open(device.clone(), engine_options) {
            Ok(env) => {
                let env = Arc::new(env);
                let counts = AllCounts::default();
                let op = counts.begin(&env, OpKind::Internal);
                let refused = refusal(&op);
                match env.check(&mut |found| findings.found(found), progress) {
                    Ok(()) if refused.as_ref().is_none_or(is_damage) => {
                        let report = check(&env, op, findings, &[], &mut goes_on)?;
                        return Ok(Report { refused, ..report });
                    }
                    Ok(()) => refused,
                    Err(error) => refused.or(Some(error.into())),
                }
            }
            Err(error) => Some(error.into()),
        };
        match refused {
            Some(refused) if is_damage(&refused) => {
                examine_damaged(device, &options, findings, refused, progress)
            }
            refused => refused.map_or_else(|| Ok(Report::default()), Err),
        }
    }
}

/// Keeps the keys that a finding hides, with the error that readers get.
fn note_damaged(damaged: &mut Vec<(KeyRange, betree::Error)>, found: &betree::Finding) {
    let Some(error) = &found.hides else { return };
    // Each structure has room for its first keys.
    if let Some(keys) = found.keys.as_ref().filter(|_| damaged.len() < DAMAGED_MAX + WAYS_MAX) {
        damaged.push((keys.clone(), error.clone()));
    }
    let room = WAYS_MAX.saturating_sub(damaged.len());
    damaged.extend(found.more_keys.iter().take(room).map(|keys| (keys.clone(), error.clone())));
}

/// Why the volume cannot be opened for changes, if so: that reads the first records and all markers.
fn refusal(op: &Op<'_>) -> Option<Error> {
    first_records(op).and_then(|_| each_marker(op, &mut |_, _| Ok(()))).err()
}

/// Whether a check could say more about a failure.
pub(super) fn is_damage(error: &Error) -> bool {
    use betree::Error::{BadRecord, Corrupt, Device, KnownDamage};
    matches!(
        error,
        Error::Damaged { .. } | Error::Engine(Corrupt { .. } | KnownDamage { .. } | BadRecord | Device(_))
    )
}

fn examine_damaged(
    device: Arc<dyn Device>,
    options: &OpenOptions,
    mut findings: Findings,
    refused: Error,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report> {
    let engine_options = Volume::engine_options_of(options);
    let opened = Env::open_damaged(device, engine_options, &mut |found| findings.found(found));
    let env = match opened {
        Ok(env) => env,
        Err(error) if findings.is_empty() => return Err(error.into()),
        Err(_) => return Ok(findings.report(&ObjectNames::default(), Some(refused))),
    };
    env.check(&mut |found| findings.found(found), progress)?;
    let counts = AllCounts::default();
    let op = counts.begin(&env, OpKind::Internal);
    let mut report = check(&env, op, findings, &[], &mut goes_on)?;
    if report.problems.is_empty() {
        if let Error::Engine(betree::Error::Device(_)) = refused {
            // Everything can be read: the device refuses writes.
            return Err(refused);
        }
        let what = alloc::format!("{refused}");
        report.problems.push(Problem { code: Code::NotRead.name(), place: None, files: Vec::new(), what });
    }
    Ok(Report { refused: Some(refused), ..report })
}

/// For a check that nobody ends.
fn goes_on() -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn check<'v>(
    env: &'v Env,
    op: Op<'v>,
    findings: Findings,
    damaged: &[(KeyRange, betree::Error)],
    go_on: &'v mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Report> {
    scan(env, op, findings, damaged, None, go_on).map(|scanned| scanned.report)
}

/// Scans the dictionaries; with `mends` it collects what would mend the problems there.
fn scan<'v>(
    env: &'v Env,
    op: Op<'v>,
    mut findings: Findings,
    damaged: &[(KeyRange, betree::Error)],
    mends: Option<Mends>,
    go_on: &'v mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Scanned> {
    let is_of_one_moment = env.is_of_one_moment();
    if !is_of_one_moment {
        findings.note(
            "not checked: whether names, data and links fit together, because only a part of the log could be \
             replayed"
                .into(),
        );
    }
    let mut check = Check { is_of_one_moment, mends, ..Check::begin(op, findings, go_on) };
    check.damaged_keys(damaged);
    check.reserved();
    check.lost_links();
    check.names();
    check.counts();
    check.quotas();
    check.data();
    check.user();
    check.unowned_damage();
    check.links();
    check.link_counts();
    check.lost_names();
    check.finish()
}

impl<'a> Check<'a> {
    /// A check that has looked at nothing yet.
    fn begin(op: Op<'a>, findings: Findings, go_on: &'a mut dyn FnMut() -> ControlFlow<()>) -> Check<'a> {
        Check {
            is_of_one_moment: true,
            mends: None,
            op,
            go_on,
            stopped: None,
            pairs: 0,
            findings,
            gaps: Gaps::default(),
            known: Known::default(),
            incomplete: Incomplete::default(),
            lacks_records: false,
            lost_objects: BTreeSet::new(),
            relisting: Gaps::default(),
            dirs: BTreeMap::new(),
            links: BTreeMap::new(),
            orphans: BTreeSet::new(),
            unread_names: false,
            detached: BTreeMap::new(),
            quotas: Vec::new(),
            volume: None,
            redirects: 0,
            unchecked: Unchecked::default(),
        }
    }
}

impl Check<'_> {
    fn problem(&mut self, code: Code, at: &[u8], why: &str) {
        let own = key::split_data(at).map_or(at, |(own, _)| own);
        self.findings.problem_of(code, own, alloc::format!("{}: {why}", key::describe(at)));
    }

    /// As [`problem`](Check::problem), for a key that does not fit to another dictionary.
    fn misfit(&mut self, code: Code, at: &[u8], why: &str) {
        if self.is_of_one_moment {
            self.problem(code, at, why);
        }
    }

    fn misfits(&mut self, code: Code, what: String) {
        if self.is_of_one_moment {
            self.findings.problem(code, what);
        }
    }

    /// What was decoded of the pair at a key of `meta`. What cannot be decoded is a problem, and goes.
    fn decoded<T>(&mut self, at: &[u8], result: Result<T>) -> Option<T> {
        let error = match result {
            Ok(decoded) => return Some(decoded),
            Err(error) => error,
        };
        if let Error::Damaged { .. } = error {
            self.findings.problem_of(Code::BadRecord, at, alloc::format!("{error}"));
            if at == key::ROOT_KEY {
                self.mend_root(Code::NoRoot);
            } else {
                self.mend_by_removal(Code::BadRecord, at);
            }
        } else {
            self.findings.problem_of(Code::LaterVersion, at, alloc::format!("{error}"));
        }
        None
    }

    /// Reports a key or value that a later version knows.
    fn of_later_version(&mut self, at: &[u8], error: &Error) {
        self.findings.problem_of(Code::LaterVersion, at, alloc::format!("{error}"));
    }

    /// The next pair of a scan. Unreadable parts are skipped and reported.
    fn next<'c>(&mut self, dict: DictId, pairs: &'c mut Cursor<'_>) -> Option<(&'c [u8], &'c [u8])> {
        if !self.may_go_on() {
            return None;
        }
        pairs.next_past(&mut |unreadable| drop(self.pass(dict, unreadable)))
    }

    /// Whether the check goes on to the next pair. Otherwise all scans end, and with them the check.
    fn may_go_on(&mut self) -> bool {
        self.pairs = self.pairs.wrapping_add(1);
        if self.stopped.is_none() && self.pairs.is_multiple_of(PAIRS_AT_ONCE) && (self.go_on)().is_break() {
            self.stopped = Some(betree::Error::Interrupted.into());
        }
        self.stopped.is_none()
    }

    /// Notes an unreadable range; returns the numbers of the losses it belongs to.
    fn pass(&mut self, dict: DictId, unreadable: Unreadable) -> Vec<usize> {
        let Unreadable { lo, hi, errors } = unreadable;
        if errors.contains(&betree::Error::ViewEnded) {
            self.stopped = Some(betree::Error::ViewEnded.into());
            return Vec::new();
        }
        let mut to_blame: Vec<usize> = errors.iter().filter_map(|error| self.findings.blame(error)).collect();
        to_blame.sort_unstable();
        to_blame.dedup();
        let are_known = errors.iter().all(betree::Error::is_known_damage);
        if are_known && self.mends.is_some() {
            self.known.note(dict, &lo, &hi);
        }
        self.unread_names |= dict == META && !are_known;
        // A range that is scanned twice is reported once.
        if dict == META && self.gaps.over(META, &(lo.clone(), hi.clone())).is_none() {
            to_blame.iter().for_each(|losses| self.findings.lose_names(*losses, &lo, &hi));
        }
        self.gaps.add(dict, &lo, Gap { hi, losses: to_blame.clone() });
        to_blame
    }

    /// A point query; `None` if it cannot be answered, which is noted.
    fn get(&mut self, dict: DictId, at: &[u8]) -> Option<Option<Vec<u8>>> {
        if self.gaps.at(dict, at).is_some() {
            return None;
        }
        match self.op.get(dict, at) {
            Ok(value) => Some(value),
            Err(error) => {
                let (lo, hi) = (Cut::before(at), Cut::just_after(at));
                let mut pairs = self.op.scan(dict, (lo.clone(), hi.clone()));
                while self.next(dict, &mut pairs).is_some() {}
                if let (None, Error::Engine(error)) = (self.gaps.at(dict, at), error) {
                    self.pass(dict, Unreadable { lo, hi, errors: alloc::vec![error] });
                }
                None
            }
        }
    }

    /// Whether a key lies in an unreadable range. If so, `lost` is added to its losses.
    fn is_lost(&mut self, dict: DictId, at: &[u8], lost: Lost) -> bool {
        let Some(gap) = self.gaps.at(dict, at) else { return false };
        for losses in &gap.losses {
            self.findings.lose(*losses, &lost);
        }
        true
    }

    fn finish(self) -> Result<Scanned> {
        let Check { mut findings, unchecked, stopped, mends, .. } = self;
        unchecked.tell(&mut findings);
        match stopped {
            Some(stopped) => Err(stopped),
            None => Ok(Scanned { report: findings.report(&unchecked.object_names, None), mends }),
        }
    }
}
