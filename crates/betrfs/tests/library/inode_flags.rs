//! Inode flags: which operation each of them refuses, that a refused one changes nothing, and what becomes
//! of them over remounts, links, renames, clones and snapshots.

use crate::support::*;
use betrfs::{
    Access, AccessTimes, Error, FallocateMode, FileType, FlagSetter, InodeFlags, InodeId, NewNode,
    RenameFlags, Result, SNAPSHOTS_NAME, SetAttr, SnapshotsBelow, TimeSet, Volume, Writing, XattrMode,
};

const I: InodeFlags = InodeFlags::IMMUTABLE;
const A: InodeFlags = InodeFlags::APPEND;
const HARMLESS: InodeFlags = InodeFlags::NODUMP.union(InodeFlags::NOATIME);
const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };
const EXCHANGE: RenameFlags = RenameFlags { exchange: true, ..PLAIN };
const SIZE: u64 = 2 << 20;

fn set(volume: &Volume, node: InodeId, flags: InodeFlags) {
    volume.set_inode_flags(node, flags, FlagSetter::ROOT).unwrap();
}

fn flags_at(volume: &Volume, path: &str) -> InodeFlags {
    volume.inode_flags(volume.resolve(path.as_bytes()).unwrap().node).unwrap()
}

/// What an operation is tried on.
struct Stage<'v> {
    volume: &'v Volume,
    /// The directory of all that follows.
    place: InodeId,
    /// A file of [`SIZE`] bytes with the names `f` and `hard`.
    file: InodeId,
    /// A directory `d` with the file `f` and the empty directory `s`.
    dir: InodeId,
    /// A file `other` as large, and an empty directory `empty`.
    other: InodeId,
    empty: InodeId,
}

impl Stage<'_> {
    fn on<'v>(volume: &'v Volume, name: &str) -> Stage<'v> {
        let place = mkdir(volume, ROOT, name).node;
        let file = mkfile(volume, place, "f").node;
        let dir = mkdir(volume, place, "d").node;
        let other = mkfile(volume, place, "other").node;
        for file in [file, other] {
            assert_eq!(volume.write(file, 0, &vec![7; SIZE as usize]), Ok(SIZE as usize));
        }
        volume.link(file, place, b"hard").unwrap();
        volume.set_xattr(file, b"user.x", b"x", XattrMode::Any).unwrap();
        mkfile(volume, dir, "f");
        mkdir(volume, dir, "s");
        let empty = mkdir(volume, place, "empty").node;
        Stage { volume, place, file, dir, other, empty }
    }

    /// What must be as it was after a refusal.
    fn look(&self) -> impl PartialEq + std::fmt::Debug {
        let of = |node| (self.volume.getattr(node).unwrap(), self.volume.list_xattrs(node).unwrap());
        let listed = [self.place, self.dir, self.empty].map(|dir| names(self.volume, dir));
        ([self.place, self.file, self.dir, self.other, self.empty].map(of), listed)
    }

    fn setattr(&self, node: InodeId, set: SetAttr) -> Result<()> {
        self.volume.setattr(node, &set).map(drop)
    }

    fn rename(&self, from: (InodeId, &str), to: (InodeId, &str), flags: RenameFlags) -> Result<()> {
        self.volume.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), flags)
    }

    fn fallocate(&self, mode: FallocateMode) -> Result<()> {
        self.volume.fallocate(self.file, mode, 4096, 2 * SIZE)
    }
}

/// An operation: which flag refuses it.
type Row = (&'static str, bool, bool, fn(&Stage<'_>) -> Result<()>);

