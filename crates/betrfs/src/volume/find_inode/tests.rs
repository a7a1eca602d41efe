//! Searches that meet more names than they may look at.

use std::sync::Arc;

use betree_platform::Platform;
use betree_sim::MemDevice;

use super::*;
use crate::types::{FileType, FormatOptions, NewNode, OpenOptions};

/// A platform with good random numbers.
#[derive(Default)]
struct Dice(std::sync::Mutex<u64>);

impl Platform for Dice {
    fn now_ns(&self) -> i64 {
        1
    }

    fn random_u64(&self) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state += 1;
        seeded::Rng::new(*state).next_u64()
    }
}

const DIR: NewNode =
    NewNode { file_type: FileType::Directory, perm: 0o755, uid: 0, gid: 0, rdev: 0, umask: 0 };
const FILE: NewNode = NewNode { file_type: FileType::Regular, ..DIR };
/// Copies of copies: the lowest has 2^LEVELS names.
const LEVELS: usize = 30;

#[test]
fn copies_of_copies_with_names_without_end_hide_no_object_outside_and_end_a_search() {
    let device = Arc::new(MemDevice::new(48 << 20));
    let platform = Arc::new(Dice::default());
    Volume::format(device.clone(), &FormatOptions::default(), &*platform).unwrap();
    let options = OpenOptions { cache_bytes: 16 << 20, ..OpenOptions::new(platform) };
    let volume = Volume::open(device.clone(), options.clone()).unwrap();
    let mut top = volume.create(InodeId::ROOT, b"0", &DIR).unwrap().node;
    volume.create(top, b"file", &FILE).unwrap();
    for level in 1..=LEVELS {
        let above = volume.create(InodeId::ROOT, b"new", &DIR).unwrap().node;
        volume.clone_inode(top, above, b"one").unwrap();
        volume.clone_inode(top, above, b"two").unwrap();
        let name = std::format!("{level}");
        volume.rename(InodeId::ROOT, b"new", InodeId::ROOT, name.as_bytes(), Default::default()).unwrap();
        top = above;
    }
    let outside = volume.create(InodeId::ROOT, b"outside", &FILE).unwrap().node;
    let in_copy = volume.resolve(b"/1/two/file").unwrap().node;
    let absent = volume.numbers.ids_end() + 5;
    volume.close().unwrap();

    let volume = Volume::open(device, options).unwrap();
    let op = volume.query(OpKind::FindInode);
    let view = volume.env.view();
    let look = |number: u64, names_max: u64| {
        let mut map = NumberMap::default();
        Search { op: &op, view: &view, number }.look_everywhere(0, names_max, &mut map)
    };
    assert_eq!(look(outside.0, 100), Ok(Some(Found::Named(b"\0\0outside".to_vec()))));
    assert_eq!(look(in_copy.0, 1000), Ok(Some(Found::Named(b"\x001\x00two\0\0file".to_vec()))));
    assert_eq!(look(absent, 1000), Err(Error::SearchGivenUp { names: 1000 }));
}
