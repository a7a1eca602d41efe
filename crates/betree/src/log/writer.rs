//! Appending to the log, and making it durable for all waiting threads at once.

use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use betree_platform::sync::{Condvar, Mutex, MutexGuard};

use super::LogArea;
use super::ring::{Place, Ring};
use crate::error::{Error, Result};
use crate::format::segment::{SegmentBuf, SegmentId, last_msn, volume_hash};
use crate::format::superblock::LogStart;
use crate::invariant::internal;
use crate::io::Disk;
use crate::planted;
use crate::stall::Writes;

/// A segment gets no further record beyond this size, in bytes.
const SEGMENT_BYTES_MAX: usize = 8 << 20;
/// A record of at least a segment's size divided by this is copied only when its segment is written: a
/// checkpoint may come first.
const SHARED_PARTS: usize = 128;

/// While someone syncs, writers wait once this much is pending, in bytes: a sync makes durable what all of
/// them wrote, and should not take long on a disk that writes some hundred megabytes a second.
const BESIDE_SYNC_BYTES_MAX: u64 = 4 << 20;
/// While syncs come often, writers write what is pending ahead of the next sync once it is this much, in
/// bytes: a few milliseconds' work on such a disk.
const AHEAD_BYTES: u64 = 1 << 20;

/// The log of an open volume. It has no thread of its own: a caller that needs durability writes and syncs
/// for all others that wait meanwhile.
///
/// Its lock is held for copies in memory only, never over a device call.
pub(crate) struct Log {
    disk: Arc<Disk>,
    log_area: LogArea,
    volume_hash: u64,
    segment_bytes_max: usize,
    /// Pending records are given up beyond this size, or twice that while syncs come often.
    pending_bytes_max: u64,
    shared: Mutex<Shared>,
    /// Notified whenever `writing`, `syncing` or a caller's sync ends.
    turn: Condvar,
    /// The number of callers that want records made durable, by the log or by a checkpoint.
    syncs_under_way: AtomicUsize,
    /// Whether the last two syncs had few bytes between them, and few came since.
    syncs_come_often: AtomicBool,
}

struct Shared {
    ring: Ring,
    /// Appended and not yet written; the last one still grows.
    pending: VecDeque<Pending>,
    pending_bytes: u64,
    /// The bytes that came since the last sync ended; [`u64::MAX`] before the first.
    bytes_since_sync: u64,
    /// If it is more than `written_msn`, some records up to this MSN were given up: only a checkpoint makes
    /// them durable, and no later record is written before that.
    given_up_msn: u64,
    /// Whether appended records are kept. They are not between giving up and the next checkpoint's capture.
    keeping: bool,
    /// A segment that found no room on the disk under the device. It has its place and number, so it must be
    /// the next one written, unless a checkpoint makes it unnecessary.
    stuck: Option<(SegmentBuf, Place)>,
    /// The memory of the last segment written, for the next.
    spare: Option<SegmentBuf>,
    /// The last MSN appended; the last one written; the last one durable.
    appended_msn: u64,
    written_msn: u64,
    durable_msn: u64,
    /// All segments below this number are durable.
    durable_seq: u64,
    /// One thread at a time writes, so that segments reach the device in order.
    writing: bool,
    /// One thread at a time syncs; others that need a sync wait for it, and it mostly serves them too.
    syncing: bool,
    /// Set once; from then on nothing becomes durable.
    failure: Option<Error>,
    counts: LogCounts,
}

/// Records that are not written yet.
enum Pending {
    /// Small records, in the form of a segment.
    Filled(SegmentBuf),
    /// A large record, shared with its batch.
    Shared { first_msn: u64, changes: u32, record: Arc<Vec<u8>> },
}

impl Pending {
    /// Its size in the log area in bytes, as a segment of its own.
    fn bytes(&self) -> usize {
        match self {
            Pending::Filled(segment) => segment.bytes(),
            Pending::Shared { record, .. } => SegmentBuf::default().bytes_with(record.len()),
        }
    }

    fn last_msn(&self) -> u64 {
        match self {
            Pending::Filled(segment) => segment.last_msn(),
            Pending::Shared { first_msn, changes, .. } => last_msn(*first_msn, *changes),
        }
    }
}

/// The writes to the log since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogCounts {
    pub segments: u64,
    pub bytes: u64,
}

