//! Changes over something that the device has lost while the volume is in use: they stay above it, are
//! durable as any others, and keep nothing else from being so.

use betree_platform::BLOCK_BYTES;

use super::*;
use crate::error::Error;
use crate::health::State;
use crate::key::Cut;

/// All leaves of the tree, and the edges to them.
fn leaves(tree: &Tree<'_>) -> Vec<(Edge, NodeId)> {
    let (mut stack, mut found) = (Vec::from([root(tree)]), Vec::new());
    while let Some(node) = stack.pop() {
        for edge in node.edges() {
            let Some(id) = edge.child else { continue };
            if tree.table.lock().height(id) == Some(0) {
                found.push((edge.clone(), id));
            } else {
                stack.push(tree.node(id).unwrap());
            }
        }
    }
    found
}

/// The volume of these tests, with bad headers in each leaf for which this returns `true`, and their bounds.
fn volume_without_leaves(is_lost: impl Fn(usize) -> bool) -> (Arc<MemDevice>, Vec<(Cut, Cut)>) {
    without_leaves(volume(), is_lost)
}

/// A volume, with bad headers in each leaf for which this returns `true`, and their bounds.
fn without_leaves(
    device: Arc<MemDevice>,
    is_lost: impl Fn(usize) -> bool,
) -> (Arc<MemDevice>, Vec<(Cut, Cut)>) {
    let mut lost = Vec::new();
    {
        let env = open(&device);
        let tree = tree(&env);
        for (index, (edge, id)) in leaves(&tree).into_iter().enumerate() {
            if is_lost(index) {
                device.flip(header_at(&tree, id) * 8);
                lost.push((edge.lo, edge.hi));
            }
        }
    }
    assert!(!lost.is_empty());
    (device, lost)
}

/// Does the work that is due, as a thread of the platform does.
fn work(env: &Env) {
    while env.run_due_work().unwrap() {}
}

fn newer(number: u32, round: u32) -> Vec<u8> {
    format!("{number}/{round}.").into_bytes().repeat(20)
}

/// Puts new values of the keys with a step, more than a log keeps.
fn overwrite(env: &Env, step: usize, round: u32) {
    for number in (0..KEYS).step_by(step) {
        put(env, &key(number), &newer(number, round));
    }
}

fn after_crash(device: &mut Arc<MemDevice>, env: Env, seeks: bool) -> Env {
    *device = MemDevice::holding(device.durable_bytes());
    if !seeks {
        device.do_not_seek();
    }
    env.abandon();
    open(device)
}

fn assert_all_lost_leaves_take_changes(is_lost: impl Fn(usize) -> bool, seeks: bool) {
    let (mut device, lost) = volume_without_leaves(is_lost);
    if !seeks {
        device.do_not_seek();
    }
    let mut env = open(&device);
    for round in 0..6 {
        overwrite(&env, 3, round);
        work(&env);
        // The log has given up what came: a sync is a checkpoint.
        let mut commit = env.commit.lock();
        env.log.give_up(commit.next_msn);
        commit.next_msn += 1;
        drop(commit);
        env.sync().unwrap();
        assert_eq!(env.state(), State::Writable);
        if round % 2 == 1 {
            env = after_crash(&mut device, env, seeks);
        }
        for number in 0..KEYS {
            let key = key(number);
            let is_lost = lost.iter().any(|(lo, hi)| !lo.is_above(&key) && hi.is_above(&key));
            match env.get(D, &key) {
                Ok(found) if number % 3 == 0 => assert!(found == Some(newer(number, round)), "key {number}"),
                Ok(found) => assert!(found == Some(value(number)), "key {number}"),
                Err(error) => assert!(is_lost && number % 3 != 0, "key {number}: {error}"),
            }
        }
    }
    env.close().unwrap();
}

#[test]
fn changes_over_lost_leaves_are_durable_and_hinder_nothing() {
    for seeks in [true, false] {
        assert_all_lost_leaves_take_changes(|_| true, seeks);
        assert_all_lost_leaves_take_changes(|index| index % 3 == 1, seeks);
    }
}

#[test]
fn a_drain_and_a_delete_of_everything_go_round_lost_leaves() {
    let (device, _) = volume_without_leaves(|index| index % 3 == 1);
    let env = open(&device);
    for number in 0..KEYS {
        let mut batch = Batch::new();
        batch.delete(D, &key(number));
        env.commit(&batch).unwrap();
    }
    let mut drain = Drain::default();
    while env.engine.drain(&mut drain).unwrap() {}
    work(&env);
    env.checkpoint().unwrap();
    assert_eq!(env.state(), State::Writable);
    (0..KEYS).for_each(|number| assert_eq!(env.get(D, &key(number)).unwrap(), None, "key {number}"));
}