/// Asserts of each row what it does where `flagged` of a stage has no flag, harmless ones, and each of those
/// that refuse something.
fn assert_table(flagged: fn(&Stage<'_>) -> InodeId, rows: &[Row]) {
    let mut disk = Disk::new();
    // A copy that is refused may have read its source.
    disk.options.access_times = AccessTimes::Never;
    let volume = disk.open();
    for (name, by_immutable, by_append, act) in rows {
        let cases = [
            (InodeFlags::NONE, false),
            (HARMLESS, false),
            (I, *by_immutable),
            (A, *by_append),
            (I.union(A), *by_immutable || *by_append),
        ];
        for (flags, is_refused) in cases {
            let case = format!("{name} {:x}", flags.bits());
            let stage = Stage::on(&volume, &case.replace('/', "-"));
            set(&volume, flagged(&stage), flags);
            let before = stage.look();
            let expected = if is_refused { Err(Error::Protected) } else { Ok(()) };
            assert_eq!(act(&stage), expected, "{case}");
            assert!(!is_refused || stage.look() == before, "{case} changed {before:?}");
            set(&volume, flagged(&stage), InodeFlags::NONE);
            volume.remove_below(stage.place, SnapshotsBelow::Go).unwrap();
        }
    }
    assert_sound(&volume);
}

#[test]
fn flags_of_a_file_refuse_what_they_say() {
    assert_table(
        |stage| stage.file,
        &[
            ("write", true, true, |s| s.volume.write(s.file, SIZE - 1, b"x").map(drop)),
            ("write at the end", true, false, |s| s.volume.write(s.file, SIZE, b"x").map(drop)),
            ("write behind the end", true, false, |s| s.volume.write(s.file, 2 * SIZE, b"x").map(drop)),
            ("append", true, false, |s| s.volume.append(s.file, b"x").map(drop)),
            ("write nothing", false, false, |s| s.volume.write(s.file, 0, b"").map(drop)),
            ("belated write", false, false, |s| s.volume.write_belated(s.file, 0, b"x").map(drop)),
            ("read", false, false, |s| s.volume.read(s.file, 0, 10, &mut Vec::new())),
            ("open at the end", true, false, |s| s.volume.check_writable(s.file, Writing::AtEnd)),
            ("open anywhere", true, true, |s| s.volume.check_writable(s.file, Writing::Anywhere)),
            ("shorten", true, true, |s| s.setattr(s.file, SetAttr { size: Some(1), ..SetAttr::default() })),
            ("lengthen", true, true, |s| {
                s.setattr(s.file, SetAttr { size: Some(2 * SIZE), ..SetAttr::default() })
            }),
            ("mode", true, true, |s| s.setattr(s.file, SetAttr { perm: Some(0o600), ..SetAttr::default() })),
            ("owner", true, true, |s| s.setattr(s.file, SetAttr { uid: Some(5), ..SetAttr::default() })),
            ("group", true, true, |s| s.setattr(s.file, SetAttr { gid: Some(5), ..SetAttr::default() })),
            ("time of access", true, true, |s| {
                s.setattr(s.file, SetAttr { atime_ns: Some(TimeSet::At(5)), ..SetAttr::default() })
            }),
            ("time of change", true, true, |s| {
                s.setattr(s.file, SetAttr { mtime_ns: Some(TimeSet::At(5)), ..SetAttr::default() })
            }),
            ("present times", true, false, |s| {
                let now = Some(TimeSet::Now);
                s.setattr(s.file, SetAttr { atime_ns: now, mtime_ns: now, ..SetAttr::default() })
            }),
            ("clear set-id bits", true, false, |s| {
                s.setattr(s.file, SetAttr { kill_set_id: true, ..SetAttr::default() })
            }),
            ("allocate", true, false, |s| s.fallocate(FallocateMode::Allocate { keep_size: false })),
            ("allocate behind the end", true, false, |s| {
                s.fallocate(FallocateMode::Allocate { keep_size: true })
            }),
            ("punch", true, true, |s| s.fallocate(FallocateMode::PunchHole)),
            ("zero", true, true, |s| s.fallocate(FallocateMode::Zero { keep_size: false })),
            ("copy into it", true, true, |s| s.volume.copy_range(s.other, 0, s.file, 4096, 100).map(drop)),
            ("share with it", true, true, |s| s.volume.copy_range(s.other, 0, s.file, 0, SIZE).map(drop)),
            ("copy to its end", true, false, |s| {
                s.volume.copy_range(s.other, 0, s.file, SIZE, 100).map(drop)
            }),
            ("copy of it", false, false, |s| s.volume.copy_range(s.file, 0, s.other, 0, SIZE).map(drop)),
            ("set attribute", true, true, |s| {
                s.volume.set_xattr(s.file, b"security.y", b"y", XattrMode::Any)
            }),
            ("remove attribute", true, true, |s| s.volume.remove_xattr(s.file, b"user.x")),
            ("get attribute", false, false, |s| s.volume.get_xattr(s.file, b"user.x").map(drop)),
            ("link", true, true, |s| s.volume.link(s.file, s.dir, b"new").map(drop)),
            ("unlink", true, true, |s| s.volume.unlink(s.place, b"f")),
            ("unlink another name", true, true, |s| s.volume.unlink(s.place, b"hard")),
            ("rename", true, true, |s| s.rename((s.place, "f"), (s.dir, "new"), PLAIN)),
            ("rename over it", true, true, |s| s.rename((s.place, "other"), (s.place, "f"), PLAIN)),
            ("rename onto itself", false, false, |s| s.rename((s.place, "f"), (s.place, "hard"), PLAIN)),
            ("exchange", true, true, |s| s.rename((s.place, "f"), (s.place, "other"), EXCHANGE)),
            ("exchange with it", true, true, |s| s.rename((s.place, "other"), (s.place, "hard"), EXCHANGE)),
            ("clone", false, false, |s| s.volume.clone_inode(s.file, s.dir, b"new").map(drop)),
            ("flags", true, false, |s| {
                let flags = s.volume.inode_flags(s.file)?;
                let other = InodeFlags::from_bits(flags.bits() ^ InodeFlags::NODUMP.bits());
                s.volume.set_inode_flags(s.file, other, FlagSetter::ROOT)
            }),
        ],
    );
}

#[test]
fn flags_of_a_directory_refuse_what_they_say() {
    assert_table(
        |stage| stage.dir,
        &[
            ("create", true, false, |s| s.volume.create(s.dir, b"new", &new_file()).map(drop)),
            ("create with contents", true, false, |s| {
                s.volume.create_with(s.dir, b"new", &new_file(), b"x").map(drop)
            }),
            ("make a directory", true, false, |s| s.volume.create(s.dir, b"new", &new_dir()).map(drop)),
            ("make a symbolic link", true, false, |s| s.volume.symlink(s.dir, b"new", b"x", 1, 2).map(drop)),
            ("create without a name", true, false, |s| {
                s.volume.create_unnamed(s.dir, &new_file()).map(|new| s.volume.forget(new.node, 1))
            }),
            ("link", true, false, |s| s.volume.link(s.file, s.dir, b"new").map(drop)),
            ("unlink", true, true, |s| s.volume.unlink(s.dir, b"f")),
            ("rmdir", true, true, |s| s.volume.rmdir(s.dir, b"s").map(drop)),
            ("rename in it", true, true, |s| s.rename((s.dir, "f"), (s.dir, "new"), PLAIN)),
            ("rename out of it", true, true, |s| s.rename((s.dir, "f"), (s.place, "new"), PLAIN)),
            ("rename into it", true, false, |s| s.rename((s.place, "other"), (s.dir, "new"), PLAIN)),
            ("rename over what is in it", true, true, |s| s.rename((s.place, "other"), (s.dir, "f"), PLAIN)),
            ("exchange", true, true, |s| s.rename((s.place, "other"), (s.dir, "f"), EXCHANGE)),
            ("clone into it", true, false, |s| s.volume.clone_inode(s.file, s.dir, b"new").map(drop)),
            ("clone of it", false, false, |s| s.volume.clone_inode(s.dir, s.empty, b"new").map(drop)),
            ("rename it", true, true, |s| s.rename((s.place, "d"), (s.empty, "new"), PLAIN)),
            ("empty it", true, true, |s| s.volume.remove_below(s.dir, SnapshotsBelow::Go).map(drop)),
            ("mode", true, true, |s| s.setattr(s.dir, SetAttr { perm: Some(0o700), ..SetAttr::default() })),
            ("set attribute", true, true, |s| s.volume.set_xattr(s.dir, b"user.y", b"y", XattrMode::Any)),
            ("write to what is in it", false, false, |s| {
                let file = s.volume.lookup(s.dir, b"f")?.node;
                s.volume.write(file, 0, b"x").map(drop)
            }),
            ("snapshot, and its removal", false, false, |s| {
                let snapshots = s.volume.lookup(s.dir, SNAPSHOTS_NAME)?.node;
                s.volume.create(snapshots, b"monday", &new_dir())?;
                s.volume.rmdir(snapshots, b"monday").map(drop)
            }),
        ],
    );
    assert_table(
        |stage| stage.empty,
        &[
            ("rmdir it", true, true, |s| s.volume.rmdir(s.place, b"empty").map(drop)),
            ("rename over it", true, true, |s| s.rename((s.place, "d"), (s.place, "empty"), PLAIN)),
            ("fill it", true, true, |s| s.volume.clone_onto(s.dir, s.empty)),
        ],
    );
}

#[test]
fn what_is_not_there_or_in_the_way_is_told_before_flags() {
    let (_disk, volume) = volume();
    let stage = Stage::on(&volume, "p");
    for flags in [I, A] {
        set(&volume, stage.dir, flags);
        assert_eq!(volume.unlink(stage.dir, b"none"), Err(Error::NotFound));
        assert_eq!(volume.create(stage.dir, b"f", &new_file()).map(drop), Err(Error::Exists));
        assert_eq!(volume.link(stage.other, stage.dir, b"f").map(drop), Err(Error::Exists));
        let no_replace = RenameFlags { no_replace: true, ..PLAIN };
        assert_eq!(stage.rename((stage.place, "other"), (stage.dir, "f"), no_replace), Err(Error::Exists));
    }
}

#[test]
fn flags_and_project_are_kept_until_they_are_changed() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let file = mkfile(&volume, dir, "f").node;
    let before = volume.getattr(file).unwrap();
    set(&volume, file, A.union(HARMLESS));
    let after = volume.getattr(file).unwrap();
    assert!(after.ctime_ns > before.ctime_ns && after.mtime_ns == before.mtime_ns);
    volume.set_flags_and_project(dir, I, Some(9), FlagSetter::ROOT).unwrap();
    volume.set_inode_flags(ROOT, InodeFlags::NODUMP, FlagSetter::ROOT).unwrap();
    volume.close().unwrap();

    let volume = disk.open();
    assert_eq!(flags_at(&volume, "/d/f"), A.union(HARMLESS));
    assert_eq!((flags_at(&volume, "/d"), flags_at(&volume, "/")), (I, InodeFlags::NODUMP));
    let (dir, file) = (volume.resolve(b"/d").unwrap().node, volume.resolve(b"/d/f").unwrap().node);
    assert_eq!((volume.project(dir), volume.project(file)), (Ok(9), Ok(0)));
    assert_eq!(volume.unlink(dir, b"f"), Err(Error::Protected));
    set(&volume, dir, InodeFlags::NONE);
    assert_eq!(volume.project(dir), Ok(9));
    volume.set_flags_and_project(dir, InodeFlags::NONE, Some(0), FlagSetter::ROOT).unwrap();
    assert_eq!(volume.unlink(dir, b"f"), Err(Error::Protected));
    set(&volume, file, HARMLESS);
    // They go with the file through links and renames.
    volume.link(file, ROOT, b"g").unwrap();
    volume.rename(ROOT, b"g", dir, b"h", PLAIN).unwrap();
    volume.rename(ROOT, b"d", ROOT, b"e", PLAIN).unwrap();
    volume.close().unwrap();
    let volume = disk.open();
    assert_eq!((flags_at(&volume, "/e/f"), flags_at(&volume, "/e/h")), (HARMLESS, HARMLESS));
    assert_eq!(flags_at(&volume, "/e"), InodeFlags::NONE);
    volume.unlink(volume.resolve(b"/e").unwrap().node, b"f").unwrap();
    assert_sound(&volume);
}

