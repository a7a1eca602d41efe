//! Random histories by paths beside the same by `std::fs` in a temporary directory: each outcome, number of
//! error and tree has to be the same.

mod open_files;
mod users;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs as system;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use betrfs_std::{Dir, File, FileType, Fs, Metadata};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use seeded::Rng;

use crate::support::{VOLUME_BYTES, assert_sound, set_modified};

const STEPS: usize = 800;
/// How deep the directory lies in which the histories take place: `..` leads up to the same names in both.
const DEPTH: usize = 16;
const EINVAL: i32 = 22;
const EISDIR: i32 = 21;
const ENOTEMPTY: i32 = 39;

/// What an operation came to, in both worlds.
type Outcome = Result<String, i32>;

/// A file that is open in both.
struct Pair {
    ours: File,
    theirs: system::File,
}

struct Worlds {
    volume: PathBuf,
    /// `None` while the volume is not open.
    ours: Option<(Fs, Dir)>,
    theirs: PathBuf,
    open: Vec<Pair>,
    rng: Rng,
    /// Some operations are root's.
    is_root: bool,
}

fn number(error: &io::Error) -> i32 {
    // `std` refuses a 0 byte by itself.
    error.raw_os_error().unwrap_or(EINVAL)
}

fn ours<T>(result: betrfs_std::Result<T>, show: impl FnOnce(T) -> String) -> Outcome {
    result.map(show).map_err(|error| error.errno().raw_os_error())
}

fn theirs<T>(result: io::Result<T>, show: impl FnOnce(T) -> String) -> Outcome {
    result.map(show).map_err(|error| number(&error))
}

fn nothing<T>(_: T) -> String {
    String::new()
}

fn kind_of(file_type: system::FileType) -> FileType {
    match file_type {
        kind if kind.is_dir() => FileType::Directory,
        kind if kind.is_symlink() => FileType::Symlink,
        _ => FileType::Regular,
    }
}

/// What is the same everywhere of an object's attributes.
fn show(
    kind: FileType,
    mode: u32,
    size: u64,
    nlink: u64,
    owners: (u32, u32),
    modified: SystemTime,
) -> String {
    let mode = mode & 0o7777;
    match kind {
        FileType::Directory => format!("{kind:?} {mode:o} {owners:?}"),
        FileType::Symlink => format!("{kind:?} {size} {nlink} {owners:?}"),
        // Times that were set are far from now.
        _ => {
            let old = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let old = (old < Duration::from_secs(1_000_000)).then_some(old);
            format!("{kind:?} {mode:o} {size} {nlink} {owners:?} {old:?}")
        }
    }
}

fn show_ours(found: Metadata) -> String {
    let owners = (found.uid(), found.gid());
    show(found.file_type(), found.mode(), found.len(), found.nlink().into(), owners, found.modified())
}

fn show_theirs(found: system::Metadata) -> String {
    let (owners, modified) = ((found.uid(), found.gid()), found.modified().unwrap());
    show(kind_of(found.file_type()), found.mode(), found.len(), found.nlink(), owners, modified)
}

impl Worlds {
    /// Makes both worlds in a folder.
    fn new(folder: &Path, seed: u64) -> Worlds {
        let deep = ["t"; DEPTH].iter().collect::<PathBuf>();
        let fs = Fs::create(folder.join("volume"), VOLUME_BYTES).unwrap();
        fs.create_dir_all(&deep).unwrap();
        system::create_dir_all(folder.join("tree").join(&deep)).unwrap();
        fs.close().unwrap();
        let worlds = Worlds::open(folder, seed);
        for dir in ["a/a", "a/b", "b/c/d", "c"] {
            worlds.base().create_dir_all(dir).unwrap();
            system::create_dir_all(worlds.theirs.join(dir)).unwrap();
        }
        worlds
    }

    /// Opens those that are there.
    fn open(folder: &Path, seed: u64) -> Worlds {
        let (volume, deep) = (folder.join("volume"), ["t"; DEPTH].iter().collect::<PathBuf>());
        let fs = Fs::open(&volume).unwrap();
        let base = fs.open_dir(&deep).unwrap();
        let theirs = folder.join("tree").join(&deep);
        let is_root = rustix::process::geteuid().is_root();
        Worlds { volume, ours: Some((fs, base)), theirs, open: Vec::new(), rng: Rng::new(seed), is_root }
    }

    fn base(&self) -> &Dir {
        &self.ours.as_ref().unwrap().1
    }

