use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use betree_platform::BLOCK_BYTES;

use crate::batch::Batch;
use crate::check::{FindingCode, OnDamage, ScrubFrom, ScrubOptions};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::format::superblock::features::Features;
use crate::io::mem::MemDevice;
use crate::key::Cut;
use crate::settings::{DictId, Geometry, NodeCopies, OpenMode, Options};
use crate::store::COPIED_FROM_HEIGHT;
use crate::upsert::Replace;

mod renewal;

const D: DictId = DictId(0);
const BLOCK: usize = BLOCK_BYTES;
/// Nodes of a few blocks, and trees of several levels.
const GEOMETRY: Geometry =
    Geometry { node_bytes: 16 << 10, basement_bytes: 4096, fanout_max: 4, log_bytes: 256 << 10, dicts: 1 };
const PAIRS: u32 = 2500;
/// With this step, neighbours in time are far from each other.
const STEP: u32 = 1223;

fn options() -> Options {
    Options::new(1 << 20, Arc::new(Replace))
}

fn value(number: u32) -> Vec<u8> {
    seeded::bytes(u64::from(number), 0, 300)
}

fn put(env: &Env, numbers: Range<u32>) -> Result<()> {
    for number in numbers {
        let mut batch = Batch::new();
        let number = number * STEP % PAIRS;
        batch.put(D, &number.to_be_bytes(), &value(number));
        env.throttle(batch.bytes())?;
        env.commit(&batch)?;
        while env.run_due_work()? {}
    }
    Ok(())
}

fn open(device: &Arc<MemDevice>) -> Env {
    Env::open(device.clone(), options()).unwrap()
}

fn new_device(blocks: usize, copies: NodeCopies, seeks: bool) -> Arc<MemDevice> {
    let device = MemDevice::new(blocks);
    if !seeks {
        device.do_not_seek();
    }
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    open(&device).set_node_copies(copies).unwrap();
    device
}

/// The blocks of each interior node above the parents of leaves: of the first copies, and of the second ones.
fn copied(env: &Env) -> Vec<[Vec<usize>; 2]> {
    let table = env.engine.table.lock();
    let of_height = |(id, height, _)| (height >= COPIED_FROM_HEIGHT).then(|| table.place(id).unwrap().extent);
    let blocks = |extent: &crate::space::Extent| -> Vec<usize> {
        let parts = extent.parts().iter();
        parts.flat_map(|p| p.start_block..p.start_block + p.len_blocks).map(|block| block as usize).collect()
    };
    let both = |extent: Arc<crate::space::Extent>| {
        [blocks(&extent), extent.copy().map(|copy| blocks(copy)).unwrap_or_default()]
    };
    table.nodes().filter_map(of_height).map(both).collect()
}

/// A closed volume with two copies of nodes, and the blocks of these.
fn volume(seeks: bool) -> (Vec<u8>, Vec<[Vec<usize>; 2]>) {
    let device = new_device(4096, NodeCopies::Two, seeks);
    let env = open(&device);
    put(&env, 0..PAIRS).unwrap();
    if !seeks {
        assert!(
            env.stats().kept_bytes > 512 << 10,
            "{} bytes stayed where they were",
            env.stats().kept_bytes
        );
    }
    env.close().unwrap();
    let copied = copied(&env);
    assert!(copied.len() >= 4, "{} nodes", copied.len());
    assert!(copied.iter().all(|[first, second]| first.len() == second.len()), "{copied:?}");
    (device.bytes(), copied)
}

/// A device with these contents and a flipped bit in each of some blocks.
fn rotten(bytes: &[u8], blocks: &[usize], seeks: bool) -> Arc<MemDevice> {
    let device = MemDevice::holding(bytes.to_vec());
    if !seeks {
        device.do_not_seek();
    }
    blocks.iter().for_each(|block| device.flip((block * BLOCK + 20) * 8));
    device
}

fn assert_reads_right(env: &Env) {
    let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
    for number in 0..PAIRS {
        assert_eq!(cursor.next().unwrap(), Some((&number.to_be_bytes()[..], &value(number)[..])), "{number}");
    }
    assert_eq!(cursor.next().unwrap(), None);
}

