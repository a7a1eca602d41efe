//! What is left of volumes with damaged node tables and logs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::vec::Vec;

use betree_platform::{BLOCK_BYTES, Device};

use super::*;
use crate::batch::Batch;
use crate::env::read_table::TableReader;
use crate::format::superblock::slots;
use crate::io::mem::MemDevice;
use crate::key::Cut;
use crate::settings::{DictId, Geometry};
use crate::upsert::Append;

const D: DictId = DictId(0);
const BLOCK: u64 = BLOCK_BYTES as u64;
const BLOCKS: usize = 4096;
/// Where the entries of a page begin, how long each is, and where in it its height stands, with `used` behind
/// it.
const SLOTS: u64 = 16;
const SLOT: u64 = 40;
const HEIGHT: usize = 32;
const GEOMETRY: Geometry =
    Geometry { node_bytes: 4096, basement_bytes: 1024, fanout_max: 6, log_bytes: 1 << 20, dicts: 1 };

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options::new(1 << 20, Arc::new(Append))
}

fn put(env: &Env, pairs: &mut Pairs, number: u32) {
    let (key, value) = (number.to_be_bytes().to_vec(), seeded::bytes(u64::from(number), 0, 300));
    let mut batch = Batch::new();
    batch.put(D, &key, &value);
    env.commit(&batch).unwrap();
    pairs.insert(key, value);
}

/// A volume with some hundred nodes, and what it holds.
fn closed() -> (Arc<MemDevice>, Pairs) {
    let device = MemDevice::new(BLOCKS);
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    let env = Env::open(device.clone(), options()).unwrap();
    let mut pairs = Pairs::new();
    for number in 0..3000u32 {
        // Scattered, so that leaves are written again and again.
        put(&env, &mut pairs, number.wrapping_mul(0x9e37_79b1));
        if number % 500 == 0 {
            env.checkpoint().unwrap();
        }
    }
    env.close().unwrap();
    (device, pairs)
}

fn smash(device: &MemDevice, at: u64, len: usize) {
    let block = at / BLOCK * BLOCK;
    let mut bytes = AlignedBlock::of(device, block);
    bytes.0.iter_mut().skip((at - block) as usize).take(len).for_each(|byte| *byte ^= 0x5a);
    device.write_at(block, &bytes.0).unwrap();
}

struct AlignedBlock(Vec<u8>);

impl AlignedBlock {
    fn of(device: &MemDevice, at: u64) -> AlignedBlock {
        let mut bytes = std::vec![0; BLOCK_BYTES];
        device.read_at(at, &mut bytes).unwrap();
        AlignedBlock(bytes)
    }
}

