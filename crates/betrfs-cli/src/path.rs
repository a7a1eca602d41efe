//! Paths that mean the same wherever the process goes.

use std::io;
use std::path::{Path, PathBuf};

/// Why the system refuses a path with `ELOOP`, for whoever gave it.
pub const LOOPS: &str = "a symbolic link on the way leads back to itself, or is not followed here";

/// The absolute path, without symbolic links where they can be followed.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    // The last part may be missing, or be the mount of a dead server, which says nothing of itself.
    let path = std::path::absolute(path)?;
    let resolved = match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => path,
    };
    Ok(resolved)
}