impl Log {
    /// An empty log whose first segment will be `start`. Before anything is appended, the superblock must
    /// name that start, or an earlier one from which a replay reads through to it. Records are given up when
    /// more than `pending_bytes_max` bytes are in memory for the log alone.
    pub(crate) fn open_at(
        disk: Arc<Disk>,
        log_area: LogArea,
        volume_id: &[u8; 16],
        start: &LogStart,
        pending_bytes_max: u64,
    ) -> Log {
        let shared = Shared {
            ring: Ring::new(log_area.len, start),
            pending: VecDeque::new(),
            pending_bytes: 0,
            bytes_since_sync: u64::MAX,
            given_up_msn: 0,
            keeping: true,
            stuck: None,
            spare: None,
            appended_msn: 0,
            written_msn: 0,
            durable_msn: 0,
            durable_seq: start.seq,
            writing: false,
            syncing: false,
            failure: None,
            counts: LogCounts::default(),
        };
        // With segments of an eighth, little is unused at the log area's end. (Beyond the type, the other
        // bound is the lower one.)
        let eighth = usize::try_from(log_area.len / 8).unwrap_or(usize::MAX);
        Log {
            disk,
            log_area,
            volume_hash: volume_hash(volume_id),
            segment_bytes_max: SEGMENT_BYTES_MAX.min(eighth),
            pending_bytes_max,
            shared: Mutex::new(shared),
            turn: Condvar::new(),
            syncs_under_way: AtomicUsize::new(0),
            syncs_come_often: AtomicBool::new(false),
        }
    }