fn whole(device: &MemDevice) -> Vec<u8> {
    let mut bytes = std::vec![0; BLOCKS * BLOCK_BYTES];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// What is read of a damaged volume, how many ranges are not, what was told, and how many bytes were read
/// from the device before the first pair was. Nothing is written.
fn rescue(device: &Arc<MemDevice>) -> (Pairs, usize, Vec<Finding>, u64) {
    let before = whole(device);
    let mut told = Vec::new();
    let env = Env::open_for_rescue(device.clone(), options(), &mut |found| told.push(found)).unwrap();
    let read_bytes = env.stats().device_read_bytes;
    let (mut pairs, mut passed) = (Pairs::new(), 0);
    let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
    while let Some((key, value)) = cursor.next_past(&mut |_| passed += 1) {
        pairs.insert(key.to_vec(), value.to_vec());
    }
    drop(cursor);
    assert!(env.close().is_ok(), "there is nothing to close");
    drop(env);
    assert!(whole(device) == before, "something was written");
    (pairs, passed, told, read_bytes)
}

/// The first bytes of the directory of the node table, and of its pages.
fn table_places(device: &Arc<MemDevice>) -> (u64, Vec<u64>) {
    let disk = Disk::for_reading(device.clone());
    let superblock = slots::newest(&disk).unwrap().0.unwrap();
    let space = space_of(&superblock);
    let reader = TableReader::new(&disk, &space, &superblock);
    let pages = reader.directory().unwrap().1;
    (superblock.table.offset, pages.entries.iter().map(|page| page.start_block.get() * BLOCK).collect())
}

/// The first bytes of the second copies of the pages.
fn copied_pages(device: &Arc<MemDevice>) -> Vec<u64> {
    let disk = Disk::for_reading(device.clone());
    let superblock = slots::newest(&disk).unwrap().0.unwrap();
    let space = space_of(&superblock);
    let pages = TableReader::new(&disk, &space, &superblock).directory_copy().unwrap().unwrap().1;
    pages.entries.iter().map(|page| page.start_block.get() * BLOCK).collect()
}

/// What opening a sound volume reads at most: superblocks, node table, and the headers of some hundred
/// interior nodes. The device is 30 times as long.
const SOUND_BYTES_MAX: u64 = 130 * BLOCK;

/// Without the directory of the second copies, these are not found.
fn smash_copies(device: &Arc<MemDevice>) {
    let disk = Disk::for_reading(device.clone());
    let superblock = slots::newest(&disk).unwrap().0.unwrap();
    let copy = crate::format::superblock::table_copy::TableCopy::of(&superblock).unwrap();
    smash(device, copy.parts[0].start_block * BLOCK, 16);
}

/// With its second copy, no other part of the device is looked at for a damaged page or directory.
#[test]
fn second_copies_of_the_node_table_are_read_without_a_scan() {
    let (device, pairs) = closed();
    let (directory, pages) = table_places(&device);
    for block in pages.iter().chain([&directory]) {
        smash(&device, *block, BLOCK_BYTES);
        let (found, passed, told, read_bytes) = rescue(&device);
        assert!(found == pairs && passed == 0, "{passed} ranges: {told:?}");
        assert!(told.len() == 1 && told[0].code == FindingCode::BadCopy, "{told:?}");
        assert!(read_bytes < SOUND_BYTES_MAX, "{read_bytes}");
        smash(&device, *block, BLOCK_BYTES);
    }
    // All pages at once.
    pages.iter().for_each(|page| smash(&device, *page, BLOCK_BYTES));
    let (found, passed, told, _) = rescue(&device);
    assert!(found == pairs && passed == 0 && told.len() == pages.len(), "{passed} ranges: {told:?}");
}

#[test]
fn a_sound_volume_is_read_whole_without_a_scan() {
    let (device, pairs) = closed();
    let (found, passed, told, read_bytes) = rescue(&device);
    assert!(found == pairs && passed == 0 && told.is_empty(), "{told:?}");
    assert!(read_bytes < SOUND_BYTES_MAX, "{read_bytes}");
}

/// Of a page with a few wrong bytes the slots beside them still serve, and the lost ones are found by a scan.
#[test]
fn every_node_of_a_damaged_page_is_found() {
    let (device, pairs) = closed();
    smash_copies(&device);
    let (_, pages) = table_places(&device);
    assert!(pages.len() > 3, "{pages:?}");
    for (index, page) in pages.iter().enumerate() {
        // The head; a slot; its checksum alone; the whole block.
        for (at, len) in [(0, 16), (SLOTS + 7 * SLOT + 3, 40), (SLOTS + 7 * SLOT + 8, 8), (0, BLOCK_BYTES)] {
            smash(&device, page + at, len);
            let (found, passed, told, read_bytes) = rescue(&device);
            assert!(found == pairs && passed == 0, "page {index}, {len} bytes: {passed} ranges: {told:?}");
            assert_eq!(told.iter().filter(|found| found.is_problem).count(), 1, "{told:?}");
            assert!(read_bytes < BLOCKS as u64 * BLOCK * 3 / 2, "{read_bytes}: the device is read once");
            smash(&device, page + at, len);
        }
    }
}

/// Two entries that have changed places: each leads to a whole node, and not to its own.
#[test]
fn an_entry_of_a_damaged_page_that_leads_to_another_node_is_not_believed() {
    let (device, pairs) = closed();
    let page = table_places(&device).1[0];
    let mut bytes = AlignedBlock::of(&device, page).0;
    let leaves: Vec<usize> = (0..100)
        .map(|slot| (SLOTS + slot * SLOT) as usize)
        .filter(|at| bytes[at + HEIGHT..at + HEIGHT + 2] == [0, 1])
        .collect();
    assert!(leaves.len() > 20, "{leaves:?}");
    for two in leaves.chunks_exact(2) {
        let [one, other] = [two[0], two[1]].map(|at| bytes[at..at + SLOT as usize].to_vec());
        bytes[two[0]..two[0] + SLOT as usize].copy_from_slice(&other);
        bytes[two[1]..two[1] + SLOT as usize].copy_from_slice(&one);
    }
    device.write_at(page, &bytes).unwrap();
    smash_copies(&device);
    let (found, passed, told, _) = rescue(&device);
    assert!(found == pairs && passed == 0, "{passed} ranges, {} pairs: {told:?}", found.len());
}

/// As after a crash in the middle of a checkpoint: its nodes are on the device, and no superblock names them.
#[test]
fn nodes_of_a_checkpoint_that_was_not_completed_are_not_taken_for_the_newest() {
    let (device, pairs) = closed();
    let env = Env::open(device.clone(), options()).unwrap();
    let (_, pages) = table_places(&device);
    let superblocks: Vec<Vec<u8>> = (0..4).map(|copy| AlignedBlock::of(&device, copy * BLOCK).0).collect();
    let mut later = Pairs::new();
    (3000..3500u32).for_each(|number| put(&env, &mut later, number.wrapping_mul(0x9e37_79b1)));
    env.checkpoint().unwrap();
    env.abandon();
    drop(env);
    for (copy, bytes) in (0..).zip(&superblocks) {
        device.write_at(copy * BLOCK, bytes).unwrap();
    }
    smash_copies(&device);
    pages.iter().for_each(|page| smash(&device, *page, BLOCK_BYTES));
    let (found, passed, told, _) = rescue(&device);
    assert!(found == pairs && passed == 0, "{passed} ranges, {} pairs: {told:?}", found.len());
}

#[test]
fn without_the_directory_its_entries_or_the_headers_serve() {
    let (device, pairs) = closed();
    smash_copies(&device);
    let (directory, pages) = table_places(&device);
    for (at, len) in [(0, 16), (16 + 24 + 8, 8), (0, BLOCK_BYTES)] {
        smash(&device, directory + at, len);
        let (found, passed, told, _) = rescue(&device);
        assert!(found == pairs && passed == 0, "{len} bytes at {at}: {passed} ranges: {told:?}");
        smash(&device, directory + at, len);
    }
    // And without anything of the table at all.
    pages.iter().chain([&directory]).for_each(|block| smash(&device, *block, BLOCK_BYTES));
    let (found, passed, told, _) = rescue(&device);
    assert!(found == pairs && passed == 0, "{passed} ranges: {told:?}");
}

#[test]
fn a_lost_node_hides_what_is_below_it_and_nothing_else() {
    let (device, pairs) = closed();
    let disk = Disk::for_reading(device.clone());
    let superblock = slots::newest(&disk).unwrap().0.unwrap();
    let (_, pages) = table_places(&device);
    let all = |_: u32| true;
    let limits = crate::format::limits::Limits::of(&superblock.geometry, BLOCKS as u64);
    let sought = headers::Sought { superblock: &superblock, limits: &limits, is_wanted: &all };
    let nodes = headers::scan(&disk, &sought).unwrap();
    let leaf = nodes.values().find(|node| node.height == 0).unwrap();
    smash(&device, leaf.offset, 64);
    smash_copies(&device);
    smash(&device, pages[(leaf.id.slot / 102) as usize], BLOCK_BYTES);
    let (found, passed, told, _) = rescue(&device);
    assert!(found.len() < pairs.len(), "{passed} ranges: {told:?}");
    assert!(told.iter().any(|found| found.code == FindingCode::NodesByHeader), "{told:?}");
    assert!(found.len() > pairs.len() * 9 / 10, "{} of {}", found.len(), pairs.len());
    assert!(found.iter().all(|(key, value)| pairs.get(key) == Some(value)));
}

/// Repairs a volume. Returns what it holds then, but for known damage, and whether there is any. Each pair is
/// as it was.
fn repaired(device: &Arc<MemDevice>, pairs: &Pairs) -> (Pairs, bool) {
    let env = Env::open_for_repair(device.clone(), options(), &mut |_| ()).unwrap();
    let noted = env.note_damage().unwrap();
    env.mend_references(&mut |_, _| core::ops::ControlFlow::Continue(())).unwrap();
    env.write_repair().unwrap();
    drop(env);
    let env = Env::open(device.clone(), options()).unwrap();
    let mut problems = Vec::new();
    env.check(&mut |found| problems.extend(found.into_problem()), &mut |_, _| ()).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    let (mut found, mut cursor) = (Pairs::new(), env.cursor(D, Cut::LOW, Cut::HIGH));
    while let Some((key, value)) = cursor.next_past(&mut |_| ()) {
        assert_eq!(pairs.get(key).map(Vec::as_slice), Some(value), "an older value, or one from nowhere");
        found.insert(key.to_vec(), value.to_vec());
    }
    let mut more = Batch::new();
    more.put(D, b"more", b"");
    env.commit(&more).unwrap();
    env.close().unwrap();
    (found, noted.lost > 0)
}

/// A page of which one slot has another checksum of a header, in both copies.
fn rot_a_slot(device: &MemDevice, page: u64, slot: u64) {
    smash(device, page + SLOTS + slot * SLOT + 8, 4);
}

#[test]
fn a_repair_takes_the_slots_of_a_rotten_page_that_agree_with_their_nodes() {
    let (device, pairs) = closed();
    let env = Env::open(device.clone(), options()).unwrap();
    let leaves: Vec<u32> = {
        let table = env.engine.table.lock();
        table.nodes().filter(|(_, height, _)| *height == 0).map(|(id, ..)| id.slot).collect()
    };
    drop(env);
    let (_, pages) = table_places(&device);
    smash_copies(&device);
    let before = whole(&device);
    assert!(pages.len() > 1);
    for (index, page) in (0u32..).zip(&pages) {
        let leaf = leaves.iter().find(|slot| **slot / 102 == index).unwrap();
        rot_a_slot(&device, *page, u64::from(leaf % 102));
        assert!(Env::open(device.clone(), options()).is_err());
        let rotten = whole(&device);
        let (found, is_lost) = repaired(&device, &pairs);
        assert!(
            is_lost && found.len() < pairs.len() && found.len() > pairs.len() * 9 / 10,
            "{}",
            found.len()
        );
        device.write_at(0, &rotten).unwrap();
        // Of which nothing is left, a rescue may find more.
        smash(&device, *page, BLOCK_BYTES);
        assert!(Env::open_for_repair(device.clone(), options(), &mut |_| ()).is_err());
        device.write_at(0, &before).unwrap();
    }
    // What the device does not read it may read later.
    let page = pages[0] as usize;
    device.fail_reads_of(page..page + 1);
    assert!(Env::open_for_repair(device, options(), &mut |_| ()).is_err());
}

/// All that it had is lost, and the dictionary is there.
#[test]
fn a_repair_makes_a_root_that_was_lost_with_its_slot() {
    let (device, pairs) = closed();
    let env = Env::open(device.clone(), options()).unwrap();
    let root = env.engine.dicts[0].state.read().root;
    env.close().unwrap();
    drop(env);
    let (_, pages) = table_places(&device);
    smash_copies(&device);
    rot_a_slot(&device, pages[root.slot as usize / 102], u64::from(root.slot % 102));
    let (found, is_lost) = repaired(&device, &pairs);
    assert!(is_lost && found.is_empty(), "{} pairs", found.len());
}

#[test]
fn the_log_is_replayed_up_to_its_first_damaged_segment() {
    let (device, mut pairs) = closed();
    let env = Env::open(device.clone(), options()).unwrap();
    let mut expected = Vec::new();
    for number in 0..20u32 {
        put(&env, &mut pairs, number);
        env.sync().unwrap();
        expected.push(pairs.clone());
    }
    // A clone, for which what came before it goes to the tree.
    let mut clone = Batch::new();
    clone.clone_range(D, b"\0\0", b"clone");
    env.commit(&clone).unwrap();
    env.sync().unwrap();
    for key in pairs.keys().filter(|key| key.starts_with(b"\0\0")).cloned().collect::<Vec<_>>() {
        let value = pairs[&key].clone();
        pairs.insert([b"clone", &key[2..]].concat(), value);
    }
    env.abandon();
    drop(env);
    let (found, passed, told, _) = rescue(&device);
    assert!(found == pairs && passed == 0 && told.is_empty(), "{told:?}");

    let disk = Disk::for_reading(device.clone());
    let superblock = slots::newest(&disk).unwrap().0.unwrap();
    let at = superblock.log_offset + superblock.log_start.position + 7 * BLOCK;
    smash(&device, at + 200, 8);
    let (found, passed, told, _) = rescue(&device);
    assert!(found == expected[6] && passed == 0, "{} pairs: {told:?}", found.len());
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].is_problem && told[0].code == FindingCode::BadLog && told[0].what.contains("after 7 batches")
    );
}

