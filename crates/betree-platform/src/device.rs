//! The disk behind the engine.

/// The unit of device addresses in bytes: offsets, lengths and (for direct I/O) buffers are
/// multiples of it.
pub const BLOCK_BYTES: usize = 4096;

/// One of several reads that are made together: see [`Device::read_many`].
pub struct Read<'b> {
    /// Byte offset on the device, a multiple of [`BLOCK_BYTES`].
    pub offset: u64,
    /// Where the bytes go; its length is a multiple of [`BLOCK_BYTES`].
    pub buf: &'b mut [u8],
    /// Whether it was made: until then it is an error. After an error `buf` is unspecified.
    pub result: Result<(), DeviceError>,
}

impl<'b> Read<'b> {
    /// A read that is to be made.
    pub fn new(offset: u64, buf: &'b mut [u8]) -> Read<'b> {
        let len = buf.len() as u64;
        Read { offset, buf, result: Err(DeviceError { op: DeviceOp::Read, offset, len, errno: EIO }) }
    }
}

/// A disk: a number of bytes that are read and written in blocks. It never becomes shorter.
///
/// Assumptions of the engine: later reads see a write that has returned; writes before a
/// [`sync`](Device::sync) that returned `Ok` survive a crash; later writes may survive wholly, partly (in any
/// subset of the device's 512-byte sectors) or not at all, in any order.
pub trait Device: Send + Sync {
    /// Fills `buf` from byte `offset` on. Both are multiples of [`BLOCK_BYTES`].
    ///
    /// # Errors
    /// The device's own, with the place; `buf` is then unspecified.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError>;

    /// Makes several reads, in any order or at the same time, and sets the result of each: one that fails
    /// hinders no other. A device that stands before another should pass them on together.
    fn read_many(&self, reads: &mut [Read<'_>]) {
        for read in reads {
            read.result = self.read_at(read.offset, read.buf);
        }
    }

    /// Writes `buf` at byte `offset`. Both are multiples of [`BLOCK_BYTES`].
    ///
    /// # Errors
    /// The device's own; any part of the range may then hold old or new bytes.
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError>;

    /// Makes durable every write that returned before this call began.
    ///
    /// # Errors
    /// The device's own; the fate of the writes since the last sync is then unknown.
    fn sync(&self) -> Result<(), DeviceError>;

    /// The size in bytes.
    fn len(&self) -> u64;

    /// The size with what is behind the last whole block, for messages: nothing there is read or written.
    fn len_in_bytes(&self) -> u64 {
        self.len()
    }

    /// Makes the device at least `len` bytes long, a multiple of [`BLOCK_BYTES`], if its size can be chosen;
    /// one of a given size looks whether that has grown. Returns the size, which is durable.
    ///
    /// # Errors
    /// The device's own; the size is then as it was.
    fn grow(&self, len: u64) -> Result<u64, DeviceError> {
        let _ = len;
        Ok(self.len())
    }

    /// Whether the device ends where its contents end, as a file that grows with them: behind that it reads
    /// as zeros up to its [length](Device::len), and a write there makes it longer.
    fn is_open_ended(&self) -> bool {
        false
    }

    /// Makes the device open-ended, with a length of at least `len` bytes, if it is a file. Others stay as
    /// they are.
    fn open_end(&self, _len: u64) {}

    /// Where the contents of an open-ended device end, in bytes; its length, if it is not.
    fn contents_len(&self) -> u64 {
        self.len()
    }

    /// Whether a write may find the storage below the device full, as that of a sparse file, and
    /// [`allocate`](Device::allocate) prevents that.
    fn is_sparse(&self) -> bool {
        false
    }

    /// Allocates storage for a range in whole blocks, so that no write to it finds the storage below full
    /// until it is [discarded](Device::discard). Contents stay. A range that has storage needs no more.
    ///
    /// # Errors
    /// The device's own; a part of the range may have storage then.
    fn allocate(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let _ = (offset, len);
        Ok(())
    }

    /// The first part of a range, in whole blocks, that is known to have storage: its offset and length. What
    /// was allocated and never written may be left out. Without an answer it is `None`.
    fn next_allocated(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        let _ = (offset, len);
        None
    }

    /// The process that opened the device, if this process is a fork of it; `None` otherwise.
    ///
    /// A fork inherits the memory of an open volume, but neither its threads nor the right to write to its
    /// device: the parent goes on using both. Every call of the engine asks for this, so it must be cheap. A
    /// device that stands before another passes it on.
    fn forked_from(&self) -> Option<u32> {
        None
    }

    /// Whether the device holds nothing at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a jump to another place takes as long as reading much data. If not, the engine writes only the
    /// changed parts of nodes.
    fn seeks(&self) -> bool;

    /// Tells the device that a range is no longer needed; its contents are unspecified after it.
    ///
    /// # Errors
    /// The device's own; no data is lost by it.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError>;
}

/// The operation of a failed device call.
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
    /// [`Device::grow`]
    Grow,
    /// [`Device::allocate`]
    Allocate,
}

/// Linux's error number for a device that failed.
const EIO: i32 = 5;
/// Linux's error numbers for a full disk and a full quota.
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;
/// Linux's error number for a call on a device that was released.
const ESHUTDOWN: i32 = 108;

impl DeviceError {
    /// Whether the device was released before the call, as when a volume is closed: that says nothing about
    /// what is stored.
    pub fn is_released(&self) -> bool {
        self.errno == ESHUTDOWN
    }

    /// Whether the storage under the device is full: the file system that holds it as a file, or a pool.
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
            DeviceOp::Grow => "growth",
            DeviceOp::Allocate => "allocation",
        })
    }
}

/// The error number of a call behind the device's end, on Linux.
const EINVAL: i32 = 22;

fn reason(errno: i32) -> alloc::string::String {
    match errno {
        EINVAL => alloc::format!("errno {errno}: it may be behind the end of the device"),
        _ => alloc::format!("errno {errno}"),
    }
}

/// A failed device call: operation, place, and the operating system's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device {op} of {len} bytes at byte {offset} failed ({})", reason(*errno))]
pub struct DeviceError {
    /// The operation.
    pub op: DeviceOp,
    /// Byte offset of the call.
    pub offset: u64,
    /// Length of the call in bytes.
    pub len: u64,
    /// The operating system's error number (5, EIO, if there is none).
    pub errno: i32,
}
