//! Properties of directories: what counts where, and what becomes of them over renames, copies, snapshots,
//! links, remounts and crashes.

use betrfs::{
    DataCompression, Error, FallocateMode, FlagSetter, InodeFlags, InodeId, OwnProperties, PropertyChange,
    PropertySource, RenameFlags, SNAPSHOTS_NAME, SetProperties, Volume, ZstdLevel,
};

use std::sync::Arc;

use betree_std::Zstd;

use crate::support::*;

const KEEP: SetProperties =
    SetProperties { noatime: PropertyChange::Keep, compression: PropertyChange::Keep };
const ON: SetProperties = SetProperties { noatime: PropertyChange::Set(true), ..KEEP };
const OFF: SetProperties = SetProperties { noatime: PropertyChange::Set(false), ..KEEP };
const INHERIT: SetProperties = SetProperties { noatime: PropertyChange::Inherit, ..KEEP };
const DEFAULT: (bool, PropertySource) = (false, PropertySource::Default);
const OWN: PropertySource = PropertySource::Own;

fn inherited(levels: u32) -> PropertySource {
    PropertySource::Inherited { levels }
}

pub fn node(volume: &Volume, path: &str) -> InodeId {
    volume.resolve(path.as_bytes()).unwrap().node
}

fn set(volume: &Volume, path: &str, set: &SetProperties) {
    volume.set_properties(node(volume, path), set, None).unwrap();
}

fn at(volume: &Volume, path: &str) -> (bool, PropertySource) {
    let noatime = volume.properties(node(volume, path)).unwrap().noatime;
    (noatime.value, noatime.source)
}

/// Whether an access to the object moves its time of access.
fn moves(volume: &Volume, path: &str) -> bool {
    let node = node(volume, path);
    // With `relatime` an access counts after a change.
    volume.setattr(node, &betrfs::SetAttr { perm: Some(0o700), ..Default::default() }).unwrap();
    let before = volume.getattr(node).unwrap().atime_ns;
    let moved = volume.note_access(node).unwrap();
    assert_eq!(volume.getattr(node).unwrap().atime_ns != before, moved);
    moved
}

/// `/a/b/c` with a file in each, and `/other`.
fn tree(volume: &Volume) {
    let mut dir = ROOT;
    for name in ["a", "b", "c"] {
        dir = mkdir(volume, dir, name).node;
        mkfile(volume, dir, "f");
    }
    mkdir(volume, ROOT, "other");
}

fn rename(volume: &Volume, from: (&str, &str), to: (&str, &str)) {
    let (from_dir, to_dir) = (node(volume, from.0), node(volume, to.0));
    volume.rename(from_dir, from.1.as_bytes(), to_dir, to.1.as_bytes(), RenameFlags::default()).unwrap();
}

#[test]
fn the_nearest_directory_with_a_value_counts_at_the_cost_of_one_record() {
    let (disk, volume) = volume();
    tree(&volume);
    assert_eq!(at(&volume, "/a/b/c/f"), DEFAULT);
    assert!(moves(&volume, "/a/b/c/f") && moves(&volume, "/a/b"));
    let (commits, ctime_ns) =
        (volume.env().stats().commits, volume.getattr(node(&volume, "/a")).unwrap().ctime_ns);
    set(&volume, "/a", &ON);
    assert_eq!(volume.env().stats().commits, commits + 1);
    assert!(volume.getattr(node(&volume, "/a")).unwrap().ctime_ns > ctime_ns);
    set(&volume, "/a/b/c", &OFF);
    let check = |volume: &Volume| {
        assert_eq!((at(volume, "/"), at(volume, "/other")), (DEFAULT, DEFAULT));
        assert_eq!((at(volume, "/a"), at(volume, "/a/f")), ((true, OWN), (true, inherited(1))));
        assert_eq!((at(volume, "/a/b"), at(volume, "/a/b/f")), ((true, inherited(1)), (true, inherited(2))));
        assert_eq!((at(volume, "/a/b/c"), at(volume, "/a/b/c/f")), ((false, OWN), (false, inherited(1))));
        for (path, expected) in
            [("/a", false), ("/a/f", false), ("/a/b/f", false), ("/a/b/c/f", true), ("/other", true)]
        {
            assert_eq!(moves(volume, path), expected, "{path}");
        }
    };
    check(&volume);
    volume.sync().unwrap();
    drop(volume);
    let volume = disk.open();
    check(&volume);
    volume.close().unwrap();
    let volume = disk.open();
    check(&volume);
    set(&volume, "/a", &INHERIT);
    assert_eq!((at(&volume, "/a/b/f"), at(&volume, "/a/b/c/f")), (DEFAULT, (false, inherited(1))));
    assert!(moves(&volume, "/a/b/f"));
    set(&volume, "/", &ON);
    assert_eq!((at(&volume, "/a/b/f"), moves(&volume, "/a/b/f")), ((true, inherited(3)), false));
    assert_sound(&volume);
}

