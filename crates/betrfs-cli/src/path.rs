//! Absolute paths, which stay valid when the process changes its directory.

use std::io;
use std::path::{Path, PathBuf};

/// The user's sentence for `ELOOP`.
pub const LOOPS: &str = "a symbolic link on the way leads back to itself, or is not followed here";

/// The user's sentence for `EAGAIN`, which says that a tree could not be looked through or counted.
pub const CHANGED: &str = "what is in it changes while it is looked through: try again";

/// The absolute path, with symbolic links resolved as far as possible.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    // The last part may be missing, or be the mount of a dead server, which cannot be resolved.
    let path = std::path::absolute(path)?;
    let resolved = match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => path,
    };
    Ok(resolved)
}
