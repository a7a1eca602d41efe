//! The store: opening, ending, durability, and what it tells of itself.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use betree::{Env, Finding, Options};
use betree_platform::{Device, DeviceError};
use betree_std::{FileDevice, TroubleLog, Workers, WorkersOptions, Zstd};
use parking_lot::Mutex;

use crate::batch::WriteBatch;
use crate::catalogue::{self, Catalogue, Refusal};
use crate::error::{Error, Result};
use crate::file;
use crate::gate::Gate;
use crate::merge::Merges;
use crate::options::{Durability, MissingMerges, StoreOptions};
use crate::shared::Shared;
use crate::sweep::{Sweep, Sweeper};

/// Longer than any program runs.
const NEVER: Duration = Duration::from_secs(1 << 30);
/// The shortest time between periodic syncs: with none, a thread would do nothing else.
const SYNC_EVERY_MIN: Duration = Duration::from_millis(1);

/// An open store: named dictionaries in one file.
///
/// Clones of it are the same open store. Its threads end, what was not durable becomes so, and the file is
/// free for others when the last of store, dictionaries and iterators is dropped, or when it is
/// [closed](Store::close).
#[derive(Clone)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
}

/// What a store has done since it was opened, and what it takes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The counters of the engine.
    pub engine: betree::Stats,
    /// Bytes of the file that hold something, beside the log.
    pub used_bytes: u64,
    /// Bytes that can still be written before the store is full, if the disk has them.
    pub free_bytes: u64,
    /// The number of dictionaries.
    pub dicts: usize,
}

impl Store {
    /// Opens the store in a file, or makes one, with the usual [options](Store::options).
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("store");
    /// use betree_store::Store;
    ///
    /// Store::open(&path)?.dict("fruit")?.put("banana", "yellow")?;
    /// // The first store was dropped, which closed it.
    /// let fruit = Store::open(&path)?.dict("fruit")?;
    /// assert_eq!(fruit.get("banana")?.as_deref(), Some(&b"yellow"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::NotAStore`], [`Error::NewerStore`], [`Error::UnknownMerge`],
    /// [`Error::OtherKindOfMerge`], [`Error::BadMerge`], [`Error::NoSpace`]; those of the system, and damage.
    pub fn open(path: impl AsRef<Path>) -> Result<Store> {
        Store::options().open(path)
    }

    /// Options for opening.
    pub fn options() -> StoreOptions {
        StoreOptions::default()
    }

    pub(crate) fn open_with(path: &Path, options: &StoreOptions) -> Result<Store> {
        let merges = Arc::new(options.registered()?);
        let device = match options.read_only {
            true => file::open_for_reading(path)?,
            false => file::open(path, options.create, options.cache_bytes, &merges)?,
        };
        Store::open_over(path, options, &merges, device.clone(), device)
    }

    /// Opens the store in a file by a device that stands for it.
    fn open_over(
        path: &Path,
        options: &StoreOptions,
        merges: &Arc<Merges>,
        file: Arc<FileDevice>,
        device: Arc<dyn Device>,
    ) -> Result<Store> {
        let gate = Arc::new(Gate::before(device));
        let mut with = Options::new(options.cache_bytes, merges.clone());
        with.compression = options.compression;
        // The file is sparse: what was freed would take room for ever, for what is written goes on behind it.
        with.discard = true;
        with.zstd = Some(Arc::new(Zstd::default()));
        with.clock = Some(options.clock.clone());
        with.replay_progress.clone_from(&options.replay_progress);
        with.watcher = Some(Arc::new(TroubleLog::of(path.to_owned())));
        let env = Arc::new(Env::open(gate.clone(), with).map_err(|error| refused(path, error))?);
        let loaded = load(&env, merges, options.missing_merges);
        let loaded = loaded.map_err(|refusal| refused_catalogue(path, refusal));
        let loaded = loaded.and_then(|catalogue| {
            if !options.read_only {
                gate.open().map_err(|error| refused(path, full_or_failed(error)))?;
                // They take room, and hinder nothing.
                if let Err(error) = catalogue::remove_marked(&env) {
                    tracing::warn!("{}: what large transactions have left stays: {error}", path.display());
                }
                if let Err(error) = catalogue::put_kinds_of_merges(&env, merges) {
                    tracing::warn!("{}: the kinds of its merges were not stored: {error}", path.display());
                }
            }
            Ok(catalogue)
        });
        let catalogue = loaded.inspect_err(|_| env.abandon())?;
        let (generation, catalogue) = (catalogue.generation, Arc::new(Mutex::new(catalogue)));
        let (workers, sweeper) = match options.read_only {
            true => (None, None),
            false => {
                let workers = start_workers(&env, options.durability, path)?;
                let sweeper = Sweeper::start(Sweep::new(env.clone(), catalogue.clone()));
                (Some(workers), Some(sweeper.map_err(|source| no_threads(path, source))?))
            }
        };
        let shared = Shared {
            env,
            workers: Mutex::new(workers),
            sweeper: Mutex::new(sweeper),
            file,
            path: path.to_owned(),
            merges: merges.clone(),
            cache_bytes: options.cache_bytes,
            compression: options.compression,
            durability: options.durability,
            read_only: options.read_only,
            generation: AtomicU64::new(generation),
            catalogue,
            turn: Mutex::new(()),
            closing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        };
        Ok(Store { shared: Arc::new(shared) })
    }

