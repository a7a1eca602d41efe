//! The data of workloads, made from numbers: the same in every round and on every file system.

mod edit;
mod fileset;
mod history;
mod layout;
mod random;
mod same;
mod source;

pub use edit::edits_of;
pub use fileset::{Existing, FileSet, Share, Step};
pub use history::{Change, History};
pub use layout::Layout;
pub use random::{Rng, gamma_size};
pub use same::{ensure_same, walk};
pub use seeded::bytes;
