//! The comparison of the library with the map.

use super::*;

impl World {
    pub(super) fn compare_some(&mut self, node: InodeId, id: usize) {
        let bytes = &self.model.objects[id].bytes;
        let offset = self.dice.roll(bytes.len() as u64 + 10) as usize;
        let len = self.dice.roll(10_000) as usize;
        let mut out = Vec::new();
        self.volume.read(node, offset as u64, len, &mut out).unwrap();
        assert_eq!(out, bytes[offset.min(bytes.len())..(offset + len).min(bytes.len())]);
        if let Ok(data) = self.volume.seek(node, offset as u64, SeekWhat::Data) {
            assert!(bytes[offset..data as usize].iter().all(|b| *b == 0), "data behind a hole");
        }
        if let Ok(hole) = self.volume.seek(node, offset as u64, SeekWhat::Hole) {
            let after = (hole as usize + 1).min(bytes.len());
            assert!(bytes[hole as usize..after].iter().all(|b| *b == 0), "a hole with bytes");
        }
    }

    pub(super) fn compare_snapshots(&self, path: &str) {
        let id = self.model.paths[path];
        let dir = self.volume.resolve(format!("{path}/.betrfs-snapshots").as_bytes()).unwrap();
        let mut listed = names(&self.volume, dir.node);
        listed.sort();
        assert_eq!(listed, self.model.snapshots_of(id), "snapshots of {path}");
        self.volume.forget(dir.node, 1);
        for ((_, name), frozen) in self.model.snapshots.iter().filter(|((of, _), _)| *of == id) {
            for (inside, object) in frozen {
                let path = format!("{path}/.betrfs-snapshots/{name}/{inside}");
                let entry = self.volume.resolve(path.as_bytes()).unwrap_or_else(|e| panic!("{path}: {e}"));
                assert_eq!((entry.attr.perm, entry.attr.size), (object.perm, size_of(object)), "{path}");
                if entry.attr.file_type == FileType::Regular {
                    assert!(read_all(&self.volume, entry.node) == object.bytes, "contents of {path}");
                }
                let refused = self.volume.setattr(entry.node, &SetAttr::default());
                assert_eq!(refused.map(|_| ()), Err(Error::InSnapshot));
                self.volume.forget(entry.node, 1);
            }
        }
    }

    pub(super) fn compare_object(&self, path: &str, node: InodeId) {
        let id = self.model.paths[path];
        let object = &self.model.objects[id];
        let attr = self.volume.getattr(node).unwrap();
        let file_type = match object {
            Object { dir: true, .. } => FileType::Directory,
            Object { fifo: true, .. } => FileType::Fifo,
            Object { target: Some(_), .. } => FileType::Symlink,
            _ => FileType::Regular,
        };
        assert_eq!(attr.file_type, file_type, "{path}");
        assert_eq!((attr.ino, attr.perm), (object.ino, object.perm), "{path}");
        assert_eq!(attr.nlink, self.model.nlink(id), "{path}");
        match &object.target {
            Some(target) => assert_eq!(&self.volume.readlink(node).unwrap(), target),
            None if file_type == FileType::Regular => {
                assert!(read_all(&self.volume, node) == object.bytes, "contents of {path}");
                // A small file is read again, from memory.
                let before = queries(&self.volume, OpKind::Read);
                assert!(read_all(&self.volume, node) == object.bytes, "contents of {path}, kept");
                let is_kept = object.bytes.len() <= 4096 && !self.is_short_of_memory;
                assert!(!is_kept || queries(&self.volume, OpKind::Read) == before, "{path} is not kept");
            }
            None => {}
        }
        let mut listed = self.volume.list_xattrs(node).unwrap();
        listed.sort();
        assert!(listed.iter().eq(object.xattrs.keys()), "{path}");
        for (name, value) in &object.xattrs {
            assert_eq!(&self.volume.get_xattr(node, name).unwrap(), value, "{path}");
        }
    }

    /// Compares everything, by lookups and by listings.
    pub(super) fn compare(&mut self) {
        assert_sound(&self.volume);
        for path in self.model.paths.keys() {
            let entry = self.volume.resolve(path.as_bytes()).unwrap_or_else(|e| panic!("{path}: {e}"));
            self.compare_object(path, entry.node);
            self.volume.forget(entry.node, 1);
        }
        let dirs: Vec<String> = self.model.paths.keys().filter(|p| self.model.is_dir(p)).cloned().collect();
        for path in &dirs {
            self.compare_snapshots(path);
        }
        for path in dirs.iter().map(String::as_str).chain([""]) {
            let dir = self.volume.resolve(path.as_bytes()).unwrap();
            self.volume.open_inode(dir.node).unwrap();
            let objects = [Objects::None, Objects::Directories, Objects::All][self.dice.roll(3) as usize];
            let chunk = 1 + self.dice.roll(4) as usize;
            let (mut cookie, mut found, mut held) = (0, Vec::new(), Vec::new());
            loop {
                let (before, from) = (found.len(), cookie);
                let mut room = chunk;
                let mut each = |entry: &betrfs::DirEntry<'_>| {
                    if room == 0 {
                        return false;
                    }
                    room -= 1;
                    cookie = entry.cookie;
                    found.push(String::from_utf8(entry.name.to_vec()).unwrap());
                    let object = self.model.object(&format!("{path}/{}", found.last().unwrap())).unwrap();
                    assert_eq!(entry.ino, object.ino);
                    held.extend(entry.entry.map(|entry| entry.node));
                    true
                };
                self.volume.readdir(dir.node, from, objects, &mut each).unwrap();
                if found.len() == before {
                    break;
                }
            }
            for node in held {
                self.volume.forget(node, 1);
            }
            found.sort();
            assert_eq!(found, self.model.children(path), "entries of {path}");
            self.volume.release_node(dir.node);
            self.volume.forget(dir.node, 1);
        }
        for handle in &self.handles {
            assert_eq!(read_all(&self.volume, handle.node), self.model.objects[handle.id].bytes);
        }
    }
}
