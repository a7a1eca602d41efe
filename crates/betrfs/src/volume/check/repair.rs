//! The repair of a volume: checks it, and mends in memory what a check knows for sure, until a check finds no
//! more to mend. Only then, and only if fewer problems are left, but for those that it has uncovered, one
//! checkpoint is written.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use betree::{Batch, Env, FindingCode, NotedDamage, Remedy, counted};
use betree_platform::Device;

use super::code::{Code, problem_codes};
use super::mends::{Mended, Mending, Mends};
use super::report::{Findings, Report};
use super::rounds::{Rounds, in_rounds};
use super::{Scanned, goes_on, refusal, scan};
use crate::error::{Error, Result};
use crate::op::{AllCounts, OpKind};
use crate::schema::{DATA, META, VolumeRecord, key};
use crate::types::{OpenMode, OpenOptions};
use crate::volume::Volume;
use crate::volume::id_allocator::behind_all_given;

/// Problems by which a part of a tree is lost, or may be.
const LOST: [FindingCode; 8] = [
    FindingCode::BadNodeTable,
    FindingCode::DisputedBlocks,
    FindingCode::BadNode,
    FindingCode::BadPiece,
    FindingCode::DanglingEdge,
    FindingCode::EdgeTooWide,
    FindingCode::NodeMismatch,
    FindingCode::NotFreed,
];

/// Number of ranges that become known damage at once.
const LOST_AT_ONCE: usize = 200;

/// A repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// The problems found.
    pub before: Report,
    /// The changes, in their order. Those that take something away say so.
    pub mended: Vec<Mended>,
    /// The changes that a check asks for again once they are made: they mend nothing, which is a mistake of
    /// this program.
    pub in_vain: Vec<Mended>,
    /// The number of changes that were given up, because with them not fewer problems are left, or something
    /// of a later version was uncovered.
    pub given_up: usize,
    /// The problems that are left with these changes, and why the volume cannot be opened still, if so.
    pub after: Report,
    /// The generation of the superblock by which the changes were written; `None` if they were not.
    pub generation: Option<u64>,
}

