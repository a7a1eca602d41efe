//! Which requests wait for the end of a freeze.

use rustix::fs::OFlags;

use crate::freeze::Effect;
use crate::wire::change::{Requires, requires};
use crate::wire::recompress::CHECKPOINT;
use crate::wire::{self, Body, Opcode};

/// What a request is to a freeze. Times of access and the deletion of an unlinked file with its last RELEASE
/// or FORGET are put off by the library: nobody waits for them.
pub fn of(opcode: Opcode, body: Body<'_>) -> Effect {
    match opcode {
        Opcode::Lookup
        | Opcode::Forget
        | Opcode::BatchForget
        | Opcode::Getattr
        | Opcode::Statx
        | Opcode::Readlink
        | Opcode::Read
        | Opcode::Statfs
        | Opcode::Release
        | Opcode::Getxattr
        | Opcode::Listxattr
        | Opcode::Flush
        | Opcode::Opendir
        | Opcode::Readdir
        | Opcode::Readdirplus
        | Opcode::Lseek
        | Opcode::Init
        | Opcode::Interrupt
        // The close ends a freeze itself.
        | Opcode::Destroy => Effect::None,
        Opcode::Fsync | Opcode::Fsyncdir | Opcode::Syncfs => Effect::Sync,
        Opcode::Open => of_open(body),
        Opcode::Ioctl => of_ioctl(body),
        Opcode::Setattr
        | Opcode::Symlink
        | Opcode::Mknod
        | Opcode::Mkdir
        | Opcode::Unlink
        | Opcode::Rmdir
        | Opcode::Rename
        | Opcode::Rename2
        | Opcode::Link
        | Opcode::Create
        | Opcode::Tmpfile
        | Opcode::Write
        | Opcode::Setxattr
        | Opcode::Removexattr
        | Opcode::Fallocate
        | Opcode::CopyFileRange
        | Opcode::CopyFileRange64 => Effect::Change,
    }
}

/// An opening that empties the file, or takes its set-id bits away, changes it.
fn of_open(body: Body<'_>) -> Effect {
    let Ok((open, _)) = body.split::<wire::OpenIn>() else { return Effect::None };
    let empties = OFlags::from_bits_retain(open.flags).contains(OFlags::TRUNC);
    if empties || open.open_flags & wire::OPEN_KILL_SUIDGID != 0 { Effect::Change } else { Effect::None }
}

/// All but those that are known to read alone.
fn of_ioctl(body: Body<'_>) -> Effect {
    let Ok((ioctl, _)) = body.split::<wire::IoctlIn>() else { return Effect::None };
    match requires(ioctl.cmd) {
        Some(Requires::Nothing) if ioctl.cmd != CHECKPOINT => Effect::None,
        _ => Effect::Change,
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::wire::ioctl::{FILL, GET_FLAGS, SET_FLAGS, SOURCE, TRIM, USAGE};
    use crate::wire::quota::NEXT_QUOTA;

    #[test]
    fn an_opening_that_empties_a_file_changes_it_and_others_do_not() {
        let effect = |flags: OFlags, open_flags| {
            let open = wire::OpenIn { flags: flags.bits(), open_flags };
            of(Opcode::Open, Body::Joined(open.as_bytes()))
        };
        assert_eq!(effect(OFlags::RDONLY, 0), Effect::None);
        assert_eq!(effect(OFlags::RDWR | OFlags::APPEND, 0), Effect::None);
        assert_eq!(effect(OFlags::RDWR | OFlags::TRUNC, 0), Effect::Change);
        assert_eq!(effect(OFlags::WRONLY, wire::OPEN_KILL_SUIDGID), Effect::Change);
    }

    #[test]
    fn ioctls_that_are_not_known_to_read_alone_wait() {
        let effect = |cmd| {
            let ioctl = wire::IoctlIn { cmd, ..wire::IoctlIn::default() };
            of(Opcode::Ioctl, Body::Joined(ioctl.as_bytes()))
        };
        for cmd in [SOURCE, USAGE, GET_FLAGS, NEXT_QUOTA] {
            assert_eq!(effect(cmd), Effect::None, "{cmd:#x}");
        }
        for cmd in [FILL, SET_FLAGS, TRIM, 0, u32::MAX] {
            assert_eq!(effect(cmd), Effect::Change, "{cmd:#x}");
        }
    }
}
