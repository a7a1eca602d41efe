//! Notices that wait for the kernel.
//!
//! The kernel writes an inode's dirty pages back before it drops them, and waits for our answers. It drops a
//! name only when nobody changes the directory, and whoever does waits for our answers too. So no thread that
//! answers requests may send such a notice: a thread of its own does, and holds no lock.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use betrfs::InodeId;

use rustix::io::Errno;

use super::kernel_cache::{Pages, forget_inode, forget_name};
use super::{NotifySink, THREAD_NAME};
use crate::server::Answer;

/// Has notices sent by [`LateNotices`].
pub struct Notifier {
    due: Sender<Due>,
    /// Number of notices that were not sent yet.
    waiting: Arc<AtomicUsize>,
}

/// The notices that no thread may send that answers requests, for the one that sends them.
pub struct LateNotices {
    due: Receiver<Due>,
    sink: Arc<dyn NotifySink>,
    waiting: Arc<AtomicUsize>,
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
        let waiting = Arc::new(AtomicUsize::new(0));
        (Notifier { due: sender, waiting: Arc::clone(&waiting) }, LateNotices { due, sink, waiting })
    }

    /// Has the kernel write back the dirty pages of these files; sets `done` after that and after all earlier
    /// notices.
    ///
    /// # Errors
    /// `EIO` if the thread has ended.
    pub fn write_back(&self, files: Vec<InodeId>, done: Arc<AtomicBool>) -> Answer<()> {
        if files.is_empty() && self.waiting.load(Ordering::Acquire) == 0 {
            done.store(true, Ordering::Release);
            return Ok(());
        }
        self.send(Due { files, names: Vec::new(), done })
    }

    /// Has the kernel drop these names, each of a directory; sets `done` afterwards.
    ///
    /// # Errors
    /// `EIO` if the thread has ended.
    pub fn drop_names(&self, names: Vec<(InodeId, Arc<[u8]>)>, done: Arc<AtomicBool>) -> Answer<()> {
        if names.is_empty() {
            return self.write_back(Vec::new(), done);
        }
        self.send(Due { files: Vec::new(), names, done })
    }

    fn send(&self, due: Due) -> Answer<()> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.due.send(due).map_err(|_| Errno::IO)
    }
}

impl LateNotices {
    /// Sends the notices from a thread of their own, until the notifier is dropped.
    ///
    /// # Errors
    /// The operating system's.
    pub fn start(self) -> io::Result<()> {
        let run = move || self.due.iter().for_each(|due| self.send(due));
        thread::Builder::new().name(format!("{THREAD_NAME}-tell")).spawn(run).map(drop)
    }

    /// Sends the notices that wait. The caller answers no request meanwhile.
    pub fn send_due(&self) {
        self.due.try_iter().for_each(|due| self.send(due));
    }

    fn send(&self, Due { files, names, done }: Due) {
        names.iter().for_each(|(dir, name)| forget_name(&*self.sink, dir.0, name));
        files.iter().for_each(|file| forget_inode(&*self.sink, file.0, Pages::All));
        done.store(true, Ordering::Release);
        self.waiting.fetch_sub(1, Ordering::Release);
    }
}