/// A repair writes all four copies anew, those of the state that it found first, so that it can be taken back
/// to that.
#[test]
fn lost_superblocks_are_written_again_by_a_repair() {
    let (device, mut pairs) = closed();
    let env = Env::open(device.clone(), options()).unwrap();
    for number in 0..20u32 {
        put(&env, &mut pairs, number);
        env.sync().unwrap();
    }
    env.abandon();
    drop(env);
    (0..4).for_each(|copy| smash(&device, copy * BLOCK, 2000));
    let before = whole(&device);
    let mut for_repair = options();
    for_repair.mode = crate::settings::OpenMode::Repair;
    assert!(Env::open(device.clone(), for_repair).is_err(), "not without being told");
    let read = |env: &Env| {
        let (mut found, mut cursor) = (Pairs::new(), env.cursor(D, Cut::LOW, Cut::HIGH));
        while let Some((key, value)) = cursor.next().unwrap() {
            found.insert(key.to_vec(), value.to_vec());
        }
        found
    };
    let repair = || {
        let mut told = Vec::new();
        let env = Env::open_for_repair(device.clone(), options(), &mut |found| told.push(found)).unwrap();
        assert!(read(&env) == pairs);
        assert!(told.len() == 1 && told[0].code == FindingCode::LostSuperblocks, "{told:?}");
        (env, told)
    };
    let (env, told) = repair();
    assert!(whole(&device) == before, "something was written");
    env.write_repair().unwrap();
    drop(env);
    let disk = Disk::for_reading(device.clone());
    let generations = |disk: &Disk| -> Vec<u64> {
        slots::copies(disk).unwrap().into_iter().map(|(_, copy)| copy.unwrap().generation).collect()
    };
    let written = generations(&disk);
    assert_eq!(written.iter().max().unwrap() - written.iter().min().unwrap(), 1, "{written:?}");
    // The one that was made has what was found; the repair's is of the generation after it.
    assert!(told[0].what.contains(&std::format!("; {} is the newest", written.iter().min().unwrap())));
    let opened = |mode| {
        let mut options = options();
        options.mode = mode;
        Env::open(device.clone(), options).unwrap()
    };
    let mut problems = Vec::new();
    let env = opened(crate::settings::OpenMode::ReadOnly);
    env.check(&mut |found| problems.extend(found.into_problem()), &mut |_, _| ()).unwrap();
    assert!(read(&env) == pairs && problems.is_empty(), "{problems:?}");
    drop(env);
    // A crash while the copies are written leaves some of them: the next repair makes them anew.
    let repaired = whole(&device);
    for bad in [[0, 1], [2, 3]] {
        for copy in bad {
            smash(&device, copy * BLOCK, 2000);
        }
        assert!(Env::open(device.clone(), options()).is_err());
        drop(repair());
        device.write_at(0, &repaired).unwrap();
    }
    assert_eq!(crate::undo_repair(device.clone()).unwrap(), written.iter().min().copied());
    let env = opened(crate::settings::OpenMode::ReadWrite);
    assert!(read(&env) == pairs);
    env.close().unwrap();
}

