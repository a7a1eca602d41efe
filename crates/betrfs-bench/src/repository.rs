//! Repositories that git clones and pulls from: made from a tree or a generated history, on the
//! machine's own file system.

use std::fs;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use bench_harness::tool;

use crate::data::{Change, History, edits_of, walk};
use crate::tree::Tree;

/// The branch that is checked out first.
pub const MAIN: &str = "main";
/// The branch with a later version of a tree.
pub const LATER: &str = "later";
/// Per cent of the files that the later version has changed.
const CHANGED_PERCENT: u64 = 4;
/// The executable bit of the owner.
const EXECUTABLE: u32 = 0o100;

/// A bare repository, made when it is first needed.
pub struct Repository {
    dir: PathBuf,
}

/// git in a directory, with nothing of the user's or the machine's settings, and no work of its own.
pub fn git(dir: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(dir).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    git.args(["-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "advice.detachedHead=false"]);
    git
}

/// Fails unless the files of a clone are those of its commit: git is made to read all of them.
pub fn ensure_clean(clone: &Path) -> Result<()> {
    // An index that was just read from a commit knows the time and size of no file.
    fs::remove_file(clone.join(".git/index"))?;
    tool::run(git(clone).args(["read-tree", "HEAD"]))?;
    let changed = tool::run(git(clone).args(["status", "--porcelain"]))?;
    ensure!(changed.is_empty(), "files differ from their commit: {changed}");
    Ok(())
}

impl Repository {
    /// A repository in a directory that is this program's own.
    pub fn new(scratch: &Path, name: &str) -> Repository {
        Repository { dir: scratch.join(name) }
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Brings it into the page cache, so that reading it is not timed.
    pub fn warm(&self) -> Result<()> {
        for name in walk(&self.dir, "")? {
            let path = self.dir.join(name);
            if path.is_file() {
                std::io::copy(&mut fs::File::open(path)?, &mut std::io::sink())?;
            }
        }
        Ok(())
    }

    /// Makes it unless it is there: a tree on one branch, and its later version on another.
    pub fn make_of_tree(&self, tree: &Tree) -> Result<()> {
        self.make(|new| {
            let unpacked = new.join("unpacked");
            fs::create_dir(&unpacked)?;
            tree.unpack(&unpacked)?;
            let mut import = Import::start(new)?;
            import.commit(MAIN)?;
            for name in walk(&unpacked, ".git")? {
                import.entry(&unpacked, &name)?;
            }
            import.commit(LATER)?;
            import.from(MAIN)?;
            for edit in edits_of(&unpacked, CHANGED_PERCENT)? {
                let (name, text) = edit?;
                import.write(mode_of(&unpacked.join(&name))?, &name, &text)?;
            }
            import.finish()?;
            Ok(fs::remove_dir_all(unpacked)?)
        })
    }

    /// Makes it unless it is there, with a history.
    pub fn make_of_history(&self, history: &History) -> Result<()> {
        self.make(|new| {
            let mut import = Import::start(new)?;
            for changes in history.commits() {
                import.commit(MAIN)?;
                for change in changes {
                    match change {
                        Change::Write(name, text) => import.write("100644", &name, &text)?,
                        Change::Delete(name) => import.delete(&name)?,
                    }
                }
            }
            import.finish()
        })
    }

    /// The commits of its main branch, the oldest first.
    pub fn commits(&self) -> Result<Vec<String>> {
        let listed = tool::run(git(&self.dir).args(["rev-list", "--reverse", MAIN]))?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    fn make(&self, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        if self.dir.exists() {
            return Ok(());
        }
        let new = self.dir.with_extension("new");
        fs::create_dir(&new)?;
        tool::run(git(&new).args(["init", "-q", "--bare", "-b", MAIN]))?;
        // So that any commit can be pulled, not only the last one.
        tool::run(git(&new).args(["config", "uploadpack.allowAnySHA1InWant", "true"]))?;
        fill(&new).with_context(|| format!("cannot make the repository {}", new.display()))?;
        Ok(fs::rename(new, &self.dir)?)
    }
}

/// Git's name for the mode of a file or symbolic link.
fn mode_of(path: &Path) -> Result<&'static str> {
    let metadata = fs::symlink_metadata(path)?;
    Ok(match metadata.is_symlink() {
        true => "120000",
        false if metadata.mode() & EXECUTABLE != 0 => "100755",
        false => "100644",
    })
}

/// A run of `git fast-import`.
struct Import {
    git: std::process::Child,
    to: BufWriter<std::process::ChildStdin>,
    commits: u64,
}

impl Import {
    fn start(repository: &Path) -> Result<Import> {
        let mut git = git(repository)
            .args(["fast-import", "--quiet"])
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot run git (Debian: apt-get install git)")?;
        let to = git.stdin.take().context("git takes no input")?;
        Ok(Import { git, to: BufWriter::with_capacity(1 << 20, to), commits: 0 })
    }

    /// Begins a commit on top of a branch.
    fn commit(&mut self, branch: &str) -> Result<()> {
        self.commits += 1;
        let (number, seconds) = (self.commits, 1_600_000_000 + self.commits * 60);
        writeln!(self.to, "commit refs/heads/{branch}")?;
        writeln!(self.to, "committer Author <author@example.org> {seconds} +0000")?;
        self.data(format!("commit {number}").as_bytes())
    }

    /// The commit that was begun follows on another branch's last.
    fn from(&mut self, branch: &str) -> Result<()> {
        Ok(writeln!(self.to, "from refs/heads/{branch}")?)
    }

    fn data(&mut self, data: &[u8]) -> Result<()> {
        writeln!(self.to, "data {}", data.len())?;
        self.to.write_all(data)?;
        Ok(writeln!(self.to)?)
    }

    fn name(&mut self, name: &Path) -> Result<()> {
        let name = name.as_os_str().as_bytes();
        if name.contains(&b'\n') || name.starts_with(b"\"") {
            bail!("git fast-import would not understand the name {}", String::from_utf8_lossy(name));
        }
        self.to.write_all(name)?;
        Ok(writeln!(self.to)?)
    }

    fn write(&mut self, mode: &str, name: &Path, content: &[u8]) -> Result<()> {
        write!(self.to, "M {mode} inline ")?;
        self.name(name)?;
        self.data(content)
    }

    fn delete(&mut self, name: &Path) -> Result<()> {
        write!(self.to, "D ")?;
        self.name(name)
    }

    /// A file or a symbolic link as it is on the disk; git does not know of directories.
    fn entry(&mut self, root: &Path, name: &Path) -> Result<()> {
        let path = root.join(name);
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_symlink() {
            return self.write(mode_of(&path)?, name, fs::read_link(&path)?.as_os_str().as_bytes());
        }
        if metadata.is_file() {
            return self.write(mode_of(&path)?, name, &fs::read(&path)?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.to.flush()?;
        drop(self.to);
        let status = self.git.wait()?;
        ensure!(status.success(), "git fast-import: {status}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_can_be_cloned_and_its_files_are_the_last_ones() {
        let dir = tempfile::tempdir().unwrap();
        let history = History { files: 30, mean_bytes: 500, commits: 5 };
        let repository = Repository::new(dir.path(), "history");
        repository.make_of_history(&history).unwrap();
        repository.make_of_history(&history).unwrap();
        assert_eq!(repository.commits().unwrap().len(), 6);

        let clone = dir.path().join("clone");
        tool::run(git(dir.path()).args(["clone", "-q"]).arg(repository.dir()).arg(&clone)).unwrap();
        ensure_clean(&clone).unwrap();
        let last = history.commits().last().unwrap();
        for change in last {
            match change {
                Change::Write(name, text) => assert_eq!(fs::read(clone.join(name)).unwrap(), text),
                Change::Delete(name) => assert!(!clone.join(name).exists()),
            }
        }
        let file = walk(&clone, ".git").unwrap().pop().unwrap();
        let content = fs::read(clone.join(&file)).unwrap();
        fs::write(clone.join(&file), content.to_ascii_uppercase()).unwrap();
        assert!(ensure_clean(&clone).is_err(), "a change is found");
    }
}
