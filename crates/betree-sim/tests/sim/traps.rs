//! What views and transactions go wrong by, each case on purpose; the table of them is in docs/testing.md.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use betree::{Batch, Cut, DictId, Env, Isolation, Outcome, View};
use betree_platform::Device;
use betree_sim::{MemDevice, OnSync, SMALL_NODES, Setup, format_env, open_env, problems};

const D: DictId = DictId(0);
const SETUP: Setup =
    Setup { geometry: SMALL_NODES, cache_bytes: 256 << 10, volume_bytes: 32 << 20, seeks: true };

fn new_volume() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(SETUP.volume_bytes));
    format_env(&device, &SETUP).unwrap();
    device
}

fn open(device: &Arc<dyn Device>) -> Arc<Env> {
    Arc::new(open_env(device, &SETUP).unwrap())
}

fn commit(env: &Env, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    env.throttle(batch.bytes()).unwrap();
    env.commit(&batch).unwrap();
}

fn put(env: &Env, key: &[u8], value: &[u8]) {
    commit(env, |batch| batch.put(D, key, value));
}

/// Brings all memtables to the tree, and all that waits in it down.
fn arrive(env: &Env) {
    env.checkpoint().unwrap();
    while env.run_due_work().unwrap() {}
}

fn pairs(view: &View) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = view.cursor(D, Cut::LOW, Cut::HIGH);
    let mut pairs = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        pairs.push((key.to_vec(), value.to_vec()));
    }
    pairs
}

/// A change of the key `to/k`, with what it holds afterwards.
type Second = (&'static str, fn(&mut Batch), Option<&'static [u8]>);

const SECONDS: [Second; 5] = [
    ("put", |batch| batch.put(D, b"to/k", b"3,"), Some(b"3,")),
    ("delete", |batch| batch.delete(D, b"to/k"), None),
    ("range delete", |batch| batch.delete_range(D, &Cut::before(*b"to/"), &Cut::after(*b"to/")), None),
    ("upsert", |batch| batch.upsert(D, b"to/k", b"3,"), Some(b"1,2,3,")),
    ("clone", |batch| batch.clone_range(D, b"from/", b"to/"), Some(b"0,")),
];

#[test]
fn a_view_reads_each_upsert_once_whatever_comes_next_and_whenever_it_arrives() {
    for (name, second, newest) in SECONDS {
        for moment in 0..16 {
            let at = format!("{name}, {moment:04b}");
            let arrives = |bit: u32, env: &Env| {
                if moment & 1 << bit != 0 {
                    arrive(env);
                }
            };
            let env = open(&new_volume());
            commit(&env, |batch| {
                batch.put(D, b"from/k", b"0,");
                batch.upsert(D, b"to/k", b"1,");
            });
            arrives(0, &env);
            commit(&env, |batch| batch.upsert(D, b"to/k", b"2,"));
            arrives(1, &env);
            let view = env.view();
            commit(&env, second);
            arrives(2, &env);
            let then = [(b"from/k".to_vec(), b"0,".to_vec()), (b"to/k".to_vec(), b"1,2,".to_vec())];
            assert_eq!(view.get(D, b"to/k").unwrap().as_deref(), Some(&b"1,2,"[..]), "{at}");
            assert_eq!(env.get(D, b"to/k").unwrap().as_deref(), newest, "{at}");
            // And once more, over the second change.
            put(&env, b"to/k", b"4,");
            put(&env, b"to/l", b"5,");
            arrives(3, &env);
            assert_eq!(pairs(&view), then, "{at}");
            assert_eq!(env.get(D, b"to/k").unwrap().as_deref(), Some(&b"4,"[..]), "{at}");
            drop(view);
            assert_eq!(problems(&env).unwrap(), Vec::<String>::new(), "{at}");
        }
    }
}

#[test]
fn a_view_in_the_middle_of_a_memtable_sees_its_beginning_after_it_has_arrived() {
    let env = open(&new_volume());
    let mut views = Vec::new();
    for number in 0..40_u8 {
        put(&env, &[number], b"old");
        put(&env, &[0], &[number]);
        views.push(env.view());
    }
    // Within one memtable: none has come to the tree yet.
    assert_eq!(env.stats().flushes, 0);
    arrive(&env);
    for (number, view) in (0_u8..).zip(&views) {
        let found = pairs(view);
        assert_eq!(found.len(), usize::from(number) + 1, "view {number}");
        assert_eq!(found[0], (vec![0], vec![number]));
    }
}

const PAIRS: u32 = 3000;

