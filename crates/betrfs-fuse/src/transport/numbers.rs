//! The kernel's numbers for objects.
//!
//! fuser sends one number both as the kernel's handle of an inode and as its st_ino. So the
//! kernel's handle is the stable inode number here, and this table leads from it to the object.
//! Two objects may by bad luck have one inode number; then the later one gets another as long as
//! the kernel knows it.

use std::collections::HashMap;

use betrfs::{Entry, NodeId};
use parking_lot::Mutex;

/// The kernel's number of the root.
pub const ROOT_NUMBER: u64 = 1;

/// How far from its own number a displaced object is put: odd, so that repeated steps meet every number.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

struct Known {
    node: NodeId,
    lookups: u64,
}

#[derive(Default)]
struct Tables {
    known: HashMap<u64, Known>,
    /// The numbers of those that do not have their own.
    displaced: HashMap<NodeId, u64>,
}

/// Which objects the kernel knows, and by what number.
#[derive(Default)]
pub struct Numbers {
    tables: Mutex<Tables>,
}

impl Numbers {
    /// The number of an object that a reply names; counts one lookup of it.
    pub fn enter(&self, entry: &Entry) -> u64 {
        if entry.node == NodeId::ROOT {
            return ROOT_NUMBER;
        }
        let mut tables = self.tables.lock();
        let Tables { known, displaced } = &mut *tables;
        let mut number = displaced.get(&entry.node).copied().unwrap_or(entry.attr.ino);
        loop {
            // 0 says "no such entry" to the kernel.
            if number > ROOT_NUMBER {
                let at = known.entry(number).or_insert(Known { node: entry.node, lookups: 0 });
                if at.node == entry.node {
                    at.lookups += 1;
                    break;
                }
            }
            number = number.wrapping_add(STEP);
        }
        if number != entry.attr.ino {
            displaced.insert(entry.node, number);
        }
        number
    }

    /// The object of a number that the kernel was given and has not forgotten.
    pub fn node(&self, number: u64) -> Option<NodeId> {
        if number == ROOT_NUMBER {
            return Some(NodeId::ROOT);
        }
        self.tables.lock().known.get(&number).map(|known| known.node)
    }

    /// Takes lookups back; the object they were of.
    pub fn forget(&self, number: u64, lookups: u64) -> Option<NodeId> {
        if number == ROOT_NUMBER {
            return None;
        }
        let mut tables = self.tables.lock();
        let known = tables.known.get_mut(&number)?;
        let node = known.node;
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups == 0 {
            tables.known.remove(&number);
            tables.displaced.remove(&node);
        }
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use betrfs::{Attr, FileType};

    use super::*;

    fn entry(node: u64, ino: u64) -> Entry {
        let attr = Attr {
            ino,
            file_type: FileType::Regular,
            perm: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks_512: 0,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            crtime_ns: 0,
        };
        Entry { node: NodeId(node), attr }
    }

    #[test]
    fn an_object_has_its_inode_number_until_the_last_forget() {
        let numbers = Numbers::default();
        assert_eq!(numbers.enter(&entry(7, 100)), 100);
        assert_eq!(numbers.enter(&entry(7, 100)), 100);
        assert_eq!(numbers.forget(100, 1), Some(NodeId(7)));
        assert_eq!(numbers.node(100), Some(NodeId(7)));
        assert_eq!(numbers.forget(100, 1), Some(NodeId(7)));
        assert_eq!(numbers.node(100), None);
        assert_eq!(numbers.forget(100, 1), None);
    }

    #[test]
    fn objects_of_one_inode_number_get_two_and_keep_them() {
        let numbers = Numbers::default();
        let first = numbers.enter(&entry(7, 100));
        let second = numbers.enter(&entry(8, 100));
        assert_ne!(first, second);
        assert_eq!(numbers.node(second), Some(NodeId(8)));
        numbers.forget(first, 1);
        assert_eq!(numbers.enter(&entry(8, 100)), second, "the kernel still knows it by that number");
        numbers.forget(second, 2);
        assert_eq!(numbers.enter(&entry(8, 100)), 100);
        assert!(numbers.tables.lock().displaced.is_empty());
    }

    #[test]
    fn the_root_is_1_and_nothing_else_is_0_or_1() {
        let numbers = Numbers::default();
        assert_eq!(numbers.enter(&entry(1, 12345)), ROOT_NUMBER);
        assert_eq!(numbers.node(1), Some(NodeId::ROOT));
        assert!(numbers.enter(&entry(5, 0)) > 1);
        assert!(numbers.enter(&entry(6, 1)) > 1);
    }
}
