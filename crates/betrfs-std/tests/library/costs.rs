//! What operations on whole trees cost, as counts: the same whatever the tree holds.

use betrfs::{OpCount, OpKind};
use betrfs_std::Fs;

use crate::support::*;

/// A directory of so many files, all of it on the device.
fn tree(fs: &Fs, name: &str, files: usize) {
    fs.create_dir(name).unwrap();
    let dir = fs.open_dir(name).unwrap();
    for at in 0..files {
        dir.write(format!("file-{at}"), vec![at as u8; 700]).unwrap();
    }
    fs.sync().unwrap();
}

/// What the operations of the volume cost meanwhile, in all.
fn cost(fs: &Fs, run: impl FnOnce()) -> OpCount {
    let all = || {
        let counters = fs.volume().counters();
        OpKind::ALL.iter().map(|kind| counters.of(*kind)).fold(OpCount::default(), |sum, count| OpCount {
            calls: sum.calls + count.calls,
            queries: sum.queries + count.queries,
            scans: sum.scans + count.scans,
            commits: sum.commits + count.commits,
            visited: sum.visited + count.visited,
            visited_at_once_max: 0,
        })
    };
    let before = all();
    run();
    let after = all();
    OpCount {
        calls: after.calls - before.calls,
        queries: after.queries - before.queries,
        scans: after.scans - before.scans,
        commits: after.commits - before.commits,
        visited: after.visited - before.visited,
        visited_at_once_max: 0,
    }
}

#[test]
fn whole_trees_cost_the_same_whatever_they_hold() {
    let costs = [10, 3000].map(|files| {
        let scratch = Scratch::new();
        tree(&scratch.fs, "tree", files);
        let Scratch { fs, folder: _folder } = scratch.reopened();
        // Its record comes to memory, with or without an attempt that begins anew.
        fs.metadata("tree").unwrap();
        let rename = cost(&fs, || fs.rename("tree", "moved").unwrap());
        let clone = cost(&fs, || fs.clone_tree("moved", "copy").unwrap());
        let snapshot = cost(&fs, || fs.snapshot("moved", "one").unwrap());
        let drop_snapshot = cost(&fs, || fs.remove_snapshot("moved", "one").unwrap());
        let remove = cost(&fs, || fs.rm_tree("moved").unwrap());
        assert_eq!(fs.walk("copy").min_depth(1).count(), files);
        [rename, clone, snapshot, drop_snapshot, remove]
    });
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0].iter().all(|cost| cost.queries + cost.scans < 20 && cost.commits <= 2), "{costs:?}");
}

#[test]
fn a_small_new_file_is_one_batch() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.create_dir("dir").unwrap();
    let dir = fs.open_dir("dir").unwrap();
    dir.write("first", "").unwrap();
    let new = cost(&fs, || dir.write("second", "text").unwrap());
    assert_eq!((new.commits, new.queries + new.scans), (1, 0), "{new:?}");
}
