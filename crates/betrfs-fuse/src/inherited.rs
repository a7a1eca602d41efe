//! Descriptors that a process got from its starter, and that a server in the background must not keep.
//!
//! A starter may have files open that it knows of, a lock of a script for example, or does not know of. A
//! server would hold them for as long as its mount lives: the lock would stay taken, and another mount busy.
#![allow(unsafe_code)] // A system call that no safe wrapper has.

use std::io;

/// Closes all descriptors but the standard three in each program that this process executes from now on. This
/// process keeps its own.
///
/// # Errors
/// The operating system's: Linux before 5.11 does not know the call.
pub fn hand_down_standard_descriptors_only() -> io::Result<()> {
    let (first, last) = (libc::STDERR_FILENO as libc::c_uint + 1, libc::c_uint::MAX);
    // SAFETY: the call has numbers alone as arguments. It closes nothing here: a flag is set on descriptors.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
