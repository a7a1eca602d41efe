//! Low priority: work that nobody waits for at once, a check or a scrub, leaves the CPU and the disk to
//! others.
//!
//! Low, not lowest: such work keeps a view, and the space of what is overwritten meanwhile, and holds locks
//! for moments. With SCHED_IDLE beside four busy programs on two CPUs a check of a small mount, half a second
//! of work, took more than 90 seconds.
#![allow(unsafe_code)] // A system call that no safe wrapper has.

use std::io;

/// What is added to the nice value: beside one ordinary thread it gets a tenth of a CPU.
const NICER_BY: i32 = 10;

/// The arguments of ioprio_set(2): the calling thread, and the last of the ordinary levels, which all get a
/// share.
const IOPRIO_WHO_PROCESS: libc::c_long = 1;
const IOPRIO_CLASS_BEST_EFFORT: libc::c_long = 2 << 13;
const IOPRIO_LEVEL_LAST: libc::c_long = 7;

/// Lets the calling thread come after all others, on the CPU and, as far as the disk's scheduler has
/// priorities, at the disk.
///
/// # Errors
/// The operating system's.
pub fn lower_priority() -> io::Result<()> {
    // Of the calling thread alone, on Linux.
    rustix::process::nice(NICER_BY)?;
    let priority = IOPRIO_CLASS_BEST_EFFORT | IOPRIO_LEVEL_LAST;
    // SAFETY: the call has numbers alone as arguments, and writes no memory.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0_i64, priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// The calling thread's nice value, and its priority at disks.
    fn priorities() -> (i32, i64) {
        let nice = rustix::process::getpriority_process(None).unwrap();
        // SAFETY: the call has numbers alone as arguments, and writes no memory.
        (nice, unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0_i64) })
    }

    #[test]
    fn only_the_thread_whose_priority_is_lowered_comes_after_others_and_it_keeps_a_share() {
        let before = priorities();
        let lowered = thread::spawn(|| {
            lower_priority().unwrap();
            priorities()
        });
        let wanted = (before.0 + NICER_BY).min(19);
        assert_eq!(lowered.join().unwrap(), (wanted, IOPRIO_CLASS_BEST_EFFORT | IOPRIO_LEVEL_LAST));
        assert_eq!(priorities(), before);
    }
}
