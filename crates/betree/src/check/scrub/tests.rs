use alloc::string::String;
use alloc::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use betree_platform::{Device, DeviceError, DeviceOp};

use super::*;
use crate::batch::Batch;
use crate::io::mem::MemDevice;
use crate::settings::{DictId, Geometry, Options};
use crate::upsert::Replace;

const D: DictId = DictId(0);
const GEOMETRY: Geometry =
    Geometry { node_bytes: 16 << 10, basement_bytes: 4 << 10, fanout_max: 8, log_bytes: 1 << 20, dicts: 2 };

/// Counts the reads of each block, and is released after a number of reads.
struct Counting {
    device: Arc<MemDevice>,
    reads: Mutex<Vec<u32>>,
    reads_left: AtomicU32,
}

impl Counting {
    fn new(device: Arc<MemDevice>) -> Counting {
        let (reads, reads_left) = (Mutex::new(alloc::vec![0; 4096]), AtomicU32::new(u32::MAX));
        Counting { device, reads, reads_left }
    }
}

impl Device for Counting {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> core::result::Result<(), DeviceError> {
        let take = |left: u32| left.checked_sub(1);
        if self.reads_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err() {
            return Err(DeviceError { op: DeviceOp::Read, offset, len: buf.len() as u64, errno: 108 });
        }
        let first = (offset / BLOCK) as usize;
        let mut reads = self.reads.lock().unwrap();
        reads[first..first + buf.len() / BLOCK_BYTES].iter_mut().for_each(|count| *count += 1);
        drop(reads);
        self.device.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> core::result::Result<(), DeviceError> {
        self.device.write_at(offset, buf)
    }
    fn sync(&self) -> core::result::Result<(), DeviceError> {
        self.device.sync()
    }
    fn len(&self) -> u64 {
        self.device.len()
    }
    fn seeks(&self) -> bool {
        // Blocks that a node keeps may have bytes that nothing needs.
        true
    }
    fn discard(&self, offset: u64, len: u64) -> core::result::Result<(), DeviceError> {
        self.device.discard(offset, len)
    }
}

/// A volume of 16 MiB with some hundred nodes on the device, and its reads.
struct Volume {
    device: Arc<Counting>,
    env: Arc<Env>,
}

impl Volume {
    fn new() -> Volume {
        let device = MemDevice::new(4096);
        Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
        let device = Arc::new(Counting::new(device));
        let env = Volume::open(&device);
        for round in 0..40_u32 {
            let mut batch = Batch::new();
            for number in 0..100_u32 {
                let key = (number * 7919 + round).to_be_bytes();
                batch.put(D, &key, &seeded::bytes(u64::from(number), u64::from(round), 700));
            }
            env.commit(&batch).unwrap();
            while env.run_due_work().unwrap() {}
        }
        env.checkpoint().unwrap();
        Volume { device, env }
    }

    fn open(device: &Arc<Counting>) -> Arc<Env> {
        Arc::new(Env::open(device.clone(), Options::new(256 << 10, Arc::new(Replace))).unwrap())
    }

    fn reopen(self) -> Volume {
        let Volume { device, env } = self;
        env.close().unwrap();
        drop(env);
        Volume { env: Volume::open(&device), device }
    }

