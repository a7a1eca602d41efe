//! A server under restrictions.
#![allow(unsafe_code)] // A filter of system calls is set between fork and exec.

use std::fs;
use std::os::unix::process::CommandExt;

use crate::mounted::{Mounted, betrfs, ok};

/// Forbids this process and its children a system call, as sandboxes do.
fn refuse(call: libc::c_long) -> std::io::Result<()> {
    let statement = |code: u32, jt: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    let mut filter = [
        // Load the call's number;
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        // if it is `call`, skip the return that allows it.
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, call as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which lives until then.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[test]
fn if_io_uring_is_forbidden_requests_come_by_dev_fuse() {
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter] {
        let mounted = Mounted::unmounted();
        let mut mount = betrfs();
        mount.arg("mount").arg(&mounted.volume).arg(&mounted.dir);
        // SAFETY: the closure only calls prctl(2), and does not allocate.
        unsafe { mount.pre_exec(move || refuse(call)) };
        ok(&mount.output().unwrap());
        assert_eq!(mounted.stats()["transport"], "device");
        fs::write(mounted.path("f"), b"x").unwrap();
        mounted.umount();
    }
}