fn value(round: u64, number: u32) -> Vec<u8> {
    seeded::bytes(round << 32 | u64::from(number), 0, 100)
}

fn fill(env: &Env, round: u64) {
    for number in 0..PAIRS {
        put(env, &number.to_be_bytes(), &value(round, number));
    }
}

fn assert_is_of_round(view: &View, round: u64) {
    let found = pairs(view);
    assert_eq!(found.len(), PAIRS as usize, "round {round}");
    for (number, (key, held)) in (0..).zip(found) {
        assert!(key == u32::to_be_bytes(number) && held == value(round, number), "round {round}: {number}");
    }
}

#[test]
fn a_view_reads_leaves_that_were_freed_unread_after_their_slots_are_used_again() {
    let device = new_volume();
    let env = open(&device);
    fill(&env, 1);
    env.close().unwrap();
    drop(env);
    // Nothing of them is in memory.
    let env = open(&device);
    let (view, reads) = (env.view(), env.stats().device_read_bytes);
    commit(&env, |batch| batch.delete_range(D, &Cut::LOW, &Cut::HIGH));
    arrive(&env);
    let read = env.stats().device_read_bytes - reads;
    // The leaves alone hold 100 bytes a pair.
    assert!(read < u64::from(PAIRS) * 100 / 4 * 3, "{read} bytes were read: leaves too");
    (0..2).for_each(|_| env.checkpoint().unwrap());
    fill(&env, 2);
    arrive(&env);
    assert_is_of_round(&view, 1);
    let later = env.view();
    assert_is_of_round(&later, 2);
    drop((view, later));
    assert_eq!(problems(&env).unwrap(), Vec::<String>::new());
}

#[test]
fn old_versions_that_left_memory_are_read_from_their_places() {
    let env = open(&new_volume());
    let mut views = Vec::new();
    // Each round is more than the cache holds.
    for round in 0..4 {
        fill(&env, round);
        views.push(env.view());
    }
    arrive(&env);
    let reads = env.stats().device_reads;
    for (round, view) in (0..).zip(&views) {
        assert_is_of_round(view, round);
    }
    assert!(env.stats().device_reads > reads, "they had left memory");
    drop(views);
    assert_eq!(problems(&env).unwrap(), Vec::<String>::new());
}

#[test]
fn a_view_that_ends_while_a_checkpoint_is_written_leaves_nothing() {
    let device = Arc::new(OnSync::new(MemDevice::new(SETUP.volume_bytes)));
    let as_device: Arc<dyn Device> = device.clone();
    format_env(&as_device, &SETUP).unwrap();
    let env = open(&as_device);
    fill(&env, 0);
    arrive(&env);
    let used = env.space().used_bytes;
    let (ended, stays) = (env.view(), env.view());
    fill(&env, 1);
    device.at_next(move || drop(ended));
    env.checkpoint().unwrap();
    assert!(!device.waits(), "it ended within");
    assert_is_of_round(&stays, 0);
    device.at_next(move || drop(stays));
    fill(&env, 2);
    env.checkpoint().unwrap();
    assert!(!device.waits());
    assert_is_of_round(&env.view(), 2);
    arrive(&env);
    (0..2).for_each(|_| env.checkpoint().unwrap());
    assert_eq!(problems(&env).unwrap(), Vec::<String>::new());
    let now = env.space().used_bytes;
    assert!(now < used + used / 2, "{now} bytes are used, {used} were before the views");
}

/// It fails neither for its age nor for want of memory, and a key costs it two ways through the tree.
#[test]
fn a_transaction_that_many_changes_of_others_have_passed_by_costs_two_queries_a_key() {
    let env = open(&new_volume());
    fill(&env, 0);
    let mut transaction = env.begin(Isolation::Serializable);
    let key = 7_u32.to_be_bytes();
    assert_eq!(transaction.get(D, &key).unwrap(), Some(value(0, 7)));
    transaction.put(D, &key, b"mine").unwrap();
    for number in 0..20_000_u32 {
        put(&env, &[b"z", &number.to_be_bytes()[..]].concat(), &[7; 20]);
    }
    arrive(&env);
    let before = env.stats();
    assert!(matches!(transaction.commit().unwrap(), Outcome::Committed(_)));
    let after = env.stats();
    let queries = after.point_queries - before.point_queries;
    assert!(queries <= 2, "{queries} queries");
    let reads = after.device_reads - before.device_reads;
    // Header and piece of each node on the way.
    assert!(reads <= 2 * 2 * after.height, "{reads} reads, {} levels", after.height);
    assert_eq!(env.get(D, &key).unwrap().as_deref(), Some(&b"mine"[..]));
}
