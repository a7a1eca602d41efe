//! The interface of the dictionary engine to its platform.
//!
//! The engine and the file system are `no_std`; everything that depends on where they run comes
//! from here: locks ([`sync`]), the disk ([`device`], and [`aligned`]
//! buffers for it), the time and randomness ([`platform`]), and
//! compressors that are not Rust ([`codec`]). A platform is chosen by feature: `std` (an ordinary
//! program), `shuttle` (a model checker), or neither (spinning locks, for a machine without an
//! operating system and for a simulated world).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(feature = "std", feature = "shuttle"))]
extern crate std;

pub mod aligned;
pub mod codec;
pub mod device;
pub mod platform;
pub mod sync;

/// Whether the calling thread is unwinding from a panic; `false` on platforms without unwinding.
pub fn is_unwinding() -> bool {
    #[cfg(any(feature = "std", feature = "shuttle"))]
    return std::thread::panicking();
    #[cfg(not(any(feature = "std", feature = "shuttle")))]
    false
}

pub use aligned::AlignedBuf;
pub use codec::Codec;
pub use device::{BLOCK_BYTES, Device, DeviceError, DeviceOp, Read};
pub use platform::Platform;
