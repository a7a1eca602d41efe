//! The disk behind the engine.

/// The unit of device addresses in bytes: offsets, lengths and (for direct I/O) buffers are
/// multiples of it.
pub const BLOCK_BYTES: usize = 4096;

/// A disk: a fixed number of bytes that are read and written in blocks.
///
/// What the engine assumes of it: a write that has returned is seen by later reads; what was
/// written before a [`sync`](Device::sync) that returned `Ok` survives a crash; what was written
/// since may survive wholly, partly (in any subset of its 512-byte sectors) or not at all, in any
/// order.
pub trait Device: Send + Sync {
    /// Fills `buf` from byte `offset` on. Both are multiples of [`BLOCK_BYTES`].
    ///
    /// # Errors
    /// The device's own, with the place; `buf` is then unspecified.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError>;

    /// Writes `buf` at byte `offset`. Both are multiples of [`BLOCK_BYTES`].
    ///
    /// # Errors
    /// The device's own; any part of the range may then hold old or new bytes.
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError>;

    /// Makes durable every write that returned before this call began.
    ///
    /// # Errors
    /// The device's own; nothing is then known of what was written since the last sync.
    fn sync(&self) -> Result<(), DeviceError>;

    /// The size in bytes.
    fn len(&self) -> u64;

    /// Whether the device holds nothing at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it takes as long to go from place to place as to read a good deal. Where it does not, what
    /// changes in part is written in part.
    fn seeks(&self) -> bool;

    /// Tells the device that a range is no longer needed; its contents are unspecified after it.
    ///
    /// # Errors
    /// The device's own; nothing is lost by one.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError>;
}

/// What a device was asked to do when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOp {
    /// [`Device::read_at`]
    Read,
    /// [`Device::write_at`]
    Write,
    /// [`Device::sync`]
    Sync,
    /// [`Device::discard`]
    Discard,
}

/// The numbers of Linux for a disk, and for a quota, that is full.
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

impl DeviceError {
    /// Whether what lies under the device has no room: a file system on which it is a file, a pool.
    pub fn is_full(&self) -> bool {
        matches!(self.errno, ENOSPC | EDQUOT)
    }
}

impl core::fmt::Display for DeviceOp {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            DeviceOp::Read => "read",
            DeviceOp::Write => "write",
            DeviceOp::Sync => "sync",
            DeviceOp::Discard => "discard",
        })
    }
}

/// A failed device call: what, where, and the operating system's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device {op} of {len} bytes at byte {offset} failed (errno {errno})")]
pub struct DeviceError {
    /// What was asked.
    pub op: DeviceOp,
    /// Byte offset of the call.
    pub offset: u64,
    /// Length of the call in bytes.
    pub len: u64,
    /// The operating system's error number (5, EIO, where there is none).
    pub errno: i32,
}
