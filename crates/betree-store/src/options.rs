//! What is chosen when a store is opened, and when a dictionary is made.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use betree::{Compression, ReplayProgress};
use betree_platform::Platform;
use betree_std::StdPlatform;

use crate::error::Result;
use crate::expiring;
use crate::merge::{Merge, Merges, Named};
use crate::merges::own;

/// The cache of a store for which none was chosen, in bytes.
const CACHE_BYTES: usize = 64 << 20;

/// When changes survive a crash. In any case they survive in their order, each whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When the call that makes them returns. Threads that wait at the same time share one sync of the
    /// device.
    PerCommit,
    /// This long after the call returned, at most; or when [`Store::sync`](crate::Store::sync) returns.
    Every(Duration),
    /// When [`Store::sync`](crate::Store::sync) or [`Store::close`](crate::Store::close) returns; whatever is
    /// durable sooner is a gift.
    Manual,
}

impl Default for Durability {
    /// Every second.
    fn default() -> Durability {
        Durability::Every(Duration::from_secs(1))
    }
}

/// How a store is opened.
///
/// ```
/// # fn main() -> betree_store::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("store");
/// use betree_store::{Compression, Durability, Store};
///
/// let store = Store::options()
///     .cache_bytes(16 << 20)
///     .compression(Compression::Zstd)
///     .durability(Durability::PerCommit)
///     .open(&path)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StoreOptions {
    pub(crate) cache_bytes: usize,
    pub(crate) compression: Compression,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) durability: Durability,
    pub(crate) merges: Named,
    pub(crate) missing_merges: MissingMerges,
    pub(crate) clock: Arc<dyn Platform>,
    pub(crate) replay_progress: Option<Arc<ReplayProgress>>,
}

/// A clock of the program's own.
struct Clock<F> {
    now: F,
    system: StdPlatform,
}

impl<F: Fn() -> SystemTime + Send + Sync> Platform for Clock<F> {
    fn now_ns(&self) -> i64 {
        expiring::ns_of((self.now)())
    }

    fn random_u64(&self) -> u64 {
        self.system.random_u64()
    }
}

/// What becomes of a store with a dictionary whose merge is not registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingMerges {
    /// It is not opened.
    #[default]
    Refuse,
    /// It is opened, and changed as any other. Deltas wait for their merge: a read of a value that has some
    /// fails with [`Error::UnknownMerge`](crate::Error::UnknownMerge), until the store is opened with it.
    Keep,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            cache_bytes: CACHE_BYTES,
            compression: Compression::default(),
            create: true,
            read_only: false,
            durability: Durability::default(),
            merges: Named::new(),
            missing_merges: MissingMerges::default(),
            clock: Arc::new(StdPlatform::new()),
            replay_progress: None,
        }
    }
}