    fn name(&mut self) -> OsString {
        let rng = &mut self.rng;
        match rng.below(100) {
            0 => OsString::from("x".repeat(255)),
            1 => OsString::from("x".repeat(256)),
            2 => OsString::from("a\0b"),
            3 | 4 => OsString::from("."),
            5..8 => OsString::from(".."),
            8 => OsStr::from_bytes(b"\xff\xfe").to_owned(),
            _ => OsString::from(*rng.pick(&["a", "b", "c", "d", "e"])),
        }
    }

    fn path(&mut self) -> PathBuf {
        let components = *self.rng.pick(&[1, 1, 1, 2, 2, 3, 4]);
        let mut path = OsString::new();
        for at in 0..components {
            if at > 0 {
                path.push(if self.rng.percent(3) { "//" } else { "/" });
            }
            path.push(self.name());
        }
        if self.rng.percent(4) {
            path.push("/");
        }
        if self.rng.percent(1) {
            path = OsString::new();
        }
        if self.rng.percent(1) {
            path = OsString::from("a/".repeat(2100));
        }
        PathBuf::from(path)
    }

    /// The path of the system's. An empty one stays empty.
    fn there(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() {
            return PathBuf::new();
        }
        let mut there = self.theirs.clone().into_os_string();
        there.push("/");
        // A path counts without what leads to its world.
        if path.as_os_str().len() >= 4096 {
            return PathBuf::from(path);
        }
        there.push(path);
        PathBuf::from(there)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = *self.rng.pick(&[0, 1, 10, 4095, 4096, 4097, 20_000]);
        let first = self.rng.below(256) as u8;
        (0..len).map(|at: usize| first.wrapping_add(at as u8)).collect()
    }