/// Nothing of the directories above is asked for by an access that would not count anyway.
#[test]
fn reads_below_take_no_query_and_no_commit() {
    let (_disk, volume) = volume();
    tree(&volume);
    set(&volume, "/a", &ON);
    let file = node(&volume, "/a/b/c/f");
    volume.write(file, 0, b"text").unwrap();
    volume.read(file, 0, 4, &mut Vec::new()).unwrap();
    let before = volume.env().stats();
    for _ in 0..100 {
        volume.read(file, 0, 4, &mut Vec::new()).unwrap();
        assert!(!volume.note_access(file).unwrap());
    }
    let after = volume.env().stats();
    assert_eq!((after.commits, after.device_read_bytes), (before.commits, before.device_read_bytes));
}

#[test]
fn what_moves_inherits_at_its_new_place_and_keeps_what_is_its_own() {
    let (disk, volume) = volume();
    tree(&volume);
    set(&volume, "/a", &ON);
    set(&volume, "/a/b/c", &ON);
    rename(&volume, ("/a", "b"), ("/other", "b"));
    let check = |volume: &Volume| {
        assert_eq!((at(volume, "/other/b"), at(volume, "/other/b/f")), (DEFAULT, DEFAULT));
        assert_eq!(at(volume, "/other/b/c/f"), (true, inherited(1)));
        assert!(moves(volume, "/other/b/f") && !moves(volume, "/other/b/c/f"));
    };
    check(&volume);
    volume.close().unwrap();
    let volume = disk.open();
    check(&volume);
    rename(&volume, ("/other/b", "f"), ("/a", "g"));
    assert_eq!((at(&volume, "/a/g"), moves(&volume, "/a/g")), ((true, inherited(1)), false));
    // An exchange of the two.
    let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
    volume.rename(ROOT, b"a", node(&volume, "/other"), b"b", exchange).unwrap();
    assert_eq!(
        (at(&volume, "/other/b/g"), at(&volume, "/a/c/f")),
        ((true, inherited(1)), (true, inherited(1)))
    );
    assert_eq!(at(&volume, "/a"), DEFAULT);
    assert_sound(&volume);
}

#[test]
fn a_copy_has_what_its_source_has() {
    let (disk, volume) = volume();
    tree(&volume);
    set(&volume, "/a", &ON);
    set(&volume, "/a/b/c", &OFF);
    let copies = [
        // Of a directory that inherits, to a place that gives another value.
        ("/a/b", ROOT, "inherits", (true, OWN)),
        // To a place that gives the same.
        ("/a/b", node(&volume, "/a"), "same", (true, inherited(1))),
        // Of a directory with its own.
        ("/a", ROOT, "own", (true, OWN)),
        // Of one without any, to a place that gives one.
        ("/other", node(&volume, "/a"), "none", (false, OWN)),
    ];
    for (source, parent, name, expected) in copies {
        let above = if parent == ROOT { "" } else { "/a" };
        volume.clone_inode(node(&volume, source), parent, name.as_bytes()).unwrap();
        assert_eq!(at(&volume, &format!("{above}/{name}")), expected, "{name}");
        // The same by way of an empty directory, as the command does it.
        let filled = format!("{name} filled");
        let target = mkdir(&volume, parent, &filled).node;
        volume.clone_onto(node(&volume, source), target).unwrap();
        assert_eq!(at(&volume, &format!("{above}/{filled}")), expected, "{name}");
    }
    let check = |volume: &Volume| {
        for name in ["/inherits", "/inherits filled", "/own/b", "/own filled/b"] {
            assert_eq!(at(volume, &format!("{name}/c/f")), (false, inherited(1)), "{name}");
            assert!(!moves(volume, &format!("{name}/f")) && moves(volume, &format!("{name}/c/f")), "{name}");
        }
    };
    check(&volume);
    volume.close().unwrap();
    let volume = disk.open();
    check(&volume);
    set(&volume, "/a", &INHERIT);
    check(&volume);
    assert_sound(&volume);
}

