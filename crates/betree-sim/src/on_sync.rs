//! A disk in memory that does something in the middle of a sync.

use std::sync::{Mutex, PoisonError};

use betree_platform::{Device, DeviceError};

use crate::mem_device::MemDevice;

/// What it does.
type Act = Box<dyn FnOnce() + Send>;

/// A [`MemDevice`] whose next sync, when asked to, does something before it is done.
pub struct OnSync {
    inner: MemDevice,
    next: Mutex<Option<Act>>,
}

impl OnSync {
    /// One over a disk, with nothing to do.
    pub fn new(inner: MemDevice) -> OnSync {
        OnSync { inner, next: Mutex::new(None) }
    }

    /// Has the next sync do this.
    pub fn at_next(&self, act: impl FnOnce() + Send + 'static) {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).replace(Box::new(act));
    }

    /// Whether a sync still has something to do.
    pub fn waits(&self) -> bool {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Device for OnSync {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.inner.write_at(offset, buf)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        // It acts without the lock: what it does may sync.
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(act) = next {
            act();
        }
        self.inner.sync()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn grow(&self, len: u64) -> Result<u64, DeviceError> {
        self.inner.grow(len)
    }

    fn seeks(&self) -> bool {
        self.inner.seeks()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len)
    }
}