    /// A step in both worlds: what was done, and how it went.
    fn step(&mut self) -> (String, Outcome, Outcome) {
        let (path, mut other) = (self.path(), self.path());
        if other.as_os_str().as_bytes().contains(&0) {
            // `std` looks for a 0 byte in both paths before it walks the first.
            other = PathBuf::from("a");
        }
        let (at, to) = (self.there(&path), self.there(&other));
        let shown = format!("{:?} {:?}", path.as_os_str().as_bytes().escape_ascii().to_string(), other);
        let done = |name: &str, ours, theirs| (format!("{name} {shown}"), ours, theirs);
        match self.rng.below(34) {
            0..3 => done(
                "create_dir",
                ours(self.base().create_dir(&path), nothing),
                theirs(system::create_dir(at), nothing),
            ),
            3 => done(
                "create_dir_all",
                ours(self.base().create_dir_all(&path), nothing),
                theirs(system::create_dir_all(at), nothing),
            ),
            4..7 => {
                let bytes = self.bytes();
                done(
                    "write",
                    ours(self.base().write(&path, &bytes), nothing),
                    theirs(system::write(at, &bytes), nothing),
                )
            }
            7 => {
                let bytes = self.bytes();
                let append =
                    |at: &Path| system::File::options().append(true).create(true).open(at)?.write_all(&bytes);
                done("append", ours(self.base().append(&path, &bytes), nothing), theirs(append(&at), nothing))
            }
            8 | 9 => {
                let show = |bytes: Vec<u8>| format!("{bytes:?}");
                done("read", ours(self.base().read(&path), show), theirs(system::read(at), show))
            }
            10 if self.rng.percent(70) => done(
                "remove_file",
                ours(self.base().remove_file(&path), nothing),
                theirs(system::remove_file(at), nothing),
            ),
            11 if self.rng.percent(50) => done(
                "remove_dir",
                ours(self.base().remove_dir(&path), nothing),
                theirs(system::remove_dir(at), nothing),
            ),
            // A user who opened the volume may remove trees that others close to him.
            12 if self.is_root && self.rng.percent(40) => {
                // `std` empties a directory before it finds that it cannot be removed by such a path.
                let ends_with_name =
                    path.file_name().is_some() && !path.as_os_str().as_bytes().ends_with(b"/");
                let ends_with_dot = path.as_os_str().as_bytes().ends_with(b"/.");
                if !ends_with_name || ends_with_dot {
                    return (String::new(), Ok(String::new()), Ok(String::new()));
                }
                done(
                    "remove_dir_all",
                    ours(self.base().remove_dir_all(&path), nothing),
                    theirs(system::remove_dir_all(at), nothing),
                )
            }
            13..17 => {
                let renamed = ours(self.base().rename(&path, &other), nothing);
                // A file onto a directory above it fails for two reasons, of which Linux tells the other.
                let theirs = theirs(system::rename(at, to), nothing);
                let same = (&renamed, &theirs) == (&Err(EISDIR), &Err(ENOTEMPTY));
                done("rename", if same { theirs.clone() } else { renamed }, theirs)
            }
            17 => {
                let flags = *self.rng.pick(&[RenameFlags::NOREPLACE, RenameFlags::EXCHANGE]);
                let renamed = match flags {
                    RenameFlags::EXCHANGE => self.base().rename_exchange(&path, &other),
                    _ => self.base().rename_no_replace(&path, &other),
                };
                let theirs_renamed = renameat_with(CWD, &at, CWD, &to, flags).map_err(io::Error::from);
                done(&format!("rename {flags:?}"), ours(renamed, nothing), theirs(theirs_renamed, nothing))
            }
            18 | 19 => done(
                "hard_link",
                ours(self.base().hard_link(&path, &other), nothing),
                theirs(system::hard_link(at, to), nothing),
            ),
            20 | 21 => {
                let target = if path.is_absolute() { PathBuf::from("a") } else { path.clone() };
                done(
                    "symlink",
                    ours(self.base().symlink(&target, &other), nothing),
                    theirs(symlink(&target, to), nothing),
                )
            }
            22 => {
                let show = |target: PathBuf| format!("{target:?}");
                done(
                    "read_link",
                    ours(self.base().read_link(&path), show),
                    theirs(system::read_link(at), show),
                )
            }
            23 => done(
                "metadata",
                ours(self.base().metadata(&path), show_ours),
                theirs(system::metadata(at), show_theirs),
            ),
            24 => done(
                "symlink_metadata",
                ours(self.base().symlink_metadata(&path), show_ours),
                theirs(system::symlink_metadata(at), show_theirs),
            ),
            25 => {
                let mode = *self.rng.pick(&[0o644, 0o600, 0o755, 0o2755, 0o4711]);
                let set = system::set_permissions(at, system::Permissions::from_mode(mode));
                done(
                    "set_permissions",
                    ours(self.base().set_permissions(&path, mode), nothing),
                    theirs(set, nothing),
                )
            }
            26 => {
                let uid = self.rng.below(3) as u32;
                let set = std::os::unix::fs::chown(at, Some(uid), None);
                done("chown", ours(self.base().chown(&path, Some(uid), None), nothing), theirs(set, nothing))
            }
            27 => {
                let time = SystemTime::UNIX_EPOCH + Duration::from_millis(self.rng.below_u64(1_000_000));
                let set = set_modified(&at, time);
                done(
                    "set_times",
                    ours(self.base().set_times(&path, None, Some(time)), nothing),
                    theirs(set, nothing),
                )
            }
            28 => {
                let file = |path: &Path| system::metadata(path).ok().map(|found| found.ino());
                if file(&at).is_some() && file(&at) == file(&to) {
                    // `std` empties it.
                    return (String::new(), Ok(String::new()), Ok(String::new()));
                }
                let show = |bytes: u64| bytes.to_string();
                done("copy", ours(self.base().copy(&path, &other), show), theirs(system::copy(at, to), show))
            }
            // realpath(3) has another limit, and leaves by `..` what it may not search.
            29 if path.as_os_str().len() < 4096 && (self.is_root || !shown.contains("..")) => {
                let below = |base: &Path, path: PathBuf| match path.strip_prefix(base) {
                    Ok(rest) => format!("{rest:?}"),
                    Err(_) => "above".to_owned(),
                };
                let (here, there) = (self.base().path().unwrap(), self.theirs.canonicalize().unwrap());
                done(
                    "canonicalize",
                    ours(self.base().canonicalize(&path), |path| below(&here, path)),
                    theirs(at.canonicalize(), |path| below(&there, path)),
                )
            }
            30 => {
                let sort = |mut names: Vec<OsString>| {
                    names.sort();
                    format!("{names:?}")
                };
                let listed = self.base().read_dir(&path).and_then(|entries| {
                    entries
                        .map(|entry| Ok(entry?.file_name().to_owned()))
                        .collect::<betrfs_std::Result<Vec<_>>>()
                });
                let theirs_listed = system::read_dir(at).and_then(|entries| {
                    entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()
                });
                done("read_dir", ours(listed, sort), theirs(theirs_listed, sort))
            }
            31 => self.step_of_files(&path, &at),
            _ if self.rng.percent(50) => {
                let bytes = self.bytes();
                done(
                    "write",
                    ours(self.base().write(&path, &bytes), nothing),
                    theirs(system::write(at, &bytes), nothing),
                )
            }
            _ => done(
                "create_dir",
                ours(self.base().create_dir(&path), nothing),
                theirs(system::create_dir(at), nothing),
            ),
        }
    }