#[test]
fn who_may_set_them_is_asked() {
    let (_disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f").node;
    let owner = FlagSetter { owner: Some(1000), may_protect: false };
    let other = FlagSetter { owner: Some(1001), may_protect: true };
    volume.set_inode_flags(file, HARMLESS, owner).unwrap();
    for (flags, setter) in [(HARMLESS, other), (I, owner), (A, owner)] {
        assert_eq!(volume.set_inode_flags(file, flags, setter), Err(Error::NotPermitted));
    }
    let unknown = InodeFlags::from_bits(8);
    assert_eq!(volume.set_inode_flags(file, unknown, FlagSetter::ROOT), Err(Error::NotSupported));
    assert_eq!(volume.inode_flags(file), Ok(HARMLESS));
}

#[test]
fn new_objects_inherit_what_forbids_nothing() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    set(&volume, dir, HARMLESS.union(A));
    let fifo = NewNode { file_type: FileType::Fifo, ..new_file() };
    let made = [
        mkfile(&volume, dir, "f"),
        mkdir(&volume, dir, "e"),
        volume.create(dir, b"p", &fifo).unwrap(),
        volume.symlink(dir, b"l", b"x", 1, 2).unwrap(),
        volume.create_unnamed(dir, &new_file()).unwrap(),
    ];
    for entry in made {
        assert_eq!(volume.inode_flags(entry.node), Ok(HARMLESS));
    }
}

