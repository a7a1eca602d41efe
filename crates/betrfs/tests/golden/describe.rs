//! The contents of a volume as a text: a line for each name, and one for each of its extended attributes.

use std::fmt::Write;

use betrfs::{Attr, Entry, FileType, InodeId, Objects, SNAPSHOTS_NAME, Volume};
use xxhash_rust::xxh3::xxh3_64;

/// Number of bytes read of a file at once.
const READ_BYTES: usize = 1 << 20;

/// The text of a volume.
pub fn volume(volume: &Volume) -> String {
    let identity = volume.env().identity();
    let mut out = String::new();
    writeln!(out, "label {:?}", identity.label).unwrap();
    writeln!(out, "uuid {}", identity.uuid).unwrap();
    writeln!(out, "made {} by {}", identity.made_ns, identity.made_by).unwrap();
    writeln!(out, "replayed batches {}", volume.env().replayed_batches()).unwrap();
    let root = volume.resolve(b"/").unwrap();
    below(volume, b"", &root, &mut out);
    for (path, quota) in volume.quotas_below(root.node, None, usize::MAX).unwrap() {
        let (limits, used, path) = (quota.limits, quota.used, path.escape_ascii());
        let bytes = limits.bytes.map_or("any".into(), |bytes| bytes.to_string());
        let objects = limits.objects.map_or("any".into(), |objects| objects.to_string());
        let (of_bytes, of_objects) = (used.bytes, used.objects);
        writeln!(out, "quota of /{path}: bytes {of_bytes} of {bytes}, objects {of_objects} of {objects}")
            .unwrap();
    }
    out
}

/// Calls `each` with the entries of a directory, in the order of their names.
pub fn children(volume: &Volume, dir: InodeId, each: &mut dyn FnMut(&[u8], &Entry)) {
    let mut names = Vec::new();
    let mut from = 0;
    loop {
        let before = names.len();
        volume
            .readdir(dir, from, Objects::None, &mut |entry| {
                names.push(entry.name.to_vec());
                from = entry.cookie;
                true
            })
            .unwrap();
        if names.len() == before {
            break;
        }
    }
    names.sort();
    for name in names {
        let entry = volume.lookup(dir, &name).unwrap();
        each(&name, &entry);
        volume.forget(entry.node, 1);
    }
}

fn below(volume: &Volume, path: &[u8], entry: &Entry, out: &mut String) {
    let shown = if path.is_empty() { b"/" } else { path };
    write!(out, "{} {}", shown.escape_ascii(), attributes(&entry.attr)).unwrap();
    match entry.attr.file_type {
        FileType::Regular => write!(out, " xxh3 {:016x}", contents(volume, entry)).unwrap(),
        FileType::Symlink => {
            write!(out, " to {}", volume.readlink(entry.node).unwrap().escape_ascii()).unwrap();
        }
        _ => {}
    }
    out.push('\n');
    let mut names = volume.list_xattrs(entry.node).unwrap();
    names.sort();
    for name in names {
        let value = volume.get_xattr(entry.node, &name).unwrap();
        let (name, len, sum) = (name.escape_ascii(), value.len(), xxh3_64(&value));
        writeln!(out, "    attribute {name}: {len} bytes, xxh3 {sum:016x}").unwrap();
    }
    if entry.attr.file_type != FileType::Directory {
        return;
    }
    let mut child = |name: &[u8], entry: &Entry| {
        below(volume, &[path, b"/", name].concat(), entry, out);
    };
    children(volume, entry.node, &mut child);
    if let Ok(snapshots) = volume.lookup(entry.node, SNAPSHOTS_NAME) {
        let path = [path, b"/", SNAPSHOTS_NAME].concat();
        children(volume, snapshots.node, &mut |name, entry| {
            below(volume, &[&path, &b"/"[..], name].concat(), entry, out);
        });
        volume.forget(snapshots.node, 1);
    }
}

fn attributes(attr: &Attr) -> String {
    let Attr { ino, size, blocks_512, perm, nlink, uid, gid, rdev, .. } = *attr;
    let since = [attr.atime_ns, attr.mtime_ns, attr.ctime_ns].map(|time| time.wrapping_sub(attr.crtime_ns));
    format!(
        "{:?} {perm:o} inode {ino} links {nlink} owner {uid}:{gid} device {rdev} size {size} blocks {blocks_512} \
         created {} accessed, changed, ctime {since:?}",
        attr.file_type, attr.crtime_ns
    )
}

fn contents(volume: &Volume, entry: &Entry) -> u64 {
    let mut hashes = Vec::new();
    let mut from = 0;
    while from < entry.attr.size {
        let mut bytes = Vec::new();
        volume.read(entry.node, from, READ_BYTES, &mut bytes).unwrap();
        assert!(!bytes.is_empty());
        from += bytes.len() as u64;
        hashes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
    }
    xxh3_64(&hashes)
}