impl Volume {
    /// Mends what can be mended without guessing. `consent` gets the problems and all changes, made in memory
    /// alone; if it returns `true` they are written as one checkpoint, so that a crash leaves the volume as
    /// it was or repaired. Nothing is written where there is nothing to mend, where not fewer problems are
    /// left, or where something is of a later version. Where something may be taken away, problems do not
    /// count that no repair mends, and of whose kinds none was found before: they were hidden behind what is
    /// mended.
    /// [`betree::undo_repair`] takes it back until the next opening for changes.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (device, platform) = doc::device();
    /// use betrfs::{FormatOptions, Mending, OpenOptions, Volume};
    ///
    /// Volume::format(device.clone(), &FormatOptions::default(), &*platform)?;
    /// // One bit of the first superblock flips.
    /// device.rot(100, 3);
    /// let options = OpenOptions::new(platform);
    /// let repair = Volume::repair(device, &options, Mending::Safe, &mut |_| true, &mut |_, _| ())?;
    /// assert_eq!((repair.mended.len(), repair.mended[0].code), (1, "bad-superblock"));
    /// assert!(repair.after.problems.is_empty() && repair.generation.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Volume::open`]; those of the device. The volume is then as it was.
    pub fn repair(
        device: Arc<dyn Device>,
        options: &OpenOptions,
        mending: Mending,
        consent: &mut dyn FnMut(&Repair) -> bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Repair> {
        let mut engine_options = Volume::engine_options_of(options);
        engine_options.mode = OpenMode::Repair;
        let mut findings = Findings::default();
        let env = match mending {
            Mending::Safe => Env::open(device, engine_options)?,
            Mending::All | Mending::AllAndLostNames => {
                Env::open_for_repair(device, engine_options, &mut |found| findings.found(found))?
            }
        };
        let mends = || Some(Mends::new(mending, options.platform.now_ns()));
        env.check(&mut |found| findings.found(found), progress)?;
        let mut found = look_through(&env, findings, mends())?;
        let before = found.report.clone();
        // One of another version, or no file system: what is wrong with it nobody here knows.
        if let Some(refused @ Error::NotAVolume { .. }) = before.refused {
            return Err(refused);
        }
        let mut repair = Repair { before, ..Repair::default() };
        let is_clean = repair.before.problems.is_empty();
        if is_clean {
            // Known damage is no problem, but some of it may go.
            let asks_for_more =
                |found: &Scanned| found.mends.as_ref().is_some_and(|mends| !mends.done.is_empty());
            if asks_for_more(&found) {
                found = look_through(&env, Findings::default(), mends().map(Mends::of_known_damage))?;
            }
            if !asks_for_more(&found) {
                return Ok(repair);
            }
        }
        if repair.before.is_of_later_version() {
            repair.after = repair.before.clone();
            return Ok(repair);
        }
        let mut told = |done, all| {
            progress(done, all);
            ControlFlow::Continue(())
        };
        let noted = if mending.takes_away() { note_damage(&env, &mut repair)? } else { None };
        let may_be_older = noted.as_ref().is_some_and(|noted| !noted.found_again.is_empty());
        let mends = || {
            let mends = mends().map(|mends| mends.of_older(may_be_older));
            if is_clean { mends.map(Mends::of_known_damage) } else { mends }
        };
        if may_be_older {
            give_no_number_twice(&env, &mut repair)?;
        }
        if noted.is_some() {
            // With the place of what was lost, other findings may have gone, or become clear.
            found = look_through(&env, Findings::default(), mends())?;
        }
        // The opening has told of them.
        for problem in repair.before.problems.iter().filter(|problem| is_of_opening(problem.code)) {
            let what = match problem.code == FindingCode::BadNodeTable.name() {
                true => format!(
                    "{}: its slots that agree with the headers of their nodes are taken; what others had becomes known \
                     damage",
                    problem.what
                ),
                false => problem.what.clone(),
            };
            repair.mended.push(Mended { code: problem.code, loses: true, what });
        }
        let nodes = env.mend_references(&mut told)?;
        let engine_mended = [
            (FindingCode::BadSuperblock, "all copies of the superblock are written anew".into()),
            (FindingCode::BadCopy, "damaged copies of the node table are written anew".into()),
            (FindingCode::BadNodeCopy, "nodes of which a copy is damaged are written anew".into()),
            (
                FindingCode::WrongReferences,
                format!(
                    "the numbers of references to {} become those that were counted",
                    counted(nodes, "node", "nodes")
                ),
            ),
        ];
        for (code, what) in engine_mended {
            if repair.before.problems.iter().any(|problem| problem.code == code.name()) {
                repair.mended.push(Mended { code: code.name(), loses: false, what });
            }
        }
        let Rounds { made, in_vain } = in_rounds(found, |asked| {
            asked.batches().try_for_each(|batch| env.apply_in_memory(batch))?;
            asked.lost.chunks(LOST_AT_ONCE).try_for_each(|lost| env.note_lost(DATA, lost))?;
            let made = core::mem::take(&mut asked.made);
            look_through(&env, Findings::default(), mends().map(|mends| mends.after(made)))
        })?;
        repair.mended.extend(made);
        repair.in_vain = in_vain;
        let mut findings = Findings::default();
        env.check(&mut |found| findings.found(found), progress)?;
        repair.after = look_through(&env, findings, None)?.report;
        // Those on the device are looked at, and will be written.
        let rewritten = [FindingCode::BadSuperblock, FindingCode::BadCopy, FindingCode::BadNodeCopy];
        repair.after.problems.retain(|problem| rewritten.iter().all(|code| code.name() != problem.code));
        if !is_progress(&repair, mending) || repair.after.is_of_later_version() {
            repair.given_up = repair.mended.len();
            repair.mended.clear();
        }
        if !repair.mended.is_empty() && consent(&repair) {
            repair.generation = Some(env.write_repair()?);
        }
        Ok(repair)
    }
}

/// Whether a volume is better with the changes: fewer problems are left. Where the caller agrees to losses,
/// those do not count that no repair mends and of whose kinds none was found before: they were hidden behind
/// what is mended; and a volume is better that cannot be opened without them, and can with them.
fn is_progress(repair: &Repair, mending: Mending) -> bool {
    let (before, after) = (&repair.before, &repair.after);
    // The engine's problems are listed first.
    let lacks_parts = |report: &Report| report.problems.iter().any(|problem| is_lost(problem.code));
    let opens_again = lacks_parts(before) && !lacks_parts(after) && after.refused.is_none();
    // Known damage is no problem that could be counted. What was hidden behind names that are given up does
    // not count either.
    let mut of_damage =
        repair.mended.iter().filter(|mended| mended.code == FindingCode::KnownDamage.name()).peekable();
    let has_less_damage = of_damage.peek().is_some()
        && !lacks_parts(after)
        && after.refused.is_none()
        && (after.found() <= before.found() || of_damage.any(|mended| mended.loses));
    if mending.takes_away() && repair.in_vain.is_empty() && (opens_again || has_less_damage) {
        return true;
    }
    let is_known = |code: &str| before.problems.iter().any(|problem| problem.code == code);
    let counted = after.problems.iter().filter(|problem| is_known(problem.code) || is_mended(problem.code));
    let counted = counted.count() as u64;
    let are_all_listed = before.problems_more == 0 && after.problems_more == 0;
    let may_uncover = mending.takes_away() && are_all_listed && repair.in_vain.is_empty();
    after.found() < before.found() || (may_uncover && counted < before.found())
}

/// Whether a problem of a kind says that a part of a tree is lost, or may be.
fn is_lost(code: &str) -> bool {
    LOST.iter().any(|lost| lost.name() == code)
}

/// Whether a repair does anything about problems of a kind.
fn is_mended(code: &str) -> bool {
    problem_codes().any(|(name, remedy)| name == code && !matches!(remedy, Remedy::Left(_)))
}

/// Whether what a problem names was taken away by the opening.
fn is_of_opening(code: &str) -> bool {
    let of_opening = [FindingCode::LostSuperblocks, FindingCode::BadLog, FindingCode::BadNodeTable];
    of_opening.iter().any(|of| of.name() == code)
}

/// Puts known damage in the place of what cannot be read, and lists that as taken away: the part was lost
/// before, but is not looked for any more. `None` if nothing was lost.
fn note_damage(env: &Env, repair: &mut Repair) -> Result<Option<NotedDamage>> {
    if !repair.before.problems.iter().any(|problem| is_lost(problem.code)) {
        return Ok(None);
    }
    let noted = env.note_damage()?;
    if noted.lost == 0 && noted.moved.is_empty() {
        return Ok(None);
    }
    let lost = repair.before.problems.iter().filter(|problem| is_lost(problem.code));
    let lost = lost.filter(|problem| !is_of_opening(problem.code)).map(|problem| {
        let is_found_again = problem.place.is_some_and(|place| noted.found_again.contains(&place));
        let is_moved = problem.place.is_some_and(|place| noted.moved.contains(&place));
        let is_disputed = problem.code == FindingCode::DisputedBlocks.name();
        let how = match problem.code == FindingCode::NotFreed.name() {
            true => "it goes",
            false if is_disputed && is_moved => "it is there, and is written elsewhere",
            false if is_disputed => "what is there is written elsewhere; what is not, or is in no tree, goes",
            false if is_found_again => {
                "the nodes below it are found again, without the changes that waited in it: what cannot be read now may \
                 be as it was before them"
            }
            false => "that becomes known damage",
        };
        let loses = !(is_disputed && is_moved);
        Mended { code: problem.code, loses, what: format!("{}: {how}", problem.what) }
    });
    repair.mended.extend(lost);
    Ok(Some(noted))
}

/// Makes the volume's record begin behind all numbers that can have been given: it may be older than what
/// has them. What is no record is left to the looks.
fn give_no_number_twice(env: &Env, repair: &mut Repair) -> Result<()> {
    let stored = match env.get(META, &key::VOLUME_KEY) {
        Err(error) if error.is_damage() => None,
        read => read?,
    };
    let Some(Ok(stored)) = stored.map(|bytes| VolumeRecord::decode(&bytes)) else { return Ok(()) };
    let Some(behind) = behind_all_given(env.changes_made_max()) else { return Ok(()) };
    let volume =
        VolumeRecord { ids: stored.ids.max(behind.ids), oids: stored.oids.max(behind.oids), ..stored };
    if volume != stored {
        let mut batch = Batch::new();
        batch.put(META, &key::VOLUME_KEY, &volume.encode());
        env.apply_in_memory(&batch)?;
        let what =
            "the volume's record may be older: numbers go on behind all that can have been given".into();
        repair.mended.push(Mended { code: Code::NumberNotGiven.name(), loses: false, what });
    }
    Ok(())
}

fn look_through(env: &Env, findings: Findings, mends: Option<Mends>) -> Result<Scanned> {
    let counts = AllCounts::default();
    let op = counts.begin(env, OpKind::Internal);
    let refused = refusal(&op);
    let Scanned { report, mends } = scan(env, op, findings, &[], mends, &mut goes_on)?;
    Ok(Scanned { report: Report { refused, ..report }, mends })
}

#[cfg(test)]
mod tests {
    use super::super::code::Code;
    use super::super::losses::ObjectNames;
    use super::super::report::Problem;
    use super::*;

