//! How many requests the kernel has sent, by kind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// A kind of kernel request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Opcode {
    Lookup,
    Forget,
    Getattr,
    Setattr,
    Readlink,
    Symlink,
    Mknod,
    Mkdir,
    Unlink,
    Rmdir,
    Rename,
    Link,
    Open,
    Read,
    Write,
    Statfs,
    Release,
    Fsync,
    Setxattr,
    Getxattr,
    Listxattr,
    Removexattr,
    Flush,
    Opendir,
    Readdir,
    Readdirplus,
    Releasedir,
    Fsyncdir,
    Create,
    Fallocate,
    Lseek,
    CopyFileRange,
}

impl Opcode {
    /// Every kind, in the order of declaration.
    pub const ALL: [Opcode; 32] = [
        Opcode::Lookup,
        Opcode::Forget,
        Opcode::Getattr,
        Opcode::Setattr,
        Opcode::Readlink,
        Opcode::Symlink,
        Opcode::Mknod,
        Opcode::Mkdir,
        Opcode::Unlink,
        Opcode::Rmdir,
        Opcode::Rename,
        Opcode::Link,
        Opcode::Open,
        Opcode::Read,
        Opcode::Write,
        Opcode::Statfs,
        Opcode::Release,
        Opcode::Fsync,
        Opcode::Setxattr,
        Opcode::Getxattr,
        Opcode::Listxattr,
        Opcode::Removexattr,
        Opcode::Flush,
        Opcode::Opendir,
        Opcode::Readdir,
        Opcode::Readdirplus,
        Opcode::Releasedir,
        Opcode::Fsyncdir,
        Opcode::Create,
        Opcode::Fallocate,
        Opcode::Lseek,
        Opcode::CopyFileRange,
    ];

    /// The kernel's name of it, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Opcode::Lookup => "lookup",
            Opcode::Forget => "forget",
            Opcode::Getattr => "getattr",
            Opcode::Setattr => "setattr",
            Opcode::Readlink => "readlink",
            Opcode::Symlink => "symlink",
            Opcode::Mknod => "mknod",
            Opcode::Mkdir => "mkdir",
            Opcode::Unlink => "unlink",
            Opcode::Rmdir => "rmdir",
            Opcode::Rename => "rename",
            Opcode::Link => "link",
            Opcode::Open => "open",
            Opcode::Read => "read",
            Opcode::Write => "write",
            Opcode::Statfs => "statfs",
            Opcode::Release => "release",
            Opcode::Fsync => "fsync",
            Opcode::Setxattr => "setxattr",
            Opcode::Getxattr => "getxattr",
            Opcode::Listxattr => "listxattr",
            Opcode::Removexattr => "removexattr",
            Opcode::Flush => "flush",
            Opcode::Opendir => "opendir",
            Opcode::Readdir => "readdir",
            Opcode::Readdirplus => "readdirplus",
            Opcode::Releasedir => "releasedir",
            Opcode::Fsyncdir => "fsyncdir",
            Opcode::Create => "create",
            Opcode::Fallocate => "fallocate",
            Opcode::Lseek => "lseek",
            Opcode::CopyFileRange => "copy_file_range",
        }
    }
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCount {
    /// How many came.
    pub count: u64,
    /// How many of them were answered with an error (a name that is absent is none).
    pub errors: u64,
}

#[derive(Default)]
struct Cell {
    count: AtomicU64,
    errors: AtomicU64,
}

/// Counts of kernel requests since the mount.
#[derive(Default)]
pub struct Counters {
    cells: [Cell; Opcode::ALL.len()],
}

impl Counters {
    /// Counts a request; its answer comes later.
    pub fn arrived(&self, opcode: Opcode) {
        if let Some(cell) = self.cells.get(opcode as usize) {
            cell.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a request that was answered with an error.
    pub fn failed(&self, opcode: Opcode) {
        if let Some(cell) = self.cells.get(opcode as usize) {
            cell.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The kinds that have come at least once, by name.
    pub fn snapshot(&self) -> BTreeMap<String, RequestCount> {
        let counts = self.cells.iter().map(|cell| RequestCount {
            count: cell.count.load(Ordering::Relaxed),
            errors: cell.errors.load(Ordering::Relaxed),
        });
        let named = Opcode::ALL.iter().map(|opcode| opcode.name().to_owned());
        named.zip(counts).filter(|(_, seen)| seen.count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_cell_of_its_own() {
        let counters = Counters::default();
        for (place, opcode) in Opcode::ALL.iter().enumerate() {
            assert_eq!(*opcode as usize, place);
            counters.arrived(*opcode);
        }
        counters.failed(Opcode::Rename);
        let seen = counters.snapshot();
        assert_eq!(seen.len(), Opcode::ALL.len());
        assert!(seen.values().all(|s| s.count == 1));
        assert_eq!(seen["rename"], RequestCount { count: 1, errors: 1 });
        assert_eq!(seen["copy_file_range"].errors, 0);
    }
}