/// It has no label and no time of its making still.
#[test]
fn a_uuid_given_to_a_repaired_volume_stays_where_two_of_its_superblocks_are_lost() {
    let (device, pairs) = closed();
    (0..4).for_each(|copy| smash(&device, copy * BLOCK, 2000));
    let repaired = || Env::open_for_repair(device.clone(), options(), &mut |_| ()).unwrap();
    repaired().write_repair().unwrap();
    let uuid = uuid::Uuid::from_bytes([9; 16]);
    let env = Env::open(device.clone(), options()).unwrap();
    env.set_uuid(uuid).unwrap();
    env.close().unwrap();
    drop(env);
    let closed = whole(&device);
    for lost in [[0, 1], [2, 3]] {
        device.write_at(0, &closed).unwrap();
        lost.into_iter().for_each(|copy| smash(&device, copy * BLOCK, 2000));
        let env = repaired();
        assert_eq!(env.identity().uuid, uuid);
        for (key, value) in &pairs {
            assert_eq!(env.get(D, key).unwrap().as_deref(), Some(&value[..]));
        }
    }
}

/// All four copies: the table shows by itself whose it is, and which nodes are roots.
#[test]
fn without_a_superblock_the_newest_node_table_serves() {
    let (device, mut pairs) = closed();
    let smash_all = |device: &MemDevice| (0..4).for_each(|copy| smash(device, copy * BLOCK, 2000));
    smash_all(&device);
    let (found, passed, told, _) = rescue(&device);
    assert!(found == pairs && passed == 0, "{passed} ranges, {} pairs: {told:?}", found.len());
    assert!(
        told.iter().any(|found| found.code == FindingCode::OldCheckpoint && found.is_problem),
        "{told:?}"
    );
    smash_all(&device);

    // With changes that are in the log alone, and a clone among them.
    let env = Env::open(device.clone(), options()).unwrap();
    for number in 0..20u32 {
        put(&env, &mut pairs, number);
        env.sync().unwrap();
    }
    let mut clone = Batch::new();
    clone.clone_range(D, b"\0\0", b"clone");
    env.commit(&clone).unwrap();
    env.sync().unwrap();
    for key in pairs.keys().filter(|key| key.starts_with(b"\0\0")).cloned().collect::<Vec<_>>() {
        let value = pairs[&key].clone();
        pairs.insert([b"clone", &key[2..]].concat(), value);
    }
    env.abandon();
    drop(env);
    smash_all(&device);
    let (found, passed, told, _) = rescue(&device);
    assert!(found == pairs && passed == 0, "{passed} ranges, {} pairs: {told:?}", found.len());

    // Nor does it take a table whose pages are not whole, but an older one that is.
    smash_all(&device);
    let (_, pages) = table_places(&device);
    let copies = copied_pages(&device);
    smash_all(&device);
    smash(&device, pages[0], 4);
    smash(&device, copies[0], 4);
    let generation =
        |told: &[Finding]| told.iter().find(|found| found.code == FindingCode::OldCheckpoint).cloned();
    let newest = generation(&told);
    let mut told = Vec::new();
    let older = Env::open_for_rescue(device.clone(), options(), &mut |found| told.push(found));
    assert!(older.is_err() || generation(&told) != newest, "{told:?}");
}

