//! Everything on a volume, as it is read through the library.

use std::collections::{BTreeMap, HashMap};

use betrfs::{
    Attr, Error, FileType, InodeFlags, InodeId, Objects, Properties, Quota, SNAPSHOTS_NAME, SeekWhat, Volume,
};

/// An object as it was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its attributes before it was read.
    pub attr: Attr,
    /// Its flags.
    pub flags: InodeFlags,
    /// Its project.
    pub project: u32,
    /// Its extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The bytes of a file, or the target of a symbolic link.
    pub bytes: Vec<u8>,
    /// The stretches of data of a file.
    pub stretches: Vec<(u64, u64)>,
    /// The entries of a directory, in the order of their names.
    pub entries: Vec<FoundEntry>,
    /// The snapshots of a directory, likewise.
    pub snapshots: Vec<FoundEntry>,
    /// The properties of a directory.
    pub properties: Option<Properties>,
    /// The quota that a directory is in; of snapshots it is not asked for.
    pub quota: Option<Quota>,
    /// The parts that cannot be read.
    pub unread: Parts,
}

/// Parts of an object that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Extended attributes.
    pub xattrs: bool,
    /// Bytes, target or stretches of data.
    pub bytes: bool,
    /// Entries.
    pub entries: bool,
    /// Snapshots.
    pub snapshots: bool,
    /// The quota.
    pub quota: bool,
}

/// An entry of a directory as it was found.
#[derive(Clone, Debug)]
pub struct FoundEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// The inode number in the listing.
    pub ino: u64,
    /// The type in the listing.
    pub file_type: FileType,
    /// The object; `None` if it cannot be read.
    pub found: Option<Found>,
}

/// An error of the library, with the path of the object.
pub type Unread = (String, Error);

/// Reads everything on a volume, past what cannot be read.
///
/// # Errors
/// The attributes of the root cannot be read.
pub fn read_volume(volume: &Volume) -> Result<(Found, Vec<Unread>), Unread> {
    let mut reader = Reader { volume, atimes: HashMap::new(), unread: Vec::new() };
    let found = reader.object(InodeId::ROOT, "", false)?;
    Ok((found, reader.unread))
}

/// Reads objects with everything below them.
struct Reader<'a> {
    volume: &'a Volume,
    /// The times of access before they were read, by inode number: a file may have several names.
    atimes: HashMap<u64, i64>,
    unread: Vec<Unread>,
}

impl Reader<'_> {
    /// Reads an object; `path` is for errors.
    fn object(&mut self, node: InodeId, path: &str, is_frozen: bool) -> Result<Found, Unread> {
        let volume = self.volume;
        let told = |error: Error| (if path.is_empty() { "/".to_owned() } else { path.to_owned() }, error);
        let mut attr = volume.getattr(node).map_err(told)?;
        attr.atime_ns = *self.atimes.entry(attr.ino).or_insert(attr.atime_ns);
        let mut unread = Parts::default();
        let xattrs = self.part(&mut unread.xattrs, read_xattrs(volume, node).map_err(told));
        let (mut bytes, mut stretches) = (Vec::new(), Vec::new());
        let (mut entries, mut snapshots) = (Vec::new(), Vec::new());
        let (mut properties, mut quota) = (None, None);
        match attr.file_type {
            FileType::Regular => {
                let read = read_bytes(volume, node, attr.size).map_err(told);
                (bytes, stretches) = self.part(&mut unread.bytes, read);
            }
            FileType::Symlink => {
                bytes = self.part(&mut unread.bytes, volume.readlink(node).map_err(told));
            }
            FileType::Directory => {
                let read = self.entries(node, path, is_frozen);
                entries = self.part(&mut unread.entries, read);
                properties = Some(volume.properties(node).map_err(told)?);
                if !is_frozen {
                    quota = self.part(&mut unread.quota, volume.quota(node).map_err(told));
                    let read = self.snapshots(node, path);
                    snapshots = self.part(&mut unread.snapshots, read);
                }
            }
            _ => {}
        }
        let flags = volume.inode_flags(node).map_err(told)?;
        let project = volume.project(node).map_err(told)?;
        Ok(Found {
            attr,
            flags,
            project,
            xattrs,
            bytes,
            stretches,
            entries,
            snapshots,
            properties,
            quota,
            unread,
        })
    }

    /// A part of an object; notes that it cannot be read.
    fn part<T: Default>(&mut self, is_unread: &mut bool, read: Result<T, Unread>) -> T {
        read.unwrap_or_else(|unread| {
            *is_unread = true;
            self.unread.push(unread);
            T::default()
        })
    }

    fn snapshots(&mut self, dir: InodeId, path: &str) -> Result<Vec<FoundEntry>, Unread> {
        let path = format!("{path}/{}", SNAPSHOTS_NAME.escape_ascii());
        let found = self.volume.lookup(dir, SNAPSHOTS_NAME);
        let inside = found.map_err(|error| (path.clone(), error))?.node;
        let entries = self.entries(inside, &path, true);
        self.volume.forget(inside, 1);
        entries
    }

    fn entries(&mut self, dir: InodeId, path: &str, is_frozen: bool) -> Result<Vec<FoundEntry>, Unread> {
        let volume = self.volume;
        let mut listed = Vec::new();
        let mut each = |entry: &betrfs::DirEntry<'_>| {
            let node = entry.entry.map(|entry| entry.node);
            listed.push((entry.name.to_vec(), entry.ino, entry.file_type, node));
            true
        };
        let read = volume.readdir(dir, 0, Objects::All, &mut each);
        read.map_err(|error| (path.to_owned(), error))?;
        // By names: the order of a listing is that in which names came.
        listed.sort_by(|one, other| one.0.cmp(&other.0));
        let mut entries = Vec::with_capacity(listed.len());
        for (name, ino, file_type, node) in listed {
            let path = format!("{path}/{}", name.escape_ascii());
            let node = match node {
                Some(node) => Ok(node),
                None => {
                    volume.lookup(dir, &name).map(|entry| entry.node).map_err(|error| (path.clone(), error))
                }
            };
            let found = node.and_then(|node| {
                let found = self.object(node, &path, is_frozen);
                volume.forget(node, 1);
                found
            });
            let found = found.map_err(|unread| self.unread.push(unread)).ok();
            entries.push(FoundEntry { name, ino, file_type, found });
        }
        Ok(entries)
    }
}

fn read_xattrs(volume: &Volume, node: InodeId) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Error> {
    let names = volume.list_xattrs(node)?;
    names.into_iter().map(|name| Ok((name.clone(), volume.get_xattr(node, &name)?))).collect()
}

type Bytes = (Vec<u8>, Vec<(u64, u64)>);

/// The bytes of a file, and its stretches of data.
fn read_bytes(volume: &Volume, node: InodeId, size: u64) -> Result<Bytes, Error> {
    let mut bytes = Vec::new();
    // More than there is: a read must stop at the end.
    volume.read(node, 0, size as usize + 10, &mut bytes)?;
    Ok((bytes, stretches_of(volume, node, size)?))
}

/// The stretches of data of a file of `size` bytes.
fn stretches_of(volume: &Volume, node: InodeId, size: u64) -> Result<Vec<(u64, u64)>, Error> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < size {
        let data = match volume.seek(node, at, SeekWhat::Data) {
            Ok(data) => data,
            Err(Error::NoSuchPlace) => break,
            Err(error) => return Err(error),
        };
        let hole = volume.seek(node, data, SeekWhat::Hole)?;
        found.push((data, hole));
        if hole <= at {
            break;
        }
        at = hole;
    }
    Ok(found)
}
