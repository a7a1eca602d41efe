//! The simulated disk with faults: calls that fail, blocks that cannot be read, bits that flip, writes that
//! are acknowledged and never done.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use betree_platform::{BLOCK_BYTES, Device, DeviceError, DeviceOp};
use betree_sim::{EIO, ENOSPC, SimDisk};
use seeded::Rng;

/// Number of blocks that count as written lately.
const LATELY_MAX: usize = 24;

/// A fault of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A read fails, once or from then on; a short one has filled a part of the buffer.
    Read {
        /// Which read from now on, counted from 1.
        call: u64,
        /// Whether all later ones fail too.
        lasting: bool,
    },
    /// A write fails and does a part of its work.
    Write {
        /// Which write from now on.
        call: u64,
        /// Whether all later ones fail too.
        lasting: bool,
    },
    /// A sync fails and loses a part of what waited, and no later sync tells.
    Sync {
        /// Which sync from now on.
        call: u64,
    },
    /// The disk under the volume is full from a write on, until it is healed.
    Full {
        /// Which write from now on.
        call: u64,
    },
    /// A call takes long.
    Slow {
        /// Which write from now on.
        call: u64,
        /// Seconds.
        secs: u32,
    },
    /// A block that was written cannot be read any more until it is written again.
    BadBlock {
        /// Chooses the block.
        seed: u64,
    },
    /// A bit of a block that was written flips.
    Rot {
        /// Chooses the block and the bit.
        seed: u64,
    },
    /// A write is acknowledged and never done.
    LostWrite {
        /// Which write from now on.
        call: u64,
    },
}

impl Fault {
    /// Whether stored data are lost by it.
    pub fn damages(self) -> bool {
        matches!(self, Fault::BadBlock { .. } | Fault::Rot { .. } | Fault::LostWrite { .. })
    }

    /// The name of its kind.
    pub fn kind(self) -> &'static str {
        match self {
            Fault::Read { .. } => "fault: read",
            Fault::Write { .. } => "fault: write",
            Fault::Sync { .. } => "fault: sync",
            Fault::Full { .. } => "fault: full disk",
            Fault::Slow { .. } => "fault: slow call",
            Fault::BadBlock { .. } => "fault: bad block",
            Fault::Rot { .. } => "fault: flipped bit",
            Fault::LostWrite { .. } => "fault: lost write",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |lasting: bool| if lasting { " and all later ones" } else { "" };
        match *self {
            Fault::Read { call, lasting } => write!(f, "read {call}{} will fail", on(lasting)),
            Fault::Write { call, lasting } => write!(f, "write {call}{} will fail", on(lasting)),
            Fault::Sync { call } => write!(f, "sync {call} will fail"),
            Fault::Full { call } => write!(f, "the disk will be full from write {call} on"),
            Fault::Slow { call, secs } => write!(f, "write {call} will take {secs} s"),
            Fault::BadBlock { seed } => write!(f, "a block cannot be read any more (seed {seed})"),
            Fault::Rot { seed } => write!(f, "a bit flips (seed {seed})"),
            Fault::LostWrite { call } => write!(f, "write {call} will be lost"),
        }
    }
}

/// A disk with faults.
pub struct Drive {
    disk: SimDisk,
    /// Behind superblocks and log, in bytes.
    first_extent: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    fault: Option<Fault>,
    /// Number of calls until the fault strikes, including that one.
    calls_left: u64,
    has_struck: bool,
    /// The time that slow calls took.
    waited_ns: i64,
    /// The block numbers that were written.
    written: BTreeSet<u64>,
    /// Those of them that were written last, behind the log.
    lately: VecDeque<u64>,
    /// Those that cannot be read.
    bad: BTreeSet<u64>,
    /// Where data were lost, in bytes.
    damaged_at: Vec<u64>,
}

impl Drive {
    /// A disk without faults; `first_extent` is the first byte behind superblocks and log.
    pub fn new(disk: SimDisk, first_extent: u64) -> Drive {
        Drive { disk, first_extent, state: Mutex::default() }
    }