impl StoreOptions {
    /// The memory for what was read and what is not written yet, in bytes: 64 MiB if this is not called. The
    /// cache with which a store is made decides the size of its nodes, a 32nd of it; with a smaller one it
    /// can be opened later, but is slower than one made with that.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> StoreOptions {
        self.cache_bytes = bytes;
        self
    }

    /// How what is written from now on is compressed: with LZ4 if this is not called. All can be read always.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> StoreOptions {
        self.compression = compression;
        self
    }

    /// Whether a store is made where there is none; so it is if this is not called.
    #[must_use]
    pub fn create(mut self, create: bool) -> StoreOptions {
        self.create = create;
        self
    }

    /// Opens the store for reading: nothing is written to its file, changes are refused, and others may have
    /// it open for reading too. What a crash has left in the log is replayed in memory.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("store");
    /// use betree_store::{Error, Store};
    ///
    /// Store::open(&path)?.dict("fruit")?.put("banana", "yellow")?;
    /// let readers = [(); 2].map(|()| Store::options().read_only(true).open(&path));
    /// for store in readers {
    ///     let fruit = store?.open_dict("fruit")?;
    ///     assert!(fruit.contains("banana")?);
    ///     assert!(matches!(fruit.clear(), Err(Error::ReadOnly { .. })));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> StoreOptions {
        self.read_only = read_only;
        self
    }

    /// Calls `hear` while a log that a crash has left is replayed, with the bytes of it that are done, and
    /// with all of them: at the end both are equal. The log's headers are read once more for that. It is not
    /// called if there is nothing to replay.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("store");
    /// use betree_store::Store;
    ///
    /// let hear = |done, all| eprintln!("{done} of {all} bytes are replayed");
    /// let store = Store::options().replay_progress(hear).open(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn replay_progress(mut self, hear: impl Fn(u64, u64) + Send + Sync + 'static) -> StoreOptions {
        self.replay_progress = Some(Arc::new(hear));
        self
    }

    /// When changes survive a crash: after a second if this is not called.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> StoreOptions {
        self.durability = durability;
        self
    }

    /// Registers a merge: a function of the old value, if there is one, and a delta; `None` removes the key.
    /// See [`Merge`](crate::Merge) for what it must do, and [`Dict::upsert`](crate::Dict::upsert). A store
    /// that has dictionaries bound to a merge is opened only with it, unless
    /// [`missing_merges`](StoreOptions::missing_merges) says otherwise, and the same name must mean the same
    /// function for as long as the store lives. Names that begin with `betree.` are those of the store's own
    /// [`merges`](crate::merges), which are always registered.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("store");
    /// use betree_store::{DictOptions, Store};
    ///
    /// let append = |old: Option<&[u8]>, delta: &[u8]| Some([old.unwrap_or_default(), delta].concat());
    /// let store = Store::options().merge("append", append).open(&path)?;
    /// let notes = store.dict_with("notes", &DictOptions::new().merge("append"))?;
    /// notes.upsert("today", "rain, ")?;
    /// notes.upsert("today", "then sun")?;
    /// assert_eq!(notes.get("today")?.as_deref(), Some(&b"rain, then sun"[..]));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn merge<F>(self, name: &str, function: F) -> StoreOptions
    where
        F: Fn(Option<&[u8]>, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
    {
        self.merge_with(name, function)
    }

    /// Registers a merge that can combine deltas, as those of [`merges`](crate::merges) can.
    #[must_use]
    pub fn merge_with(mut self, name: &str, merge: impl Merge + 'static) -> StoreOptions {
        self.merges.insert(name.into(), Arc::new(merge));
        self
    }

    /// What becomes of a store with a dictionary whose merge is not registered: it is refused if this is not
    /// called.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("store");
    /// use betree_store::{DictOptions, Error, MissingMerges, Store};
    ///
    /// let last = |_: Option<&[u8]>, delta: &[u8]| Some(delta.to_vec());
    /// let with = Store::options().merge("last", last);
    /// with.open(&path)?.dict_with("seen", &DictOptions::new().merge("last"))?.put("ada", "today")?;
    /// assert!(matches!(Store::open(&path), Err(Error::UnknownMerge { .. })));
    ///
    /// let store = Store::options().missing_merges(MissingMerges::Keep).open(&path)?;
    /// let seen = store.open_dict("seen")?;
    /// assert_eq!(seen.get("ada")?.as_deref(), Some(&b"today"[..]));
    /// seen.upsert("ada", "tomorrow")?;
    /// assert!(matches!(seen.get("ada"), Err(Error::UnknownMerge { .. })));
    /// store.close()?;
    /// let seen = with.open(&path)?.open_dict("seen")?;
    /// assert_eq!(seen.get("ada")?.as_deref(), Some(&b"tomorrow"[..]));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn missing_merges(mut self, missing: MissingMerges) -> StoreOptions {
        self.missing_merges = missing;
        self
    }

    /// The clock by which values expire, in place of the system's: for tests of what a program makes of it.
    /// The time of a store never goes back while it is open.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("store");
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// use betree_store::{DictOptions, Store};
    ///
    /// let seconds = Arc::new(AtomicU64::new(100));
    /// let clock = seconds.clone();
    /// let now = move || UNIX_EPOCH + Duration::from_secs(clock.load(Ordering::SeqCst));
    /// let store = Store::options().clock(now).open(&path)?;
    /// let sessions = store.dict_with("sessions", &DictOptions::new().expiring())?;
    /// sessions.put_for("ada", "token", Duration::from_secs(30))?;
    /// seconds.store(129, Ordering::SeqCst);
    /// assert!(sessions.contains("ada")?);
    /// seconds.store(130, Ordering::SeqCst);
    /// assert!(!sessions.contains("ada")?);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> StoreOptions {
        self.clock = Arc::new(Clock { now, system: StdPlatform::new() });
        self
    }

    /// The merges that are registered.
    ///
    /// # Errors
    /// [`Error::BadMerge`](crate::Error::BadMerge).
    pub(crate) fn registered(&self) -> Result<Merges> {
        Merges::of(&own(), &self.merges)
    }
}

/// What a dictionary is made with.
#[derive(Clone, Debug, Default)]
pub struct DictOptions {
    pub(crate) merge: Option<String>,
    pub(crate) is_expiring: bool,
}

impl DictOptions {
    /// A dictionary without a merge, whose values do not expire.
    pub fn new() -> DictOptions {
        DictOptions::default()
    }

    /// Binds it to a merge, by the name under which that is registered.
    #[must_use]
    pub fn merge(mut self, name: &str) -> DictOptions {
        self.merge = Some(name.into());
        self
    }

    /// Lets its values expire: see [`Dict::put_until`](crate::Dict::put_until). One that does costs 17 bytes
    /// more, and each delta of such a dictionary 12; deltas of different times are not combined. Programs
    /// with a version of this library that does not know it refuse the store
    /// ([`Error::NewerStore`](crate::Error::NewerStore)).
    #[must_use]
    pub fn expiring(mut self) -> DictOptions {
        self.is_expiring = true;
        self
    }
}