#[test]
fn a_snapshot_inherits_what_its_directory_inherits_and_brings_back_what_was_its_own() {
    let (_disk, volume) = volume();
    tree(&volume);
    set(&volume, "/a", &ON);
    let snapshot = |path: &str, name: &str| {
        let snapshots = volume.lookup(node(&volume, path), SNAPSHOTS_NAME).unwrap().node;
        volume.create(snapshots, name.as_bytes(), &new_dir()).unwrap();
    };
    snapshot("/a/b", "monday");
    let monday = "/a/b/.betrfs-snapshots/monday";
    assert_eq!(at(&volume, monday), (true, inherited(3)));
    set(&volume, "/a/b", &OFF);
    assert_eq!(
        (at(&volume, monday), at(&volume, &format!("{monday}/f"))),
        ((true, inherited(3)), (true, inherited(4)))
    );
    let refused = volume.set_properties(node(&volume, monday), &ON, None);
    assert_eq!(refused, Err(Error::InSnapshot));
    let refused = volume.set_properties(node(&volume, "/a/b/.betrfs-snapshots"), &ON, None);
    assert_eq!(refused, Err(Error::InSnapshot));
    // A copy of a snapshot has what the snapshot has.
    volume.clone_inode(node(&volume, monday), ROOT, b"copy").unwrap();
    assert_eq!(at(&volume, "/copy/f"), (true, inherited(1)));
    // A restoration brings back the directory's own properties: here it had none.
    volume.restore_snapshot(node(&volume, "/a/b"), b"monday", b"tuesday").unwrap();
    assert_eq!((at(&volume, "/a/b"), at(&volume, "/a/b/f")), ((true, inherited(1)), (true, inherited(2))));
    assert_eq!(at(&volume, "/a/b/.betrfs-snapshots/tuesday"), (false, OWN));
    volume.restore_snapshot(node(&volume, "/a/b"), b"tuesday", b"wednesday").unwrap();
    assert_eq!((at(&volume, "/a/b"), moves(&volume, "/a/b/f")), ((false, OWN), true));
    assert_sound(&volume);
}

/// A file with several names lies in no directory.
#[test]
fn a_file_with_several_names_keeps_what_it_had_when_it_got_the_second() {
    let (disk, volume) = volume();
    tree(&volume);
    set(&volume, "/a", &ON);
    volume.link(node(&volume, "/a/b/f"), node(&volume, "/other"), b"linked").unwrap();
    volume.link(node(&volume, "/a/b/f"), node(&volume, "/other"), b"third").unwrap();
    set(&volume, "/a", &INHERIT);
    let check = |volume: &Volume, path: &str| {
        assert_eq!((at(volume, path), moves(volume, path)), ((true, OWN), false), "{path}");
    };
    check(&volume, "/a/b/f");
    volume.close().unwrap();
    let volume = disk.open();
    check(&volume, "/other/linked");
    volume.clone_inode(node(&volume, "/other"), ROOT, b"copy").unwrap();
    check(&volume, "/copy/third");
    volume.unlink(node(&volume, "/other"), b"third").unwrap();
    volume.unlink(node(&volume, "/a/b"), b"f").unwrap();
    check(&volume, "/other/linked");
    // A new file is such a one while an unlinked, open file has the blocks under its name.
    set(&volume, "/other", &ON);
    let open = mkfile(&volume, node(&volume, "/other"), "occupied").node;
    volume.write(open, 0, b"text").unwrap();
    volume.open_inode(open).unwrap();
    volume.unlink(node(&volume, "/other"), b"occupied").unwrap();
    mkfile(&volume, node(&volume, "/other"), "occupied");
    check(&volume, "/other/occupied");
    volume.release_node(open);
    check(&volume, "/other/occupied");
    // One without any gets none.
    volume.link(node(&volume, "/a/f"), ROOT, b"plain").unwrap();
    assert_eq!((at(&volume, "/plain"), moves(&volume, "/plain")), (DEFAULT, true));
    assert_sound(&volume);
}

#[test]
fn what_is_refused_changes_nothing() {
    let (_disk, volume) = volume();
    tree(&volume);
    let (dir, file) = (node(&volume, "/a"), node(&volume, "/a/f"));
    let before = volume.getattr(dir).unwrap();
    assert_eq!(before.uid, 1000);
    assert_eq!(volume.set_properties(dir, &ON, Some(1001)), Err(Error::NotPermitted));
    assert_eq!(volume.set_properties(file, &ON, None), Err(Error::NotADirectory));
    for flag in [InodeFlags::IMMUTABLE, InodeFlags::APPEND] {
        volume.set_inode_flags(dir, flag, FlagSetter::ROOT).unwrap();
        assert_eq!(volume.set_properties(dir, &ON, None), Err(Error::Protected));
        volume.set_inode_flags(dir, InodeFlags::NONE, FlagSetter::ROOT).unwrap();
    }
    assert_eq!(at(&volume, "/a"), DEFAULT);
    assert_eq!(volume.set_properties(dir, &ON, Some(1000)), Ok(()));
    assert_eq!(at(&volume, "/a"), (true, OWN));
    let gone = mkdir(&volume, ROOT, "gone").node;
    volume.rmdir(ROOT, b"gone").unwrap();
    volume.forget(gone, 1);
    assert_eq!(volume.set_properties(gone, &ON, None), Err(Error::Stale));
    assert_eq!(volume.properties(gone).unwrap_err(), Error::Stale);
}

