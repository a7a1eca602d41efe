//! What is known of the volume in memory.

mod accessed;
mod age;
mod contents;
mod directory;
mod inode;
mod open_below;
mod orphans;
mod patience;
mod promises;
mod table;

pub(crate) use accessed::Accessed;
pub(crate) use age::{Age, Ages};
pub(crate) use contents::{Contents, Recorded};
pub(crate) use directory::{COOKIE_FIRST, Directory, Name};
pub(crate) use inode::{DirPath, Inode, Place, State, ino_of};
pub(crate) use orphans::Orphans;
pub(crate) use patience::Patience;
pub(crate) use promises::Promises;
pub(crate) use table::Table;
