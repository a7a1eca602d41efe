//! A file system as a map of paths, and dice for histories.

use std::collections::BTreeMap;

use seeded::{GOLDEN_RATIO, mix};

/// A seeded generator (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_RATIO);
        mix(self.0)
    }

    pub fn roll(&mut self, below: u64) -> u64 {
        self.next() % below
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.roll(from.len() as u64) as usize]
    }
}

/// An object in the model. Its number is the inode number in the volume.
#[derive(Clone, Debug, Default)]
pub struct Object {
    pub dir: bool,
    pub target: Option<Vec<u8>>,
    pub fifo: bool,
    pub bytes: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub perm: u16,
    pub ino: u64,
}

/// Paths to objects; an object with several paths has several names.
#[derive(Default)]
pub struct Model {
    pub paths: BTreeMap<String, usize>,
    pub objects: Vec<Object>,
    /// Everything below a directory, with paths relative to it, by the directory and the snapshot's name.
    pub snapshots: BTreeMap<(usize, String), BTreeMap<String, Object>>,
}

impl Model {
    pub fn object(&self, path: &str) -> Option<&Object> {
        self.paths.get(path).map(|id| &self.objects[*id])
    }

    pub fn is_dir(&self, path: &str) -> bool {
        path.is_empty() || self.object(path).is_some_and(|object| object.dir)
    }

    pub fn children(&self, path: &str) -> Vec<String> {
        let prefix = format!("{path}/");
        let below = self.paths.keys().filter_map(|other| other.strip_prefix(&prefix));
        below.filter(|rest| !rest.contains('/')).map(str::to_owned).collect()
    }

    pub fn nlink(&self, id: usize) -> u32 {
        let names = self.paths.values().filter(|other| **other == id).count() as u32;
        if !self.objects[id].dir {
            return names;
        }
        let path = self.paths.iter().find(|(_, other)| **other == id).unwrap().0;
        2 + self.children(path).iter().filter(|name| self.is_dir(&format!("{path}/{name}"))).count() as u32
    }

    pub fn add(&mut self, path: String, object: Object) {
        self.objects.push(object);
        self.paths.insert(path, self.objects.len() - 1);
    }

    /// Copies a path and everything below it; the names of one file below it become names of one copy.
    pub fn copy(&mut self, from: &str, to: &str) {
        let below = format!("{from}/");
        let inside = |path: &String| path == from || path.starts_with(&below);
        let sources: Vec<(String, usize)> =
            self.paths.iter().filter(|(path, _)| inside(path)).map(|(p, id)| (p.clone(), *id)).collect();
        let mut copies = BTreeMap::new();
        for (path, id) in sources {
            let copy = *copies.entry(id).or_insert_with(|| {
                self.objects.push(Object { ino: 0, ..self.objects[id].clone() });
                self.objects.len() - 1
            });
            self.paths.insert(format!("{to}{}", &path[from.len()..]), copy);
        }
    }

    /// The names of a directory's snapshots.
    pub fn snapshots_of(&self, id: usize) -> Vec<String> {
        self.snapshots.keys().filter(|(of, _)| *of == id).map(|(_, name)| name.clone()).collect()
    }

    /// Whether a directory has neither entries nor snapshots.
    pub fn is_empty(&self, path: &str) -> bool {
        self.children(path).is_empty() && self.snapshots_of(self.paths[path]).is_empty()
    }

    /// Takes a snapshot of the directory at a path.
    pub fn snapshot(&mut self, path: &str, name: &str) {
        let below = format!("{path}/");
        let inside = self.paths.iter().filter_map(|(p, id)| Some((p.strip_prefix(&below)?, *id)));
        let frozen = inside.map(|(path, id)| (path.to_owned(), self.objects[id].clone())).collect();
        self.snapshots.insert((self.paths[path], name.to_owned()), frozen);
    }

    /// Moves a path and everything below it.
    pub fn shift(&mut self, from: &str, to: &str) {
        let below = format!("{from}/");
        let moved: Vec<String> =
            self.paths.keys().filter(|p| *p == from || p.starts_with(&below)).cloned().collect();
        for path in moved {
            let id = self.paths.remove(&path).unwrap();
            self.paths.insert(format!("{to}{}", &path[from.len()..]), id);
        }
    }
}

pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap()
}
