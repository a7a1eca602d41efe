//! What the tests of the engine stand on: disks in memory that lose, tear and fail, reference
//! models, and histories that come from a seed.
#![forbid(unsafe_code)]

mod blocks;
mod mem_device;
mod rng;

pub use mem_device::{Counts, EIO, ENOSPC, Fault, MemDevice};
pub use rng::Rng;
