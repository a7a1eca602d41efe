//! Why a device could not be had, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Why [`FileDevice`](crate::FileDevice) could not be created or opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process (or another device in this one) holds it.
    #[error("{} is in use: unmount it, or wait until the program that has it open ends", path.display())]
    InUse {
        /// The file or block device.
        path: PathBuf,
    },
    /// A file of that name is there already.
    #[error("{} exists already: choose another name, or ask for it to be overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("{} is {what}: a volume needs a regular file or a block device", path.display())]
    WrongKind {
        /// What was named.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The operating system refused.
    #[error("cannot {doing} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file or block device.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => " (is the path right?)",
        io::ErrorKind::PermissionDenied => " (try it as root, or as the file's owner)",
        io::ErrorKind::StorageFull => " (make room, or choose a smaller size)",
        io::ErrorKind::ReadOnlyFilesystem => " (the file system that holds it is mounted read-only)",
        _ => "",
    }
}
