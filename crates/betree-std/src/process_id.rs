//! The number of this process without a system call, where the kernel forgets it for a fork.
#![allow(unsafe_code)] // Memory that a fork finds wiped, which no safe wrapper has.

use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// The number of this process, as [`std::process::id`]; a fork has its own.
///
/// A store asks for it at each call, to refuse forks, and getpid(2) takes a tenth of a microsecond: as long
/// as a step of a scan.
pub fn process_id() -> u32 {
    static REMEMBERED: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
    let Some(remembered) = REMEMBERED.get_or_init(number_that_forks_find_wiped) else {
        return std::process::id();
    };
    match remembered.load(Ordering::Relaxed) {
        0 => {
            let id = std::process::id();
            remembered.store(id, Ordering::Relaxed);
            id
        }
        id => id,
    }
}

/// A number that is 0 at first and in each fork. It stays for the life of the process. `None` before Linux
/// 4.14, and where there is no memory.
fn number_that_forks_find_wiped() -> Option<&'static AtomicU32> {
    // The kernel makes a page of it.
    let (len, access) = (size_of::<AtomicU32>(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping of memory, where the kernel has room for it, is nobody else's.
    let page = unsafe { mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the page is ours alone. The advice changes nothing in this process.
    unsafe { madvise(page, len, Advice::LinuxWipeOnFork) }.ok()?;
    // SAFETY: the page is aligned for any number, filled with zeros and never unmapped, and nobody has
    // another reference to it. A fork's copy is zeroed before the fork runs.
    Some(unsafe { &*page.cast::<AtomicU32>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_the_process_each_time() {
        assert_eq!([process_id(), process_id()], [std::process::id(); 2]);
        assert_eq!(number_that_forks_find_wiped().map(|number| number.load(Ordering::Relaxed)), Some(0));
    }
}