/// The codes of the problems of a volume that is opened for reading.
fn problems(device: &Arc<MemDevice>) -> Vec<FindingCode> {
    let options = Options { mode: OpenMode::ReadOnly, ..options() };
    let env = Env::open(device.clone(), options).unwrap();
    let mut found = Vec::new();
    env.check(&mut |finding| found.push(finding), &mut |_, _| ()).unwrap();
    found.into_iter().filter(|finding| finding.is_problem).map(|finding| finding.code).collect()
}

fn assert_sound(env: &Env) {
    let mut found = Vec::new();
    env.check(&mut |finding| found.push(finding), &mut |_, _| ()).unwrap();
    assert_eq!(found, []);
}

#[test]
fn rot_of_any_block_of_a_first_copy_is_read_from_the_second_and_mended() {
    for seeks in [true, false] {
        let (bytes, copied) = volume(seeks);
        let mut told = 0;
        for block in copied.iter().flat_map(|[first, _]| first) {
            let device = rotten(&bytes, &[*block], seeks);
            let found = problems(&device);
            // Bytes between runs in blocks that a node keeps may be of no use.
            assert!(matches!(found[..], [] | [FindingCode::BadNodeCopy]), "block {block}: {found:?}");
            let env = open(&device);
            assert_reads_right(&env);
            assert_eq!(env.stats().copies_used > 0, !found.is_empty(), "block {block}");
            env.close().unwrap();
            drop(env);
            assert_eq!(problems(&device), [], "block {block}");
            assert_reads_right(&open(&device));
            told += found.len();
        }
        assert!(told > copied.len(), "{told} blocks of {} nodes", copied.len());
    }
}

#[test]
fn rot_of_all_second_copies_hinders_nobody_and_is_told() {
    let (bytes, copied) = volume(true);
    let second: Vec<usize> = copied.iter().flat_map(|[_, second]| second.clone()).collect();
    let device = rotten(&bytes, &second, true);
    let found = problems(&device);
    assert!(
        found.len() > copied.len() && found.iter().all(|code| *code == FindingCode::BadNodeCopy),
        "{found:?}"
    );
    let env = open(&device);
    assert_reads_right(&env);
    assert_eq!(env.stats().copies_used, 0);
}

/// The parts of a node come from whichever copy has them.
#[test]
fn copies_that_are_bad_in_different_parts_make_a_whole_node() {
    let (bytes, copied) = volume(true);
    let [first, second] = copied.iter().max_by_key(|[first, _]| first.len()).unwrap();
    let half = first.len() / 2;
    assert!(half > 0, "{first:?}");
    for blocks in [[&first[..half], &second[half + 1..]], [&first[half + 1..], &second[..half]]] {
        let device = rotten(&bytes, &blocks.concat(), true);
        assert!(!problems(&device).is_empty());
        let env = open(&device);
        assert_reads_right(&env);
        assert!(env.stats().copies_used > 0);
        env.close().unwrap();
        drop(env);
        assert_eq!(problems(&device), []);
    }
}

#[test]
fn a_node_of_which_both_copies_are_bad_is_lost_as_one_without_a_copy() {
    let (bytes, copied) = volume(true);
    let mut roots = 0;
    for [first, second] in copied {
        let device = rotten(&bytes, &[first[0], second[0]], true);
        // A volume whose root is lost is refused.
        let Ok(env) = Env::open(device.clone(), options()) else {
            roots += 1;
            continue;
        };
        let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
        let mut all = core::iter::from_fn(|| cursor.next().map(|next| next.map(drop)).transpose());
        let error = all.find_map(Result::err);
        assert!(matches!(error, Some(Error::Corrupt { .. })), "{error:?}");
        drop(cursor);
        drop(env);
        let found = problems(&device);
        assert!(found.contains(&FindingCode::BadNode), "{found:?}");
    }
    assert_eq!(roots, 1);
}

