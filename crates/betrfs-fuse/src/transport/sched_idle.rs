//! A thread that gives way to those whom it answers.
//!
//! A reply wakes its receiver while the thread that sends it still runs. So the scheduler takes the
//! receiver to another CPU, if one is idle, where the next request then goes as well: both wander
//! from CPU to CPU, and each step wakes a sleeping one, which takes several times as long as the
//! whole request. A CPU on which only threads of the policy SCHED_IDLE run counts as idle, so the
//! receiver of their replies stays, and runs at once. Where CPUs are wanted by others, the kernels
//! that offer io_uring (Linux 6.14 and later) still let such a thread have its turn soon: creating
//! files took up to twice as long beside eight busy programs a CPU, and a third where nothing else
//! ran.
#![allow(unsafe_code)] // A system call that no safe wrapper has.

use std::io;

/// Makes the calling thread one of the policy SCHED_IDLE.
///
/// # Errors
/// The operating system's.
pub fn set_sched_idle() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: it reads the parameters, which live on the stack, and changes no memory of ours.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// The policy of the calling thread: the 41st field of its line, two of which stand before the state.
    fn policy() -> i32 {
        let line = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, from_state_on) = line.rsplit_once(')').unwrap();
        from_state_on.split_whitespace().nth(41 - 3).unwrap().parse().unwrap()
    }

    #[test]
    fn only_the_thread_that_gives_way_has_another_policy() {
        let before = policy();
        assert_ne!(before, libc::SCHED_IDLE);
        let gave_way = thread::spawn(|| {
            set_sched_idle().unwrap();
            policy()
        });
        assert_eq!(gave_way.join().unwrap(), libc::SCHED_IDLE);
        assert_eq!(policy(), before);
    }
}