#[test]
fn own_properties_are_those_nearest() {
    let of = |noatime| OwnProperties { noatime, ..OwnProperties::default() };
    assert_eq!(of(Some(false)).or(of(Some(true))), of(Some(false)));
    assert_eq!(of(None).or(of(Some(true))), of(Some(true)));
}

pub fn compression(compression: DataCompression) -> SetProperties {
    SetProperties { compression: PropertyChange::Set(compression), ..KEEP }
}

pub fn zstd(level: u8) -> DataCompression {
    DataCompression::Zstd(ZstdLevel::new(level).unwrap())
}

/// A disk that is opened with the codec of zstd.
pub fn disk_with_zstd() -> Disk {
    let mut disk = Disk::of_bytes(96 << 20);
    disk.options.zstd = Some(Arc::new(Zstd::default()));
    disk
}

/// Text that compresses, another for each number.
pub fn text(number: u32, len: usize) -> Vec<u8> {
    let words = (0_u32..).map(|word| number.wrapping_add(word).wrapping_mul(2_654_435_761) >> 22);
    words.flat_map(|word| format!("{word} ").into_bytes()).take(len).collect()
}

pub const FILES: u32 = 40;

/// The files of a directory, of one block and of many: the number that is their name, and their contents.
fn files() -> impl Iterator<Item = (u32, Vec<u8>)> {
    (0..FILES).map(|number| (number, text(number, if number % 2 == 0 { 3000 } else { 60_000 })))
}

/// Makes the files in a new directory.
pub fn fill(volume: &Volume, dir: InodeId) {
    for (number, data) in files() {
        volume.create_with(dir, format!("{number}").as_bytes(), &new_file(), &data).unwrap();
    }
}

pub fn assert_filled(volume: &Volume, path: &str) {
    for (number, data) in files() {
        assert_eq!(contents(volume, &format!("{path}/{number}")), data, "{path}/{number}");
    }
}

/// What is stored below a directory, compressed.
pub fn stored(volume: &Volume, path: &str) -> u64 {
    volume.env().checkpoint().unwrap();
    volume.usage(node(volume, path)).unwrap().stored_bytes
}

#[test]
fn data_takes_the_room_that_its_compression_leaves() {
    let disk = disk_with_zstd();
    let volume = disk.open();
    let mut used = Vec::new();
    for (name, wanted) in [
        ("default", None),
        ("lz4", Some(DataCompression::Lz4)),
        ("none", Some(DataCompression::None)),
        ("fast", Some(zstd(1))),
        ("small", Some(zstd(19))),
    ] {
        let dir = mkdir(&volume, ROOT, name).node;
        if let Some(wanted) = wanted {
            volume.set_properties(dir, &compression(wanted), None).unwrap();
        }
        volume.env().checkpoint().unwrap();
        let before = volume.env().space().used_bytes;
        fill(&volume, mkdir(&volume, dir, "below").node);
        volume.env().checkpoint().unwrap();
        used.push(volume.env().space().used_bytes - before);
    }
    let [default, lz4, none, fast, small] = used[..] else { unreachable!() };
    let raw_bytes = u64::from(FILES / 2) * 63_000;
    assert!(none >= raw_bytes, "{none} for {raw_bytes}");
    assert!(lz4.abs_diff(default) * 10 < default && default * 10 < none * 9, "{used:?}");
    assert!(fast * 10 < lz4 * 8 && small <= fast, "{used:?}");
    for name in ["default", "lz4", "none", "fast", "small"] {
        assert_filled(&volume, &format!("/{name}/below"));
    }
    assert_sound(&volume);
    volume.close().unwrap();
    let volume = disk.open();
    assert_filled(&volume, "/small/below");
    assert_sound(&volume);
}