#[test]
fn an_access_does_not_move_the_time_of_what_says_so() {
    let mut disk = Disk::new();
    disk.options.access_times = AccessTimes::Always;
    let volume = disk.open();
    let file = mkfile(&volume, ROOT, "f").node;
    volume.write(file, 0, b"bytes").unwrap();
    let moves = || {
        let before = volume.getattr(file).unwrap().atime_ns;
        volume.read_into(file, 0, &mut [0; 5], Access::Counts).unwrap();
        volume.getattr(file).unwrap().atime_ns > before
    };
    assert!(moves());
    set(&volume, file, InodeFlags::NOATIME);
    assert!(!moves() && !volume.note_access(file).unwrap());
    set(&volume, file, I);
    assert!(moves(), "an access is no change");
}

#[test]
fn the_top_of_a_clone_can_be_changed_and_a_snapshot_keeps_all() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let file = mkfile(&volume, dir, "f").node;
    let linked = mkfile(&volume, dir, "l").node;
    volume.link(linked, ROOT, b"outside").unwrap();
    volume.write(file, 0, b"bytes").unwrap();
    let all = I.union(A).union(HARMLESS);
    volume.set_flags_and_project(dir, all, Some(4), FlagSetter::ROOT).unwrap();
    set(&volume, file, I);
    set(&volume, linked, A);
    let snapshots = volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node;
    volume.create(snapshots, b"s", &new_dir()).unwrap();
    volume.clone_inode(dir, ROOT, b"copy").unwrap();
    let onto = mkdir(&volume, ROOT, "onto").node;
    volume.clone_onto(dir, onto).unwrap();
    volume.clone_inode(file, ROOT, b"file").unwrap();
    let taken = volume.lookup(snapshots, b"s").unwrap().node;
    volume.clone_inode(taken, ROOT, b"of-snapshot").unwrap();
    let refused = volume.set_inode_flags(taken, InodeFlags::NONE, FlagSetter::ROOT);
    assert_eq!(refused, Err(Error::InSnapshot));
    volume.close().unwrap();

    let volume = disk.open();
    assert_eq!(flags_at(&volume, "/file"), InodeFlags::NONE);
    for (path, flags) in [
        ("/d", all),
        ("/d/.betrfs-snapshots/s", all),
        ("/copy", HARMLESS),
        ("/onto", HARMLESS),
        ("/of-snapshot", HARMLESS),
    ] {
        assert_eq!(flags_at(&volume, path), flags, "{path}");
        assert_eq!(flags_at(&volume, &format!("{path}/f")), I, "{path}");
        assert_eq!(flags_at(&volume, &format!("{path}/l")), A, "{path}");
        assert_eq!(volume.project(volume.resolve(path.as_bytes()).unwrap().node), Ok(4));
    }
    let copy = volume.resolve(b"/copy").unwrap().node;
    assert_eq!(volume.unlink(copy, b"f"), Err(Error::Protected));
    // What is removed as a whole is asked at its top alone, and a snapshot not at all.
    volume.remove_below(copy, SnapshotsBelow::Hold).unwrap();
    volume.rmdir(ROOT, b"copy").unwrap();
    let dir = volume.resolve(b"/d").unwrap().node;
    let snapshots = volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node;
    volume.rmdir(snapshots, b"s").unwrap();
    assert_eq!(volume.remove_below(dir, SnapshotsBelow::Go), Err(Error::Protected));
    assert_sound(&volume);
}
