//! INIT: the agreement of kernel and server on version, flags and sizes, before any other request.

use std::mem::offset_of;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::server::Acls;
use crate::wire::{self, InitIn, InitOut, init};

/// The largest write or read in one request.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Number of read-ahead requests that may wait at once.
const BACKGROUND_MAX: u16 = 64;
const BACKGROUND_CONGESTED: u16 = 48;

/// The flags asked of the kernel; those it does not offer are left out.
///
/// Not FUSE_ASYNC_DIO: with it, the kernel does not drop the file's pages at the end of a direct write by
/// io_submit(2), and a page read meanwhile keeps the old contents for ever. Without it, the kernel drops the
/// pages again after the write, before it reports the write as complete.
const WANTED: u64 = init::ASYNC_READ
    | init::ATOMIC_O_TRUNC
    | init::EXPORT_SUPPORT
    | init::BIG_WRITES
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::PARALLEL_DIROPS
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::EXPLICIT_INVAL_DATA
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::ALLOW_IDMAP
    | init::INIT_EXT;
/// Those asked for too if the kernel is to judge users by access control lists. A directory's default list
/// takes the place of the umask, so the server applies that.
const WANTED_FOR_ACLS: u64 = init::POSIX_ACL | init::DONT_MASK;

/// What kernel and server have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The kernel's minor version of the protocol.
    pub minor: u32,
    /// The flags of INIT that hold.
    pub flags: u64,
}

impl Agreement {
    /// What is agreed on with a kernel of a minor version that offers these flags.
    pub fn with(minor: u32, offered: u64, acls: Acls) -> Agreement {
        let wanted = match acls {
            Acls::Judge => WANTED | WANTED_FOR_ACLS,
            Acls::Ignored => WANTED,
        };
        Agreement { minor, flags: offered & wanted }
    }

    /// Whether all of these flags hold.
    pub fn has(self, flags: u64) -> bool {
        self.flags & flags == flags
    }
}

/// Decodes the kernel's INIT. Before FUSE 7.36 (Linux 5.17) it ends after the lower half of the flags.
pub fn read_init(body: &[u8]) -> Result<InitIn, Errno> {
    if body.len() < offset_of!(InitIn, flags2) {
        return Err(Errno::INVAL);
    }
    let mut theirs = InitIn::default();
    theirs.as_mut_bytes().iter_mut().zip(body).for_each(|(ours, byte)| *ours = *byte);
    Ok(theirs)
}

/// The answer to INIT for a kernel with pages of `page_bytes`.
pub fn answer_init(theirs: &InitIn, flags: u64, page_bytes: usize) -> InitOut {
    InitOut {
        major: wire::MAJOR,
        minor: wire::MINOR,
        max_readahead: theirs.max_readahead,
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_CONGESTED,
        max_write: PAYLOAD_BYTES_MAX as u32,
        time_gran: 1,
        max_pages: (PAYLOAD_BYTES_MAX / page_bytes.max(1)) as u16,
        ..InitOut::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_has_more_pages_than_its_payload() {
        for (page_bytes, pages) in [(4096, 256), (16 << 10, 64), (64 << 10, 16)] {
            let ours = answer_init(&InitIn::default(), 0, page_bytes);
            assert_eq!((ours.max_pages, ours.max_write), (pages, PAYLOAD_BYTES_MAX as u32));
        }
    }

    #[test]
    fn the_umask_is_the_servers_where_lists_count() {
        let agreed = |offered, acls| Agreement::with(45, offered, acls).flags;
        let both = init::POSIX_ACL | init::DONT_MASK;
        assert_eq!(agreed(u64::MAX, Acls::Judge) & both, both);
        assert_eq!(agreed(u64::MAX, Acls::Ignored) & both, 0);
        assert_eq!(agreed(init::MAX_PAGES, Acls::Judge), init::MAX_PAGES);
        assert!(!Agreement::with(45, both, Acls::Judge).has(both | init::SETXATTR_EXT));
    }

    #[test]
    fn init_of_any_kernel_is_read() {
        let theirs = InitIn {
            major: 7,
            minor: 31,
            max_readahead: 131_072,
            flags: init::INIT_EXT as u32,
            flags2: 1 << 9,
            unused: [u32::MAX; 11],
        };
        let read = read_init(theirs.as_bytes()).unwrap();
        assert_eq!(read.as_bytes(), theirs.as_bytes());
        // As Linux 5.1 to 5.16 send it.
        let read = read_init(&theirs.as_bytes()[..16]).unwrap();
        assert_eq!((read.major, read.minor, read.max_readahead), (7, 31, 131_072));
        assert_eq!((read.flags, read.flags2, read.unused), (theirs.flags, 0, [0; 11]));
        assert_eq!(read_init(&theirs.as_bytes()[..15]).err(), Some(Errno::INVAL));
        // Fields added by later kernels are ignored.
        let longer = [theirs.as_bytes(), &[0xff; 16]].concat();
        assert_eq!(read_init(&longer).unwrap().as_bytes(), theirs.as_bytes());
    }
}