    /// The path with which it was opened.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// An empty batch of changes, which are made together by its [`commit`](WriteBatch::commit).
    pub fn batch(&self) -> WriteBatch {
        WriteBatch::new(self.shared.clone())
    }

    /// Makes all changes durable that were made before the call.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// use betree_store::{Durability, Store};
    ///
    /// let path = folder.path().join("store");
    /// let store = Store::options().durability(Durability::Manual).open(&path)?;
    /// store.dict("fruit")?.put("banana", "yellow")?;
    /// store.sync()?;
    /// // From here on a crash takes nothing of it.
    /// store.abandon();
    /// drop(store);
    /// assert!(Store::open(&path)?.open_dict("fruit")?.contains("banana")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSpace`] where the disk is full: it can be tried again; those of the device, after which the
    /// store takes no more changes.
    pub fn sync(&self) -> Result<()> {
        self.shared.refuse_if_closed()?;
        self.shared.env.sync().map_err(|error| self.shared.error(error))
    }

    /// Makes everything durable, ends the threads, and releases the file. From then on all calls of this
    /// store and its dictionaries fail with [`Error::Closed`]. Dropping a store does the same, and can report
    /// nothing.
    ///
    /// If it fails, the file is released too, and what was not durable is lost. Only after
    /// [`Error::NoSpace`] the store stays open for reading: call this again once there is room, or
    /// [`abandon`](Store::abandon) it.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::Error;
    ///
    /// let fruit = store.dict("fruit")?;
    /// store.close()?;
    /// assert!(matches!(fruit.get("banana"), Err(Error::Closed { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`sync`](Store::sync).
    pub fn close(&self) -> Result<()> {
        self.shared.close()
    }

    /// Ends it as a crash of the program would, and releases the file: what is not durable is lost. For
    /// programs that give up a store on a full disk, and for tests of crashes.
    pub fn abandon(&self) {
        if self.shared.refuse_if_forked().is_err() {
            return;
        }
        drop(self.shared.sweeper.lock().take());
        drop(self.shared.workers.lock().take());
        self.shared.release();
    }

    /// Whether it was closed, also by a failed [`close`](Store::close).
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// What it has done, and what it takes.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// let reads = store.stats().engine.device_reads;
    /// store.dict("fruit")?.put("banana", "yellow")?;
    /// assert_eq!(store.stats().engine.device_reads, reads, "a put reads nothing");
    /// # Ok(())
    /// # }
    /// ```
    pub fn stats(&self) -> Stats {
        let space = self.shared.env.space();
        Stats {
            engine: self.shared.env.stats(),
            used_bytes: space.used_bytes,
            free_bytes: space.free_bytes,
            dicts: self.shared.catalogue.lock().dicts.len(),
        }
    }

