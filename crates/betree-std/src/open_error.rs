//! Errors of opening a device, with advice.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// The error of creating or opening a [`FileDevice`](crate::FileDevice).
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process (or another device in this one) has it open.
    #[error("{} is in use: unmount it, or wait until the program that has it open ends", path.display())]
    InUse {
        /// The file or block device.
        path: PathBuf,
    },
    /// A file of that name exists.
    #[error("{} exists already: choose another name", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("{} is {what}: a volume needs a regular file or a block device", path.display())]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// The kind of the existing file.
        what: &'static str,
    },
    /// A block device that can only be read.
    #[error("{} is write-protected: it can only be read, and mounted with `-o ro`", path.display())]
    WriteProtected {
        /// The block device.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {doing} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file or block device.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

fn advice(error: &io::Error) -> &'static str {
    // The permissions of the path allow it: else it were EACCES.
    if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) {
        return " (it or its directory may be immutable: `lsattr` tells, and `chattr -i` changes that)";
    }
    match error.kind() {
        io::ErrorKind::NotFound => " (is the path right?)",
        io::ErrorKind::PermissionDenied => " (try it as root, or as the file's owner)",
        io::ErrorKind::StorageFull => " (make room, or choose a smaller size)",
        io::ErrorKind::ReadOnlyFilesystem => " (the file system that holds it is mounted read-only)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_root_may_not_open_either_is_not_to_be_tried_as_root() {
        let advice = |errno: Errno| advice(&io::Error::from_raw_os_error(errno.raw_os_error()));
        assert!(advice(Errno::ACCESS).contains("as root"));
        assert!(advice(Errno::PERM).contains("immutable"));
    }
}