    /// Closes the volume, drops it, or lets it crash after a sync, and opens it again.
    fn reopen(&mut self) -> &'static str {
        self.open.clear();
        let path = self.base().path().unwrap();
        let (fs, base) = self.ours.take().unwrap();
        assert_eq!(fs.volume().inodes_held(), 2, "the root and the base");
        let how = match self.rng.below(3) {
            0 => {
                fs.close().unwrap();
                "close"
            }
            1 => {
                drop((fs, base));
                "drop"
            }
            _ => {
                fs.sync().unwrap();
                fs.volume().env().abandon();
                drop((fs, base));
                "crash"
            }
        };
        let fs = Fs::open(&self.volume).unwrap();
        let base = fs.open_dir(path).unwrap();
        self.ours = Some((fs, base));
        how
    }

    fn compare(&self) {
        let ours: BTreeMap<PathBuf, String> = (self.base().walk(".").min_depth(1))
            .map(|entry| {
                let entry = entry.unwrap();
                let path = entry.path().strip_prefix(".").unwrap().to_owned();
                let more = match entry.file_type() {
                    FileType::Regular => format!("{:?}", self.base().read(&path).unwrap()),
                    FileType::Symlink => format!("{:?}", self.base().read_link(&path).unwrap()),
                    _ => String::new(),
                };
                (path, format!("{} {more}", show_ours(entry.metadata().unwrap())))
            })
            .collect();
        let mut theirs = BTreeMap::new();
        let mut dirs = vec![PathBuf::new()];
        while let Some(dir) = dirs.pop() {
            for entry in system::read_dir(self.theirs.join(&dir)).unwrap() {
                let entry = entry.unwrap();
                let (path, found) = (dir.join(entry.file_name()), entry.metadata().unwrap());
                let more = match kind_of(found.file_type()) {
                    FileType::Regular => format!("{:?}", system::read(entry.path()).unwrap()),
                    FileType::Symlink => format!("{:?}", system::read_link(entry.path()).unwrap()),
                    _ => {
                        dirs.push(path.clone());
                        String::new()
                    }
                };
                theirs.insert(path, format!("{} {more}", show_theirs(found)));
            }
        }
        for path in ours.keys().chain(theirs.keys()) {
            let (ours, theirs) = (ours.get(path), theirs.get(path));
            let short = |text: Option<&String>| text.map(|text| text.chars().take(200).collect::<String>());
            assert!(ours == theirs, "{path:?}: ours {:?}, theirs {:?}", short(ours), short(theirs));
        }
    }
}

/// Returns the number of operations, and of those that succeeded.
fn run(worlds: &mut Worlds, seed: u64) -> (usize, usize) {
    let (mut tried, mut succeeded) = (0, 0);
    for step in 0..STEPS {
        let (what, ours, theirs) =
            if worlds.rng.percent(35) { worlds.step_of_handles() } else { worlds.step() };
        let short =
            |outcome: &Outcome| outcome.clone().map(|text| text.chars().take(200).collect::<String>());
        assert!(
            ours == theirs,
            "seed {seed}, step {step}: {what}\n  ours   {:?}\n  theirs {:?}\n  replay: BETRFS_SEED={seed}",
            short(&ours),
            short(&theirs)
        );
        tried += usize::from(!what.is_empty());
        succeeded += usize::from(!what.is_empty() && ours.is_ok());
        // Root alone sees all of it.
        if worlds.is_root && worlds.rng.percent(5) {
            worlds.compare();
        }
        if worlds.rng.percent(2) {
            let how = worlds.reopen();
            eprintln!("seed {seed}, step {step}: {how}");
        }
    }
    worlds.reopen();
    assert_sound(&worlds.ours.as_ref().unwrap().0);
    (tried, succeeded)
}

/// The seeds to try: the one in `BETRFS_SEED`, or as many as the effort asks for, from 0 on.
fn seeds(gate: u64) -> std::ops::Range<u64> {
    let seed = std::env::var("BETRFS_SEED").ok().map(|number| number.parse::<u64>().unwrap());
    seed.map_or_else(|| 0..seeded::effort(gate), |seed| seed..seed + 1)
}

#[test]
fn histories_by_paths_go_as_those_of_the_system() {
    let (mut tried, mut succeeded) = (0, 0);
    for seed in seeds(8) {
        let folder = tempfile::tempdir().unwrap();
        let mut worlds = Worlds::new(folder.path(), seed);
        let counts = run(&mut worlds, seed);
        worlds.compare();
        (tried, succeeded) = (tried + counts.0, succeeded + counts.1);
    }
    assert!(succeeded * 5 > tried, "{succeeded} of {tried} succeeded: the histories try little");
}
