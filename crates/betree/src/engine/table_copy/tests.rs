use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::batch::Batch;
use crate::check::FindingCode;
use crate::env::Env;
use crate::io::mem::MemDevice;
use crate::settings::{DictId, Geometry, OpenMode, Options};
use crate::upsert::Replace;

const D: DictId = DictId(0);
const BLOCK: usize = BLOCK_BYTES;
/// The node table has several pages.
const GEOMETRY: Geometry =
    Geometry { node_bytes: 4096, basement_bytes: 1024, fanout_max: 4, log_bytes: 64 << 10, dicts: 1 };

fn options() -> Options {
    Options::new(1 << 20, Arc::new(Replace))
}

fn value(number: u32) -> Vec<u8> {
    seeded::bytes(u64::from(number), 0, 400)
}

fn put(env: &Env, numbers: core::ops::Range<u32>) -> Result<()> {
    for number in numbers {
        let mut batch = Batch::new();
        batch.put(D, &number.to_be_bytes(), &value(number));
        env.throttle(batch.bytes())?;
        env.commit(&batch)?;
        while env.run_due_work()? {}
    }
    Ok(())
}

const PAIRS: u32 = 1500;

/// A closed volume of 8 MiB, and the blocks of its node table: the first copies and the second ones, of each
/// the directory before the pages.
fn volume() -> (Vec<u8>, [Vec<usize>; 2]) {
    let device = MemDevice::new(2048);
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    let env = Env::open(device.clone(), options()).unwrap();
    put(&env, 0..PAIRS).unwrap();
    env.close().unwrap();
    let blocks = {
        let committed = env.checkpoint.lock();
        let table = env.engine.table.lock();
        let pages: Vec<_> = (0..).map_while(|index| table.page(index)).flatten().collect();
        assert!(pages.len() >= 4, "{} pages", pages.len());
        let first = committed.directory.iter().chain(pages.iter().map(|page| &page.extent));
        let copies = pages.iter().map(|page| page.copy.as_ref().unwrap());
        let second = committed.directory_copy.iter().chain(copies);
        let blocks_of = |extents: Vec<&Arc<Extent>>| -> Vec<usize> {
            let parts = extents.iter().flat_map(|extent| extent.parts());
            parts
                .flat_map(|part| part.start_block..part.start_block + part.len_blocks)
                .map(|b| b as usize)
                .collect()
        };
        [blocks_of(first.collect()), blocks_of(second.collect())]
    };
    (device.bytes(), blocks)
}

fn assert_reads_right(env: &Env) {
    for number in 0..PAIRS {
        assert_eq!(env.get(D, &number.to_be_bytes()).unwrap(), Some(value(number)), "{number}");
    }
}

/// The codes of the problems of a volume that is opened for reading.
fn problems(device: &Arc<MemDevice>) -> Vec<FindingCode> {
    let options = Options { mode: OpenMode::ReadOnly, ..options() };
    let env = Env::open(device.clone(), options).unwrap();
    let mut found = Vec::new();
    env.check(&mut |finding| found.push(finding), &mut |_, _| ()).unwrap();
    found.into_iter().filter(|finding| finding.is_problem).map(|finding| finding.code).collect()
}

/// A device with these contents and a flipped bit in each of some blocks.
fn rotten(bytes: &[u8], blocks: &[usize]) -> Arc<MemDevice> {
    let device = MemDevice::holding(bytes.to_vec());
    blocks.iter().for_each(|block| device.flip((block * BLOCK + 20) * 8));
    device
}

#[test]
fn rot_of_any_block_of_a_first_copy_is_read_from_the_second_and_mended() {
    let (bytes, [first, second]) = volume();
    assert_eq!(first.len(), second.len());
    for block in first {
        let device = rotten(&bytes, &[block]);
        assert_eq!(problems(&device), [FindingCode::BadCopy], "block {block}");
        let env = Env::open(device.clone(), options()).unwrap();
        assert_eq!(env.stats().copies_used, 1, "block {block}");
        assert_reads_right(&env);
        env.close().unwrap();
        drop(env);
        assert_eq!(problems(&device), [], "block {block}");
    }
}

