//! The space that data takes, and the space that deletes return.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use betree::{Env, Geometry};
use betree_sim::harness::guarded;
use betree_sim::{Rng, Setup};

use super::{D, KEYS, MIB, SETUP, VALUE_BYTES, commit, cost, key, large_volume, new_volume, open, value};

/// Splits leave nodes well filled, also if every new key is behind all others.
#[test]
fn pairs_put_in_order_or_at_random_take_little_more_than_their_size() {
    let geometry = Geometry { node_bytes: 4096, basement_bytes: 1024, fanout_max: 6, ..SETUP.geometry };
    let setup = Setup { geometry, cache_bytes: 256 << 10, volume_bytes: 64 << 20, seeks: true };
    let mut rng = Rng::new(7);
    for random in [false, true] {
        let (_, env) = new_volume(&setup);
        let empty = env.space().used_bytes;
        const PAIRS: u32 = 20_000;
        const PAIR_BYTES: u64 = 4 + 80;
        for number in 0..PAIRS {
            let key = if random { rng.next_u64() as u32 } else { number };
            commit(&env, |batch| batch.put(D, &key.to_be_bytes(), &value(number)[..80]));
        }
        env.checkpoint().unwrap();
        let mut nodes = 0;
        env.check(&mut |found| panic!("{found:?}"), &mut |_, total| nodes = total).unwrap();
        // Nodes do not compress, end inside a block, and are two thirds full after splits.
        let (used, bytes) = (env.space().used_bytes - empty, u64::from(PAIRS) * PAIR_BYTES);
        assert!(used < bytes * 3, "random {random}: {used} bytes for {bytes}, in {nodes} nodes");
        assert!(nodes < 3 * bytes / 4096, "random {random}: {nodes} nodes for {bytes} bytes");
    }
}

/// The most dirty bytes during `body`, sampled as often as possible.
fn most_dirty_bytes(env: &Env, body: impl FnOnce()) -> u64 {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let most = scope.spawn(|| {
            let mut most = 0;
            while !is_done.load(Ordering::Relaxed) {
                most = most.max(env.stats().dirty_bytes);
            }
            most
        });
        let done = guarded("what makes dirty", || {
            body();
            Ok(())
        });
        is_done.store(true, Ordering::Relaxed);
        done.unwrap();
        most.join().unwrap()
    })
}

#[test]
fn deletes_all_over_return_their_space_within_the_memory() {
    let device = large_volume();
    let setup = Setup { cache_bytes: 4 * MIB, ..SETUP };
    let env = open(&device, &setup);
    let free_before = env.space().free_bytes;
    for first in (0..KEYS).step_by(64) {
        commit(&env, |batch| {
            batch.mark_freeing(32 * VALUE_BYTES as u64);
            (first..first + 64).step_by(2).for_each(|number| batch.delete(D, &key(number)));
        });
    }
    let spent = cost(&device, || {
        let most = most_dirty_bytes(&env, || env.reclaim().unwrap());
        assert!(most <= 2 * setup.cache_bytes as u64, "{most} bytes were dirty");
    });
    let freed = env.space().free_bytes - free_before;
    assert!(freed > u64::from(KEYS) * VALUE_BYTES as u64 * 2 / 5, "{freed} bytes came back");
    // In whatever parts it is done: each leaf, its header and its parent's messages for it are read once.
    let leaves = u64::from(KEYS) * VALUE_BYTES as u64 / u64::from(SETUP.geometry.node_bytes);
    assert!(spent.reads < leaves * 4, "{spent:?} for {leaves} leaves");
    assert!(spent.read_bytes < u64::from(KEYS) * VALUE_BYTES as u64 * 5 / 4, "{spent:?}");
    assert!(spent.write_bytes < u64::from(KEYS) * VALUE_BYTES as u64, "{spent:?}");
}
