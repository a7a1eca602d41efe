//! A hundred clones of a real source tree, each changed a little and compared with a model on another file
//! system; and the space after their removal.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use betree_sim::Rng;

use crate::compare::assert_same;
use crate::mounted::{Mounted, betrfs, ok};
use crate::programs::{check_is_clean, program, setting, source_tar, succeed, unpack};

const CLONES: usize = 100;
/// Files changed in each clone.
const CHANGES: usize = 100;
/// Bytes changed in each of these files.
const CHANGE_BYTES: usize = 1000;
/// Limit of the space for each change: most of its leaf and the path to the leaf are no longer shared.
const CHANGE_SPACE_BYTES_MAX: u64 = 256 << 10;

/// The used space of a mount once deletes are carried out. By itself the server does that in batches, so that
/// a sync alone leaves as much to do as happens to be in the last one.
fn used_bytes(mounted: &Mounted) -> u64 {
    quietly(betrfs().arg("trim").arg(&mounted.dir));
    let room = rustix::fs::statvfs(&mounted.dir).unwrap();
    (room.f_blocks - room.f_bfree) * room.f_frsize
}

/// All regular files below a directory, as paths from it.
fn files_below(top: &Path) -> Vec<PathBuf> {
    let listed = succeed(program(300, ["find", ".", "-type", "f"]).current_dir(top));
    let mut files: Vec<PathBuf> = listed.lines().map(PathBuf::from).collect();
    files.sort();
    files
}

/// The files to change in a clone, each with an offset and the bytes to write.
fn changes(clone: usize, files: &[PathBuf]) -> Vec<(&Path, u64, Vec<u8>)> {
    let mut rng = Rng::new(clone as u64);
    let changes = (0..CHANGES).map(|_| {
        let file = rng.pick(files);
        let bytes = crate::programs::noise(rng.next_u64(), CHANGE_BYTES);
        (file.as_path(), rng.below(20_000) as u64, bytes)
    });
    changes.collect()
}

fn apply(top: &Path, changes: &[(&Path, u64, Vec<u8>)]) {
    for (file, offset, bytes) in changes {
        let file = OpenOptions::new().write(true).open(top.join(file)).unwrap();
        file.write_all_at(bytes, *offset).unwrap();
    }
}

/// Asserts that changed files are equal in both trees, and reverts the changes in the model.
fn assert_changed(model: &Path, pristine: &Path, clone: &Path, changes: &[(&Path, u64, Vec<u8>)]) {
    for (file, ..) in changes {
        let (left, right) = (fs::read(model.join(file)).unwrap(), fs::read(clone.join(file)).unwrap());
        assert!(left == right, "{}", clone.join(file).display());
    }
    for (file, ..) in changes {
        fs::copy(pristine.join(file), model.join(file)).unwrap();
    }
}

fn quietly(command: &mut Command) {
    ok(&command.output().unwrap());
}

#[test]
fn a_hundred_clones_of_a_tree_change_apart_and_their_space_is_freed() {
    let tar = source_tar();
    let elsewhere = tempfile::tempdir().unwrap();
    let (pristine, model) = (elsewhere.path().join("pristine"), elsewhere.path().join("model"));
    fs::create_dir(&pristine).unwrap();
    unpack(&tar, &pristine);
    succeed(program(600, ["cp", "--archive"]).arg(&pristine).arg(&model));

    let start = Instant::now();
    let lap = |what: &str| println!("{:6.1} s: {what}", start.elapsed().as_secs_f64());
    let mounted = Mounted::of_size("16G");
    mounted.mount();
    let tree = mounted.path("tree");
    fs::create_dir(&tree).unwrap();
    unpack(&tar, &tree);
    let before = used_bytes(&mounted);
    let files = files_below(&pristine);
    lap("unpacked");

    for clone in 0..CLONES {
        quietly(betrfs().arg("clone").arg(&tree).arg(mounted.path(format!("clone{clone}"))));
    }
    lap("cloned a hundred times");
    // Whatever the tree has: what it has open or linked is looked for, and the ranges of its keys are cloned.
    let costs = &mounted.stats()["operations"]["clone"];
    let costs = ["calls", "queries", "scans", "commits"].map(|what| costs[what].as_u64().unwrap());
    assert_eq!(costs, [CLONES as u64, 0, 2 * CLONES as u64, CLONES as u64]);
    let cloned = used_bytes(&mounted);
    println!("{} bytes a clone", cloned.saturating_sub(before) / CLONES as u64);

    for clone in 0..CLONES {
        apply(&mounted.path(format!("clone{clone}")), &changes(clone, &files));
    }
    let changed = used_bytes(&mounted).saturating_sub(cloned);
    lap("changed");
    println!("{} bytes a change", changed / (CLONES * CHANGES) as u64);
    assert!(changed < (CLONES * CHANGES) as u64 * CHANGE_SPACE_BYTES_MAX, "{changed} bytes");

    mounted.remount();
    // The changes of every clone are compared; whole clones only as many as time allows.
    let whole = setting("BETRFS_CLONES_COMPARED", 2) as usize;
    for clone in 0..CLONES {
        let changes = changes(clone, &files);
        apply(&model, &changes);
        let copy = mounted.path(format!("clone{clone}"));
        if clone % CLONES.div_ceil(whole.max(1)) == 0 {
            succeed(program(900, ["diff", "--recursive", "--no-dereference"]).arg(&model).arg(&copy));
        }
        assert_changed(&model, &pristine, &copy, &changes);
    }
    assert_same(&pristine, &tree);
    lap("compared");

    for clone in 0..CLONES {
        quietly(betrfs().arg("rm-tree").arg(mounted.path(format!("clone{clone}"))));
    }
    lap("removed");
    let left = used_bytes(&mounted);
    println!("{before} bytes used before, {left} after");
    assert!(left < before + before / 50, "{before} bytes used before, {left} after");
    assert_same(&pristine, &tree);
    mounted.umount();
    check_is_clean(&mounted.volume);
    lap("checked");
}
