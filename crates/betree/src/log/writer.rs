//! Appending to the log, and making it durable for all who wait at once.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::{Condvar, Mutex, MutexGuard};

use super::LogArea;
use super::ring::{Place, Ring};
use crate::error::{Error, Result};
use crate::format::segment::{SegmentBuf, SegmentId, last_msn, volume_hash};
use crate::format::superblock::LogStart;
use crate::io::Disk;
use crate::planted;

/// A segment gets no further record beyond this size, in bytes.
const SEGMENT_BYTES_MAX: usize = 8 << 20;
/// A record of at least this part of a segment is copied into one when that is written, and not
/// before: a checkpoint may come first.
const SHARED_PARTS: usize = 128;

/// The log of an open volume. It has no thread: whoever needs something durable writes and syncs for
/// all others that wait meanwhile.
///
/// Its lock is held for copies in memory only, never over a device call.
pub(crate) struct Log {
    disk: Arc<Disk>,
    log_area: LogArea,
    volume_hash: u64,
    segment_bytes_max: usize,
    /// What is pending is given up beyond this.
    pending_bytes_max: u64,
    shared: Mutex<Shared>,
    /// Notified whenever `writing` or `syncing` ends.
    turn: Condvar,
}

struct Shared {
    ring: Ring,
    /// Appended and not given to the device; the last one still grows.
    pending: VecDeque<Pending>,
    pending_bytes: u64,
    /// Of the records up to this MSN some were given up, if it is more than `written_msn`: only a
    /// checkpoint makes them durable, and none behind them is written before.
    given_up_msn: u64,
    /// Whether appended records are kept; not between giving up and the next checkpoint's moment.
    keeping: bool,
    /// A segment that found no room on the disk under the device. It has its place and number, so it is the
    /// next to be written there, unless nobody needs it any more.
    stuck: Option<(SegmentBuf, Place)>,
    /// The memory of the last segment written, for the next.
    spare: Option<SegmentBuf>,
    /// The last MSN appended; of it, written; of it, durable.
    appended_msn: u64,
    written_msn: u64,
    durable_msn: u64,
    /// All segments below this number are durable.
    durable_seq: u64,
    /// One thread at a time writes, so that segments reach the device in order.
    writing: bool,
    /// One thread at a time syncs; others that need a sync wait for it and are mostly served by it.
    syncing: bool,
    /// Set once; from then on nothing becomes durable.
    failure: Option<Error>,
    counts: LogCounts,
}

/// Records that no device write has taken.
enum Pending {
    /// Small ones, in the form of a segment.
    Filled(SegmentBuf),
    /// A large one, shared with the batch that it came in.
    Shared { first_msn: u64, changes: u32, record: Arc<Vec<u8>> },
}

impl Pending {
    /// What it takes in the log area in bytes, as a segment of its own.
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

/// What was written to the log since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogCounts {
    pub segments: u64,
    pub bytes: u64,
}

