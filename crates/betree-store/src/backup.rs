//! Backups: one moment of a store, copied while it is used.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use betree::{Batch, Cut, Env, Options};
use betree_std::{FileDevice, Workers, WorkersOptions, Zstd};

use crate::error::{Error, Result};
use crate::file;
use crate::keys::{self, ENGINE_DICT, Meaning};
use crate::store::Store;
use crate::view;

/// More than a change takes in a batch beside its key and value, in bytes.
const CHANGE_BYTES: usize = 64;
/// A batch of the copy, unless a pair is larger, in bytes: what is copied between two reports.
const BATCH_BYTES: usize = 1 << 20;
/// Longer than a backup takes: it is durable at its end.
const NEVER: Duration = Duration::from_secs(1 << 30);

/// How far a backup is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackupProgress {
    /// The name of the dictionary that is copied now. They come in the order in which they were made.
    pub dict: String,
    /// The pairs and parts of large values that were copied.
    pub pairs: u64,
    /// The bytes of their keys and values.
    pub bytes: u64,
}

impl Store {
    /// Copies the store into a new file, as it is at this moment; writers go on meanwhile. The copy is a
    /// store of its own, with the same dictionaries and merges, and is durable when this returns. The
    /// callback is called after each MiB or so.
    ///
    /// It reads and writes all pairs: what clones share is in the copy as often as it is seen. It takes a
    /// cache of the store's size beside that, and holds a [view](Store::view).
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::Store;
    ///
    /// store.dict("users")?.put("ada", "1815")?;
    /// let path = folder.path().join("backup");
    /// store.backup(&path, |progress| println!("{}: {} bytes", progress.dict, progress.bytes))?;
    /// assert!(Store::open(&path)?.open_dict("users")?.contains("ada")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::FileExists`]; [`Error::NoSpace`] with the path of the copy, [`Error::ViewEnded`] if the store
    /// needs the space of what the copy still has to read; [`Error::Closed`]; [`Error::Engine`] for a merged
    /// value that an older version has made larger than a batch; those of the device, and damage. No file is
    /// left then.
    pub fn backup(&self, path: impl AsRef<Path>, mut progress: impl FnMut(&BackupProgress)) -> Result<()> {
        self.backup_while(path, |at| {
            progress(at);
            ControlFlow::Continue(())
        })
    }

    /// As [`backup`](Store::backup), until the callback breaks it off.
    ///
    /// # Errors
    /// [`Error::BackupStopped`]; as [`backup`](Store::backup).
    pub fn backup_while(
        &self,
        path: impl AsRef<Path>,
        progress: impl FnMut(&BackupProgress) -> ControlFlow<()>,
    ) -> Result<()> {
        let path = path.as_ref();
        self.shared.refuse_if_closed()?;
        if path.symlink_metadata().is_ok() {
            return Err(Error::FileExists { path: path.to_owned() });
        }
        let made = file::make_with(path, |device| {
            file::format(device.clone(), path, &self.shared.env.geometry())?;
            self.copy(path, device, progress)
        })?;
        let device = made.ok_or_else(|| Error::FileExists { path: path.to_owned() })?;
        device.release();
        Ok(())
    }

    /// Copies all pairs, those of the catalogue too, into the volume of a device, and closes it.
    fn copy(
        &self,
        path: &Path,
        device: &Arc<FileDevice>,
        mut progress: impl FnMut(&BackupProgress) -> ControlFlow<()>,
    ) -> Result<()> {
        let shared = &self.shared;
        let unwritten = |error| file::unwritten(path, error);
        let mut options = Options::new(shared.cache_bytes, shared.merges.clone());
        options.compression = shared.compression;
        options.discard = true;
        options.zstd = Some(Arc::new(Zstd::default()));
        let env = Arc::new(Env::open(device.clone(), options).map_err(unwritten)?);
        let threads = WorkersOptions { sync_every: NEVER, ..WorkersOptions::default() };
        let failed = |source| Error::Io { doing: "start threads for", path: path.to_owned(), source };
        let workers = Workers::start(env.clone(), threads).map_err(failed)?;
        let copied = self.copy_pairs(path, &env, &mut progress, &unwritten);
        drop(workers);
        let closed = copied.and_then(|()| env.close().map_err(unwritten));
        if closed.is_err() {
            env.abandon();
        }
        closed
    }

    fn copy_pairs(
        &self,
        path: &Path,
        to: &Env,
        progress: &mut impl FnMut(&BackupProgress) -> ControlFlow<()>,
        unwritten: &impl Fn(betree::Error) -> Error,
    ) -> Result<()> {
        let shared = &self.shared;
        let view = self.view();
        let names: BTreeMap<u32, String> = view::names(shared, view.engine())?
            .into_iter()
            .map(|(name, entry)| (entry.number, name))
            .collect();
        let mut at = BackupProgress { dict: String::new(), pairs: 0, bytes: 0 };
        let mut number = keys::CATALOGUE;
        let mut batch = Batch::new();
        let bytes_max = BATCH_BYTES.min(to.batch_bytes_max());
        let mut cursor = view.engine().cursor(ENGINE_DICT, Cut::before([]), Cut::after([]));
        loop {
            let found = cursor.next().map_err(|error| shared.error(error))?;
            let len = found.map_or(usize::MAX, |(key, value)| key.len() + value.len() + CHANGE_BYTES);
            if batch.bytes().saturating_add(len) > bytes_max && !batch.is_empty() {
                to.commit(&batch).map_err(unwritten)?;
                batch = Batch::new();
                shared.refuse_if_closed()?;
                if progress(&at).is_break() {
                    return Err(Error::BackupStopped { path: path.to_owned() });
                }
            }
            let Some((key, value)) = found else { return Ok(()) };
            batch.put(ENGINE_DICT, key, value);
            if let Meaning::Pair(of, _) = keys::meaning(key) {
                if of != number {
                    number = of;
                    at.dict = names.get(&of).cloned().unwrap_or_default();
                }
                at.pairs += 1;
                at.bytes += (key.len() + value.len()) as u64;
            }
        }
    }
}