    fn report(codes: &[Code]) -> Report {
        let mut findings = Findings::default();
        let places = codes.iter().enumerate();
        places.for_each(|(number, code)| findings.problem(*code, format!("{number}: {}", code.name())));
        findings.report(&ObjectNames::default(), None)
    }

    /// What was found, what is left, whether a safe repair and any repair is progress, and why.
    type Case = (&'static [Code], &'static [Code], bool, bool, &'static str);

    #[test]
    fn a_volume_is_better_with_fewer_problems_or_with_others_that_nothing_mends() {
        use Code::{NotRead, OwnerlessData, WrongSize};
        let cases: [Case; 6] = [
            (&[WrongSize, NotRead], &[NotRead], true, true, "fewer"),
            (&[WrongSize], &[NotRead, NotRead], false, true, "uncovered"),
            (&[WrongSize, NotRead], &[NotRead, NotRead], false, false, "as many of a kind that was found"),
            (&[WrongSize], &[WrongSize], false, false, "the same"),
            (&[WrongSize], &[OwnerlessData], false, false, "of a kind that a repair mends"),
            (&[NotRead, NotRead, WrongSize], &[NotRead, OwnerlessData], true, true, "fewer, with another"),
        ];
        for (before, after, is_better_safe, is_better, why) in cases {
            let mut repair = Repair { before: report(before), after: report(after), ..Repair::default() };
            assert_eq!(is_progress(&repair, Mending::Safe), is_better_safe, "{why}");
            assert_eq!(is_progress(&repair, Mending::All), is_better, "{why}");
            let again = Mended { code: WrongSize.name(), loses: false, what: "again".into() };
            repair.in_vain.push(again);
            assert_eq!(is_progress(&repair, Mending::All), is_better_safe, "{why}, in vain");
            repair.in_vain.clear();
            // Of what is not listed nothing tells the kind.
            repair.after.problems_more = 3;
            assert!(!is_progress(&repair, Mending::All), "{why}, and more");
        }
    }

    #[test]
    fn a_volume_that_can_be_opened_again_is_better_whatever_is_left() {
        let lost = |report: &mut Report| {
            let code = FindingCode::BadNode.name();
            report.problems.push(Problem { code, place: None, files: Vec::new(), what: "lost".into() });
        };
        let many = [Code::WrongSize, Code::WrongSize, Code::LostBlock];
        let mut repair = Repair { before: report(&[]), after: report(&many), ..Repair::default() };
        assert!(!is_progress(&repair, Mending::All), "it could be opened before");
        lost(&mut repair.before);
        assert!(is_progress(&repair, Mending::All) && !is_progress(&repair, Mending::Safe));
        lost(&mut repair.after);
        assert!(!is_progress(&repair, Mending::All), "a part is lost still");
        repair.after.problems.pop();
        repair.after.refused = Some(Error::TooManyLinks);
        assert!(!is_progress(&repair, Mending::All), "it cannot be opened");
    }
}
