//! Threads clone, snapshot, move and remove a directory while another thread writes in it: each copy is the
//! source as it was at one moment.
//!
//! The writer goes round eight files in a fixed order and counts up the number in each. So a copy's contents
//! show which writes are in it: they must be a prefix of all writes, with every write that had returned when
//! the copy was begun, and none that began after the copy was made.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::dice::Dice;
use crate::support::*;
use betrfs::{Error, InodeId, RenameFlags, SNAPSHOTS_NAME, SnapshotsBelow, Volume};

const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };
const EXCHANGE: RenameFlags = RenameFlags { exchange: true, ..PLAIN };

const FILES: u64 = 8;
/// Size of every third file, whose blocks are so many that they move as a range.
const LARGE_BYTES: usize = 70_000;
/// Number of files in `churn`: made in the order of their names, removed all at once.
const CHURN_FILES: u64 = 5;
/// Number of copies that each thread makes.
const COPIES: u64 = 40;
/// Time without progress after which the threads count as deadlocked.
const STALL: Duration = Duration::from_secs(60);

/// The source, and the writer's progress.
struct Scene<'a> {
    volume: &'a Volume,
    above: InodeId,
    source: InodeId,
    churn: InodeId,
    files: Vec<InodeId>,
    writes_begun: AtomicU64,
    writes_done: AtomicU64,
    is_over: AtomicBool,
    steps: &'a AtomicU64,
}

/// The path of a copy that is kept to the end, and the number of writes in it.
type Kept = (String, u64);

fn bytes_of(file: u64, value: u64) -> Vec<u8> {
    let len = if file.is_multiple_of(3) { LARGE_BYTES } else { 100 + 16 * value as usize };
    if value == 0 { Vec::new() } else { value.to_le_bytes().into_iter().cycle().take(len).collect() }
}

/// Number of writes of a file among the first `writes` writes.
fn value_after(file: u64, writes: u64) -> u64 {
    (writes + FILES - 1 - file) / FILES
}

