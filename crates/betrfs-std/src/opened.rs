//! A volume that is open, with its threads, and the inodes that are held in it.

use std::sync::Arc;
use std::thread;

use betree_std::{FileDevice, Workers};
use betrfs::{AclKind, Attr, Entry, FileType, InodeId, Volume};
use parking_lot::Mutex;

use crate::caller::Caller;
use crate::error::Kinded;
use crate::permission::{Judged, asks_for_acl};

/// An open volume. It is closed with the last handle that leads to it.
pub(crate) struct Opened {
    volume: Arc<Volume>,
    pub device: Arc<FileDevice>,
    /// `None` once it is closed.
    workers: Mutex<Option<Workers>>,
    pub is_read_only: bool,
    /// The user who opened it, to whom all of it belongs in the end.
    pub opener: u32,
}

impl Opened {
    /// An open volume with its threads.
    pub fn new(
        volume: Volume,
        device: Arc<FileDevice>,
        workers: Workers,
        is_read_only: bool,
        opener: u32,
    ) -> Opened {
        Opened { volume: Arc::new(volume), device, workers: Mutex::new(Some(workers)), is_read_only, opener }
    }

    /// The volume. All that handles do with it begins here.
    ///
    /// # Errors
    /// [`betree::Error::Forked`] in a fork of the process that opened it.
    pub fn volume(&self) -> betrfs::Result<&Volume> {
        self.volume.env().refuse_if_forked()?;
        Ok(&self.volume)
    }

    /// The volume, for calls that a fork may make.
    pub fn volume_unchecked(&self) -> &Volume {
        &self.volume
    }

    /// Refuses a change where none was asked for.
    pub fn refuse_read_only(&self) -> Kinded<()> {
        if self.is_read_only {
            return Err(betrfs::Error::ReadOnly { why: "it was opened to be read".into() }.into());
        }
        Ok(())
    }

    /// What decides whether a caller may use an inode with these attributes.
    pub fn judged(&self, caller: &Caller, id: InodeId, attr: Attr) -> Kinded<Judged> {
        let acl = if asks_for_acl(caller, &attr) { self.volume()?.acl(id, AclKind::Access)? } else { None };
        Ok(Judged { attr, acl })
    }

    /// Ends the threads, makes all durable, and releases the device. Later calls do nothing.
    pub fn close(&self) -> betrfs::Result<()> {
        self.volume()?;
        let mut workers = self.workers.lock();
        let Some(running) = workers.take() else { return Ok(()) };
        running.stop();
        let closed = self.volume.close();
        if closed.is_err() {
            // The log takes less room than a checkpoint.
            let _ = self.volume.sync();
        }
        self.let_go();
        closed
    }

    /// Releases the device. Nothing is written to it from then on: others may have opened it.
    fn let_go(&self) {
        self.volume.env().abandon();
        self.device.release();
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.volume().is_err() {
            // A fork leaves all to its parent. With this reference nothing of the volume is dropped here: a
            // thread that the fork does not have may have held its locks.
            std::mem::forget(Arc::clone(&self.volume));
            return;
        }
        if thread::panicking() {
            // A panic may have left anything half done: as after a crash, the log has what was durable.
            self.let_go();
        } else {
            // `Fs::close` is for those who want to know.
            let _ = self.close();
        }
    }
}

/// An inode that was looked up, until this is dropped.
pub(crate) struct Node {
    pub opened: Arc<Opened>,
    pub id: InodeId,
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Ok(volume) = self.opened.volume() {
            volume.forget(self.id, 1);
        }
    }
}

/// An inode as it was found.
#[derive(Clone)]
pub(crate) struct Found {
    pub node: Arc<Node>,
    pub attr: Attr,
}

impl Found {
    /// Takes over the lookup that an entry stands for.
    pub fn new(opened: &Arc<Opened>, entry: Entry) -> Found {
        Found { node: Arc::new(Node { opened: Arc::clone(opened), id: entry.node }), attr: entry.attr }
    }

    pub fn id(&self) -> InodeId {
        self.node.id
    }

    pub fn is_dir(&self) -> bool {
        self.attr.file_type == FileType::Directory
    }
}
