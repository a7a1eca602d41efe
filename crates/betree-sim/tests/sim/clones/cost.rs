//! The cost of a clone, a rename and a delete does not depend on the number of entries.

use std::sync::Arc;

use betree::{Batch, Cut};
use betree_sim::{Counts, MemDevice};

use super::{D, SIZES, assert_sound, commit, count, dir, key, open, volume};

/// Nodes that an operation may read, and nodes that the next checkpoint may write for it: a path or two of at
/// most eight levels, and the nodes mended beside them.
const NODES_MAX: u64 = 40;

/// The reads of an operation on a volume just opened, and the writes of a checkpoint after it.
fn costs(device: &Arc<MemDevice>, change: impl FnOnce(&mut Batch)) -> (Counts, Counts) {
    let env = open(device);
    env.checkpoint().unwrap();
    let before = device.counts();
    commit(&env, change);
    let read = device.counts().since(&before);
    let before = device.counts();
    env.checkpoint().unwrap();
    let written = device.counts().since(&before);
    while env.run_due_work().unwrap() {}
    env.close().unwrap();
    (read, written)
}

#[test]
fn a_clone_a_rename_and_a_delete_cost_the_same_at_any_size() {
    let device = volume();
    for (index, size) in SIZES.into_iter().enumerate() {
        let source = dir(size);
        let (copy, moved) = (format!("/copy{index}\0").into_bytes(), format!("/moved{index}\0").into_bytes());
        let (read, written) = costs(&device, |batch| batch.clone_range(D, &source, &copy));
        assert!(
            read.reads <= 2 * NODES_MAX && written.writes <= NODES_MAX,
            "clone of {size}: {read:?} {written:?}"
        );
        let (read, written) = costs(&device, |batch| batch.rename_range(D, &copy, &moved));
        assert!(
            read.reads <= 2 * NODES_MAX && written.writes <= NODES_MAX,
            "rename of {size}: {read:?} {written:?}"
        );
        let env = open(&device);
        assert_eq!((count(&env, &source), count(&env, &copy)), (size as usize, 0), "{size}");
        assert_eq!(count(&env, &moved), size as usize);
        let value = env.get(D, &key(&moved, size / 2)).unwrap();
        assert_eq!(value, Some((size / 2).to_be_bytes().repeat(6)));
        drop(env);
        let (read, written) = costs(&device, |batch| {
            batch.delete_range(D, &Cut::before(moved.clone()), &Cut::after(moved.clone()))
        });
        assert!(
            read.reads <= 2 * NODES_MAX && written.writes <= NODES_MAX,
            "delete of {size}: {read:?} {written:?}"
        );
    }
    assert_sound(&open(&device));
}

/// The bytes that a scan reads on a volume just opened.
fn scanned_bytes(device: &Arc<MemDevice>, dir: &[u8], entries: usize) -> u64 {
    let env = open(device);
    let before = device.counts();
    assert_eq!(count(&env, dir), entries);
    device.counts().since(&before).read_bytes
}

#[test]
fn a_scan_reads_no_more_after_a_clone_or_a_rename() {
    let device = volume();
    let size = 100_000;
    let (source, copy, moved) = (dir(size), b"/copy\0".to_vec(), b"/moved\0".to_vec());
    let before = scanned_bytes(&device, &source, size as usize);
    let change = |fill: &dyn Fn(&mut Batch)| {
        let env = open(&device);
        commit(&env, fill);
        while env.run_due_work().unwrap() {}
        env.close().unwrap();
    };
    let assert_as_before = |dir: &[u8]| {
        let now = scanned_bytes(&device, dir, size as usize);
        assert!(
            now <= before + before / 10,
            "{now} bytes for {:?}, before it was {before}",
            dir.escape_ascii()
        );
    };
    change(&|batch| batch.clone_range(D, &source, &copy));
    assert_as_before(&source);
    assert_as_before(&copy);
    change(&|batch| batch.rename_range(D, &copy, &moved));
    assert_as_before(&moved);
    // Writes to the copy give it nodes of its own, which are as full.
    change(&|batch| {
        (0..size).step_by(100).for_each(|at| batch.put(D, &key(&moved, at), &at.to_be_bytes().repeat(6)))
    });
    assert_as_before(&source);
    assert_as_before(&moved);
}
