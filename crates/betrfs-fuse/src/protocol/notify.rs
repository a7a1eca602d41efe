//! What the kernel is told without having asked, where that makes it give pages back.
//!
//! The kernel writes an inode's dirty pages back before it forgets them, and waits for our answers.
//! So no thread that answers requests may tell it: one thread does nothing else, and holds nothing.

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

/// The way to the thread that tells; it ends with the last of them.
#[derive(Clone)]
pub struct Notifier(Sender<WriteBack>);

/// Files whose dirty pages are to come, and where to note that they have.
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

    /// Has the kernel write back what processes have written to mappings of these files.
    ///
    /// # Errors
    /// `EIO` where the thread has ended.
    pub fn write_back(&self, files: Vec<InodeId>, done: Arc<AtomicBool>) -> Answer<()> {
        if files.is_empty() {
            done.store(true, Ordering::Release);
            return Ok(());
        }
        self.0.send(WriteBack { files, done }).map_err(|_| Errno::IO)
    }
}
