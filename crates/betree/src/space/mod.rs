//! Which blocks of the volume are in use.
//!
//! Nothing of this is on the disk: the map is made from the node table when a volume is opened. An [`Extent`]
//! holds its blocks, and they are free exactly when the last `Arc` of the last extent that holds them is
//! dropped (by a version of the table, a list of a checkpoint, a reader).

mod block_range;
mod extent;
mod free_map;
mod inheritance;
mod refcounts;
mod second_copy;

pub use block_range::BlockRange;
pub(crate) use extent::{Extent, Space};