/// It could not be written anew.
#[test]
fn a_node_with_a_piece_that_is_bad_in_both_copies_hinders_no_checkpoint() {
    let (bytes, copied) = volume(true);
    let mut told = 0;
    for [first, second] in copied.iter().filter(|[first, _]| first.len() > 1) {
        let last = first.len() - 1;
        let device = rotten(&bytes, &[first[0], first[last], second[last]], true);
        let found = problems(&device);
        told += found.iter().filter(|code| **code == FindingCode::BadPiece).count();
        let env = open(&device);
        // It comes to the node.
        let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
        while cursor.next_past(&mut |_| ()).is_some() {}
        drop(cursor);
        env.checkpoint().unwrap();
        env.close().unwrap();
        assert!(env.stats().copies_used > 0);
        drop(env);
        assert_eq!(problems(&device), found);
    }
    assert!(told > 0);
}

#[test]
fn a_first_copy_that_the_device_refuses_is_read_from_the_second() {
    let (bytes, copied) = volume(true);
    let device = rotten(&bytes, &[], true);
    for [first, _] in &copied {
        first.iter().for_each(|block| device.fail_reads_of(block * BLOCK..(block + 1) * BLOCK));
    }
    let env = open(&device);
    assert_reads_right(&env);
    assert!(env.stats().copies_used >= copied.len() as u64);
    env.checkpoint().unwrap();
    // Written anew, they are elsewhere.
    let before: Vec<usize> = copied.into_iter().flat_map(|[first, _]| first).collect();
    let now: Vec<usize> = self::copied(&env).into_iter().flatten().flatten().collect();
    assert!(now.iter().all(|block| !before.contains(block)), "{before:?} {now:?}");
    assert_sound(&env);
}

#[test]
fn a_scrub_tells_of_a_bad_copy_and_has_it_mended_if_it_may() {
    let (bytes, copied) = volume(true);
    for (side, on_damage) in
        [(0, OnDamage::Tell), (0, OnDamage::Mend), (1, OnDamage::Tell), (1, OnDamage::Mend)]
    {
        let rotten_blocks: Vec<usize> = copied.iter().map(|both| both[side][0]).collect();
        let device = rotten(&bytes, &rotten_blocks, true);
        let env = Arc::new(open(&device));
        let at_opening = env.stats().copies_used;
        let mut found = Vec::new();
        let options = ScrubOptions { from: ScrubFrom::Start, on_damage };
        let record = env
            .scrub(options, &mut |finding| found.push(finding.code), &mut |_| ControlFlow::Continue(()))
            .unwrap();
        assert_eq!(found, alloc::vec![FindingCode::BadNodeCopy; copied.len()]);
        assert_eq!(record.problems, copied.len() as u64);
        if (side, on_damage) == (1, OnDamage::Tell) {
            assert_eq!(env.stats().copies_used, 0, "both copies are looked at, and none is used");
        }
        // What the opening has met is mended by the scrub's checkpoint in any case.
        let left = if on_damage == OnDamage::Mend { 0 } else { copied.len() - at_opening.min(1) as usize };
        env.abandon();
        drop(env);
        assert_eq!(problems(&device).len(), left, "{side} {on_damage:?}");
    }
}

#[test]
fn a_repair_writes_bad_copies_anew() {
    let (bytes, copied) = volume(true);
    let blocks: Vec<usize> = copied.iter().enumerate().map(|(index, both)| both[index % 2][0]).collect();
    let device = rotten(&bytes, &blocks, true);
    let env = Env::open(device.clone(), Options { mode: OpenMode::Repair, ..options() }).unwrap();
    env.write_repair().unwrap();
    drop(env);
    assert_eq!(problems(&device), []);
    assert_reads_right(&open(&device));
}

#[test]
fn without_room_there_are_no_copies_and_as_much_fits() {
    let fits = |copies| {
        let device = new_device(1024, copies, true);
        let env = open(&device);
        let put = |number: u32| -> Result<()> {
            let mut batch = Batch::new();
            batch.put(D, &number.wrapping_mul(2_654_435_761).to_be_bytes(), &seeded::bytes(7, 0, 1500));
            env.throttle(batch.bytes())?;
            env.commit(&batch)?;
            while env.run_due_work()? {}
            Ok(())
        };
        let fitting = (0..).take_while(|number| put(*number).is_ok()).count();
        env.checkpoint().unwrap();
        assert_sound(&env);
        (fitting, copied(&env).iter().filter(|[_, second]| second.is_empty()).count())
    };
    let ((one, _), (two, without)) = (fits(NodeCopies::One), fits(NodeCopies::Two));
    assert!(without > 0);
    assert!(two * 20 > one * 19, "{two} puts with copies, {one} without");
}

