//! Clones, snapshots and removals by the command while other processes write, rename and map: each copy is
//! the source as it was at one moment. As in the library's tests, a writer goes round files in a fixed order,
//! so that a copy's contents show the number of writes in it.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use crate::mapping::Mapping;
use crate::mounted::{Mounted, SetOnDrop, betrfs, ok};

const FILES: u64 = 8;
const LARGE_BYTES: usize = 70_000;
const MAPPED_BYTES: usize = 100_000;
/// Rounds of each thread that makes copies.
const ROUNDS: u64 = 12;
/// Copies at once.
const AT_ONCE: usize = 8;

/// Numbers of writes, begun and done.
#[derive(Default)]
struct Writes {
    begun: AtomicU64,
    done: AtomicU64,
}

fn len_of(file: u64) -> usize {
    if file.is_multiple_of(3) { LARGE_BYTES } else { 100 }
}

fn path_of(file: u64) -> PathBuf {
    Path::new(if file.is_multiple_of(2) { "x" } else { "y" }).join(file.to_string())
}

/// The number of writes in a copy, which nobody changes now; panics if it is the source at no moment.
fn moment(copy: &Path) -> u64 {
    let value = |file: u64| {
        let bytes = fs::read(copy.join(path_of(file))).unwrap();
        let value = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        let expected = value.to_le_bytes().into_iter().cycle().take(len_of(file));
        assert!(bytes.into_iter().eq(expected), "{}: a part of write {value}", copy.display());
        value
    };
    let values: Vec<u64> = (0..FILES).map(value).collect();
    let writes = values.iter().sum();
    let expected: Vec<u64> = (0..FILES).map(|file| (writes + FILES - 1 - file) / FILES).collect();
    assert_eq!(values, expected, "{}", copy.display());
    writes
}

/// Runs [`AT_ONCE`] commands at once; `arguments` returns those for each number.
fn at_once(command: &[&str], arguments: impl Fn(usize) -> Vec<PathBuf>) {
    let start = |i| {
        let mut process = betrfs();
        process.args(command).args(arguments(i)).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let started: Vec<_> = (0..AT_ONCE).map(start).collect();
    started.into_iter().for_each(|process| ok(&process.wait_with_output().unwrap()));
}

fn source_files(source: &Path) -> Vec<File> {
    let open = |file| OpenOptions::new().write(true).open(source.join(path_of(file))).unwrap();
    (0..FILES).map(open).collect()
}

fn write(files: &[File], writes: &Writes, over: &AtomicBool) {
    let _over = SetOnDrop(over);
    let mut write = 0u64;
    while !over.load(SeqCst) {
        let (file, value) = (write % FILES, write / FILES + 1);
        let bytes: Vec<u8> = value.to_le_bytes().into_iter().cycle().take(len_of(file)).collect();
        write += 1;
        writes.begun.store(write, SeqCst);
        files[file as usize].write_all_at(&bytes, 0).unwrap();
        writes.done.store(write, SeqCst);
    }
}

/// Takes, reads and deletes snapshots of the source while the directory above it may be renamed, so that the
/// source's path may be missing. Returns the number of snapshots taken.
fn snapshot(source: &Path, writes: &Writes, over: &AtomicBool) -> u64 {
    let _over = SetOnDrop(over);
    let run =
        |action: &str, dir: &Path| betrfs().args(["snapshot", action]).arg(dir).arg("s").output().unwrap();
    let moved = source.ancestors().nth(2).unwrap().join("beyond/source");
    let mut taken = 0;
    while !over.load(SeqCst) {
        let done = writes.done.load(SeqCst);
        if ![source, &moved].iter().any(|dir| run("create", dir).status.success()) {
            continue;
        }
        let begun = writes.begun.load(SeqCst);
        // A descriptor stays valid when the path changes.
        let open =
            || [source, &moved].iter().find_map(|dir| File::open(dir.join(".betrfs-snapshots/s")).ok());
        let dir = std::iter::repeat_with(open).find_map(|dir| dir).unwrap();
        let held = moment(&PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())));
        assert!((done..=begun).contains(&held), "{held} of {done}..={begun} writes");
        drop(dir);
        while ![source, &moved].iter().any(|dir| run("delete", dir).status.success()) {}
        taken += 1;
    }
    taken
}

#[test]
fn clones_snapshots_and_removals_at_once_are_moments_of_their_source() {
    let mounted = &Mounted::new();
    let (above, source) = (mounted.path("above"), mounted.path("above/source"));
    for name in ["x", "y"] {
        fs::create_dir_all(source.join(name)).unwrap();
    }
    for file in 0..FILES {
        fs::write(source.join(path_of(file)), vec![0; len_of(file)]).unwrap();
    }
    fs::write(source.join("mapped"), vec![0; MAPPED_BYTES]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(source.join("mapped")).unwrap();
    let mut mapping = Mapping::of(&file, MAPPED_BYTES);
    let (writes, over) = (&Writes::default(), &AtomicBool::new(false));
    let taken = thread::scope(|scope| {
        let _over = SetOnDrop(over);
        let opened = source_files(&source);
        scope.spawn(move || write(&opened, writes, over));
        // Creates and removes in the directory of the copies.
        let beside = mounted.path("beside");
        scope.spawn(move || {
            let _over = SetOnDrop(over);
            while !over.load(SeqCst) {
                fs::create_dir_all(beside.join("dir")).unwrap();
                fs::write(beside.join("dir/file"), b"bytes").unwrap();
                fs::rename(beside.join("dir"), beside.join("other")).unwrap();
                fs::remove_dir_all(&beside).unwrap();
                fs::write(&beside, b"").unwrap();
                fs::remove_file(&beside).unwrap();
            }
        });
        let snapshots = scope.spawn({
            let source = source.clone();
            move || snapshot(&source, writes, over)
        });
        let copy = |round: u64, i: usize| mounted.path(format!("copy {round} {i}"));
        for round in 1..=ROUNDS {
            mapping[50_000..60_000].fill(round as u8);
            let done = writes.done.load(SeqCst);
            at_once(&["clone"], |i| vec![source.clone(), copy(round, i)]);
            let begun = writes.begun.load(SeqCst);
            let twice = |i| mounted.path(format!("copy {round} {i} again"));
            let renamed = mounted.path("beyond");
            // The copies are copied and removed while the directory above their source moves.
            fs::rename(&above, &renamed).unwrap();
            at_once(&["clone"], |i| vec![copy(round, i), twice(i)]);
            for i in 0..AT_ONCE {
                let held = moment(&copy(round, i));
                assert!((done..=begun).contains(&held), "{held} of {done}..={begun} writes");
                assert_eq!(moment(&twice(i)), held);
                let mapped = fs::read(copy(round, i).join("mapped")).unwrap();
                assert!(mapped[50_000..60_000] == [round as u8; 10_000], "the mapping of round {round}");
            }
            at_once(&["rm-tree"], |i| vec![copy(round, i)]);
            (0..AT_ONCE).for_each(|i| assert!(!copy(round, i).exists()));
            at_once(&["rm-tree"], |i| vec![twice(i)]);
            fs::rename(&renamed, &above).unwrap();
        }
        over.store(true, SeqCst);
        snapshots.join().unwrap()
    });
    assert!(taken > 0 && writes.done.load(SeqCst) > FILES);
    assert_eq!(moment(&source), writes.done.load(SeqCst));
    drop((file, mapping));
    mounted.remount();
    assert_eq!(moment(&source), writes.done.load(SeqCst));
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}