    /// The disk below.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// The disk after a crash: bad blocks stay bad.
    pub fn crash(&self, seed: u64) -> Drive {
        let state = self.lock();
        let left = State {
            written: state.written.clone(),
            lately: state.lately.clone(),
            bad: state.bad.clone(),
            damaged_at: state.damaged_at.clone(),
            ..State::default()
        };
        Drive { disk: self.disk.crash(seed), first_extent: self.first_extent, state: Mutex::new(left) }
    }

    /// Sets a fault, in place of one that has not struck yet.
    pub fn set(&self, fault: Fault) {
        let mut state = self.lock();
        state.calls_left = match fault {
            Fault::Read { call, .. } | Fault::Write { call, .. } | Fault::Full { call } => call,
            Fault::Slow { call, .. } | Fault::LostWrite { call } => call,
            Fault::Sync { call } => {
                self.disk.fail_sync_at(call);
                call
            }
            Fault::BadBlock { seed } | Fault::Rot { seed } => return self.damage(&mut state, fault, seed),
        };
        state.fault = Some(fault);
    }

    /// Ends the faults that are not damages.
    pub fn heal(&self) {
        let mut state = self.lock();
        (state.fault, state.has_struck) = (None, false);
    }

    /// The time that slow calls have taken since the last question. It passes between two steps, because the
    /// model has one time for each.
    pub fn take_waited_ns(&self) -> i64 {
        std::mem::take(&mut self.lock().waited_ns)
    }

    /// Takes a fault away that has not struck yet, to be set again.
    pub fn put_off(&self) -> Option<Fault> {
        let mut state = self.lock();
        if state.has_struck { None } else { state.fault.take() }
    }

    /// Whether a fault has struck since the last healing.
    pub fn has_struck(&self) -> bool {
        self.lock().has_struck || self.disk.has_failed()
    }

    /// Where stored data were lost, in bytes from the beginning of the disk.
    pub fn damaged_at(&self) -> Vec<u64> {
        self.lock().damaged_at.clone()
    }

    fn damage(&self, state: &mut State, fault: Fault, seed: u64) {
        let mut rng = Rng::new(seed);
        // Mostly of a node that was written lately.
        let blocks: Vec<u64> = match rng.percent(70) {
            true => state.lately.iter().copied().collect(),
            false => state.written.iter().copied().collect(),
        };
        if blocks.is_empty() {
            return;
        }
        let block = *rng.pick(&blocks);
        let offset = block * BLOCK_BYTES as u64;
        match fault {
            Fault::BadBlock { .. } => drop(state.bad.insert(block)),
            _ => self.disk.rot(offset + rng.below(BLOCK_BYTES) as u64, rng.below(8) as u8),
        }
        state.has_struck = true;
        state.damaged_at.push(offset);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call that a fault may strike; returns the fault if it does.
    fn struck(&self, fits: impl Fn(Fault) -> bool) -> Option<Fault> {
        let mut state = self.lock();
        let fault = state.fault.filter(|fault| fits(*fault))?;
        state.calls_left = state.calls_left.saturating_sub(1);
        if state.calls_left > 0 {
            return None;
        }
        state.has_struck = true;
        let goes_on = matches!(
            fault,
            Fault::Full { .. } | Fault::Read { lasting: true, .. } | Fault::Write { lasting: true, .. }
        );
        if !goes_on {
            state.fault = None;
        }
        Some(fault)
    }
}

fn blocks_of(offset: u64, len: usize) -> std::ops::Range<u64> {
    let block = BLOCK_BYTES as u64;
    offset / block..(offset + len as u64).div_ceil(block)
}

impl Device for Drive {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let failed = DeviceError { op: DeviceOp::Read, offset, len: buf.len() as u64, errno: EIO };
        if self.struck(|fault| matches!(fault, Fault::Read { .. })).is_some() {
            // A short read: half of the bytes came.
            let half = buf.len() / 2 / BLOCK_BYTES * BLOCK_BYTES;
            self.disk.read_at(offset, &mut buf[..half])?;
            return Err(failed);
        }
        if self.lock().bad.range(blocks_of(offset, buf.len())).next().is_some() {
            return Err(failed);
        }
        self.disk.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        let failed = |errno| Err(DeviceError { op: DeviceOp::Write, offset, len: buf.len() as u64, errno });
        let is_of_writes = |fault| !matches!(fault, Fault::Read { .. } | Fault::Sync { .. });
        let half = buf.len() / 2 / BLOCK_BYTES * BLOCK_BYTES;
        match self.struck(is_of_writes) {
            Some(Fault::LostWrite { .. }) => {
                self.lock().damaged_at.push(offset);
                return Ok(());
            }
            Some(Fault::Slow { secs, .. }) => self.lock().waited_ns += i64::from(secs) * 1_000_000_000,
            Some(fault) => {
                self.disk.write_at(offset, &buf[..half])?;
                return failed(if matches!(fault, Fault::Full { .. }) { ENOSPC } else { EIO });
            }
            None => {}
        }
        self.disk.write_at(offset, buf)?;
        let mut state = self.lock();
        for block in blocks_of(offset, buf.len()) {
            state.written.insert(block);
            if offset >= self.first_extent {
                state.lately.push_back(block);
            }
            state.bad.remove(&block);
        }
        let more = state.lately.len().saturating_sub(LATELY_MAX);
        state.lately.drain(..more);
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.disk.sync()
    }

    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn grow(&self, len: u64) -> Result<u64, DeviceError> {
        self.disk.grow(len)
    }