/// Puts values over the lost leaves in turn until changes are refused: all that was accepted is durable then.
/// Returns how many were.
fn fill_above(geometry: &Geometry, is_lost: impl Fn(usize) -> bool) -> usize {
    let (device, lost) = without_leaves(volume_of(geometry), is_lost);
    let env = open(&device);
    let within = |(lo, hi): &(Cut, Cut)| (0..KEYS).map(key).find(|key| !lo.is_above(key) && hi.is_above(key));
    let within: Vec<Vec<u8>> = lost.iter().filter_map(within).collect();
    let mut accepted = Vec::new();
    for number in 0..40_000_u32 {
        let key = [&within[number as usize % within.len()][..], format!("-{number:05}").as_bytes()].concat();
        let mut batch = Batch::new();
        batch.put(D, &key, &newer(number, 0));
        match env.commit(&batch) {
            Ok(()) => accepted.push((key, newer(number, 0))),
            Err(error) => {
                assert!(matches!(error, Error::ReadOnly { .. } | Error::Corrupt { .. }), "{error}");
                break;
            }
        }
        if number % 100 == 0 {
            // What a background thread notes, the next change returns.
            while let Ok(true) = env.run_due_work() {}
        }
    }
    assert!(matches!(env.state(), State::ReadOnly(_)), "{:?}", env.state());
    env.sync().unwrap();
    let crashed = MemDevice::holding(device.durable_bytes());
    env.abandon();
    let options =
        Options { mode: crate::settings::OpenMode::ReadOnly, ..Options::new(8 << 20, Arc::new(Append)) };
    let env = Env::open(crashed, options).unwrap();
    let count = accepted.len();
    for (key, value) in accepted {
        assert_eq!(env.get(D, &key).unwrap(), Some(value));
    }
    count
}

/// Changes that find no room above what is lost end all changes.
#[test]
fn nothing_that_was_accepted_is_lost_when_too_much_waits_above_a_lost_leaf() {
    let above_one = fill_above(&GEOMETRY, |index| index == 5);
    assert!((1000..4000).contains(&above_one), "{above_one} were accepted");
    // A node may be no larger with more of them below it, however many edges it has.
    let wide = Geometry { log_bytes: 128 << 10, ..GEOMETRY };
    let above_all = fill_above(&wide, |_| true);
    assert!(above_all >= 1000, "{above_all} were accepted");
}

/// A leaf that is written anew keeps what cannot be read of it as it is.
#[test]
fn a_rotten_basement_does_not_keep_its_leaf_from_being_written() {
    for seeks in [true, false] {
        let (mut device, env) = volume_with_long_leaf();
        if !seeks {
            device.do_not_seek();
        }
        let (first, at) = {
            let tree = tree(&env);
            let leaf = only_leaf(&tree);
            let basement = &leaf.basements()[7];
            let run = basement.piece.stored().unwrap().runs[0];
            let place = tree.table.lock().place(leaf.id).unwrap();
            (basement.first.clone(), place.extent.place(u64::from(run.offset + run.stored_len / 2)) as usize)
        };
        env.close().unwrap();
        drop(env);
        device.flip(at * 8);
        let env = open(&device);
        for round in 0..20 {
            for number in [0, 1, KEYS_OF_LEAF - 1] {
                put(&env, &key(number), &newer(number, round));
            }
            to_root(&env);
            let mut drain = Drain::default();
            while env.engine.drain(&mut drain).unwrap() {}
            env.checkpoint().unwrap();
        }
        let env = after_crash(&mut device, env, seeks);
        assert_eq!(env.state(), State::Writable);
        assert_eq!(env.get(D, &key(1)).unwrap(), Some(newer(1, 19)));
        assert!(matches!(env.get(D, &first), Err(Error::Corrupt { .. })), "seeks: {seeks}");
        assert!(!problems(&env).is_empty());
    }
}

/// What the device refuses to read of a leaf keeps its blocks, however little of the leaf it is, and is there
/// when the device gives it again.
#[test]
fn an_unreadable_block_keeps_no_checkpoint_from_being_written_and_heals() {
    for seeks in [true, false] {
        let (mut device, env) = volume_with_long_leaf();
        let (first, next, at) = {
            let tree = tree(&env);
            let leaf = only_leaf(&tree);
            let run = leaf.basements()[7].piece.stored().unwrap().runs[0];
            let place = tree.table.lock().place(leaf.id).unwrap();
            let at = place.extent.place(u64::from(run.offset + run.stored_len / 2)) as usize;
            (leaf.basements()[7].first.clone(), leaf.basements()[9].first.clone(), at)
        };
        env.close().unwrap();
        drop(env);
        if !seeks {
            device.do_not_seek();
        }
        let bad = at / BLOCK_BYTES * BLOCK_BYTES;
        let env = open(&device);
        device.fail_reads_of(bad..bad + BLOCK_BYTES);
        for round in 0..3 {
            for key in (0..KEYS_OF_LEAF).map(key).filter(|key| *key < first || *key >= next) {
                put(&env, &key, &newer(0, round));
            }
            to_root(&env);
            let mut drain = Drain::default();
            while env.engine.drain(&mut drain).unwrap() {}
            env.checkpoint().unwrap();
            assert_eq!(env.state(), State::Writable);
        }
        assert!(matches!(env.get(D, &first), Err(Error::Device(_))), "seeks: {seeks}");
        let env = after_crash(&mut device, env, seeks);
        let number = (0..KEYS_OF_LEAF).find(|number| key(*number) == first).unwrap();
        assert_eq!(env.get(D, &first).unwrap(), Some(value(number)), "seeks: {seeks}");
        assert_eq!(problems(&env), [""; 0]);
    }
}
