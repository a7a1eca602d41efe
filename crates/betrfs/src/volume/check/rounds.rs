//! The rounds of a repair: changes are made in memory, and the volume is looked through again for what they
//! have uncovered, until a look asks for no more, or finds what the one before it found and asks for nothing
//! new.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::Scanned;
use super::mends::{Mended, Mends};
use crate::error::Result;

/// How often a volume is looked through.
const ROUNDS_MAX: usize = 16;

/// The changes of all rounds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rounds {
    /// The changes that mend something, each once, in their order.
    pub made: Vec<Mended>,
    /// The changes that were made, and that the last look asks for still: they mend nothing.
    pub in_vain: Vec<Mended>,
}

/// Makes the changes that a look has asked for, and those of the looks after it. `make` makes them and looks
/// again.
///
/// # Errors
/// Those of `make`.
pub(super) fn in_rounds(
    mut found: Scanned,
    mut make: impl FnMut(&mut Mends) -> Result<Scanned>,
) -> Result<Rounds> {
    let mut made = Vec::new();
    let mut known = BTreeSet::new();
    for _ in 0..ROUNDS_MAX {
        let Some(mut mends) = found.mends.filter(|mends| !mends.done.is_empty()) else {
            return Ok(Rounds { made, in_vain: Vec::new() });
        };
        let next = make(&mut mends)?;
        made.extend(mends.done.into_iter().filter(|change| known.insert(change.clone())));
        let is_same = next.report == found.report;
        found = next;
        let mut asked = found.mends.iter().flat_map(|mends| &mends.done);
        // Of known damage that has gone a report may tell nothing.
        if is_same && asked.all(|change| known.contains(change)) {
            break;
        }
    }
    let asked: BTreeSet<Mended> = found.mends.into_iter().flat_map(|mends| mends.done).collect();
    let (in_vain, made) = made.into_iter().partition(|change| asked.contains(change));
    Ok(Rounds { made, in_vain })
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::super::code::Code;
    use super::super::losses::ObjectNames;
    use super::super::mends::Mending;
    use super::super::report::Findings;
    use super::*;

    /// What a look finds, and the changes that it asks for.
    fn look(problems: &[&str], asked: &[&str]) -> Scanned {
        let mut findings = Findings::default();
        problems.iter().for_each(|what| findings.problem(Code::WrongSize, (*what).into()));
        let mut mends = Mends::new(Mending::All, 0);
        let change =
            |what: &&str| Mended { code: Code::WrongSize.name(), loses: false, what: (*what).into() };
        mends.done.extend(asked.iter().map(change));
        let report = findings.report(&ObjectNames::default(), None);
        Scanned { report, mends: Some(mends) }
    }

    fn sentences(changes: &[Mended]) -> Vec<&str> {
        changes.iter().map(|change| change.what.as_str()).collect()
    }

    #[test]
    fn what_a_change_uncovers_is_changed_in_the_next_round() {
        let looks = [look(&["b"], &["b"]), look(&[], &[])];
        let (mut looks, mut rounds) = (looks.into_iter(), 0);
        let done = in_rounds(look(&["a"], &["a"]), |_| {
            rounds += 1;
            Ok(looks.next().unwrap())
        });
        let done = done.unwrap();
        assert_eq!(
            (rounds, sentences(&done.made), sentences(&done.in_vain)),
            (2, ["a", "b"].into(), [].into())
        );
    }

    /// A report may tell nothing of what a change has done, as of known damage over nothing.
    #[test]
    fn what_is_asked_for_the_first_time_is_changed_though_a_look_finds_what_the_one_before_it_found() {
        let looks = [look(&["a"], &["b"]), look(&["a"], &[])];
        let mut looks = looks.into_iter();
        let done = in_rounds(look(&["a"], &["a"]), |_| Ok(looks.next().unwrap())).unwrap();
        assert_eq!((sentences(&done.made), sentences(&done.in_vain)), (["a", "b"].into(), [].into()));
    }

    /// The second round finds what the first one found: it is the last.
    #[test]
    fn a_change_that_mends_nothing_ends_the_rounds_and_is_told_as_such() {
        let mut rounds = 0;
        let done = in_rounds(look(&["a", "b"], &["a", "b"]), |_| {
            rounds += 1;
            Ok(look(&["a"], &["a"]))
        });
        let done = done.unwrap();
        assert_eq!(
            (rounds, sentences(&done.made), sentences(&done.in_vain)),
            (2, ["b"].into(), ["a"].into())
        );
    }

    #[test]
    fn problems_that_come_back_by_turns_end_after_some_rounds() {
        let mut rounds = 0;
        let done = in_rounds(look(&["a"], &["a"]), |_| {
            rounds += 1;
            let other = format!("{}", rounds % 2);
            Ok(look(&[&other], &[&other]))
        });
        let done = done.unwrap();
        assert_eq!((rounds, done.in_vain.len()), (ROUNDS_MAX, 1));
    }
}