/// As many as its user has, though the table alone does not say so: what a root that cannot be read had is
/// lost, and nothing else.
#[test]
fn without_a_superblock_dictionaries_stay_whose_roots_are_lost() {
    const DICTS: u8 = 3;
    let geometry = Geometry { dicts: DICTS, ..GEOMETRY };
    let options = || Options { dicts_min: DICTS, ..options() };
    let value = |dict: u8, env: &Env| env.get(DictId(dict), b"key").map(|value| value.map(|value| value[0]));
    for lost in [&[0][..], &[1], &[2], &[1, 2], &[0, 2]] {
        let device = MemDevice::new(BLOCKS);
        Env::format(device.clone(), &geometry, [1; 16]).unwrap();
        let env = Env::open(device.clone(), options()).unwrap();
        let mut batch = Batch::new();
        (0..DICTS).for_each(|dict| batch.put(DictId(dict), b"key", &[dict]));
        env.commit(&batch).unwrap();
        env.checkpoint().unwrap();
        let root_at = |dict: &u8| {
            let root = env.engine.dicts[usize::from(*dict)].state.read().root;
            env.engine.table.lock().place(root).unwrap().extent.parts()[0].start_block * BLOCK
        };
        let roots: Vec<u64> = lost.iter().map(root_at).collect();
        env.close().unwrap();
        drop(env);
        (0..4).for_each(|copy| smash(&device, copy * BLOCK, 2000));
        roots.into_iter().for_each(|at| smash(&device, at, 100));

        let rescued = Env::open_for_rescue(device.clone(), options(), &mut |_| ()).unwrap();
        let env = Env::open_for_repair(device.clone(), options(), &mut |_| ()).unwrap();
        for dict in 0..DICTS {
            let is_lost = lost.contains(&dict);
            for env in [&rescued, &env] {
                assert_eq!(value(dict, env).ok(), (!is_lost).then_some(Some(dict)), "{lost:?}: {dict}");
            }
        }
    }
}

#[test]
fn a_volume_with_fewer_dictionaries_than_are_used_is_refused() {
    let (device, _) = closed();
    let options = || Options { dicts_min: 2, ..options() };
    let refused = Error::NoSuchDictionary { id: 1 };
    assert_eq!(Env::open(device.clone(), options()).unwrap_err(), refused);
    assert_eq!(Env::open_for_rescue(device, options(), &mut |_| ()).unwrap_err(), refused);
}
