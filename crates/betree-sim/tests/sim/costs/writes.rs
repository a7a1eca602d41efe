//! Puts and upserts read nothing; an fsync is one write and one sync.

use betree_sim::{Rng, Setup};

use super::{D, KEYS, MIB, SETUP, VALUE_BYTES, commit, cost, key, large_volume, new_volume, open};

#[test]
fn ten_thousand_small_puts_read_nothing() {
    let (device, env) = new_volume(&SETUP);
    let mut rng = Rng::new(1);
    let puts = cost(&device, || {
        for _ in 0..10_000 {
            let value = vec![rng.next_u64() as u8; rng.between(100, 200)];
            commit(&env, |batch| batch.put(D, &rng.next_u64().to_be_bytes(), &value));
        }
    });
    assert_eq!(puts.reads, 0, "{puts:?}");
}

#[test]
fn an_fsync_is_one_write_and_one_sync() {
    let (device, env) = new_volume(&SETUP);
    for number in 0..20 {
        let synced = cost(&device, || {
            commit(&env, |batch| batch.put(D, &key(number), &[7; 150]));
            env.sync().unwrap();
        });
        assert_eq!((synced.reads, synced.writes, synced.syncs), (0, 1, 1), "sync {number}: {synced:?}");
    }
    let idle = cost(&device, || env.sync().unwrap());
    assert_eq!((idle.reads, idle.writes, idle.syncs), (0, 0, 0), "nothing to make durable");
}

#[test]
fn random_updates_of_data_on_the_disk_read_none_of_it() {
    let device = large_volume();
    // Room for the partitions of the interior nodes, and for an eighth of the data.
    let env = open(&device, &Setup { cache_bytes: 8 * MIB, ..SETUP });
    let mut rng = Rng::new(2);
    let mut update = |count: usize| {
        cost(&device, || {
            for _ in 0..count {
                let number = rng.below(KEYS as usize) as u32;
                commit(&env, |batch| batch.upsert(D, &key(number), b"new!"));
            }
        })
    };
    // The interior nodes are read once.
    let warm = update(5000);
    let leaves = KEYS as usize * VALUE_BYTES / SETUP.geometry.node_bytes as usize;
    assert!(warm.reads < leaves as u64 / 4, "as few reads as there are interior nodes: {warm:?}");
    let updates = update(10_000);
    assert_eq!(updates.reads, 0, "{updates:?}");
}
