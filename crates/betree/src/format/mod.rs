//! Every byte that reaches the disk, and nothing else.

pub(crate) mod limits;
pub(crate) mod node;
pub(crate) mod record;
pub(crate) mod run;
pub(crate) mod segment;
pub(crate) mod superblock;
pub(crate) mod table;
pub(crate) mod tail;
