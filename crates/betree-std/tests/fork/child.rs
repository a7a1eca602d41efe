//! A fork of the test's process. Other crates' tests include this file.
#![allow(unsafe_code)] // The calls have no safe wrapper.

/// Runs `child` in a fork of this process, and returns its exit code: what `child` returns, 101 after a
/// panic, -1 if a signal ended it, as after 20 seconds.
pub fn in_a_fork(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child calls nothing that needs the threads that it lacks but memory (glibc readies its
    // allocator for a fork) and what is under test. It ends without running destructors of this program.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: both calls take numbers alone.
            unsafe { libc::alarm(20) };
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(101);
            // SAFETY: as above.
            unsafe { libc::_exit(code) }
        }
        pid => {
            assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: `status` lives until the call returns.
            let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
            assert_eq!(waited, pid, "waitpid: {}", std::io::Error::last_os_error());
            if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }
        }
    }
}
