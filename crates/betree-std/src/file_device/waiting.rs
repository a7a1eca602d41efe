//! Opening a device that another process may be about to close.

use std::path::Path;
use std::time::{Duration, Instant};

use super::FileDevice;
use crate::open_error::OpenError;

/// How often it is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(20);

impl FileDevice {
    /// Like [`open`](FileDevice::open), but waits up to `timeout` while another process has it open and
    /// `is_worth_it`.
    ///
    /// # Errors
    /// As `open`; [`OpenError::InUse`] after the timeout.
    pub fn open_waiting(
        path: &Path,
        timeout: Duration,
        is_worth_it: impl Fn() -> bool,
    ) -> Result<FileDevice, OpenError> {
        waiting(timeout, is_worth_it, || FileDevice::open(path))
    }

    /// Like [`open_replacing`](FileDevice::open_replacing), but waits up to `timeout` while another process
    /// has it open.
    ///
    /// # Errors
    /// As `open_replacing`; [`OpenError::InUse`] after the timeout.
    pub fn open_replacing_waiting(path: &Path, timeout: Duration) -> Result<FileDevice, OpenError> {
        waiting(timeout, || true, || FileDevice::open_replacing(path))
    }

    /// Like [`open_for_reading`](FileDevice::open_for_reading), but waits as
    /// [`open_waiting`](FileDevice::open_waiting) does.
    ///
    /// # Errors
    /// As `open_for_reading`; [`OpenError::InUse`] after the timeout.
    pub fn open_for_reading_waiting(
        path: &Path,
        timeout: Duration,
        is_worth_it: impl Fn() -> bool,
    ) -> Result<FileDevice, OpenError> {
        waiting(timeout, is_worth_it, || FileDevice::open_for_reading(path))
    }
}

/// Opens again and again while another process has it open, up to `timeout`.
fn waiting(
    timeout: Duration,
    is_worth_it: impl Fn() -> bool,
    open: impl Fn() -> Result<FileDevice, OpenError>,
) -> Result<FileDevice, OpenError> {
    let start = Instant::now();
    loop {
        match open() {
            Err(OpenError::InUse { .. }) if start.elapsed() < timeout && is_worth_it() => {
                std::thread::sleep(RETRY_EVERY.min(timeout.saturating_sub(start.elapsed())));
            }
            result => return result,
        }
    }
}
