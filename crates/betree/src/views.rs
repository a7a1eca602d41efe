//! Views: one moment of all dictionaries, for readers.
//!
//! A view is the last number that it sees and, for each dictionary, an *epoch*. An epoch ends when a memtable
//! comes to the root and when ranges change; all other changes of a tree leave its contents as they are, so a
//! view may read their result. Whoever looks at nodes ends it too (`Engine::fix_versions`), which no reader
//! of contents notices. What a view needs stays: in memtables, entries that newer ones would replace;
//! of a tree, the versions of nodes that were current at the end of an epoch which a view names.
//! `docs/spec/views.py` is a model of these rules.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};

use betree_platform::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::expiry::TimeNs;
use crate::format::superblock::DICTS_MAX;
use crate::message::Msn;
use crate::planted::{self, Bug};

/// Counts the epochs of a dictionary.
pub(crate) type Epoch = u64;

/// What a reader sees of one dictionary.
#[derive(Clone, Copy)]
pub(crate) struct Moment<'v> {
    /// Nothing newer is seen of memtables.
    pub msn: Msn,
    /// The tree is seen as of the end of this epoch.
    pub epoch: Epoch,
    /// The time by which values have expired; `None` for that of each read.
    pub time_ns: Option<TimeNs>,
    /// Whether the view has lost what it held.
    ended: Option<&'v AtomicBool>,
}

impl Moment<'_> {
    /// The newest of everything.
    pub const NEWEST: Moment<'static> =
        Moment { msn: Msn::MAX, epoch: Epoch::MAX, time_ns: None, ended: None };

    /// Refuses a view that has lost what it held. Called under the lock of the state that is read next.
    ///
    /// # Errors
    /// [`Error::ViewEnded`].
    pub fn refuse_if_ended(&self) -> Result<()> {
        match self.ended {
            Some(ended) if ended.load(Ordering::Acquire) => Err(Error::ViewEnded),
            _ => Ok(()),
        }
    }
}

/// The numbers that live views see, each with how many views see up to it.
#[derive(Default)]
pub(crate) struct Seen(BTreeMap<Msn, u32>);

impl Seen {
    /// Whether there is no view.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The least number.
    pub fn first(&self) -> Option<Msn> {
        self.0.keys().next().copied()
    }

    /// Whether a view has its number in `[from, until)`.
    pub fn between(&self, from: Msn, until: Msn) -> bool {
        !self.0.is_empty() && from < until && self.0.range(from..until).next().is_some()
    }

    /// Adds a view.
    pub fn add(&mut self, msn: Msn) {
        *self.0.entry(msn).or_default() += 1;
    }

    /// Takes a view out.
    pub fn remove(&mut self, msn: Msn) {
        if let Some(count) = self.0.get_mut(&msn) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&msn);
            }
        }
    }
}

/// The epochs of one dictionary that live views name, each with the number of such views and the last number
/// that one of them sees.
#[derive(Default)]
pub(crate) struct Named(BTreeMap<Epoch, (u32, Msn)>);

impl Named {
    /// Whether a view names an epoch in `[from, until)`.
    pub fn between(&self, from: Epoch, until: Epoch) -> bool {
        !self.0.is_empty() && from < until && self.0.range(from..until).next().is_some()
    }

    /// Whether a view that names `epoch` or an earlier one may see the number. Later epochs see later ones.
    pub fn sees(&self, epoch: Epoch, msn: Msn) -> bool {
        !self.0.is_empty() && self.0.range(..=epoch).next_back().is_some_and(|(_, (_, last))| *last >= msn)
    }

    /// Whether no view is live.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a view.
    pub fn add(&mut self, epoch: Epoch, msn: Msn) {
        let (count, last) = self.0.entry(epoch).or_default();
        *count += 1;
        *last = (*last).max(msn);
    }

    /// Takes a view out.
    pub fn remove(&mut self, epoch: Epoch) {
        if let Some((count, _)) = self.0.get_mut(&epoch) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&epoch);
            }
        }
    }
}

/// A live view.
pub(crate) struct Live {
    pub msn: Msn,
    pub epochs: [Epoch; DICTS_MAX],
    /// The time at which it began; `None` without a clock.
    pub time_ns: Option<TimeNs>,
    pub has_ended: AtomicBool,
    /// Whether changes that come meanwhile are remembered for its commit.
    pub is_of_transaction: bool,
    /// Tells the oldest from the youngest.
    number: u64,
}

impl Live {
    /// What it sees of a dictionary.
    pub fn moment(&self, dict: usize) -> Moment<'_> {
        let epoch = self.epochs.get(dict).copied().unwrap_or(Epoch::MAX);
        let time_ns = self.time_ns.filter(|_| !planted::is(Bug::ViewsExpireByNow));
        Moment { msn: self.msn, epoch, time_ns, ended: Some(&self.has_ended) }
    }
}

/// What the next view will see, and the live views. Its lock comes after that of commits and before those of
/// the dictionaries' states. Whoever changes what is seen holds it while he does: a view begins before or
/// after a batch, and before or after the end of an epoch. Nothing under it reads the device.
pub(crate) struct Views {
    /// The last number of the last batch that is in the memtables as a whole.
    pub visible: Msn,
    pub epochs: [Epoch; DICTS_MAX],
    pub seen: Seen,
    live: BTreeMap<u64, Weak<Live>>,
    begun: u64,
}

impl Views {
    /// Of a volume whose next change has this number.
    pub fn new(next_msn: Msn) -> Views {
        Views {
            visible: next_msn.saturating_sub(1),
            epochs: [0; DICTS_MAX],
            seen: Seen::default(),
            live: BTreeMap::new(),
            begun: 0,
        }
    }

    /// Begins a view that reads by a time.
    pub fn begin(&mut self, is_of_transaction: bool, time_ns: Option<TimeNs>) -> Arc<Live> {
        self.begun += 1;
        let (msn, epochs, number) = (self.visible, self.epochs, self.begun);
        let has_ended = AtomicBool::new(false);
        let live = Arc::new(Live { msn, epochs, time_ns, has_ended, is_of_transaction, number });
        self.seen.add(msn);
        self.live.insert(number, Arc::downgrade(&live));
        live
    }

    /// Forgets a view; `false` if that was done already.
    pub fn end(&mut self, live: &Live) -> bool {
        let was_live = self.live.remove(&live.number).is_some();
        if was_live {
            self.seen.remove(live.msn);
        }
        was_live
    }

    /// The live view that began first.
    pub fn oldest(&self) -> Option<Arc<Live>> {
        self.live.values().find_map(Weak::upgrade)
    }

    /// The earliest time by which a live view reads: what has expired by then, no view sees. Views begin in
    /// the order of their times, but for later ones of a transaction, whose first one lives.
    pub fn earliest_ns(&self) -> Option<TimeNs> {
        self.oldest()?.time_ns
    }

    /// The number of live views.
    pub fn count(&self) -> usize {
        self.live.len()
    }
}
