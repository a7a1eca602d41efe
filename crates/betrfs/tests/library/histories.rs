//! Random histories compare the library with a map of paths; the volume is reopened midway.

mod compare;

use crate::model::{Dice, Model, Object, split};
use crate::support::*;
use betrfs::{
    Error, FallocateMode, FileType, InodeId, NewNode, Objects, OpKind, RenameFlags, SNAPSHOTS_NAME, SeekWhat,
    SetAttr, SnapshotsBelow, Volume, XattrMode,
};

const STEPS: usize = 200;

/// An open file, perhaps without a name.
struct Handle {
    node: InodeId,
    id: usize,
}

struct World {
    disk: Disk,
    volume: Volume,
    model: Model,
    handles: Vec<Handle>,
    dice: Dice,
    is_short_of_memory: bool,
    /// Most changes of files are below this offset, so that some histories have small files only.
    offsets_max: u64,
}

const NAMES: [&str; 6] = ["a", "b", "a\u{1}", "ab", "c", "\u{ff}"];

impl World {
    fn new(seed: u64) -> World {
        let mut dice = Dice(seed);
        let mut disk = if dice.roll(2) == 0 { Disk::new() } else { Disk::of_tiny_nodes(48 << 20) };
        // Often with so little memory that inodes and names are evicted all the time.
        let is_short_of_memory = dice.roll(2) == 0;
        if is_short_of_memory {
            disk.options.inodes_max = 1;
            disk.options.names_max = 2;
            disk.options.contents_bytes_max = 5000;
        }
        let offsets_max = *dice.pick(&[3000, 50_000]);
        let volume = disk.open();
        World {
            disk,
            volume,
            model: Model::default(),
            handles: Vec::new(),
            dice,
            is_short_of_memory,
            offsets_max,
        }
    }

    /// A path that may exist: up to three names, mostly below a directory.
    fn path(&mut self) -> String {
        let mut path = String::new();
        loop {
            let name = *self.dice.pick(&NAMES);
            path = format!("{path}/{name}");
            let depth = path.matches('/').count();
            if depth == 4 || !self.model.is_dir(&path) || self.dice.roll(3) == 0 {
                return path;
            }
        }
    }

    /// An existing path, if there is one.
    fn known_path(&mut self) -> String {
        let all: Vec<String> = self.model.paths.keys().cloned().collect();
        if all.is_empty() || self.dice.roll(8) == 0 { self.path() } else { self.dice.pick(&all).clone() }
    }

    /// A file, by its path or from the open ones.
    fn file(&mut self) -> Option<(InodeId, usize, bool)> {
        if !self.handles.is_empty() && self.dice.roll(3) == 0 {
            let handle = &self.handles[self.dice.roll(self.handles.len() as u64) as usize];
            return Some((handle.node, handle.id, false));
        }
        let path = self.known_path();
        let id = *self.model.paths.get(&path)?;
        let object = &self.model.objects[id];
        if object.dir || object.fifo || object.target.is_some() {
            return None;
        }
        let entry = self.volume.resolve(path.as_bytes()).unwrap();
        Some((entry.node, id, true))
    }