    /// Keeps a record to be written later; small ones are copied. Its MSNs are above all appended before, so
    /// this is called under the lock that numbers changes. Does not check for room in the log area.
    ///
    /// If so much is pending that a checkpoint is cheaper than writing it here and again in nodes, all of it
    /// is given up, with the records until the next checkpoint's capture (*late binding*, TOS §3.4, without a
    /// binding: the checkpoint alone writes a large write, once). Twice as much is kept while someone syncs,
    /// or did so not long ago: each sync would wait for a checkpoint, during which so much comes that the
    /// next one had to as well ([`wait_for_syncs`](Log::wait_for_syncs)).
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::TooLarge`]: nothing was appended.
    pub(crate) fn append(&self, first_msn: u64, changes: u32, record: &Arc<Vec<u8>>) -> Result<()> {
        let shared = &mut *self.shared.lock();
        debug_assert!(first_msn > shared.appended_msn);
        if !shared.keeping {
            SegmentBuf::refuse_too_long(record)?;
            shared.appended_msn = last_msn(first_msn, changes);
            shared.given_up_msn = shared.appended_msn;
            self.note_arrived(shared, record.len() as u64);
            return Ok(());
        }
        let before_bytes = shared.pending_bytes;
        if record.len() >= self.segment_bytes_max / SHARED_PARTS {
            SegmentBuf::refuse_too_long(record)?;
            let new = Pending::Shared { first_msn, changes, record: record.clone() };
            shared.pending_bytes += new.bytes() as u64;
            shared.pending.push_back(new);
        } else {
            shared.append_copy(first_msn, changes, record, self.segment_bytes_max)?;
        }
        shared.appended_msn = last_msn(first_msn, changes);
        self.note_arrived(shared, shared.pending_bytes - before_bytes);
        let most = match self.has_syncs() || shared.bytes_since_sync <= self.pending_bytes_max {
            true => self.pending_bytes_max.saturating_mul(2),
            false => self.pending_bytes_max,
        };
        if shared.pending_bytes > most {
            shared.abort();
        }
        Ok(())
    }

    /// Notes that a caller wants records made durable, until the guard is dropped.
    pub(crate) fn begin_sync(&self) -> SyncUnderWay<'_> {
        self.syncs_under_way.fetch_add(1, Ordering::AcqRel);
        SyncUnderWay(self)
    }

    fn has_syncs(&self) -> bool {
        self.syncs_under_way.load(Ordering::Acquire) > 0
    }

    /// Waits while someone syncs and so much is pending that the next sync would take long, or records would
    /// have to be given up. The caller does not sync itself, and holds no lock that a sync or a checkpoint
    /// needs.
    pub(crate) fn wait_for_syncs(&self, writes: Writes) {
        if !self.has_syncs() {
            return;
        }
        let mut shared = self.shared.lock();
        while self.is_backed_up(&shared, writes) {
            shared = self.turn.wait(shared);
        }
    }

    /// While syncs come often, writes for the next one what has become much since the last, without a sync.
    /// The caller holds no lock: others would wait for the device.
    pub(crate) fn write_ahead(&self, writes: Writes) {
        if !self.syncs_come_often.load(Ordering::Relaxed) {
            return;
        }
        let shared = self.shared.lock();
        let is_much = shared.pending_bytes > writes.bound(AHEAD_BYTES * 2, AHEAD_BYTES);
        if is_much && !shared.writing && !shared.has_gap() {
            // The next sync meets the error again.
            drop(self.write_pending(shared));
        }
    }

    fn is_backed_up(&self, shared: &Shared, writes: Writes) -> bool {
        let most_bytes = self.pending_bytes_max.min(BESIDE_SYNC_BYTES_MAX);
        let most_bytes = writes.bound(most_bytes.saturating_add(most_bytes / 2), most_bytes);
        self.has_syncs() && shared.pending_bytes > most_bytes && shared.failure.is_none()
    }

    /// Notes the bytes of a record that came.
    fn note_arrived(&self, shared: &mut Shared, bytes: u64) {
        if !self.has_syncs() {
            shared.bytes_since_sync = shared.bytes_since_sync.saturating_add(bytes);
            if shared.bytes_since_sync > self.pending_bytes_max {
                self.syncs_come_often.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Notes a change that no record names: only a checkpoint makes it durable, and the records before it and
    /// until the next checkpoint's capture are given up with it. Called as [`append`](Log::append).
    pub(crate) fn give_up(&self, msn: u64) {
        let shared = &mut *self.shared.lock();
        debug_assert!(msn > shared.appended_msn);
        shared.appended_msn = msn;
        shared.abort();
    }

    /// Keeps records again from now on. The caller is capturing a checkpoint that holds all earlier ones;
    /// until it is durable, nothing is written.
    pub(crate) fn keep_again(&self) {
        self.shared.lock().keeping = true;
    }

    /// Returns when every record appended before the call, up to `msn`, is durable. If they are already, this
    /// calls no device; else it costs one write and one sync, shared by all waiting threads. `false` if only
    /// a checkpoint can make them durable, because some were given up.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the log area has no room: the records stay in memory, and the call may be
    /// repeated after a [`trim_to`](Log::trim_to). [`Error::Device`] or [`Error::ReadOnly`] after a failure:
    /// nothing becomes durable any more.
    pub(crate) fn sync_to(&self, msn: u64) -> Result<bool> {
        let mut shared = self.shared.lock();
        let msn = msn.min(shared.appended_msn);
        loop {
            if shared.durable_msn >= msn {
                return Ok(true);
            }
            if let Some(failure) = &shared.failure {
                return Err(failure.clone());
            }
            if shared.has_gap() {
                return Ok(false);
            }
            if !shared.syncing {
                break;
            }
            shared = self.turn.wait(shared);
        }
        shared.syncing = true;
        let (mut shared, result) = self.write_and_sync(shared, msn);
        shared.syncing = false;
        let is_durable = shared.durable_msn >= msn;
        drop(shared);
        self.turn.notify_all();
        result.map(|()| is_durable)
    }

    /// Writes all pending records without a sync: the state between the two.
    #[cfg(test)]
    pub(crate) fn write_out(&self) -> Result<()> {
        self.write_pending(self.shared.lock()).1
    }

    fn write_and_sync<'s>(
        &'s self,
        shared: MutexGuard<'s, Shared>,
        msn: u64,
    ) -> (MutexGuard<'s, Shared>, Result<()>) {
        let (shared, written) = self.write_pending(shared);
        match written {
            // Only later records found no room.
            Err(Error::NoSpace | Error::DeviceFull(_)) if shared.written_msn >= msn => {}
            Err(e) => return (shared, Err(e)),
            Ok(()) => {}
        }
        // Only segments written before the sync began count, because another thread may write meanwhile. No
        // thread is writing at this moment, so every numbered segment is written.
        let written = (shared.written_msn, shared.ring.next_seq());
        drop(shared);
        let synced = if planted::is(planted::Bug::LogNotSynced) { Ok(()) } else { self.disk.sync() };
        let mut shared = self.shared.lock();
        match &synced {
            Ok(()) => {
                shared.durable_msn = shared.durable_msn.max(written.0);
                shared.durable_seq = written.1;
            }
            Err(e) => shared.fail(e),
        }
        (shared, synced)
    }

    /// Writes the records that are pending at the time of the call, in order, one segment after the other,
    /// unless they are given up meanwhile.
    fn write_pending<'s>(
        &'s self,
        mut shared: MutexGuard<'s, Shared>,
    ) -> (MutexGuard<'s, Shared>, Result<()>) {
        while shared.writing {
            shared = self.turn.wait(shared);
        }
        if let Some(failure) = &shared.failure {
            let failure = failure.clone();
            return (shared, Err(failure));
        }
        shared.writing = true;
        let target = shared.appended_msn;
        let mut result = Ok(());
        while result.is_ok() && shared.written_msn < target && !shared.has_gap() {
            (shared, result) = self.write_first(shared);
        }
        shared.writing = false;
        self.turn.notify_all();
        (shared, result)
    }

    fn write_first<'s>(&'s self, mut shared: MutexGuard<'s, Shared>) -> (MutexGuard<'s, Shared>, Result<()>) {
        let (mut segment, place) = match shared.next_segment(self.segment_bytes_max) {
            Ok(next) => next,
            Err(error) => return (shared, Err(error)),
        };
        let bytes = segment.bytes() as u64;
        let id = SegmentId {
            volume_hash: self.volume_hash,
            epoch: shared.ring.epoch(),
            seq: place.seq,
            durable_seq: shared.durable_seq,
        };
        drop(shared);
        let written = self.disk.write_at(self.log_area.offset + place.position, segment.seal(&id));
        let mut shared = self.shared.lock();
        match &written {
            Ok(()) => {
                shared.written_msn = shared.written_msn.max(segment.last_msn());
                segment.clear();
                shared.counts.segments += 1;
                shared.counts.bytes += bytes;
                if segment.capacity() <= 2 * self.segment_bytes_max {
                    shared.spare = Some(segment);
                }
            }
            Err(Error::DeviceFull(_)) => shared.stuck = Some((segment, place)),
            Err(e) => shared.fail(e),
        }
        (shared, written)
    }

    /// The start of a replay that needs all changes from `first_unapplied_msn` on: for the superblock of a
    /// checkpoint that holds everything before it.
    pub(crate) fn start_for(&self, first_unapplied_msn: u64) -> LogStart {
        self.shared.lock().ring.start_for(first_unapplied_msn)
    }

    /// Frees the segments before `start`, which came from [`start_for`](Log::start_for) and is in a
    /// superblock that is durable in both copies.
    pub(crate) fn trim_to(&self, start: &LogStart) {
        self.shared.lock().ring.trim_to(start);
    }

    /// Drops pending records before `first_unapplied_msn`: a durable superblock names a checkpoint that holds
    /// them.
    pub(crate) fn forget_before(&self, first_unapplied_msn: u64) {
        let shared = &mut *self.shared.lock();
        while shared.pending.front().is_some_and(|pending| pending.last_msn() < first_unapplied_msn) {
            let Some(pending) = shared.pending.pop_front() else { break };
            shared.pending_bytes -= pending.bytes() as u64;
            if let Pending::Filled(mut segment) = pending {
                segment.clear();
                shared.spare.get_or_insert(segment);
            }
        }
        // 0 is no message's number, so nothing is before the first.
        let durable = first_unapplied_msn.saturating_sub(1).min(shared.appended_msn);
        shared.written_msn = shared.written_msn.max(durable);
        shared.durable_msn = shared.durable_msn.max(durable);
    }

    /// The log area's size in bytes.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.log_area.len
    }

    /// Bytes of the log area that are in use, or will be when the pending records are written.
    pub(crate) fn used_bytes(&self) -> u64 {
        let shared = self.shared.lock();
        shared.ring.used_bytes() + shared.pending_bytes
    }

    /// Whether a record of about `bytes` should wait for room: the log area is three quarters full, or seven
    /// eighths for who writes little.
    pub(crate) fn is_crowded(&self, bytes: u64, writes: Writes) -> bool {
        let beside_bytes = writes.bound(self.log_area.len / 8, self.log_area.len / 4);
        self.free_beside(&self.shared.lock()) < beside_bytes + bytes
    }

    /// Whether [`wait_for_syncs`](Log::wait_for_syncs) would wait.
    #[cfg(test)]
    pub(crate) fn has_too_much_pending(&self, writes: Writes) -> bool {
        self.is_backed_up(&self.shared.lock(), writes)
    }

    /// The free bytes of the log area. While they are at least half of it, a record of almost a quarter finds
    /// room: the log area's end may cut that half in two parts, and the larger one is at least a quarter.
    fn free_beside(&self, shared: &Shared) -> u64 {
        // What is pending may be more than there is room for.
        self.log_area.len.saturating_sub(shared.ring.used_bytes() + shared.pending_bytes)
    }

    /// The free bytes of the log area.
    #[cfg(test)]
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_beside(&self.shared.lock())
    }

    /// Bytes in memory that no device write has taken yet.
    #[cfg(test)]
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.shared.lock().pending_bytes
    }

    /// The last MSN that this log has made durable; 0 before its first sync.
    #[cfg(test)]
    pub(crate) fn durable_msn(&self) -> u64 {
        self.shared.lock().durable_msn
    }

    /// The writes since it was opened.
    pub(crate) fn counts(&self) -> LogCounts {
        self.shared.lock().counts
    }
}

/// A caller wants records made durable; see [`Log::begin_sync`].
pub(crate) struct SyncUnderWay<'l>(&'l Log);

impl Drop for SyncUnderWay<'_> {
    fn drop(&mut self) {
        let SyncUnderWay(log) = self;
        let mut shared = log.shared.lock();
        let is_soon = shared.bytes_since_sync <= log.pending_bytes_max;
        log.syncs_come_often.store(is_soon, Ordering::Relaxed);
        shared.bytes_since_sync = 0;
        // Under the lock, so that no thread looks before and waits afterwards.
        log.syncs_under_way.fetch_sub(1, Ordering::AcqRel);
        drop(shared);
        log.turn.notify_all();
    }
}

impl Shared {
    /// Whether records were given up that no checkpoint holds yet.
    fn has_gap(&self) -> bool {
        self.given_up_msn > self.written_msn
    }

    /// Gives up all pending records.
    fn abort(&mut self) {
        self.given_up_msn = self.appended_msn;
        self.keeping = false;
        self.pending_bytes = 0;
        self.pending.clear();
    }

    fn append_copy(&mut self, first_msn: u64, changes: u32, record: &[u8], bytes_max: usize) -> Result<()> {
        let fits = |last: &SegmentBuf| last.bytes_with(record.len()) <= bytes_max;
        if !matches!(self.pending.back(), Some(Pending::Filled(last)) if fits(last)) {
            let fresh = self.spare.take().unwrap_or_default();
            self.pending.push_back(Pending::Filled(fresh));
        }
        let Some(Pending::Filled(last)) = self.pending.back_mut() else {
            return Err(internal!("a copied record has a segment"));
        };
        let before = last.bytes();
        let pushed = last.push(first_msn, changes, record);
        self.pending_bytes += (last.bytes() - before) as u64;
        if last.bytes() == 0
            && let Some(Pending::Filled(unused)) = self.pending.pop_back()
        {
            self.spare = Some(unused);
        }
        pushed
    }

    /// The next segment to write, and its place. After an error everything is as it was.
    fn next_segment(&mut self, bytes_max: usize) -> Result<(SegmentBuf, Place)> {
        if let Some((segment, place)) = self.stuck.take()
            && self.ring.is_live(place.seq)
        {
            return Ok((segment, place));
        }
        let segment = self.take_segment(bytes_max)?;
        let bytes = segment.bytes() as u64;
        match self.ring.place(bytes, segment.last_msn()) {
            Some(place) => Ok((segment, place)),
            None => {
                self.pending_bytes += bytes;
                self.pending.push_front(Pending::Filled(segment));
                Err(Error::NoSpace)
            }
        }
    }

    /// Takes the records of the next segment: the first pending ones, and large ones behind them while there
    /// is room. After an error everything is still pending.
    fn take_segment(&mut self, bytes_max: usize) -> Result<SegmentBuf> {
        let mut segment = match self.pending.pop_front() {
            Some(Pending::Filled(segment)) => {
                self.pending_bytes -= segment.bytes() as u64;
                segment
            }
            Some(large) => {
                self.pending.push_front(large);
                self.spare.take().unwrap_or_default()
            }
            // A segment leaves the list only to be written or to fail.
            None => return Err(internal!("records that are to be written are pending")),
        };
        while let Some(Pending::Shared { first_msn, changes, record }) = self.pending.front() {
            if segment.bytes() > 0 && segment.bytes_with(record.len()) > bytes_max {
                break;
            }
            if let Err(error) = segment.push(*first_msn, *changes, record) {
                if segment.bytes() == 0 {
                    return Err(error);
                }
                break;
            }
            if let Some(large) = self.pending.pop_front() {
                self.pending_bytes -= large.bytes() as u64;
            }
        }
        Ok(segment)
    }

    fn fail(&mut self, cause: &Error) {
        let failure = match cause {
            Error::ReadOnly { .. } => cause.clone(),
            other => Error::ReadOnly { why: other.to_string() },
        };
        self.failure.get_or_insert(failure);
    }
}
