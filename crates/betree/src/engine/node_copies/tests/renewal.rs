//! Nodes that are written anew for the choice of copies alone.

use super::*;

/// A closed volume whose interior nodes have one copy.
fn with_one_copy(seeks: bool) -> Vec<u8> {
    let device = new_device(4096, NodeCopies::One, seeks);
    let env = open(&device);
    put(&env, 0..PAIRS).unwrap();
    env.close().unwrap();
    device.bytes()
}

/// A cache of which a sixth holds two or three nodes.
fn open_small(device: &Arc<MemDevice>) -> Env {
    Env::open(device.clone(), Options::new(320 << 10, Arc::new(Replace))).unwrap()
}

/// Calls it until nothing is left; returns the number of calls.
fn renew_all(env: &Env) -> usize {
    let mut left = u64::MAX;
    for calls in 1.. {
        let now = env.renew_node_copies().unwrap();
        assert!(now < left, "{now} of {left}");
        left = now;
        if left == 0 {
            return calls;
        }
    }
    0
}

fn second_copies(env: &Env) -> usize {
    copied(env).iter().filter(|[_, second]| !second.is_empty()).count()
}

#[test]
fn nodes_of_before_get_their_copies_some_at_a_time_and_each_byte_once() {
    for seeks in [true, false] {
        let device = MemDevice::holding(with_one_copy(seeks));
        if !seeks {
            device.do_not_seek();
        }
        let env = open_small(&device);
        env.set_node_copies(NodeCopies::Two).unwrap();
        let nodes = copied(&env);
        assert!(nodes.len() >= 8 && second_copies(&env) == 0, "{} nodes", nodes.len());
        let bytes_of = |nodes: &[[Vec<usize>; 2]]| {
            (nodes.iter().map(|[first, _]| first.len()).sum::<usize>() * BLOCK) as u64
        };
        let old_bytes = bytes_of(&nodes);
        let before = env.stats();
        let calls = renew_all(&env);
        let after = env.stats();
        assert!(calls >= nodes.len() / 4, "{calls} calls for {} nodes", nodes.len());
        assert_eq!(second_copies(&env), copied(&env).len());
        let bytes = bytes_of(&copied(&env));
        let written = after.device_write_bytes - before.device_write_bytes;
        // With each call go a superblock and the pages of the node table, twice.
        let beside = calls as u64 * 16 * BLOCK as u64;
        assert!((2 * bytes..=2 * bytes + beside).contains(&written), "{written} for nodes of {bytes}");
        let read = after.device_read_bytes - before.device_read_bytes;
        assert!(read <= 2 * old_bytes, "{read} read of nodes of {old_bytes}");
        // Nothing is left to do.
        assert_eq!(env.renew_node_copies().unwrap(), 0);
        assert_eq!(env.stats().device_write_bytes, after.device_write_bytes);
        assert_reads_right(&env);
        env.close().unwrap();
        let first: Vec<usize> = copied(&env).into_iter().flat_map(|[first, _]| first).collect();
        let env = open(&rotten(&device.bytes(), &first, seeks));
        assert_reads_right(&env);
    }
}

#[test]
fn copies_go_again_and_others_change_the_tree_meanwhile() {
    for seeks in [true, false] {
        let device = MemDevice::holding(with_one_copy(seeks));
        if !seeks {
            device.do_not_seek();
        }
        let env = open_small(&device);
        for (copies, is_right) in [(NodeCopies::Two, false), (NodeCopies::One, true)] {
            env.set_node_copies(copies).unwrap();
            for from in 0.. {
                put(&env, from * 40..from * 40 + 40).unwrap();
                if env.renew_node_copies().unwrap() == 0 {
                    break;
                }
                assert!(from < 100, "it does not end");
            }
            assert!(copied(&env).iter().all(|[_, second]| second.is_empty() == is_right), "{copies:?}");
        }
        assert_reads_right(&env);
        assert_sound(&env);
        // What is in memory alone at a crash is no checkpoint's; what a call has returned for is.
        env.set_node_copies(NodeCopies::Two).unwrap();
        env.renew_node_copies().unwrap();
        let copies = second_copies(&env);
        env.abandon();
        drop(env);
        let env = open(&device);
        assert!(copies > 0 && second_copies(&env) >= copies);
        assert_reads_right(&env);
        assert_sound(&env);
    }
}

#[test]
fn without_room_nodes_are_left_and_nobody_is_refused() {
    let device = MemDevice::holding(with_one_copy(true));
    let env = open(&device);
    env.set_node_copies(NodeCopies::Two).unwrap();
    let nodes = copied(&env).len() as u64;
    let room = env.engine.room();
    let beside_reserve = room.unused_bytes() - room.reserve_bytes();
    // Room for less than a node.
    let taken = env.engine.store.space.allocate(beside_reserve / BLOCK as u64 - 1, usize::MAX).unwrap();
    let before = env.stats().device_write_bytes;
    assert_eq!(env.renew_node_copies().unwrap(), nodes);
    assert_eq!(env.stats().device_write_bytes, before, "nothing can be done, and nothing is");
    drop(taken);
    assert_eq!(renew_all(&env), 1);
    assert_eq!(second_copies(&env) as u64, nodes);
    assert_reads_right(&env);
    assert_sound(&env);
}

#[test]
fn a_node_that_cannot_be_read_is_left_and_the_others_are_renewed() {
    let bytes = with_one_copy(true);
    let nodes = copied(&open(&MemDevice::holding(bytes.clone())));
    // The last one: without the root nothing could be opened.
    let [bad, _] = nodes.last().unwrap();
    let device = rotten(&bytes, bad, true);
    let env = open(&device);
    env.set_node_copies(NodeCopies::Two).unwrap();
    assert_eq!(env.renew_node_copies().unwrap(), 1);
    assert_eq!(second_copies(&env), nodes.len() - 1);
}

#[test]
fn a_volume_for_reading_is_refused() {
    let device = MemDevice::holding(with_one_copy(true));
    let env = Env::open(device, Options { mode: OpenMode::ReadOnly, ..options() }).unwrap();
    assert!(matches!(env.renew_node_copies(), Err(Error::ReadOnly { .. })));
}
