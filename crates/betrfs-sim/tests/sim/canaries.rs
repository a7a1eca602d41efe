//! Can the histories find anything? Each bug planted on purpose must be found: a test each, at the seed that
//! found it last; see `betree_sim::canary`.

/// Makes a test for each bug: its name, the bug, the seed that found it last, and the number of seeds within
/// which a search finds it.
macro_rules! canaries {
    ($trials:expr; $($name:ident: $bug:ident, $seed:literal, $seeds_max:literal;)*) => {$(
        #[test]
        fn $name() {
            let plant = |is_planted: bool| planted::set(is_planted.then_some(Bug::$bug));
            let broken = |seed| {
                Plan { trials: $trials, seeds: seed..seed + 1, steps: 80, time: None }.first_failure()
            };
            must_be_found(&Bug::$bug, $seed, $seeds_max, plant, |seed| broken(seed).map(|(_, what)| what));
        }
    )*};
}