impl<'a> Scene<'a> {
    /// `/above/source` with the directories `x`, `y` and `churn`. Files are in `x` and `y` in turn,
    /// and one of them has a name in both.
    fn new(volume: &'a Volume, steps: &'a AtomicU64) -> Scene<'a> {
        let above = mkdir(volume, ROOT, "above").node;
        let source = mkdir(volume, above, "source").node;
        let [x, y, churn] = ["x", "y", "churn"].map(|name| mkdir(volume, source, name).node);
        let file = |i: u64| mkfile(volume, if i.is_multiple_of(2) { x } else { y }, &i.to_string()).node;
        let files: Vec<_> = (0..FILES).map(file).collect();
        volume.link(files[5], x, b"5").unwrap();
        let [writes_begun, writes_done] = [0; 2].map(AtomicU64::new);
        let is_over = AtomicBool::new(false);
        Scene { volume, above, source, churn, files, writes_begun, writes_done, is_over, steps }
    }

    /// Counts a step; returns whether a thread without an end of its own makes another round.
    fn goes_on(&self) -> bool {
        self.steps.fetch_add(1, SeqCst);
        !self.is_over.load(SeqCst)
    }

    fn write(&self) {
        let mut write = 0u64;
        while self.goes_on() {
            let (file, value) = (write % FILES, write / FILES + 1);
            write += 1;
            self.writes_begun.store(write, SeqCst);
            self.volume.write(self.files[file as usize], 0, &bytes_of(file, value)).unwrap();
            self.writes_done.store(write, SeqCst);
            if write.is_multiple_of(100) {
                self.volume.sync().unwrap();
            }
        }
    }

    /// Runs the making of a copy; returns also the bounds for the number of writes in the copy.
    fn during<T>(&self, make: impl FnOnce() -> T) -> (T, RangeInclusive<u64>) {
        let done = self.writes_done.load(SeqCst);
        let made = make();
        (made, done..=self.writes_begun.load(SeqCst))
    }

    /// Renames the directory above, the source in it, the directories in the source, and a large file in
    /// these.
    fn rename(&self) {
        let (volume, mut turn) = (self.volume, 0u64);
        let move_to = |from: InodeId, name: &str, to: InodeId, new: &str, flags| {
            volume.rename(from, name.as_bytes(), to, new.as_bytes(), flags).unwrap();
            self.steps.fetch_add(1, SeqCst);
        };
        let [x, y] = ["x", "y"].map(|name| volume.lookup(self.source, name.as_bytes()).unwrap().node);
        while self.goes_on() {
            move_to(ROOT, "above", ROOT, "beyond", PLAIN);
            move_to(self.source, "x", self.source, "y", EXCHANGE);
            move_to(self.above, "source", ROOT, "source", PLAIN);
            move_to(ROOT, "beyond", ROOT, "above", PLAIN);
            let (from, to) = if turn.is_multiple_of(2) { (y, x) } else { (x, y) };
            move_to(from, "3", to, "3", PLAIN);
            move_to(ROOT, "source", self.above, "source", PLAIN);
            turn += 1;
        }
    }

    /// Fills a directory in the source and empties it at once, over and over.
    fn churn(&self) {
        while self.goes_on() {
            for i in 0..CHURN_FILES {
                let file = mkfile(self.volume, self.churn, &i.to_string()).node;
                self.volume.write(file, 0, &[9; LARGE_BYTES]).unwrap();
                self.volume.forget(file, 1);
            }
            self.volume.remove_below(self.churn, SnapshotsBelow::Hold).unwrap();
        }
    }

    /// Opens files that may be removed at any moment: a file that could be opened can be read.
    fn open(&self) {
        let (mut dice, mut out) = (Dice(1), Vec::new());
        while self.goes_on() {
            let name = dice.roll(CHURN_FILES).to_string();
            let Ok(file) = self.volume.lookup(self.churn, name.as_bytes()) else { continue };
            match self.volume.open_inode(file.node) {
                Ok(()) => {
                    for _ in 0..3 {
                        self.volume.read(file.node, 0, LARGE_BYTES, &mut out).unwrap();
                        assert!(out.is_empty() || out == [9; LARGE_BYTES], "a part of a write");
                    }
                    self.volume.release_node(file.node);
                }
                Err(error) => assert_eq!(error, Error::Stale),
            }
            self.volume.forget(file.node, 1);
        }
    }

    /// Makes and removes entries beside the source, and lists the source.
    fn come_and_go(&self) {
        while self.goes_on() {
            let dir = mkdir(self.volume, ROOT, "dir").node;
            let file = mkfile(self.volume, dir, "file").node;
            assert_eq!(self.volume.rmdir(ROOT, b"dir"), Err(Error::NotEmpty));
            self.volume.unlink(dir, b"file").unwrap();
            self.volume.rmdir(ROOT, b"dir").unwrap();
            self.volume.forget(file, 1);
            self.volume.forget(dir, 1);
            let listed = names(self.volume, self.source);
            assert_eq!(listed.len(), 3, "{listed:?}");
        }
    }

    /// Clones the source and the clones, and changes and removes them in turn; keeps one.
    fn clone(&self, thread: u64) -> Vec<Kept> {
        let volume = self.volume;
        for i in 0..COPIES {
            let [one, two] = ["one", "two"].map(|kind| format!("{kind} {thread} {i}"));
            let (copy, bounds) =
                self.during(|| volume.clone_inode(self.source, ROOT, one.as_bytes()).unwrap().node);
            let writes = moment(volume, copy);
            assert!(bounds.contains(&writes), "{writes} of {bounds:?} writes");
            let second = volume.clone_inode(copy, ROOT, two.as_bytes()).unwrap().node;
            deface(volume, copy);
            assert_eq!(moment(volume, second), writes);
            remove(volume, &one, copy);
            assert_eq!(moment(volume, second), writes);
            if i + 1 == COPIES {
                return vec![(format!("/{two}"), writes)];
            }
            remove(volume, &two, second);
            self.steps.fetch_add(1, SeqCst);
        }
        Vec::new()
    }

    /// Takes snapshots of the source, keeps the last, and clones them.
    fn snapshot(&self, thread: u64) -> Vec<Kept> {
        let volume = self.volume;
        let snapshots = volume.lookup(self.source, SNAPSHOTS_NAME).unwrap().node;
        for i in 0..COPIES {
            let [name, clone] = ["s", "clone"].map(|kind| format!("{kind} {thread} {i}"));
            let (taken, bounds) = self.during(|| mkdir(volume, snapshots, &name).node);
            let writes = moment(volume, taken);
            assert!(bounds.contains(&writes), "{writes} of {bounds:?} writes");
            let copy = volume.clone_inode(taken, ROOT, clone.as_bytes()).unwrap().node;
            deface(volume, copy);
            assert_eq!(moment(volume, taken), writes);
            remove(volume, &clone, copy);
            if i + 1 == COPIES {
                return vec![(format!("/above/source/.betrfs-snapshots/{name}"), writes)];
            }
            volume.rmdir(snapshots, name.as_bytes()).unwrap();
            volume.forget(taken, 1);
            self.steps.fetch_add(1, SeqCst);
        }
        Vec::new()
    }
}