    /// Runs `run` with the inode of a path's directory.
    fn in_dir<T>(
        &self,
        path: &str,
        run: impl FnOnce(InodeId, &[u8]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (dir, name) = split(path);
        let dir = self.volume.resolve(dir.as_bytes())?;
        let result = run(dir.node, name.as_bytes());
        self.volume.forget(dir.node, 1);
        result
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let len = self.dice.roll(most) as usize;
        let start = self.dice.roll(255) as u8;
        (0..len).map(|i| start.wrapping_add((i / 7) as u8) | 1).collect()
    }

    fn offset(&mut self, size: usize) -> u64 {
        match self.dice.roll(6) {
            0 => 0,
            1 => size as u64,
            2 => self.dice.roll(self.offsets_max / 4096 + 1) * 4096,
            3 => self.dice.roll(100),
            _ => self.dice.roll(self.offsets_max),
        }
    }

    fn step(&mut self) -> String {
        match self.dice.roll(27) {
            0..=3 => self.create(),
            4 | 5 => self.mkdir(),
            6..=8 => self.write(),
            9 => self.truncate(),
            10 => self.punch(),
            11 | 12 => self.unlink(),
            13 if self.dice.roll(2) == 0 => self.remove_below(),
            13 => self.rmdir(),
            14..=17 => self.rename(),
            18 | 19 => self.link(),
            20 => self.xattr(),
            22 | 23 => self.clone_one(),
            25 | 26 => self.snapshot(),
            21 => self.open_or_close(),
            _ => self.other(),
        }
    }

    fn make(&mut self, path: &str, object: Object, result: Result<betrfs::Entry, Error>) {
        let (dir, _) = split(path);
        match result {
            Ok(entry) => {
                assert!(self.model.is_dir(dir) && self.model.object(path).is_none());
                let ino = entry.attr.ino;
                assert!(self.model.objects.iter().all(|other| other.ino != ino), "number {ino} again");
                self.model.add(path.to_owned(), Object { ino, ..object });
                self.volume.forget(entry.node, 1);
            }
            Err(Error::Exists) => assert!(self.model.object(path).is_some()),
            Err(Error::NotADirectory) => assert!(self.model.object(dir).is_some_and(|o| !o.dir)),
            Err(error) => panic!("{error}"),
        }
    }

    fn create(&mut self) -> String {
        let path = self.path();
        let kind = self.dice.roll(8);
        let (object, result) = match kind {
            0 => {
                let target = b"some/where".to_vec();
                let result = self.in_dir(&path, |dir, name| self.volume.symlink(dir, name, &target, 1, 2));
                (Object { target: Some(target), perm: 0o777, ..Object::default() }, result)
            }
            1 => {
                let new = NewNode { file_type: FileType::Fifo, ..new_file() };
                let result = self.in_dir(&path, |dir, name| self.volume.create(dir, name, &new));
                (Object { fifo: true, perm: 0o644, ..Object::default() }, result)
            }
            2 | 3 => {
                let bytes = self.bytes(self.offsets_max);
                let result =
                    self.in_dir(&path, |dir, name| self.volume.create_with(dir, name, &new_file(), &bytes));
                (Object { perm: 0o644, bytes, ..Object::default() }, result)
            }
            _ => {
                let result = self.in_dir(&path, |dir, name| self.volume.create(dir, name, &new_file()));
                (Object { perm: 0o644, ..Object::default() }, result)
            }
        };
        self.make(&path, object, result);
        format!("create {path}")
    }

    fn mkdir(&mut self) -> String {
        let path = self.path();
        let result = self.in_dir(&path, |dir, name| self.volume.create(dir, name, &new_dir()));
        self.make(&path, Object { dir: true, perm: 0o755, ..Object::default() }, result);
        format!("mkdir {path}")
    }

    fn write(&mut self) -> String {
        let Some((node, id, forget)) = self.file() else { return "write nothing".into() };
        let offset = self.offset(self.model.objects[id].bytes.len());
        let most = *self.dice.pick(&[20, 5000, 20_000]);
        let most = most.min(self.offsets_max);
        let data = self.bytes(most);
        self.volume.write(node, offset, &data).unwrap();
        let bytes = &mut self.model.objects[id].bytes;
        let end = offset as usize + data.len();
        if !data.is_empty() {
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(&data);
        }
        self.compare_some(node, id);
        if forget {
            self.volume.forget(node, 1);
        }
        format!("write {} at {offset} to {id}", data.len())
    }

    fn truncate(&mut self) -> String {
        let Some((node, id, forget)) = self.file() else { return "truncate nothing".into() };
        let size = self.offset(self.model.objects[id].bytes.len());
        self.volume.setattr(node, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
        self.model.objects[id].bytes.resize(size as usize, 0);
        self.compare_some(node, id);
        if forget {
            self.volume.forget(node, 1);
        }
        format!("truncate {id} to {size}")
    }

    fn punch(&mut self) -> String {
        let Some((node, id, forget)) = self.file() else { return "punch nothing".into() };
        let offset = self.offset(self.model.objects[id].bytes.len());
        let len = 1 + self.dice.roll(20_000);
        let mode = *self.dice.pick(&[
            FallocateMode::PunchHole,
            FallocateMode::Zero { keep_size: false },
            FallocateMode::Zero { keep_size: true },
            FallocateMode::Allocate { keep_size: false },
            FallocateMode::Allocate { keep_size: true },
        ]);
        self.volume.fallocate(node, mode, offset, len).unwrap();
        let bytes = &mut self.model.objects[id].bytes;
        let end = (offset + len) as usize;
        if !matches!(mode, FallocateMode::Allocate { .. }) {
            let size = bytes.len();
            bytes[(offset as usize).min(size)..end.min(size)].fill(0);
        }
        if let FallocateMode::Allocate { keep_size: false } | FallocateMode::Zero { keep_size: false } = mode
        {
            bytes.resize(bytes.len().max(end), 0);
        }
        self.compare_some(node, id);
        if forget {
            self.volume.forget(node, 1);
        }
        format!("{mode:?} {len} at {offset} of {id}")
    }

    fn unlink(&mut self) -> String {
        let path = self.known_path();
        let result = self.in_dir(&path, |dir, name| self.volume.unlink(dir, name));
        match self.model.object(&path) {
            Some(object) if object.dir => assert_eq!(result, Err(Error::IsADirectory)),
            Some(_) => {
                assert_eq!(result, Ok(()));
                self.model.paths.remove(&path);
            }
            None => assert!(matches!(result, Err(Error::NotFound | Error::NotADirectory)), "{result:?}"),
        }
        format!("unlink {path}")
    }

    fn rmdir(&mut self) -> String {
        let path = self.known_path();
        let result = self.in_dir(&path, |dir, name| self.volume.rmdir(dir, name));
        match self.model.object(&path) {
            Some(object) if !object.dir => assert_eq!(result, Err(Error::NotADirectory)),
            Some(_) if !self.model.children(&path).is_empty() => assert_eq!(result, Err(Error::NotEmpty)),
            Some(_) if !self.model.is_empty(&path) => assert_eq!(result, Err(Error::HeldBySnapshots)),
            Some(_) => {
                assert_eq!(result, Ok(Vec::new()));
                self.model.paths.remove(&path);
            }
            None => assert!(matches!(result, Err(Error::NotFound | Error::NotADirectory)), "{result:?}"),
        }
        format!("rmdir {path}")
    }

    fn remove_below(&mut self) -> String {
        let path = self.known_path();
        let goes = self.dice.roll(2) == 0;
        let snapshots = if goes { SnapshotsBelow::Go } else { SnapshotsBelow::Hold };
        let text = format!("remove all below {path} {snapshots:?}");
        let Ok(entry) = self.volume.resolve(path.as_bytes()) else { return text };
        let held = self.volume.snapshots_below(entry.node);
        let result = self.volume.remove_below(entry.node, snapshots);
        self.volume.forget(entry.node, 1);
        let result = result.map(|_| ());
        if !self.model.object(&path).is_some_and(|object| object.dir) {
            assert_eq!((held.map(|_| ()), result), (Err(Error::NotADirectory), Err(Error::NotADirectory)));
            return text;
        }
        let below = format!("{path}/");
        let ids = self.model.paths.iter().filter(|(other, _)| **other == path || other.starts_with(&below));
        let ids: Vec<usize> = ids.map(|(_, id)| *id).collect();
        let count = ids.iter().map(|id| self.model.snapshots_of(*id).len()).sum();
        assert_eq!(held.unwrap().count, count, "{text}");
        if count > 0 && !goes {
            assert_eq!(result, Err(Error::HeldBySnapshots));
        } else {
            assert_eq!(result, Ok(()));
            self.model.paths.retain(|other, _| !other.starts_with(&below));
            self.model.snapshots.retain(|(of, _), _| !ids.contains(of));
        }
        text
    }

    fn rename(&mut self) -> String {
        let from = self.known_path();
        let to = if self.dice.roll(2) == 0 { self.known_path() } else { self.path() };
        let flags = match self.dice.roll(5) {
            0 => RenameFlags { exchange: true, ..RenameFlags::default() },
            1 => RenameFlags { no_replace: true, ..RenameFlags::default() },
            _ => RenameFlags::default(),
        };
        let text = format!("rename {from} {to} {flags:?}");
        let result = self.in_dir(&from, |dir, name| {
            self.in_dir(&to, |to_dir, to_name| self.volume.rename(dir, name, to_dir, to_name, flags))
        });
        let model = &mut self.model;
        let source = model.paths.get(&from).copied();
        let target = model.paths.get(&to).copied();
        let legal = match (source, target) {
            (None, _) => false,
            _ if !model.is_dir(split(&to).0) => false,
            (_, Some(_)) if flags.no_replace => false,
            (_, None) if flags.exchange => false,
            _ if to.starts_with(&format!("{from}/")) => false,
            (Some(one), Some(other)) if one == other => {
                assert_eq!(result, Ok(()), "{text}");
                return text;
            }
            _ if flags.exchange => !from.starts_with(&format!("{to}/")),
            (Some(one), Some(other)) => {
                let dir = model.objects[other].dir;
                model.objects[one].dir == dir && (!dir || model.is_empty(&to))
            }
            (Some(_), None) => true,
        };
        match result {
            Ok(()) => {
                assert!(legal, "{text}");
                if flags.exchange {
                    model.shift(&from, "/tmp-of-exchange");
                    model.shift(&to, &from);
                    model.shift("/tmp-of-exchange", &to);
                } else {
                    model.paths.remove(&to);
                    model.shift(&from, &to);
                }
            }
            Err(error) => assert!(!legal, "{text}: {error}"),
        }
        text
    }

    /// Takes a snapshot, or removes one.
    fn snapshot(&mut self) -> String {
        let path = self.known_path();
        let name = self.dice.pick(&["s", "t"]).to_string();
        let text = format!("snapshot {name} of {path}");
        let Some(&id) = self.model.paths.get(&path) else { return text };
        let entry = self.volume.resolve(path.as_bytes()).unwrap();
        let found = self.volume.lookup(entry.node, SNAPSHOTS_NAME);
        self.volume.forget(entry.node, 1);
        if !self.model.objects[id].dir {
            assert_eq!(found.map(|_| ()), Err(Error::NotADirectory));
            return text;
        }
        let snapshots = found.unwrap().node;
        match self.model.snapshots.contains_key(&(id, name.clone())) {
            false => {
                let made = self.volume.create(snapshots, name.as_bytes(), &new_dir()).unwrap();
                self.volume.forget(made.node, 1);
                self.model.snapshot(&path, &name);
            }
            true if self.dice.roll(2) == 0 => {
                let again = self.volume.create(snapshots, name.as_bytes(), &new_dir());
                assert_eq!(again.map(|_| ()), Err(Error::Exists));
            }
            true => {
                self.volume.rmdir(snapshots, name.as_bytes()).unwrap();
                self.model.snapshots.remove(&(id, name));
            }
        }
        self.volume.forget(snapshots, 1);
        text
    }

    fn clone_one(&mut self) -> String {
        let (from, to) = (self.known_path(), self.path());
        let text = format!("clone {from} {to}");
        let Some(&id) = self.model.paths.get(&from) else { return text };
        let source = self.volume.resolve(from.as_bytes()).unwrap();
        let to_is_free = self.model.object(&to).is_none() && self.model.is_dir(split(&to).0);
        let plain = &self.model.objects[id];
        let into = plain.target.is_none() && !plain.fifo && self.dice.roll(2) == 0;
        let new = if plain.dir { new_dir() } else { new_file() };
        let result = self.in_dir(&to, |dir, name| {
            if !into {
                return self.volume.clone_inode(source.node, dir, name);
            }
            let target = self.volume.create(dir, name, &new)?;
            self.volume.clone_onto(source.node, target.node)?;
            Ok(target)
        });
        self.volume.forget(source.node, 1);
        match result {
            Ok(entry) => {
                assert!(to_is_free, "{text}");
                self.volume.forget(entry.node, 1);
                // The copy leaves out a target inside of its source.
                self.model.copy(&from, &to);
                self.number_copies(&to);
            }
            Err(error) => assert!(!to_is_free, "{text}: {error}"),
        }
        text
    }

    /// Takes the inode numbers below a cloned path into the model: no other object has them.
    fn number_copies(&mut self, top: &str) {
        let below = format!("{top}/");
        let inside = |path: &String| path == top || path.starts_with(&below);
        let copies: Vec<(String, usize)> =
            self.model.paths.iter().filter(|(p, _)| inside(p)).map(|(p, id)| (p.clone(), *id)).collect();
        for (path, id) in copies {
            let entry = self.volume.resolve(path.as_bytes()).unwrap_or_else(|e| panic!("{path}: {e}"));
            self.volume.forget(entry.node, 1);
            let ino = entry.attr.ino;
            let others = self.model.objects.iter().enumerate().filter(|(other, _)| *other != id);
            assert!(others.map(|(_, object)| object.ino).all(|other| other != ino), "{path}: {ino} again");
            self.model.objects[id].ino = ino;
        }
    }

    fn link(&mut self) -> String {
        let (from, to) = (self.known_path(), self.path());
        let text = format!("link {from} {to}");
        let Some(&id) = self.model.paths.get(&from) else { return text };
        let entry = self.volume.resolve(from.as_bytes()).unwrap();
        let result = self.in_dir(&to, |dir, name| self.volume.link(entry.node, dir, name));
        let to_is_free = self.model.object(&to).is_none() && self.model.is_dir(split(&to).0);
        match result {
            Ok(other) => {
                assert_eq!(other.node, entry.node);
                assert!(to_is_free && !self.model.objects[id].dir, "{text}");
                self.model.paths.insert(to, id);
                self.volume.forget(other.node, 1);
            }
            Err(error) => assert!(!to_is_free || self.model.objects[id].dir, "{text}: {error}"),
        }
        self.volume.forget(entry.node, 1);
        text
    }

    fn xattr(&mut self) -> String {
        let path = self.known_path();
        let Some(&id) = self.model.paths.get(&path) else { return "xattr of nothing".into() };
        let entry = self.volume.resolve(path.as_bytes()).unwrap();
        let name: Vec<u8> = self.dice.pick(&[&b"user.a"[..], b"user.b", b"trusted.c"]).to_vec();
        let most = *self.dice.pick(&[1, 100, 3000]);
        let value = self.bytes(most);
        let mode = *self.dice.pick(&[XattrMode::Any, XattrMode::Any, XattrMode::Create, XattrMode::Replace]);
        let xattrs = &mut self.model.objects[id].xattrs;
        if self.dice.roll(3) == 0 {
            let removed = self.volume.remove_xattr(entry.node, &name);
            assert_eq!(removed, xattrs.remove(&name).map(|_| ()).ok_or(Error::NoData));
        } else {
            let result = self.volume.set_xattr(entry.node, &name, &value, mode);
            match (mode, xattrs.contains_key(&name)) {
                (XattrMode::Create, true) => assert_eq!(result, Err(Error::Exists)),
                (XattrMode::Replace, false) => assert_eq!(result, Err(Error::NoData)),
                _ => {
                    assert_eq!(result, Ok(()));
                    xattrs.insert(name.clone(), value);
                }
            }
        }
        self.volume.forget(entry.node, 1);
        format!("xattr of {path}")
    }

    fn open_or_close(&mut self) -> String {
        if self.handles.len() > 2 || (!self.handles.is_empty() && self.dice.roll(3) == 0) {
            let at = self.dice.roll(self.handles.len() as u64) as usize;
            let handle = self.handles.swap_remove(at);
            assert_eq!(read_all(&self.volume, handle.node), self.model.objects[handle.id].bytes);
            self.volume.release_node(handle.node);
            self.volume.forget(handle.node, 1);
            return format!("close {}", handle.id);
        }
        let Some((node, id, is_ours)) = self.file() else { return "open nothing".into() };
        if is_ours {
            self.volume.open_inode(node).unwrap();
            self.handles.push(Handle { node, id });
        }
        format!("open {id}")
    }

    fn other(&mut self) -> String {
        let path = self.known_path();
        if let Some(&id) = self.model.paths.get(&path) {
            let entry = self.volume.resolve(path.as_bytes()).unwrap();
            let perm = self.dice.roll(0o1000) as u16;
            self.volume.setattr(entry.node, &SetAttr { perm: Some(perm), ..SetAttr::default() }).unwrap();
            self.model.objects[id].perm = perm;
            self.volume.forget(entry.node, 1);
        } else {
            assert!(self.volume.resolve(path.as_bytes()).is_err());
        }
        format!("chmod {path}")
    }

    /// Opens the volume again, as after a crash: open files without a name are gone.
    fn reopen(&mut self) {
        self.handles.clear();
        if self.dice.roll(2) == 0 {
            self.volume.env().checkpoint().unwrap();
        }
        if self.dice.roll(2) == 0 {
            self.volume.close().unwrap();
        } else {
            self.volume.sync().unwrap();
        }
        self.volume = self.disk.open();
        self.compare();
    }
}

fn size_of(object: &Object) -> u64 {
    object.target.as_ref().map_or(object.bytes.len(), Vec::len) as u64
}

fn history(seed: u64) {
    let mut world = World::new(seed);
    let mut log = Vec::new();
    let reopen_at = 1 + world.dice.roll(STEPS as u64 - 1) as usize;
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for step in 0..STEPS {
            log.push(world.step());
            if step == reopen_at {
                world.reopen();
            } else if step % 40 == 0 {
                world.compare();
            }
        }
        world.compare();
        world.reopen();
    }));
    if let Err(panic) = result {
        for (at, step) in log.iter().enumerate() {
            eprintln!("{at}: {step}");
        }
        eprintln!("replay: BETRFS_SEED={seed} cargo test -p betrfs --test library histories");
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn random_histories_agree_with_a_map_of_paths() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("BETRFS_SEED") {
        return history(seed);
    }
    for seed in 0..number("BETRFS_HISTORIES").unwrap_or(200) {
        history(seed);
    }
}
