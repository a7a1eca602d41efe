//! A small volume with every kind of record, and all that is done with a forged one: it is opened, checked,
//! walked, changed, emptied, closed and opened again.
//!
//! Whatever a volume says of itself, it takes at most [`MEMORY_BYTES_MAX`] of memory beside what the process
//! has before: a multiple of its size and of the cache's budget.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use betree::Geometry;
use betree_platform::{BLOCK_BYTES, Device};
use betree_sim::MemDevice;
use betrfs::{
    FallocateMode, FileType, FormatOptions, InodeId, Mending, NewNode, Objects, OpenOptions, RenameFlags,
    Repair, SNAPSHOTS_NAME, SeekWhat, SetAttr, SnapshotsBelow, Volume, XattrMode,
};
use betrfs_sim::platform::SimPlatform;
use seeded::Rng;

/// The size of the volume.
pub const VOLUME_BYTES: u64 = 4 << 20;
/// The budget of the cache.
pub const CACHE_BYTES: usize = 1 << 20;
/// The bound of memory for one input: sixteen times the volume and the cache.
pub const MEMORY_BYTES_MAX: u64 = 16 * (VOLUME_BYTES + CACHE_BYTES as u64);
/// The number of files in its largest directory.
const FILES: u32 = 20;
/// Bounds of a walk.
const OBJECTS_MAX: usize = 200;
const READ_BYTES: usize = 64 << 10;
/// More pieces of background work than any change of so small a volume makes.
const WORK_MAX: usize = 10_000;

fn options() -> OpenOptions {
    OpenOptions { cache_bytes: CACHE_BYTES, ..OpenOptions::new(Arc::new(SimPlatform::new(1))) }
}

/// The sound volume, not closed cleanly, so that its log has records.
///
/// # Errors
/// The library's, in words.
pub fn sample() -> Result<MemDevice, String> {
    static SAMPLE: OnceLock<Result<MemDevice, String>> = OnceLock::new();
    let made = SAMPLE.get_or_init(|| make_sample().map_err(|error| error.to_string()));
    made.as_ref().map(MemDevice::copy).map_err(String::clone)
}

fn make_sample() -> betrfs::Result<MemDevice> {
    let geometry = Geometry {
        node_bytes: 4 << 10,
        basement_bytes: 1 << 10,
        fanout_max: 4,
        log_bytes: 1 << 20,
        dicts: 4,
    };
    let device = Arc::new(MemDevice::new(VOLUME_BYTES));
    let format = FormatOptions { geometry: Some(geometry), ..FormatOptions::default() };
    Volume::format(device.clone(), &format, &SimPlatform::new(1))?;
    let volume = Volume::open(device.clone(), options())?;
    let dir = volume.create(InodeId::ROOT, b"d", &new(FileType::Directory))?.node;
    let file = volume.create(dir, b"f", &new(FileType::Regular))?.node;
    volume.write(file, 0, &[1; 10_000])?;
    volume.set_xattr(file, b"user.x", &[1; 3000], XattrMode::Any)?;
    volume.set_xattr(file, b"user.y", b"small", XattrMode::Any)?;
    volume.symlink(dir, b"s", b"to somewhere", 0, 0)?;
    let linked = volume.create(InodeId::ROOT, b"a", &new(FileType::Regular))?.node;
    volume.link(linked, dir, b"b")?;
    // Trees of several levels.
    let mut rng = Rng::new(1);
    for number in 0..FILES {
        let name = format!("file {number} of a directory with many");
        let file = volume.create(dir, name.as_bytes(), &new(FileType::Regular))?.node;
        let contents: Vec<u8> = (0..400).map(|_| rng.next_u64() as u8).collect();
        volume.write(file, 0, &contents)?;
    }
    while volume.env().run_due_work()? {}
    volume.env().checkpoint()?;
    volume.clone_inode(dir, InodeId::ROOT, b"early")?;
    volume.env().checkpoint()?;
    let snapshots = volume.lookup(InodeId::ROOT, SNAPSHOTS_NAME)?.node;
    volume.create(snapshots, b"monday", &new(FileType::Directory))?;
    volume.clone_inode(dir, InodeId::ROOT, b"c")?;
    volume.sync()?;
    volume.rename(dir, b"f", dir, b"g", RenameFlags::default())?;
    volume.sync()?;
    volume.env().abandon();
    Ok(device.copy())
}

fn new(file_type: FileType) -> NewNode {
    NewNode { file_type, perm: 0o755, uid: 0, gid: 0, rdev: 0, umask: 0 }
}

/// The number of batches that the log of a volume has; `None` if it cannot be opened.
pub fn batches(device: MemDevice) -> Option<u64> {
    let volume = Volume::open(Arc::new(device), options()).ok()?;
    let batches = volume.env().replayed_batches();
    volume.env().abandon();
    Some(batches)
}