/// Costs: as many bytes again as there are in new blocks of these nodes, and not one read.
#[test]
fn copies_cost_their_bytes_and_no_read() {
    for seeks in [true, false] {
        let run = |copies| {
            let device = new_device(4096, copies, seeks);
            let env = open(&device);
            put(&env, 0..PAIRS).unwrap();
            env.close().unwrap();
            let written = env.stats();
            drop(env);
            let env = open(&device);
            assert_reads_right(&env);
            (written, env.stats())
        };
        let ((one, one_read), (two, two_read)) = (run(NodeCopies::One), run(NodeCopies::Two));
        let more = two.copy_write_bytes - one.copy_write_bytes;
        assert!(more > 0);
        std::println!(
            "seeks {seeks}: {} bytes written with one copy, {} with two, {more} of them in copies of nodes",
            one.device_write_bytes,
            two.device_write_bytes
        );
        assert_eq!(one_read.device_reads, two_read.device_reads, "seeks {seeks}");
        // Pages of the node table name more blocks.
        assert!(
            two_read.device_read_bytes - one_read.device_read_bytes < 64 << 10,
            "{one_read:?} {two_read:?}"
        );
        assert_eq!(one.device_syncs, two.device_syncs);
        if seeks {
            // Nodes are written whole, copied or not.
            let pages = 64 << 10;
            assert!(two.device_write_bytes - more < one.device_write_bytes + pages, "{one:?} {two:?}");
            assert!(one.device_write_bytes < two.device_write_bytes - more + pages, "{one:?} {two:?}");
        }
    }
}

#[test]
fn a_choice_counts_for_nodes_that_are_written_from_then_on() {
    let device = new_device(4096, NodeCopies::One, true);
    let env = open(&device);
    put(&env, 0..PAIRS).unwrap();
    env.checkpoint().unwrap();
    assert_eq!(env.checkpoint.lock().superblock.features.incompat & Features::NODE_COPIES, 0);
    let copies = |env: &Env| copied(env).iter().filter(|[_, second]| !second.is_empty()).count();
    assert_eq!(copies(&env), 0);
    env.set_node_copies(NodeCopies::Two).unwrap();
    assert_eq!(
        env.checkpoint.lock().superblock.features.incompat & Features::NODE_COPIES,
        Features::NODE_COPIES
    );
    put(&env, 0..PAIRS).unwrap();
    env.close().unwrap();
    drop(env);
    let env = open(&device);
    assert_eq!(env.node_copies(), NodeCopies::Two);
    assert!(copies(&env) > 0);
    env.set_node_copies(NodeCopies::One).unwrap();
    put(&env, 0..PAIRS).unwrap();
    put(&env, 0..PAIRS).unwrap();
    env.checkpoint().unwrap();
    assert_eq!(copies(&env), 0);
    assert_sound(&env);
    // There may be such nodes again at any time.
    assert_eq!(
        env.checkpoint.lock().superblock.features.incompat & Features::NODE_COPIES,
        Features::NODE_COPIES
    );
}

/// An ingest writes its nodes before any checkpoint.
#[test]
fn nodes_of_an_ingest_have_copies_too() {
    let device = new_device(4096, NodeCopies::Two, true);
    let env = Arc::new(open(&device));
    let keys: Vec<[u8; 4]> = (0..PAIRS).map(u32::to_be_bytes).collect();
    let values: Vec<Vec<u8>> = (0..PAIRS).map(value).collect();
    let pairs = keys.iter().zip(&values).map(|(key, value)| Ok::<_, Error>((&key[..], &value[..])));
    env.ingest(D, pairs).unwrap();
    env.checkpoint().unwrap();
    let copied = copied(&env);
    assert!(!copied.is_empty() && copied.iter().all(|[_, second]| !second.is_empty()), "{copied:?}");
    assert_reads_right(&env);
    assert_sound(&env);
}
