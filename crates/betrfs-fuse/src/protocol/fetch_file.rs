//! A file that no listing shows, by which the kernel is made to send a request that nobody waits for.
//!
//! By io_uring the kernel gives what found no free entry to an entry that an answer has freed, and never to a
//! new one. So each new entry wants a request of its own, whose answer frees it: a notice asks for no bytes
//! of a file, and the kernel sends them by a request, to the queue of the CPU on which the notice was sent.
//! Some kernels refuse that of directories, so there is such a file. The kernel must know it: whoever is
//! about to send notices has looked it up, and holds it.

use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};

use betrfs::InodeId;
use rustix::fs::FileType;
use zerocopy::IntoBytes;

use super::NotifySink;
use super::convert::LIFETIME_SECONDS;
use super::kernel_cache::tell;
use crate::wire::{Attr, EntryOut, NotifyRetrieve};

/// The number of the request that a notice asks for: the kernel wants no answer.
pub const NOTIFY_REPLY: u32 = 41;
/// Code of the notice that asks for bytes of a file.
const NOTIFY_RETRIEVE: i32 = 5;

/// The file's node: that of no other object, but for a chance of 1 in 2^64.
const NODE: InodeId = InodeId(u64::MAX);
/// The first number of a request that is asked for. The kernel counts its own from 0.
const UNIQUE_FIRST: u64 = 1 << 63;

/// The file of a mount, with a name that nobody can guess.
#[derive(Clone, Debug)]
pub struct FetchFile {
    name: String,
}

impl FetchFile {
    /// The file with a name of this random number.
    pub fn new(random: u64) -> FetchFile {
        FetchFile { name: format!(".betrfs-fetch-{random:016x}") }
    }

    /// Its name in the root directory.
    pub fn name(&self) -> OsString {
        self.name.clone().into()
    }

    /// The reply to a look-up of a name, if it is this file's.
    pub fn found(&self, dir: InodeId, name: &[u8]) -> Option<EntryOut> {
        if dir != InodeId::ROOT || name != self.name.as_bytes() {
            return None;
        }
        let attr = Attr {
            ino: NODE.0,
            mode: FileType::RegularFile.as_raw_mode() | 0o400,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            ..Attr::default()
        };
        let attr_valid = LIFETIME_SECONDS;
        Some(EntryOut {
            nodeid: NODE.0,
            entry_valid: LIFETIME_SECONDS,
            attr_valid,
            attr,
            ..EntryOut::default()
        })
    }
}

/// Has the kernel send a request to the queue of the CPU on which the caller runs, if it knows the file.
/// Nobody waits for its answer.
pub fn ask_for_request(sink: &dyn NotifySink) {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    // The kernel's numbers are even.
    let unique = UNIQUE_FIRST | ASKED.fetch_add(2, Ordering::Relaxed);
    let what = NotifyRetrieve { unique, nodeid: NODE.0, offset: 0, size: 0, padding: 0 };
    tell(sink, NOTIFY_RETRIEVE, &[what.as_bytes()]);
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use parking_lot::Mutex;
    use rustix::io::Errno;
    use zerocopy::FromBytes;

    use super::*;
    use crate::wire::OutHeader;

    #[derive(Default)]
    struct Notices(Mutex<Vec<Vec<u8>>>);

    impl NotifySink for Notices {
        fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
            self.0.lock().push(parts.iter().flat_map(|part| part.to_vec()).collect());
            Ok(())
        }
    }

    #[test]
    fn only_who_knows_its_name_finds_it_and_the_root_alone_has_it() {
        let file = FetchFile::new(7);
        let name = file.name().into_encoded_bytes();
        let found = file.found(InodeId::ROOT, &name).unwrap();
        assert_eq!(found.attr.mode, 0o100_400);
        assert!(file.found(InodeId(2), &name).is_none());
        assert!(FetchFile::new(8).found(InodeId::ROOT, &name).is_none());
    }

    #[test]
    fn each_request_that_is_asked_for_has_a_number_of_its_own_that_is_none_of_the_kernels() {
        let notices = Notices::default();
        let file = FetchFile::new(7);
        let nodeid = file.found(InodeId::ROOT, &file.name().into_encoded_bytes()).unwrap().nodeid;
        (0..2).for_each(|_| ask_for_request(&notices));
        let uniques: Vec<u64> = notices
            .0
            .lock()
            .iter()
            .map(|notice| {
                let (header, what) = OutHeader::read_from_prefix(notice).unwrap();
                let what = NotifyRetrieve::read_from_bytes(what).unwrap();
                assert_eq!((header.len as usize, header.error, header.unique), (notice.len(), 5, 0));
                assert_eq!((what.nodeid, what.offset, what.size), (nodeid, 0, 0));
                what.unique
            })
            .collect();
        assert!(
            uniques[0] != uniques[1] && uniques.iter().all(|unique| unique >> 63 == 1 && unique % 2 == 0)
        );
    }
}
