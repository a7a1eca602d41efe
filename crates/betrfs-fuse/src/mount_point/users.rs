//! Processes that use a mount, by the links of /proc. They are read by name alone, without asking the mount's
//! server.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A process that uses something on a mount.
pub(super) struct User {
    pid: u32,
    /// The name of its program.
    name: String,
    how: How,
}

enum How {
    WorkingDirectory(PathBuf),
    Root(PathBuf),
    Open(PathBuf),
}

/// The first process found that uses a path or something below it, other than this one. Processes that this
/// user may not look at are passed over.
pub(super) fn first(path: &Path) -> Option<User> {
    let own = std::process::id();
    let all = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    all.filter(|pid| *pid != own).find_map(|pid: u32| {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let how = how(&proc, path)?;
        let name = fs::read_to_string(proc.join("comm")).unwrap_or_default().trim_end().to_owned();
        Some(User { pid, name, how })
    })
}

fn how(proc: &Path, path: &Path) -> Option<How> {
    let below = |link: PathBuf| fs::read_link(link).ok().filter(|at| at.starts_with(path));
    let open = || fs::read_dir(proc.join("fd")).ok()?.find_map(|entry| below(entry.ok()?.path()));
    below(proc.join("cwd"))
        .map(How::WorkingDirectory)
        .or_else(|| open().map(How::Open))
        .or_else(|| below(proc.join("root")).map(How::Root))
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let User { pid, name, how } = self;
        match how {
            How::WorkingDirectory(at) => {
                write!(f, "process {pid} ({name}), whose working directory is {}", at.display())
            }
            How::Root(at) => write!(f, "process {pid} ({name}), whose root directory is {}", at.display()),
            How::Open(at) => write!(f, "process {pid} ({name}), which has {} open", at.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_found_by_its_working_directory_and_by_what_it_has_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let found = || first(&path).map(|user| user.to_string());
        assert_eq!(found(), None);
        // Both end when their standard input is closed.
        let mut cat = Command::new("cat");
        let mut at = cat.current_dir(&path).stdin(Stdio::piped()).spawn().unwrap();
        let named = format!("process {} (cat), whose working directory is {}", at.id(), path.display());
        assert_eq!(found(), Some(named));
        drop(at.stdin.take());
        at.wait().unwrap();
        assert_eq!(found(), None);
        let file = path.join("file");
        let mut cat = Command::new("cat");
        let mut has = cat.stdin(Stdio::piped()).stdout(fs::File::create(&file).unwrap()).spawn().unwrap();
        drop(cat);
        assert_eq!(found(), Some(format!("process {} (cat), which has {} open", has.id(), file.display())));
        drop(has.stdin.take());
        has.wait().unwrap();
    }
}