    /// Scrubs until it has made so many steps. Returns the record and what was found.
    fn scrub(&self, from: ScrubFrom, steps: usize) -> (ScrubRecord, Vec<Finding>) {
        let mut found = Vec::new();
        let mut made = 0;
        let options = ScrubOptions { from, ..ScrubOptions::READ_ALL };
        let record = self.env.scrub(options, &mut |finding| found.push(finding), &mut |step| {
            assert!(step.bytes > 0 && step.done_bytes <= step.all_bytes, "{step:?}");
            made += 1;
            if made < steps { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        (record.unwrap(), found)
    }

    fn forget_reads(&self) {
        self.device.reads.lock().unwrap().fill(0);
    }

    /// The blocks that were read, each with the number of reads.
    fn reads(&self) -> Vec<(usize, u32)> {
        let reads = self.device.reads.lock().unwrap();
        reads.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect()
    }

    /// The blocks of superblocks, node table and nodes.
    fn stored(&self) -> Vec<usize> {
        let committed = self.env.checkpoint.lock();
        let mut extents = Vec::from_iter(committed.directories().cloned());
        let table = self.env.engine.table.lock();
        extents.extend(table.page_extents().map(|(_, extent)| extent.clone()));
        extents.extend(table.extents_in(0, usize::MAX).unwrap());
        let parts = extents.iter().flat_map(|extent| extent.parts().to_vec());
        let mut blocks: Vec<usize> = parts
            .flat_map(|part| part.start_block..part.start_block + part.len_blocks)
            .map(|b| b as usize)
            .collect();
        blocks.extend(0..4);
        blocks.sort_unstable();
        blocks
    }
}

#[test]
fn each_stored_block_is_read_once() {
    let volume = Volume::new();
    let stored = volume.stored();
    volume.forget_reads();
    let (record, found) = volume.scrub(ScrubFrom::Start, usize::MAX);
    assert_eq!(found, []);
    assert_eq!(volume.reads(), stored.iter().map(|block| (*block, 1)).collect::<Vec<_>>());
    assert!(stored.len() > 300, "{}", stored.len());
    assert_eq!(record.read_bytes, stored.len() as u64 * BLOCK);
    assert_eq!((record.state, record.problems, record.next_slot), (ScrubState::Complete, 0, 0));
}

#[test]
fn a_scrub_that_was_interrupted_goes_on_after_the_next_opening() {
    let volume = Volume::new();
    let (all, _) = volume.scrub(ScrubFrom::Start, usize::MAX);
    let slots = volume.env.engine.table.lock().slots_len();
    assert!(slots > 3 * SLOTS_AT_ONCE, "{slots} slots");
    // In the second group of slots.
    let (first, _) = volume.scrub(ScrubFrom::Start, SLOTS_AT_ONCE as usize + 10);
    assert_eq!((first.state, first.next_slot), (ScrubState::Interrupted, SLOTS_AT_ONCE));
    let volume = volume.reopen();
    assert_eq!(volume.env.last_scrub(), Some(first));
    volume.forget_reads();
    let (whole, _) = volume.scrub(ScrubFrom::LastStop, usize::MAX);
    assert_eq!((whole.state, whole.began_ns), (ScrubState::Complete, first.began_ns));
    let read = volume.reads().len() as u64 * BLOCK;
    assert_eq!(read, whole.read_bytes - first.read_bytes);
    assert!(read < all.read_bytes * 9 / 10, "{read} of {}", all.read_bytes);
    assert!(whole.read_bytes >= all.read_bytes);
    // A complete one begins anew.
    let (again, _) = volume.scrub(ScrubFrom::LastStop, usize::MAX);
    assert!(again.read_bytes < whole.read_bytes);
}

#[test]
fn the_record_survives_a_crash_and_is_not_that_of_a_copy() {
    let volume = Volume::new();
    assert_eq!(volume.env.last_scrub(), None);
    let (record, _) = volume.scrub(ScrubFrom::Start, usize::MAX);
    let mut backup = volume.env.backup().unwrap();
    let mut copy = alloc::vec![0; backup.volume_bytes() as usize];
    while let Some((offset, piece)) = backup.next_piece().unwrap() {
        copy[offset as usize..offset as usize + piece.len()].copy_from_slice(piece);
    }
    drop(backup);
    volume.env.abandon();
    assert_eq!(Volume::open(&volume.device).last_scrub(), Some(record));
    let device = Arc::new(Counting::new(MemDevice::holding(copy)));
    assert_eq!(Volume::open(&device).last_scrub(), None);
}

/// Rot in the middle of each block, each time another: blocks that hold nothing but zeros behind the last run
/// of a node have no checksum.
#[test]
fn damage_of_any_block_is_found_as_a_check_finds_it() {
    let volume = Volume::new();
    let stored = volume.stored();
    let mut unread = 0;
    for block in stored.iter().copied().step_by(7) {
        let byte = block * BLOCK_BYTES + 8;
        volume.device.device.flip(byte * 8 + 3);
        let mut checked = Vec::new();
        let check = &mut |finding: Finding| checked.push(finding);
        volume.env.check_in_use(check, &mut |_, _| ControlFlow::Continue(())).unwrap();
        // At its end it writes the superblock anew.
        let (record, found) = volume.scrub(ScrubFrom::Start, usize::MAX);
        checked.retain(|finding| finding.is_problem);
        // A check also tells what the damage keeps it from.
        let seen = |found: &[Finding]| -> Vec<(Code, String, Option<super::super::KeyRange>)> {
            found.iter().map(|f| (f.code, f.what.clone(), f.keys.clone())).collect()
        };
        assert_eq!(seen(&found), seen(&checked), "block {block}");
        assert_eq!(record.problems, found.len() as u64);
        unread += usize::from(found.is_empty());
        if block >= 4 {
            volume.device.device.flip(byte * 8 + 3);
        }
    }
    assert!(unread < stored.len() / 7 / 20, "{unread} of {} are not noticed", stored.len() / 7);
}

#[test]
fn blocks_that_the_device_refuses_hide_no_others_of_their_node() {
    let volume = Volume::new();
    let place = {
        let table = volume.env.engine.table.lock();
        let leaf = table.nodes().find(|(id, height, _)| {
            *height == 0 && table.place(*id).is_some_and(|place| place.extent.len_blocks() > 1)
        });
        table.place(leaf.unwrap().0).unwrap()
    };
    let bad = place.extent.place(BLOCK) as usize;
    volume.device.device.fail_reads_of(bad..bad + 1);
    let (record, found) = volume.scrub(ScrubFrom::Start, usize::MAX);
    assert!(
        found.iter().all(|finding| finding.code == Code::BadPiece && finding.keys.is_some()),
        "{found:?}"
    );
    assert!((1..=3).contains(&record.problems), "{found:?}");
}

/// What was found is told even if the end of the scrub cannot be written.
#[test]
fn damage_is_told_though_newer_changes_cannot_be_written() {
    let changed = |is_damaged: bool| {
        let volume = Volume::new();
        let leaf = volume.env.engine.table.lock().nodes().find(|(_, height, _)| *height == 0).unwrap().0;
        let at = volume.env.engine.table.lock().place(leaf).unwrap().extent.place(0) as usize;
        if is_damaged {
            volume.device.device.flip((at + 8) * 8);
        }
        let mut batch = Batch::new();
        batch.put(D, b"new", b"one");
        volume.env.commit(&batch).unwrap();
        volume.device.device.fail_writes(true);
        volume
    };
    let sound = changed(false);
    let go_on = &mut |_| ControlFlow::Continue(());
    let scrubbed = sound.env.scrub(ScrubOptions::READ_ALL, &mut |found| panic!("{found}"), go_on);
    assert!(scrubbed.is_err(), "that it was made is not kept");
    sound.env.abandon();

    let volume = changed(true);
    let (record, found) = volume.scrub(ScrubFrom::Start, usize::MAX);
    assert_eq!((record.state, record.problems), (ScrubState::Complete, 1));
    let told: Vec<(Code, bool)> = found.iter().map(|found| (found.code, found.is_problem)).collect();
    assert_eq!(told, [(Code::BadNode, true), (Code::LogNotChecked, false)]);
    assert!(found.iter().any(|found| found.what.contains("newest changes")), "{found:?}");
    volume.env.abandon();
}

#[test]
fn copies_of_superblocks_and_node_table_are_mended_if_that_is_asked_for() {
    let volume = Volume::new();
    let page = volume.env.engine.table.lock().page(0).unwrap().unwrap();
    let copy = page.copy.unwrap();
    // A copy of each superblock, and one of a page.
    let bytes = [100, BLOCK_BYTES as u64 * 3 + 100, copy.place(0) + 8];
    bytes.iter().for_each(|byte| volume.device.device.flip(*byte as usize * 8));
    let scrub = |on_damage| {
        let mut found = Vec::new();
        let options = ScrubOptions { on_damage, ..ScrubOptions::READ_ALL };
        let tell = &mut |finding: Finding| found.push(finding.code);
        volume.env.scrub(options, tell, &mut |_| ControlFlow::Continue(())).unwrap();
        found
    };
    let page_is_bad = |found: &[Code]| found.contains(&Code::BadCopy);
    assert_eq!(scrub(OnDamage::Tell), [Code::BadSuperblock, Code::BadSuperblock, Code::BadCopy]);
    let found = scrub(OnDamage::Mend);
    assert!(page_is_bad(&found) && found.contains(&Code::BadSuperblock), "{found:?}");
    assert_eq!(scrub(OnDamage::Tell), []);
}

/// A close releases the device, perhaps in the middle of a scrub or a check: then reads fail.
#[test]
fn a_close_interrupts_scrubs_and_checks_and_is_no_finding() {
    for reads in (0..60).chain([100, 200]) {
        let volume = Volume::new();
        volume.device.reads_left.store(reads, Ordering::SeqCst);
        let errors = volume.env.errors();
        let (record, found) = volume.scrub(ScrubFrom::Start, usize::MAX);
        assert_eq!(
            (record.state, record.problems, found),
            (ScrubState::Interrupted, 0, alloc::vec![]),
            "{reads} reads"
        );
        let mut found = Vec::new();
        let mut tell = |finding| found.push(finding);
        let checked = volume.env.check_in_use(&mut tell, &mut |_, _| ControlFlow::Continue(()));
        assert_eq!((checked, found), (Err(Error::Interrupted), alloc::vec![]), "{reads} reads");
        assert_eq!(volume.env.errors(), errors, "{reads} reads");
        volume.env.abandon();
    }
}