/// Of what is written from then on: what was stored stays as it is, and every way to change a file counts.
#[test]
fn a_change_of_compression_counts_for_what_is_written_from_then_on() {
    let disk = disk_with_zstd();
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    fill(&volume, dir);
    let lz4 = stored(&volume, "/d");
    volume.set_properties(dir, &compression(zstd(9)), None).unwrap();
    assert_eq!(stored(&volume, "/d").abs_diff(lz4) / 8192, 0);
    // In pieces, which are put or change blocks in part.
    for (number, data) in files() {
        let file = node(&volume, &format!("/d/{number}"));
        for (at, part) in data.chunks(1500).enumerate() {
            volume.write(file, at as u64 * 1500, part).unwrap();
        }
    }
    let zstd_bytes = stored(&volume, "/d");
    assert!(zstd_bytes * 10 < lz4 * 8, "{zstd_bytes} of {lz4}");
    assert_filled(&volume, "/d");
    // What the log alone has asks too.
    let more = mkdir(&volume, dir, "more").node;
    fill(&volume, more);
    volume.sync().unwrap();
    drop(volume);
    let volume = disk.open();
    let more_bytes = stored(&volume, "/d/more");
    assert!(more_bytes.abs_diff(zstd_bytes) * 10 < zstd_bytes, "{more_bytes} of {zstd_bytes}");
    assert_filled(&volume, "/d/more");
    assert_sound(&volume);
}

/// Small files move as messages: written anew, as their new place has it. Clones share what is stored.
#[test]
fn moved_and_cloned_files_are_written_as_their_place_has_it() {
    let disk = disk_with_zstd();
    let volume = disk.open();
    let plain = mkdir(&volume, ROOT, "plain").node;
    let packed = mkdir(&volume, ROOT, "packed").node;
    volume.set_properties(packed, &compression(zstd(9)), None).unwrap();
    for number in 0..600 {
        volume.create_with(plain, format!("{number}").as_bytes(), &new_file(), &text(number, 4000)).unwrap();
    }
    let lz4 = stored(&volume, "/plain");
    for number in 0..600 {
        let name = format!("{number}");
        volume.rename(plain, name.as_bytes(), packed, name.as_bytes(), RenameFlags::default()).unwrap();
    }
    let moved = stored(&volume, "/packed");
    assert!(moved * 10 < lz4 * 8, "{moved} of {lz4}");
    volume.clone_inode(packed, ROOT, b"twin").unwrap();
    let twin = node(&volume, "/twin");
    let found = volume.properties(twin).unwrap().compression;
    assert_eq!((found.value, found.source), (zstd(9), OWN));
    for number in 600..1200 {
        volume.create_with(twin, format!("{number}").as_bytes(), &new_file(), &text(number, 4000)).unwrap();
    }
    let both = stored(&volume, "/twin");
    assert!(both < moved * 5 / 2, "{both} for twice {moved}");
    for number in (0..1200).step_by(50) {
        assert_eq!(contents(&volume, &format!("/twin/{number}")), text(number, 4000));
    }
    assert_sound(&volume);
}

/// Of a block that is cut, or has a hole, the rest is written as its directory has it.
#[test]
fn blocks_that_are_cut_and_punched_ask_as_their_directory_does() {
    let disk = disk_with_zstd();
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    volume.set_properties(dir, &compression(zstd(9)), None).unwrap();
    let files: Vec<InodeId> = (0..600)
        .map(|number| {
            let name = format!("{number}");
            volume.create_with(dir, name.as_bytes(), &new_file(), &text(number, 4000)).unwrap().node
        })
        .collect();
    let whole = stored(&volume, "/d");
    // Often, so that most of the changes come to the leaves and are merged there.
    for size in (3900..=4000).rev().step_by(5) {
        for file in &files {
            volume.setattr(*file, &betrfs::SetAttr { size: Some(size), ..Default::default() }).unwrap();
        }
    }
    let cut = stored(&volume, "/d");
    assert!(cut * 10 < whole * 11, "{cut} of {whole}");
    for at in (100..200).step_by(5) {
        for file in &files {
            volume.fallocate(*file, FallocateMode::PunchHole, at, 5).unwrap();
        }
    }
    let punched = stored(&volume, "/d");
    assert!(punched * 10 < whole * 11, "{punched} of {whole}");
    let mut expected = text(7, 3900);
    expected[100..200].fill(0);
    assert_eq!(contents(&volume, "/d/7"), expected);
    assert_sound(&volume);
}

#[test]
fn zstd_is_refused_where_there_is_no_codec() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    assert_eq!(volume.set_properties(dir, &compression(zstd(3)), None), Err(Error::NotSupported));
    assert_eq!(volume.properties(dir).unwrap().compression.source, PropertySource::Default);
    assert_eq!(volume.set_properties(dir, &compression(DataCompression::None), None), Ok(()));
}
