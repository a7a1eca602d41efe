//! Notices that wait for the kernel.
//!
//! The kernel writes an inode's dirty pages back before it drops them, and waits for our answers. It drops a
//! name only when nobody changes the directory, and whoever does waits for our answers too. So no thread that
//! answers requests may send such a notice: a thread of its own does, and holds no lock.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use betrfs::InodeId;

use rustix::io::Errno;

use super::kernel_cache::{Pages, forget_inode, forget_name};
use super::{NotifySink, THREAD_NAME};
use crate::server::Answer;

/// Has notices sent by [`LateNotices`].
pub struct Notifier(Sender<Due>);

/// The notices that no thread may send that answers requests, for the one that sends them.
pub struct LateNotices {
    due: Receiver<Due>,
    sink: Arc<dyn NotifySink>,
}

/// What the kernel is to be told, and the flag to set then.
struct Due {
    /// Files whose dirty pages it must write back.
    files: Vec<InodeId>,
    /// Names that it must drop, each with its directory.
    names: Vec<(InodeId, Arc<[u8]>)>,
    done: Arc<AtomicBool>,
}

impl Notifier {
    /// A notifier, and what sends its notices to `sink`.
    pub fn new(sink: Arc<dyn NotifySink>) -> (Notifier, LateNotices) {
        let (sender, due) = mpsc::channel();
        (Notifier(sender), LateNotices { due, sink })
    }

    /// Has the kernel write back the dirty pages of these files; sets `done` afterwards.
    ///
    /// # Errors
    /// `EIO` if the thread has ended.
    pub fn write_back(&self, files: Vec<InodeId>, done: Arc<AtomicBool>) -> Answer<()> {
        if files.is_empty() {
            done.store(true, Ordering::Release);
            return Ok(());
        }
        self.0.send(Due { files, names: Vec::new(), done }).map_err(|_| Errno::IO)
    }

    /// Has the kernel drop these names, each of a directory; sets `done` afterwards.
    ///
    /// # Errors
    /// `EIO` if the thread has ended.
    pub fn drop_names(&self, names: Vec<(InodeId, Arc<[u8]>)>, done: Arc<AtomicBool>) -> Answer<()> {
        self.0.send(Due { files: Vec::new(), names, done }).map_err(|_| Errno::IO)
    }
}

impl LateNotices {
    /// Sends the notices from a thread of their own, until the notifier is dropped.
    ///
    /// # Errors
    /// The operating system's.
    pub fn start(self) -> io::Result<()> {
        let run = move || self.due.iter().for_each(|due| send(&*self.sink, due));
        thread::Builder::new().name(format!("{THREAD_NAME}-tell")).spawn(run).map(drop)
    }

    /// Sends the notices that wait. The caller answers no request meanwhile.
    pub fn send_due(&self) {
        self.due.try_iter().for_each(|due| send(&*self.sink, due));
    }
}

fn send(sink: &dyn NotifySink, Due { files, names, done }: Due) {
    names.iter().for_each(|(dir, name)| forget_name(sink, dir.0, name));
    files.iter().for_each(|file| forget_inode(sink, file.0, Pages::All));
    done.store(true, Ordering::Release);
}