    fn seeks(&self) -> bool {
        self.disk.seeks()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.disk.discard(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: [u8; BLOCK_BYTES] = [7; BLOCK_BYTES];

    fn drive() -> Drive {
        let drive = Drive::new(SimDisk::new(1 << 20), 0);
        drive.write_at(0, &BLOCK).unwrap();
        drive
    }

    fn first_byte(drive: &Drive) -> Result<u8, i32> {
        let mut buf = [0; BLOCK_BYTES];
        drive.read_at(0, &mut buf).map(|()| buf[0]).map_err(|error| error.errno)
    }

    #[test]
    fn calls_fail_when_they_are_to_and_heal() {
        let drive = drive();
        drive.set(Fault::Read { call: 2, lasting: false });
        assert_eq!((first_byte(&drive), first_byte(&drive), first_byte(&drive)), (Ok(7), Err(EIO), Ok(7)));
        drive.set(Fault::Read { call: 1, lasting: true });
        assert_eq!((first_byte(&drive), first_byte(&drive)), (Err(EIO), Err(EIO)));
        assert!(drive.has_struck());
        drive.heal();
        assert_eq!((first_byte(&drive), drive.has_struck()), (Ok(7), false));
        drive.set(Fault::Full { call: 1 });
        assert_eq!(drive.write_at(0, &BLOCK).unwrap_err().errno, ENOSPC);
        drive.sync().unwrap();
    }

    #[test]
    fn damage_stays_until_it_is_written_over() {
        let lost = drive();
        lost.set(Fault::LostWrite { call: 1 });
        lost.write_at(0, &[9; BLOCK_BYTES]).unwrap();
        assert_eq!((first_byte(&lost), lost.damaged_at()), (Ok(7), vec![0]));
        let bad = drive();
        bad.set(Fault::BadBlock { seed: 1 });
        bad.heal();
        assert_eq!(first_byte(&bad), Err(EIO));
        bad.write_at(0, &BLOCK).unwrap();
        assert_eq!(first_byte(&bad), Ok(7));
        let rotten = drive();
        rotten.set(Fault::Rot { seed: 5 });
        let mut buf = [0; BLOCK_BYTES];
        rotten.read_at(0, &mut buf).unwrap();
        assert_eq!(buf.iter().filter(|byte| **byte != 7).count(), 1);
    }
}