#[test]
fn rot_of_any_block_of_a_second_copy_hinders_nobody_and_is_told() {
    let (bytes, [_, second]) = volume();
    for block in second {
        let device = rotten(&bytes, &[block]);
        assert_eq!(problems(&device), [FindingCode::BadCopy], "block {block}");
        let env = Env::open(device.clone(), options()).unwrap();
        assert_eq!(env.stats().copies_used, 0);
        assert_reads_right(&env);
        // A repair writes it anew.
        let device = rotten(&bytes, &[block]);
        let mode = OpenMode::Repair;
        let env = Env::open(device.clone(), Options { mode, ..options() }).unwrap();
        env.write_repair().unwrap();
        drop(env);
        assert_eq!(problems(&device), [], "block {block}");
    }
}

#[test]
fn a_directory_and_pages_may_be_read_from_different_copies() {
    let (bytes, [first, second]) = volume();
    let directory = first[0];
    // All first copies, all second ones; a first directory beside other pages, and the other way round.
    for blocks in [&first[..], &first[1..], &[directory][..], &[second[0]], &second[1..]] {
        let env = Env::open(rotten(&bytes, blocks), options()).unwrap();
        assert_reads_right(&env);
    }
    for lost in [[directory, second[0]], [first[1], second[1]], [directory, second[1]], [first[1], second[0]]]
    {
        let refused = Env::open(rotten(&bytes, &lost), options());
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{lost:?}");
    }
}

/// The pages that the first directory led to are not known, so that others may get their blocks.
#[test]
fn a_crash_after_an_opening_by_the_second_directory_leaves_one_of_both() {
    let (bytes, [first, _]) = volume();
    let device = rotten(&bytes, &first[..1]);
    let env = Env::open(device.clone(), options()).unwrap();
    put(&env, PAIRS..PAIRS + 200).unwrap();
    env.abandon();
    drop(env);
    for keeps in [false, true] {
        let left = MemDevice::holding(device.crashed_bytes(|| keeps));
        assert_reads_right(&Env::open(left, options()).unwrap());
    }
}

#[test]
fn without_room_there_are_no_copies_and_the_same_fits() {
    let device = MemDevice::new(1024);
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    let env = Env::open(device.clone(), options()).unwrap();
    let mut numbers = 0..u32::MAX;
    while put(&env, numbers.start..numbers.start + 1).is_ok() {
        numbers.start += 1;
    }
    env.checkpoint().unwrap();
    let with_copies = env.engine.table.lock().page_extents().count();
    let pages = (0..).map_while(|index| env.engine.table.lock().page(index)).count();
    assert!(with_copies < 2 * pages, "{with_copies} extents of {pages} pages");
    let mut found = Vec::new();
    env.check(&mut |finding| found.push(finding), &mut |_, _| ()).unwrap();
    assert_eq!(found, []);
}

#[test]
fn a_superblock_of_a_program_that_knows_no_copies_has_none() {
    let (bytes, _) = volume();
    let device = MemDevice::holding(bytes);
    let disk = crate::io::Disk::new(device.clone());
    let superblock = crate::format::superblock::slots::load(&disk).unwrap().superblock;
    let generation = superblock.generation + 1;
    let later = crate::format::superblock::Superblock { generation, ..superblock };
    crate::format::superblock::slots::store(&disk, &later).unwrap();
    assert_eq!(problems(&device), []);
    let env = Env::open(device, options()).unwrap();
    assert_reads_right(&env);
    let mut found: Vec<String> = Vec::new();
    env.check(&mut |finding| found.extend(finding.into_problem()), &mut |_, _| ()).unwrap();
    assert_eq!(found, Vec::<String>::new());
}
