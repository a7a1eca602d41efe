//! Notices that make the kernel write pages back.
//!
//! The kernel writes an inode's dirty pages back before it drops them, and waits for our answers. So no
//! thread that answers requests may send such a notice: a thread of its own does, and holds no lock.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use betrfs::InodeId;

use rustix::io::Errno;

use super::kernel_cache::{Pages, forget_inode};
use super::{NotifySink, THREAD_NAME};
use crate::server::Answer;

/// Sends to the notify thread, which ends when the last `Notifier` is dropped.
#[derive(Clone)]
pub struct Notifier(Sender<WriteBack>);

/// Files whose dirty pages the kernel must write back, and the flag to set then.
struct WriteBack {
    files: Vec<InodeId>,
    done: Arc<AtomicBool>,
}

impl Notifier {
    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system's.
    pub fn start(sink: Arc<dyn NotifySink>) -> io::Result<Notifier> {
        let (sender, jobs) = mpsc::channel::<WriteBack>();
        thread::Builder::new().name(format!("{THREAD_NAME}-tell")).spawn(move || {
            for WriteBack { files, done } in jobs {
                files.iter().for_each(|file| forget_inode(&*sink, file.0, Pages::All));
                done.store(true, Ordering::Release);
            }
        })?;
        Ok(Notifier(sender))
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
        self.0.send(WriteBack { files, done }).map_err(|_| Errno::IO)
    }
}