/// The number of writes in a copy of the source. Fails unless the copy is the source at one moment.
fn moment(volume: &Volume, copy: InodeId) -> u64 {
    let mut values: Vec<Vec<u64>> = vec![Vec::new(); FILES as usize];
    let mut value_of = |dir: InodeId, name: &str| {
        let entry = volume.lookup(dir, name.as_bytes()).unwrap();
        let (file, bytes) = (name.parse::<u64>().unwrap(), read_all(volume, entry.node));
        let value = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        assert!(bytes == bytes_of(file, value), "file {name} is not as {value} writes leave it");
        assert_eq!(entry.attr.nlink, if file == 5 { 2 } else { 1 });
        values[file as usize].push(value);
        volume.forget(entry.node, 1);
    };
    let mut listed = names(volume, copy);
    listed.sort();
    assert_eq!(listed, ["churn", "x", "y"]);
    for name in ["x", "y"] {
        let dir = volume.lookup(copy, name.as_bytes()).unwrap().node;
        names(volume, dir).iter().for_each(|name| value_of(dir, name));
        volume.forget(dir, 1);
    }
    let churn = volume.lookup(copy, b"churn").unwrap().node;
    let mut listed = names(volume, churn);
    listed.sort();
    assert!(listed.iter().enumerate().all(|(i, name)| *name == i.to_string()), "{listed:?}");
    volume.forget(churn, 1);
    let writes = values.iter().map(|of_file| of_file[0]).sum();
    for (file, of_file) in values.iter().enumerate() {
        let value = value_after(file as u64, writes);
        assert_eq!(*of_file, vec![value; if file == 5 { 2 } else { 1 }], "file {file} of {values:?}");
    }
    writes
}

/// Changes every file in a clone.
fn deface(volume: &Volume, copy: InodeId) {
    for name in ["x", "y"] {
        let dir = volume.lookup(copy, name.as_bytes()).unwrap().node;
        for name in names(volume, dir) {
            let file = volume.lookup(dir, name.as_bytes()).unwrap().node;
            volume.write(file, 10, b"something else").unwrap();
            volume.forget(file, 1);
        }
        volume.forget(dir, 1);
    }
    let files = names(volume, volume.lookup(copy, b"x").unwrap().node);
    let x = volume.lookup(copy, b"x").unwrap().node;
    volume.unlink(x, files[0].as_bytes()).unwrap();
    volume.forget(x, 2);
}

fn remove(volume: &Volume, name: &str, copy: InodeId) {
    volume.remove_below(copy, SnapshotsBelow::Hold).unwrap();
    assert_eq!(names(volume, copy), Vec::<String>::new());
    volume.rmdir(ROOT, name.as_bytes()).unwrap();
    volume.forget(copy, 1);
}

/// Ends the process when no thread makes progress: deadlocked threads cannot be ended.
fn watch(steps: &'static AtomicU64) -> Sender<()> {
    let (alive, ended) = mpsc::channel();
    thread::spawn(move || {
        let mut before = steps.load(SeqCst);
        while ended.recv_timeout(STALL) == Err(RecvTimeoutError::Timeout) {
            let now = steps.load(SeqCst);
            if now == before {
                eprintln!("no thread has made a step for {STALL:?}, after {now}");
                std::process::abort();
            }
            before = now;
        }
    });
    alive
}

#[test]
fn each_copy_is_its_source_at_one_moment() {
    static STEPS: AtomicU64 = AtomicU64::new(0);
    copy_under_change(64, &STEPS);
}

/// As copies are that have too many names of files with several.
#[test]
fn each_copy_made_ahead_is_its_source_at_one_moment() {
    static STEPS: AtomicU64 = AtomicU64::new(0);
    copy_under_change(0, &STEPS);
}

fn copy_under_change(links_alone_max: usize, steps: &'static AtomicU64) {
    let _watchdog = watch(steps);
    let mut disk = Disk::of_tiny_nodes(256 << 20);
    (disk.options.names_max, disk.options.inodes_max) = (64, 32);
    disk.options.links_alone_max = links_alone_max;
    let volume = disk.open();
    let scene = &Scene::new(&volume, steps);
    let mut kept: Vec<Kept> = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| volume.env().run_worker());
        }
        for _ in 0..2 {
            scope.spawn(|| volume.env().run_readahead());
        }
        let mut copiers: Vec<_> = (0..3).map(|i| scope.spawn(move || scene.clone(i))).collect();
        copiers.extend((0..2).map(|i| scope.spawn(move || scene.snapshot(i))));
        for work in [Scene::write, Scene::rename, Scene::churn, Scene::open, Scene::come_and_go] {
            scope.spawn(move || work(scene));
        }
        // If one fails, all others have to end too.
        let results: Vec<_> = copiers.into_iter().map(|copier| copier.join()).collect();
        scene.is_over.store(true, SeqCst);
        volume.env().stop();
        results.into_iter().flat_map(|result| result.unwrap()).collect()
    });
    assert_eq!(kept.len(), 5);
    let height = volume.env().stats().height;
    // Levels do not come with copies, of which there were 400. How many there are depends on the turns that
    // the workers get: 10 to 17 on an idle machine, 31 were seen on a busy one. The engine refuses copies
    // beyond 200.
    assert!(height <= 64, "a tree of a few small directories has {height} levels");
    let writes = scene.writes_done.load(SeqCst);
    assert!(writes >= FILES, "only {writes} writes");
    kept.push(("/above/source".to_owned(), writes));
    let assert_all = |volume: &Volume| {
        assert_sound(volume);
        for (path, writes) in &kept {
            assert_eq!(moment(volume, volume.resolve(path.as_bytes()).unwrap().node), *writes, "{path}");
        }
    };
    assert_all(&volume);
    volume.close().unwrap();
    assert_all(&disk.open());
}