    /// Walks everything in the file: structure, checksums, references, space. What is in memory is written
    /// first.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// assert_eq!(store.check()?, []);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What hinders the walk itself; what it finds is no error.
    pub fn check(&self) -> Result<Vec<Finding>> {
        self.check_telling(&mut |_, _| ())
    }

    /// As [`check`](Store::check). Calls `progress` with the number of nodes that were looked at, and of all.
    ///
    /// # Errors
    /// As there.
    pub fn check_telling(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<Finding>> {
        self.shared.refuse_if_closed()?;
        let mut findings = Vec::new();
        let walked = self.shared.env.check(&mut |finding| findings.push(finding), progress);
        walked.map_err(|error| self.shared.error(error))?;
        Ok(findings)
    }
}

impl StoreOptions {
    /// Opens the store, or makes it.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store> {
        Store::open_with(path.as_ref(), self)
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({:?})", self.shared.path)
    }
}

fn load(env: &Env, merges: &Merges, missing: MissingMerges) -> std::result::Result<Catalogue, Refusal> {
    if !file::is_store(&env.identity()) {
        return Err(Refusal::NotAStore(format!("it is a volume made by {}", env.identity().made_by)));
    }
    Catalogue::load(env, merges, missing)
}

fn start_workers(env: &Arc<Env>, durability: Durability, path: &Path) -> Result<Workers> {
    let sync_every = match durability {
        Durability::Every(period) => period.max(SYNC_EVERY_MIN),
        Durability::PerCommit | Durability::Manual => NEVER,
    };
    let threads = WorkersOptions { sync_every, ..WorkersOptions::default() };
    Workers::start(env.clone(), threads).map_err(|source| no_threads(path, source))
}

fn no_threads(path: &Path, source: std::io::Error) -> Error {
    Error::Io { doing: "start threads for", path: path.to_owned(), source }
}

/// The engine's error for one of the device.
fn full_or_failed(error: DeviceError) -> betree::Error {
    if error.is_full() { betree::Error::DeviceFull(error) } else { betree::Error::Device(error) }
}

/// How the upserts of a BetrFS volume begin their description.
const FILE_SYSTEM: &str = "`block` ";

/// The error of a file whose volume cannot be opened.
fn refused(path: &Path, error: betree::Error) -> Error {
    let path = path.to_owned();
    match error {
        betree::Error::NotAVolume { why } => Error::NotAStore { path, why },
        betree::Error::Truncated { .. } => Error::NotAStore { path, why: error.to_string() },
        betree::Error::OtherUpsert { made_with, .. } if made_with.starts_with(FILE_SYSTEM) => {
            let why = "it is a BetrFS volume with files: mount it (`betrfs mount`)";
            Error::NotAStore { path, why: why.into() }
        }
        betree::Error::OtherUpsert { made_with, .. } => {
            Error::NotAStore { path, why: format!("it is a volume for the upserts of {made_with}") }
        }
        betree::Error::NewerFormat { .. } | betree::Error::UnknownFeatures { .. } => {
            Error::NewerStore { path, why: error.to_string() }
        }
        betree::Error::DeviceFull(_) | betree::Error::NoSpace => {
            Error::NoSpace { path, why: error.to_string() }
        }
        source => Error::Engine { path, source },
    }
}

pub(crate) fn refused_catalogue(path: &Path, refusal: Refusal) -> Error {
    let path = path.to_owned();
    match refusal {
        Refusal::NotAStore(why) => Error::NotAStore { path, why },
        Refusal::Newer(why) => Error::NewerStore { path, why },
        Refusal::Damaged(why) => Error::Damaged { path, why },
        Refusal::UnknownMerge { merge, dict } => Error::UnknownMerge { merge, dict: Some(dict) },
        Refusal::OtherKindOfMerge { merge, dict, was, is } => {
            Error::OtherKindOfMerge { path, dict, merge, was: was.into(), is: is.into() }
        }
        Refusal::Engine(source) => Error::Engine { path, source },
    }
}

/// Many threads use one store.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Store>();
    is_shared::<crate::dict::Dict>();
    is_shared::<WriteBatch>();
    is_shared::<Error>();
};

#[cfg(test)]
mod tests;