/// Does everything with a volume; errors are as good as results.
///
/// # Errors
/// Work that does not end.
pub fn use_all(device: MemDevice) -> Result<(), String> {
    repair(device.copy())?;
    let device: Arc<dyn Device> = Arc::new(device);
    let Ok(volume) = Volume::open(Arc::clone(&device), options()) else {
        // Nothing is written then.
        let _ = Volume::examine(Arc::clone(&device), options(), &mut |_, _| ());
        return Ok(());
    };
    let _ = volume.check(&mut |_, _| ());
    walk(&volume);
    change(&volume);
    let mut pieces = 0;
    while let Ok(true) = volume.env().run_due_work() {
        pieces += 1;
        if pieces > WORK_MAX {
            return Err("background work does not end".into());
        }
    }
    let _ = volume.remove_below(InodeId::ROOT, SnapshotsBelow::Go);
    let _ = volume.sync();
    let _ = volume.close();
    volume.env().abandon();
    drop(volume);
    if let Ok(volume) = Volume::open(device, options()) {
        let _ = volume.check(&mut |_, _| ());
        volume.env().abandon();
    }
    Ok(())
}

/// Repairs a volume by all means. What was repaired opens, and a check finds no more than the repair said.
fn repair(device: MemDevice) -> Result<(), String> {
    let device: Arc<dyn Device> = Arc::new(device);
    let written = |repair: Repair| repair.generation.map(|_| repair.after);
    let repaired =
        Volume::repair(Arc::clone(&device), &options(), Mending::All, &mut |_| true, &mut |_, _| ());
    let Some(told) = repaired.ok().and_then(written) else { return Ok(()) };
    let found =
        Volume::examine(device, options(), &mut |_, _| ()).map_err(|error| format!("repaired: {error}"))?;
    if found.found() <= told.found() && found.refused == told.refused {
        return Ok(());
    }
    let (problems, refused, left) = (found.problems, found.refused, told.found());
    Err(format!("repaired, {left} problems left, {:?}: {refused:?}: {problems:?}", told.refused))
}

/// Reads the objects of a volume from its root on.
fn walk(volume: &Volume) {
    let (mut due, mut seen) = (VecDeque::from([InodeId::ROOT]), 0);
    while let Some(node) = due.pop_front().filter(|_| seen < OBJECTS_MAX) {
        seen += 1;
        read_object(volume, node);
        let mut entries = 0;
        let _ = volume.readdir(node, 0, Objects::All, &mut |entry| {
            due.extend(entry.entry.map(|entry| entry.node));
            entries += 1;
            entries < OBJECTS_MAX
        });
        due.extend(volume.lookup(node, SNAPSHOTS_NAME).map(|entry| entry.node));
    }
    // A number that no object has, so that all names are looked at.
    let _ = volume.find_inode(InodeId(1 << 40));
}

fn read_object(volume: &Volume, node: InodeId) {
    let size = volume.getattr(node).map_or(0, |attr| attr.size);
    let mut bytes = Vec::new();
    for offset in [0, 5000, size.saturating_sub(10), u64::MAX] {
        let _ = volume.read(node, offset, READ_BYTES, &mut bytes);
        let _ = volume.seek(node, offset, SeekWhat::Hole);
        let _ = volume.seek(node, offset, SeekWhat::Data);
    }
    let _ = volume.readlink(node);
    for name in volume.list_xattrs(node).unwrap_or_default() {
        let _ = volume.get_xattr(node, &name);
    }
    let _ = volume.usage(node);
}

/// Changes what the sound volume has, and makes new objects.
fn change(volume: &Volume) {
    let root = InodeId::ROOT;
    let _ = volume.create(root, b"new", &new(FileType::Directory));
    if let Ok(dir) = volume.resolve(b"/d") {
        let _ = volume.clone_inode(dir.node, root, b"copy");
        let _ = volume.rename(root, b"d", root, b"e", RenameFlags::default());
    }
    for path in [&b"/e/g"[..], b"/d/g", b"/a", b"/c/f", b"/copy/g"] {
        let Ok(file) = volume.resolve(path) else { continue };
        let _ = volume.write(file.node, 3, b"changed");
        let _ = volume.append(file.node, b"more");
        let _ = volume.fallocate(file.node, FallocateMode::PunchHole, 100, 6000);
        let set = SetAttr { size: Some(5), perm: Some(0o600), kill_set_id: true, ..SetAttr::default() };
        let _ = volume.setattr(file.node, &set);
        let _ = volume.set_xattr(file.node, b"user.z", b"z", XattrMode::Any);
        let _ = volume.link(file.node, root, b"linked");
    }
    let _ = volume.unlink(root, b"a");
    let _ = volume.sync();
}

/// The bytes of some blocks; blocks that cannot be read are zeros.
pub fn read_blocks(device: &MemDevice, first: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * BLOCK_BYTES];
    let _ = device.read_at(first * BLOCK_BYTES as u64, &mut bytes);
    bytes
}

/// Writes some blocks.
///
/// # Errors
/// The device's, in words.
pub fn write_blocks(device: &MemDevice, first: u64, bytes: &[u8]) -> Result<(), String> {
    device.write_at(first * BLOCK_BYTES as u64, bytes).map_err(|error| error.to_string())
}
