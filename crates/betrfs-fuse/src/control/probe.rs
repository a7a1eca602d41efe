//! Whether the server of a mount is alive, asked through the kernel.

use std::sync::mpsc;
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Uid;

use crate::mount_info::{MountEntry, mount_id};

/// A request through the kernel, which passes it to the server, or answers itself if that is dead.
pub(super) struct Probe {
    answer: mpsc::Receiver<Result<(), Errno>>,
    answered: Option<Result<(), Errno>>,
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
    pub fn answered(&mut self) -> Option<Result<(), Errno>> {
        self.answered = self.answered.or_else(|| self.answer.try_recv().ok());
        self.answered
    }
}

fn ask_kernel(mount: &MountEntry) -> Result<(), Errno> {
    let root = rustix::fs::open(&mount.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    // Another mount in its place says nothing about this one.
    if mount_id(&root).is_ok_and(|id| id != mount.id) {
        return Err(Errno::STALE);
    }
    rustix::fs::fstatfs(root).map(|_| ())
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
