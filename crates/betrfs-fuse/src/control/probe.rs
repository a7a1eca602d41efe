//! Whether the server of a mount is alive, and the name of its socket, asked through the kernel.

use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc;
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Uid;

use super::SOCKET_ATTRIBUTE;
use crate::mount_info::{MountEntry, mount_id};

/// The name of a server's abstract socket, if it has one.
type Answer = Result<Option<Vec<u8>>, Errno>;

/// The longest name of a socket.
const NAME_BYTES_MAX: usize = 108;

/// A request through the kernel, which passes it to the server, or answers itself if that is dead.
pub(super) struct Probe {
    answer: mpsc::Receiver<Answer>,
    answered: Option<Answer>,
}

impl Probe {
    /// Asks in a thread of its own, because a server that hangs blocks it.
    pub fn start(mount: &MountEntry) -> Probe {
        let (sender, answer) = mpsc::channel();
        let (mount, owner, is_for_all) = (mount.clone(), mount.owner(), mount.is_for_all());
        let asking = thread::Builder::new().name("betrfs-probe".into()).spawn(move || {
            let as_owner = if is_for_all { Ok(()) } else { become_user(owner) };
            // The receiver may be gone.
            let _ = sender.send(as_owner.and_then(|()| ask_kernel(&mount)));
        });
        if let Err(error) = asking {
            tracing::debug!("cannot probe the mount: {error}");
        }
        Probe { answer, answered: None }
    }

    /// The answer, once there is one.
    pub fn answered(&mut self) -> Option<&Answer> {
        self.answered = self.answered.take().or_else(|| self.answer.try_recv().ok());
        self.answered.as_ref()
    }
}

fn ask_kernel(mount: &MountEntry) -> Answer {
    let root = rustix::fs::open(&mount.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    // Another mount in its place says nothing about this one.
    if mount_id(&root).is_ok_and(|id| id != mount.id) {
        return Err(Errno::STALE);
    }
    rustix::fs::fstatfs(&root)?;
    let itself = format!("/proc/self/fd/{}", root.as_raw_fd());
    let mut name = [0; NAME_BYTES_MAX];
    let attribute = OsStr::from_bytes(SOCKET_ATTRIBUTE);
    // A server of an older version has none.
    let len = rustix::fs::getxattr(itself, attribute, &mut name[..]).ok();
    Ok(len.and_then(|len| Some(name.get(..len)?.to_vec())))
}

/// Makes this thread a user's, if it is root's: a user's mount refuses even root.
pub fn become_user((user, group): (u32, u32)) -> Result<(), Errno> {
    let (user, group) = (Uid::from_raw(user), rustix::process::Gid::from_raw(group));
    if !rustix::process::geteuid().is_root() || user.is_root() {
        return Ok(());
    }
    rustix::thread::set_thread_groups(&[group])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)
}
