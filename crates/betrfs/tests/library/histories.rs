//! Random histories compare the library with a map of paths; the volume is reopened midway.

mod compare;
mod contents;
mod copies;
mod names;

use crate::model::{Dice, Model, Object, split};
use crate::support::*;
use betrfs::{Error, FileType, InodeId, Objects, OpKind, SeekWhat, SetAttr, Volume, XattrMode};

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
