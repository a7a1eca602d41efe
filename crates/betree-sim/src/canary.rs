//! Tests of the tests: a bug that is planted on purpose must be found.

use std::fmt::Debug;

use crate::harness::is_long;

/// Fails unless a planted bug breaks the history of some seed below `seeds_max`. `plant` switches the bug on
/// or off; `broken` runs the history of a seed and returns what is wrong.
///
/// Tries the seed that found the bug last, `recorded`, whose history must be sound without the bug. Searches
/// all seeds only if that one finds it no longer, as after a change of how histories are drawn, and in the
/// long suite, which looks for seeds that find it sooner. The seed that was found is printed.
///
/// # Panics
/// If no seed finds the bug, or if the recorded seed fails without it.
pub fn must_be_found(
    bug: &dyn Debug,
    recorded: u64,
    seeds_max: u64,
    plant: impl Fn(bool),
    broken: impl Fn(u64) -> Option<String>,
) {
    find(bug, recorded, seeds_max, is_long(), plant, broken);
}

fn find(
    bug: &dyn Debug,
    recorded: u64,
    seeds_max: u64,
    searches: bool,
    plant: impl Fn(bool),
    broken: impl Fn(u64) -> Option<String>,
) {
    let with_bug = |seed| {
        plant(true);
        let what = broken(seed);
        plant(false);
        what
    };
    plant(false);
    assert_eq!(broken(recorded), None, "seed {recorded} fails without {bug:?}");
    if !searches && let Some(what) = with_bug(recorded) {
        println!("{bug:?} is found by seed {recorded}: {what}");
        return;
    }
    let found = (0..seeds_max).chain([recorded]).find_map(|seed| Some((seed, with_bug(seed)?)));
    match found {
        Some((seed, what)) => println!("{bug:?}, recorded {recorded}, is found by seed {seed}: {what}"),
        #[expect(clippy::panic, reason = "this is the failure of a test")]
        None => panic!("{bug:?} is found by none of {seeds_max} seeds, nor by {recorded}"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Runs a canary whose bug breaks the given seeds; returns the seeds that were tried.
    fn tried(searches: bool, recorded: u64, breaks: &[u64]) -> Vec<u64> {
        let (is_planted, tried) = (Cell::new(false), Cell::new(Vec::new()));
        let broken = |seed| {
            let mut all = tried.take();
            all.push(seed);
            tried.set(all);
            (is_planted.get() && breaks.contains(&seed)).then(|| "broken".into())
        };
        find(&"a bug", recorded, 5, searches, |planted| is_planted.set(planted), broken);
        tried.into_inner()
    }

    #[test]
    fn the_recorded_seed_suffices_and_another_is_searched_for_without_it() {
        assert_eq!(tried(false, 7, &[3, 7]), [7, 7]);
        assert_eq!(tried(false, 4, &[2, 3]), [4, 4, 0, 1, 2]);
        assert_eq!(tried(true, 7, &[1, 7]), [7, 0, 1]);
    }

    #[test]
    #[should_panic(expected = "found by none of 5 seeds")]
    fn a_bug_that_no_seed_finds_is_a_failure() {
        tried(false, 1, &[6]);
    }

    #[test]
    #[should_panic(expected = "seed 1 fails without")]
    fn a_seed_that_fails_without_the_bug_is_a_failure() {
        find(&"a bug", 1, 5, false, |_| (), |_| Some("broken".into()));
    }
}
