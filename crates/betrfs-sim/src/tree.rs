//! Everything on a volume, as it is read through the library.

use std::collections::{BTreeMap, HashMap};

use betrfs::{Attr, Error, FileType, InodeFlags, InodeId, Objects, SNAPSHOTS_NAME, SeekWhat, Volume};

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
    /// The object.
    pub found: Found,
}

/// An error of the library, with the path of the object.
pub type Unread = (String, Error);

/// Reads everything on a volume.
///
/// # Errors
/// The first that cannot be read.
pub fn read_volume(volume: &Volume) -> Result<Found, Unread> {
    Reader { volume, atimes: HashMap::new() }.object(InodeId::ROOT, "", false)
}

/// Reads objects with everything below them.
struct Reader<'a> {
    volume: &'a Volume,
    /// The times of access before they were read, by inode number: a file may have several names.
    atimes: HashMap<u64, i64>,
}

impl Reader<'_> {
    /// Reads an object; `path` is for errors.
    fn object(&mut self, node: InodeId, path: &str, is_frozen: bool) -> Result<Found, Unread> {
        let volume = self.volume;
        let told = |error: Error| (if path.is_empty() { "/".to_owned() } else { path.to_owned() }, error);
        let mut attr = volume.getattr(node).map_err(told)?;
        attr.atime_ns = *self.atimes.entry(attr.ino).or_insert(attr.atime_ns);
        let mut xattrs = BTreeMap::new();
        for name in volume.list_xattrs(node).map_err(told)? {
            let value = volume.get_xattr(node, &name).map_err(told)?;
            xattrs.insert(name, value);
        }
        let (mut bytes, mut stretches) = (Vec::new(), Vec::new());
        let (mut entries, mut snapshots) = (Vec::new(), Vec::new());
        match attr.file_type {
            FileType::Regular => {
                // More than there is: a read must stop at the end.
                volume.read(node, 0, attr.size as usize + 10, &mut bytes).map_err(told)?;
                stretches = stretches_of(volume, node, attr.size).map_err(told)?;
            }
            FileType::Symlink => bytes = volume.readlink(node).map_err(told)?,
            FileType::Directory => {
                entries = self.entries(node, path, is_frozen)?;
                if !is_frozen {
                    let inside = volume.lookup(node, SNAPSHOTS_NAME).map_err(told)?;
                    let path = format!("{path}/{}", SNAPSHOTS_NAME.escape_ascii());
                    snapshots = self.entries(inside.node, &path, true)?;
                    volume.forget(inside.node, 1);
                }
            }
            _ => {}
        }
        let flags = volume.inode_flags(node).map_err(told)?;
        let project = volume.project(node).map_err(told)?;
        Ok(Found { attr, flags, project, xattrs, bytes, stretches, entries, snapshots })
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
                Some(node) => node,
                None => volume.lookup(dir, &name).map_err(|error| (path.clone(), error))?.node,
            };
            let found = self.object(node, &path, is_frozen)?;
            volume.forget(node, 1);
            entries.push(FoundEntry { name, ino, file_type, found });
        }
        Ok(entries)
    }
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
