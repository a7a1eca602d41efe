//! The mount: kernel requests to calls of the library [`betrfs`], and back.
//!
//! - [`Server`] is the file-system side: one method a request, no word of how requests travel;
//! - `transport` carries requests and replies, by the crate `fuser`;
//! - [`mount_point`] is what happens to the directory: checks, mount(2), umount(2);
//! - [`Mount`] puts them together: open the volume, mount it, serve it, close it.
#![forbid(unsafe_code)]

mod counters;
mod errno;
mod farewell;
mod mount;
pub mod mount_point;
mod server;
mod status;
mod transport;

pub use counters::{Counters, Opcode, RequestCount};
pub use errno::{Errno, errno};
pub use farewell::{Farewell, FarewellReader};
pub use mount::{Mount, MountError, MountOptions};
pub use server::{Answer, Caller, Server};
pub use status::{Identity, OperationCount, STATUS_XATTR, Status};
pub use transport::abort_on_stray_panics;
