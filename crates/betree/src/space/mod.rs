//! Which blocks of the volume are in use.
//!
//! Nothing of this is on the disk: at mount the map is made from what the node table names. A place
//! is held by an [`Extent`], and it is free exactly when the last holder of that extent's `Arc` (a
//! version of the table, a list of a checkpoint, a reader) has let go of it.

mod block_range;
mod extent;
mod free_map;
mod inheritance;
mod refcounts;

pub(crate) use block_range::BlockRange;
pub(crate) use extent::{Extent, Space};
