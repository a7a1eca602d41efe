//! Steps that make, remove and move names.

use betrfs::{Error, FileType, NewNode, RenameFlags, SnapshotsBelow};

use super::World;
use crate::model::{Object, split};
use crate::support::*;

impl World {
    pub(super) fn make(&mut self, path: &str, object: Object, result: Result<betrfs::Entry, Error>) {
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

    pub(super) fn create(&mut self) -> String {
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

    pub(super) fn mkdir(&mut self) -> String {
        let path = self.path();
        let result = self.in_dir(&path, |dir, name| self.volume.create(dir, name, &new_dir()));
        self.make(&path, Object { dir: true, perm: 0o755, ..Object::default() }, result);
        format!("mkdir {path}")
    }

    pub(super) fn unlink(&mut self) -> String {
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

    pub(super) fn rmdir(&mut self) -> String {
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

    pub(super) fn remove_below(&mut self) -> String {
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

    pub(super) fn rename(&mut self) -> String {
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

    pub(super) fn link(&mut self) -> String {
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
}
