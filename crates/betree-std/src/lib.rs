//! The platform of an ordinary program: files and block devices as [`FileDevice`], clock and
//! randomness as [`StdPlatform`], zstd as [`Zstd`], and the engine's background threads as [`Workers`].
#![deny(unsafe_code)] // A module needs it, and says why.

mod allocator;
mod file_device;
mod open_error;
mod platform;
mod process_id;
mod seek_detector;
mod side_by_side;
mod watch;
mod workers;
mod zstd;

pub use allocator::ALLOCATOR;
pub use file_device::FileDevice;
pub use open_error::{Holder, OpenError};
pub use platform::StdPlatform;
pub use process_id::process_id;
pub use watch::TroubleLog;
pub use workers::{Workers, WorkersOptions};
pub use zstd::Zstd;
