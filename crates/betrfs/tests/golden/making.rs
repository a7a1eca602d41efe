//! The making of the golden volumes, one for each feature of the format.

use betree::Compression;
use betrfs::{
    FallocateMode, FileType, FormatOptions, InodeId, NewNode, QuotaLimits, RenameFlags, SNAPSHOTS_NAME,
    SetAttr, SnapshotsBelow, TimeSet, Uuid, Volume, XattrMode,
};

use crate::memory::{Disk, NEW_DIR, NEW_FILE};

const ROOT: InodeId = InodeId::ROOT;
const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };

/// A golden volume's name, and the function that makes it.
type Named = (&'static str, fn() -> Disk);

/// All golden volumes.
pub const ALL: [Named; 14] = [
    ("plain", plain),
    ("names", names),
    ("links", links),
    ("sparse", sparse),
    ("xattrs", xattrs),
    ("clones", clones),
    ("snapshots", snapshots),
    ("orphans", orphans),
    ("log", log),
    ("zstd", || compressed(Compression::Zstd)),
    ("lz4", || compressed(Compression::Lz4)),
    ("uncompressed", || compressed(Compression::None)),
    ("label", label),
    ("quotas", quotas),
];

fn new() -> Disk {
    Disk::new(Compression::Lz4, &FormatOptions::default())
}

/// A volume that is filled and closed.
fn closed(fill: impl FnOnce(&Volume)) -> Disk {
    let disk = new();
    let volume = disk.open();
    fill(&volume);
    volume.close().unwrap();
    disk
}

/// A volume that is filled and made durable, and then crashes.
fn crashed(fill: impl FnOnce(&Volume)) -> Disk {
    let disk = new();
    let volume = disk.open();
    fill(&volume);
    volume.sync().unwrap();
    volume.env().abandon();
    disk
}

/// Text that compresses.
fn text(seed: usize, len: usize) -> Vec<u8> {
    format!("the contents of {seed}, again and again; ").into_bytes().into_iter().cycle().take(len).collect()
}

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn file(volume: &Volume, dir: InodeId, name: &str, contents: &[u8]) -> InodeId {
    let node = volume.create(dir, name.as_bytes(), &NEW_FILE).unwrap().node;
    volume.write(node, 0, contents).unwrap();
    node
}

fn dir(volume: &Volume, parent: InodeId, name: &str) -> InodeId {
    volume.create(parent, name.as_bytes(), &NEW_DIR).unwrap().node
}

/// Directories three deep with files, `name` in the root.
fn tree(volume: &Volume, name: &str) -> InodeId {
    let top = dir(volume, ROOT, name);
    for outer in 0..6 {
        let middle = dir(volume, top, &format!("outer{outer}"));
        for inner in 0..3 {
            let bottom = dir(volume, middle, &format!("inner{inner}"));
            for number in 0..4 {
                file(volume, bottom, &format!("file{number}"), &text(outer * 20 + number, 900 * number));
            }
        }
    }
    top
}

fn node_at(volume: &Volume, path: &str) -> InodeId {
    volume.resolve(path.as_bytes()).unwrap().node
}

fn plain() -> Disk {
    closed(|volume| {
        for len in [0, 1, 100, 4095, 4096, 4097, 20_000, 70_000] {
            file(volume, ROOT, &format!("of{len}"), &text(len, len));
        }
        let deep = (0..20).fold(ROOT, |parent, level| dir(volume, parent, &format!("level{level}")));
        let changed = file(volume, deep, "changed", &text(1, 9000));
        volume.write(changed, 4000, b"over a border of blocks").unwrap();
        volume.setattr(changed, &SetAttr { size: Some(6000), ..SetAttr::default() }).unwrap();
        volume.setattr(changed, &SetAttr { size: Some(6001), ..SetAttr::default() }).unwrap();
        let types = [
            (FileType::Fifo, 0),
            (FileType::Socket, 0),
            (FileType::CharDevice, 0x0103),
            (FileType::BlockDevice, 0x0800),
        ];
        for (file_type, rdev) in types {
            let new = NewNode { file_type, perm: 0o4711, uid: 7, gid: 8, rdev, umask: 0 };
            volume.create(deep, format!("{file_type:?}").as_bytes(), &new).unwrap();
        }
        volume.symlink(deep, b"short", b"../to/somewhere", 1, 2).unwrap();
        volume.symlink(deep, b"long", &[b'x'; 4095], 1, 2).unwrap();
        let times = SetAttr {
            perm: Some(0o7777),
            uid: Some(u32::MAX - 1),
            gid: Some(0),
            atime_ns: Some(TimeSet::At(-1)),
            mtime_ns: Some(TimeSet::At(i64::MAX)),
            ctime_ns: Some(1),
            ..SetAttr::default()
        };
        volume.setattr(changed, &times).unwrap();
    })
}

fn names() -> Disk {
    closed(|volume| {
        let many = dir(volume, ROOT, "many");
        for number in 0..700 {
            file(volume, many, &format!("number{number}"), b"");
        }
        for number in (0..700).step_by(3) {
            volume.unlink(many, format!("number{number}").as_bytes()).unwrap();
        }
        for name in [&[b'n'; 255][..], b"\xff\xfe", b"\x01", b"a b\n\"", "ü\u{1f333}".as_bytes()] {
            volume.create(ROOT, name, &NEW_DIR).unwrap();
        }
    })
}

fn links() -> Disk {
    closed(|volume| {
        let (a, b) = (dir(volume, ROOT, "a"), dir(volume, ROOT, "b"));
        for number in 0..10 {
            let linked = file(volume, a, &format!("linked{number}"), &text(number, 500 * number));
            volume.link(linked, b, format!("other{number}").as_bytes()).unwrap();
            volume.link(linked, ROOT, format!("third{number}").as_bytes()).unwrap();
        }
        volume.unlink(ROOT, b"third0").unwrap();
        volume.unlink(ROOT, b"third1").unwrap();
        volume.unlink(b, b"other1").unwrap();
        volume.rename(b, b"other2", a, b"renamed", PLAIN).unwrap();
        volume.clone_inode(a, ROOT, b"clone of a").unwrap();
        volume.rename(ROOT, b"b", a, b"b", PLAIN).unwrap();
    })
}

fn sparse() -> Disk {
    closed(|volume| {
        let gaps = volume.create(ROOT, b"gaps", &NEW_FILE).unwrap().node;
        for number in 0..300u64 {
            volume.write(gaps, number * number * 8192, b"in a gap").unwrap();
        }
        let punched = file(volume, ROOT, "punched", &text(2, 100_000));
        volume.fallocate(punched, FallocateMode::PunchHole, 5000, 60_000).unwrap();
        volume.fallocate(punched, FallocateMode::Zero { keep_size: true }, 90_000, 5000).unwrap();
        let hole = volume.create(ROOT, b"hole", &NEW_FILE).unwrap().node;
        volume.setattr(hole, &SetAttr { size: Some(1 << 21), ..SetAttr::default() }).unwrap();
        let end = volume.create(ROOT, b"end", &NEW_FILE).unwrap().node;
        volume.write(end, (1 << 21) - 5, b"at the end").unwrap();
    })
}

fn xattrs() -> Disk {
    closed(|volume| {
        let set = |node, name: &str, value: &[u8]| {
            volume.set_xattr(node, name.as_bytes(), value, XattrMode::Any).unwrap();
        };
        for (number, node) in
            [ROOT, dir(volume, ROOT, "dir"), file(volume, ROOT, "file", b"contents")].into_iter().enumerate()
        {
            set(node, "user.empty", b"");
            set(node, "user.small", b"value");
            set(node, "user.large", &text(number, 5000));
            set(node, "user.largest", &text(number, 65_536));
            set(node, "trusted.removed", &text(number, 3000));
            volume.remove_xattr(node, b"trusted.removed").unwrap();
            for other in 0..20 {
                set(node, &format!("user.number{other}"), &text(other, 10 * other));
            }
        }
        let long = format!("user.{}", "n".repeat(250));
        set(node_at(volume, "/file"), &long, b"of a long name");
    })
}

/// Changed clones of clones that are still in the trees as GOTOs and windows.
fn clones() -> Disk {
    closed(|volume| {
        let top = tree(volume, "tree");
        volume.env().checkpoint().unwrap();
        for number in 0..4 {
            let copy = volume.clone_inode(top, ROOT, format!("copy{number}").as_bytes()).unwrap().node;
            let path = format!("/copy{number}/outer{number}/inner1/file2");
            volume.write(node_at(volume, &path), 100, format!("changed in {number}").as_bytes()).unwrap();
            let inner = node_at(volume, &format!("/copy{number}/outer{}", 4 - number));
            volume.clone_inode(inner, copy, b"clone inside").unwrap();
        }
        let gone = node_at(volume, "/copy1/outer3");
        volume.remove_below(gone, SnapshotsBelow::Go).unwrap();
        volume.rename(ROOT, b"copy2", node_at(volume, "/copy3"), b"moved", PLAIN).unwrap();
        volume.clone_inode(node_at(volume, "/copy3"), ROOT, b"copy of copies").unwrap();
        volume.clone_inode(node_at(volume, "/tree/outer0/inner0/file3"), ROOT, b"file").unwrap();
        file(volume, node_at(volume, "/copy of copies/moved/outer2"), "new", &text(9, 6000));
    })
}

fn snapshots() -> Disk {
    closed(|volume| {
        let top = tree(volume, "tree");
        let outer = node_at(volume, "/tree/outer1");
        for number in 0..3 {
            for (of, name) in [(top, "of the tree"), (outer, "of a part")] {
                let all = volume.lookup(of, SNAPSHOTS_NAME).unwrap().node;
                dir(volume, all, &format!("{name} {number}"));
            }
            let changed = node_at(volume, "/tree/outer1/inner2/file2");
            volume.write(changed, 0, format!("since {number}").as_bytes()).unwrap();
        }
        volume.rename(ROOT, b"tree", ROOT, b"renamed", PLAIN).unwrap();
        let all = volume.lookup(node_at(volume, "/renamed"), SNAPSHOTS_NAME).unwrap().node;
        volume.rmdir(all, b"of the tree 1").unwrap();
    })
}

/// Files unlinked and still open: the next opening deletes them.
fn orphans() -> Disk {
    crashed(|volume| {
        for number in 0..5 {
            let name = format!("open{number}");
            let node = file(volume, ROOT, &name, &text(number, 3000 * number));
            volume.set_xattr(node, b"user.large", &text(number, 5000), XattrMode::Any).unwrap();
            if number > 2 {
                volume.link(node, ROOT, format!("link{number}").as_bytes()).unwrap();
                volume.unlink(ROOT, format!("link{number}").as_bytes()).unwrap();
            }
            volume.open_inode(node).unwrap();
            volume.unlink(ROOT, name.as_bytes()).unwrap();
            if number == 2 {
                volume.env().checkpoint().unwrap();
            }
        }
        file(volume, ROOT, "named", b"it stays");
    })
}

/// A log with every kind of change.
fn log() -> Disk {
    crashed(|volume| {
        tree(volume, "tree");
        let large = file(volume, ROOT, "large", &text(3, 60_000));
        volume.env().checkpoint().unwrap();
        // Puts, upserts, deletes, range deletes, clones of prefixes and of parts.
        file(volume, ROOT, "new", &text(4, 5000));
        volume.write(large, 10_000, b"a part of a block").unwrap();
        volume.setattr(large, &SetAttr { size: Some(41_000), ..SetAttr::default() }).unwrap();
        volume.unlink(node_at(volume, "/tree/outer0/inner0"), b"file3").unwrap();
        volume.clone_inode(node_at(volume, "/tree/outer2"), ROOT, b"clone").unwrap();
        volume.rename(ROOT, b"tree", ROOT, b"renamed", PLAIN).unwrap();
        volume.clone_inode(large, ROOT, b"clone of large").unwrap();
        volume.remove_below(node_at(volume, "/renamed/outer4"), SnapshotsBelow::Go).unwrap();
        volume.sync().unwrap();
        file(volume, ROOT, "last", &noise(5, 9000));
    })
}

/// Text and noise in nodes with one kind of compression.
fn compressed(compression: Compression) -> Disk {
    let disk = Disk::new(compression, &FormatOptions::default());
    let volume = disk.open();
    for number in 0..20 {
        file(&volume, ROOT, &format!("text{number}"), &text(number, 12_000));
    }
    file(&volume, ROOT, "noise", &noise(1, 12_000));
    volume.close().unwrap();
    disk
}

fn label() -> Disk {
    let uuid = Uuid::from_u128(0x0123_4567_89ab_4def_8123_4567_89ab_cdef);
    let options = FormatOptions {
        label: "a label, 日本語".into(),
        uuid: Some(uuid),
        root_uid: 5,
        root_gid: 6,
        root_perm: Some(0o1777),
        ..FormatOptions::default()
    };
    let disk = Disk::new(Compression::Lz4, &options);
    let volume = disk.open();
    file(&volume, ROOT, "file", b"contents");
    volume.env().set_label("another label, 日本語").unwrap();
    volume.close().unwrap();
    disk
}

/// Quotas, one in another, with uses that were written and some in the log alone; a copy and a snapshot.
fn quotas() -> Disk {
    crashed(|volume| {
        tree(volume, "tree");
        let limits = |bytes, objects| QuotaLimits { bytes, objects };
        volume.set_quota(node_at(volume, "/tree"), limits(Some(1 << 20), None)).unwrap();
        volume.set_quota(node_at(volume, "/tree/outer1"), limits(None, Some(1000))).unwrap();
        let linked = file(volume, node_at(volume, "/tree/outer1"), "linked", &text(7, 5000));
        volume.link(linked, node_at(volume, "/tree/outer1/inner0"), b"again").unwrap();
        volume.clone_inode(node_at(volume, "/tree"), ROOT, b"copy").unwrap();
        let snapshots = volume.lookup(node_at(volume, "/tree"), SNAPSHOTS_NAME).unwrap().node;
        volume.create(snapshots, b"monday", &NEW_DIR).unwrap();
        volume.env().checkpoint().unwrap();
        file(volume, node_at(volume, "/tree/outer1"), "later", &text(8, 9000));
        volume.rename(ROOT, b"copy", ROOT, b"moved", PLAIN).unwrap();
        volume.unlink(node_at(volume, "/moved/outer1"), b"linked").unwrap();
    })
}
