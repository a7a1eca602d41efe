//! Steps that take snapshots and make clones.

use betrfs::{Error, SNAPSHOTS_NAME};

use super::World;
use crate::model::split;
use crate::support::*;

impl World {
    /// Takes a snapshot, or removes one.
    pub(super) fn snapshot(&mut self) -> String {
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

    pub(super) fn clone_one(&mut self) -> String {
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
    pub(super) fn number_copies(&mut self, top: &str) {
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
}
