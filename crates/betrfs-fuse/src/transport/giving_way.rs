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
pub fn give_way() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: it reads the parameters, which live on the stack, and changes no memory of ours.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
