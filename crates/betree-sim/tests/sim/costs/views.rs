//! Views that nobody reads cost a writer next to nothing.

use std::sync::Arc;

use betree_sim::{Counts, Rng, Setup};

use super::{D, MIB, SETUP, commit, cost, key, new_volume, value_of};

const VIEWS: u32 = 1000;
const PAIRS: u32 = 20_000;

/// A value that does not compress.
fn value(number: u32, version: u32) -> Vec<u8> {
    value_of(version * PAIRS + number, 104)
}

/// What random puts over all pairs cost beside so many idle views, each of a moment of its own.
fn puts_beside(views: u32) -> Counts {
    let (device, env) = new_volume(&Setup { cache_bytes: 16 * MIB, ..SETUP });
    let env = Arc::new(env);
    let put = |number: u32, version: u32| {
        commit(&env, |batch| batch.put(D, &key(number), &value(number, version)));
    };
    (0..PAIRS).for_each(|number| put(number, 0));
    env.checkpoint().unwrap();
    let idle: Vec<_> = (0..VIEWS)
        .map(|number| {
            put(number, 1);
            (number < views).then(|| env.view())
        })
        .collect();
    let mut rng = Rng::new(1);
    let puts = cost(&device, || {
        for version in 2..8 {
            (0..PAIRS).for_each(|_| put(rng.below(PAIRS as usize) as u32, version));
            while env.run_due_work().unwrap() {}
        }
        env.checkpoint().unwrap();
    });
    for (number, view) in (0_u32..).zip(&idle) {
        let Some(view) = view else { continue };
        for (number, version) in [(number, 1), (number + 1, 0)] {
            let found = view.get(D, &key(number)).unwrap();
            assert!(found == Some(value(number, version)), "{number} as of its view");
        }
    }
    puts
}

#[test]
fn idle_views_cost_a_writer_no_reads_and_hardly_a_write() {
    let (alone, beside) = (puts_beside(0), puts_beside(VIEWS));
    let counts = format!("{alone:?} became {beside:?}");
    assert!(alone.writes > 10 && alone.write_bytes > MIB as u64, "{counts}");
    assert_eq!(beside.reads, alone.reads, "{counts}");
    assert!(beside.writes * 20 <= alone.writes * 21, "{counts}");
    assert!(beside.write_bytes * 20 <= alone.write_bytes * 21, "{counts}");
}
