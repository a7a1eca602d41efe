//! SCHED_IDLE: a thread that answers requests gives way to the processes it answers.
//!
//! A reply wakes its receiver while the sending thread still runs. So the scheduler moves the receiver to
//! an idle CPU, if there is one, and its next request goes there too: both wander from CPU to CPU, and each
//! step wakes a sleeping one, which takes several times as long as the whole request. A CPU that runs only
//! threads of the policy SCHED_IDLE counts as idle, so the receiver stays, and runs at once. On busy CPUs,
//! the kernels that offer io_uring (Linux 6.14 and later) still let such a thread run soon after it woke:
//! creating files took up to twice as long beside eight busy programs on each CPU, and a third of the time
//! on an idle machine. What takes longer starves there: [`crate::transport`] has a watch for that.
#![allow(unsafe_code)] // System calls that no safe wrapper has.

use std::io;

use rustix::thread::Pid;

/// Sets the calling thread's policy to SCHED_IDLE.
///
/// # Errors
/// The operating system's.
pub fn set_sched_idle() -> io::Result<()> {
    set_policy(0, libc::SCHED_IDLE)
}

/// Sets the policy of a thread of this process to that of ordinary threads, SCHED_OTHER.
///
/// # Errors
/// The operating system's: without CAP_SYS_NICE the limit RLIMIT_NICE must allow the thread's nice value.
pub fn set_sched_other(thread: Pid) -> io::Result<()> {
    set_policy(thread.as_raw_nonzero().get(), libc::SCHED_OTHER)
}

/// Sets the policy of a thread, or of the calling one (0).
fn set_policy(thread: libc::pid_t, policy: libc::c_int) -> io::Result<()> {
    // All that the kernel's `struct sched_param` has. The call itself, for musl's function does nothing.
    let priority: libc::c_int = 0;
    // SAFETY: the call reads the parameters, which live on the stack, and writes no memory.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, policy, &raw const priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The policy of a thread of this process: field 41 of its line; the state is field 3.
#[cfg(test)]
pub fn policy(thread: Pid) -> i32 {
    let line = std::fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero())).unwrap();
    let (_, from_state_on) = line.rsplit_once(')').unwrap();
    from_state_on.split_whitespace().nth(41 - 3).unwrap().parse().unwrap()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::thread::gettid;

    use super::*;

    #[test]
    fn only_the_thread_that_gives_way_has_another_policy() {
        let before = policy(gettid());
        assert_ne!(before, libc::SCHED_IDLE);
        let gave_way = thread::spawn(|| {
            set_sched_idle().unwrap();
            policy(gettid())
        });
        assert_eq!(gave_way.join().unwrap(), libc::SCHED_IDLE);
        assert_eq!(policy(gettid()), before);
    }
}