impl Log {
    /// An empty log whose first segment will be `start`. The superblock names that start, or an
    /// earlier one that a replay reads through to it, before anything is appended. When more than
    /// `pending_bytes_max` is in memory for it alone, that is given up.
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
        // A segment of an eighth leaves little unused before the log area's end.
        let eighth = usize::try_from(log_area.len / 8).unwrap_or(usize::MAX);
        Log {
            disk,
            log_area,
            volume_hash: volume_hash(volume_id),
            segment_bytes_max: SEGMENT_BYTES_MAX.min(eighth),
            pending_bytes_max,
            shared: Mutex::new(shared),
            turn: Condvar::new(),
        }
    }

    /// Keeps a record to be written later: small ones are copied. Its MSNs are above all appended
    /// before, so it is called where MSNs are given out. Room in the log area is not looked at.
    ///
    /// Where so much is pending that writing it here and then in nodes would be dearer than a
    /// checkpoint, it is given up, and with it what comes until the next checkpoint's moment (*late
    /// binding*, TOS §3.4, without a binding: a large write is written once, by the checkpoint).
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
            return Ok(());
        }
        if record.len() >= self.segment_bytes_max / SHARED_PARTS {
            SegmentBuf::refuse_too_long(record)?;
            let new = Pending::Shared { first_msn, changes, record: record.clone() };
            shared.pending_bytes += new.bytes() as u64;
            shared.pending.push_back(new);
        } else {
            shared.append_copy(first_msn, changes, record, self.segment_bytes_max)?;
        }
        shared.appended_msn = last_msn(first_msn, changes);
        if shared.pending_bytes > self.pending_bytes_max {
            shared.abort();
        }
        Ok(())
    }

    /// Keeps again what is appended from now on. A checkpoint that holds all that came before is to
    /// follow; until it has come, nothing is written.
    pub(crate) fn keep_again(&self) {
        self.shared.lock().keeping = true;
    }

    /// Returns when every record appended before the call, up to `msn`, is durable. Where they are
    /// already, the device is not asked; else it costs one write and one sync, shared by all who wait.
    /// `false` where only a checkpoint can make them so, because some were given up.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where the log area has no room: the records stay in memory, and the call may
    /// be repeated after a [`trim_to`](Log::trim_to). [`Error::Device`] or [`Error::ReadOnly`] after
    /// a failure: nothing becomes durable any more.
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

    /// Gives what is pending to the device without a sync, as it is between the two.
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
            // Later records found no room; those that this caller needs did.
            Err(Error::NoSpace | Error::DeviceFull(_)) if shared.written_msn >= msn => {}
            Err(e) => return (shared, Err(e)),
            Ok(()) => {}
        }
        // Only what was written before the sync began counts: a write-out may go on beside it.
        // Nobody is writing at this moment, so every segment that has a number is written.
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

    /// Writes what is pending at the time of the call, in order, one segment after the other, as far
    /// as it is not given up meanwhile.
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

    /// Where a replay begins that needs all changes from `first_unapplied_msn` on: for the
    /// superblock of a checkpoint that holds everything before it.
    pub(crate) fn start_for(&self, first_unapplied_msn: u64) -> LogStart {
        self.shared.lock().ring.start_for(first_unapplied_msn)
    }

    /// Frees the segments before `start`, which came from [`start_for`](Log::start_for) and stands
    /// in a superblock that is durable in both copies.
    pub(crate) fn trim_to(&self, start: &LogStart) {
        self.shared.lock().ring.trim_to(start);
    }

    /// Drops what is pending before `first_unapplied_msn`: a durable superblock names a checkpoint
    /// that holds it all, so it need not be written here any more.
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
        let durable = first_unapplied_msn.saturating_sub(1).min(shared.appended_msn);
        shared.written_msn = shared.written_msn.max(durable);
        shared.durable_msn = shared.durable_msn.max(durable);
    }

    /// The log area's size in bytes.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.log_area.len
    }

    /// Bytes of the log area that are in use or will be by what is pending.
    pub(crate) fn used_bytes(&self) -> u64 {
        let shared = self.shared.lock();
        shared.ring.used_bytes() + shared.pending_bytes
    }

    /// What is left of the log area. While it is at least half of it, a record of
    /// almost a quarter finds room: of the two parts into which the log area's end may cut that half,
    /// one is a quarter at least.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.log_area.len.saturating_sub(self.used_bytes())
    }

    /// Bytes in memory that no device write has taken yet.
    #[cfg(test)]
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.shared.lock().pending_bytes
    }

    /// The last MSN that is durable by this log; 0 before its first sync.
    #[cfg(test)]
    pub(crate) fn durable_msn(&self) -> u64 {
        self.shared.lock().durable_msn
    }

    /// What was written since it was opened.
    pub(crate) fn counts(&self) -> LogCounts {
        self.shared.lock().counts
    }
}

impl Shared {
    /// Whether something was given up that no checkpoint holds yet.
    fn has_gap(&self) -> bool {
        self.given_up_msn > self.written_msn
    }

    /// Lets go of all that is pending.
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
        let Some(Pending::Filled(last)) = self.pending.back_mut() else { return Ok(()) };
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

    /// The segment that is to be written next, with its place. On an error everything is as it was.
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

    /// Takes what the next segment is to hold: what is pending first, and large records behind it as
    /// far as there is room. On an error everything is pending still.
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
            // Never while `written_msn` trails: a segment leaves the list to be written or to fail.
            None => return Err(Error::ReadOnly { why: String::from("a segment of the log is gone") }),
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
