//! The calls that a disk got, in order, and the disks that a power cut leaves.

use betree_platform::Device;
use betree_sim::SimDisk;

/// A call, or a note of the program between two calls.
pub enum Event {
    /// A write of whole blocks at an offset in bytes.
    Write(u64, Vec<u8>),
    /// A discard of `len` bytes at `offset`.
    Discard { offset: u64, len: u64 },
    /// A sync. All writes before it had been answered.
    Sync,
    /// A note.
    Note(Note),
}

/// What the program knows at a moment. States are counted from the beginning.
#[derive(Clone, Copy, Debug)]
pub enum Note {
    /// The next call of the program may lead to any state up to this one.
    Begins(usize),
    /// The program was told that this state is durable.
    IsDurable(usize),
    /// What follows is not compared: no state is known.
    Unknown,
}

/// A moment at which the power may be cut.
pub struct PowerCut<'a> {
    /// The number of events before it.
    pub at: usize,
    /// The disk at that moment.
    pub disk: &'a SimDisk,
    /// Whether some writes are not synced.
    pub is_pending: bool,
    /// The last state of which the program was told that it is durable.
    pub durable: usize,
    /// The last state that the program may have reached.
    pub begun: usize,
}

/// A disk's beginning and its calls.
pub struct DiskLog {
    /// The disk before the first call.
    pub base: SimDisk,
    /// The calls and notes.
    pub events: Vec<Event>,
}

impl DiskLog {
    /// Passes each moment behind a call to `visit`, and each at which the program was told that something is
    /// durable, as far as states are known there.
    pub fn replay(&self, mut visit: impl FnMut(&PowerCut<'_>)) {
        let disk = self.base.crash(0);
        let (mut durable, mut begun) = (0, 0);
        let (mut is_known, mut is_pending) = (false, false);
        for (at, event) in self.events.iter().enumerate() {
            match event {
                Event::Write(offset, bytes) => disk.write_at(*offset, bytes).unwrap(),
                Event::Discard { offset, len } => disk.discard(*offset, *len).unwrap(),
                Event::Sync => disk.sync().unwrap(),
                Event::Note(Note::IsDurable(state)) => durable = *state,
                Event::Note(Note::Begins(state)) => {
                    (begun, is_known) = (*state, true);
                    continue;
                }
                Event::Note(Note::Unknown) => {
                    is_known = false;
                    continue;
                }
            }
            match event {
                Event::Write(..) | Event::Discard { .. } => is_pending = true,
                Event::Sync => is_pending = false,
                Event::Note(_) => {}
            }
            if is_known {
                visit(&PowerCut { at: at + 1, disk: &disk, is_pending, durable, begun });
            }
        }
    }
}
