//! Creating many small files.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::Workload;

const FILE_BYTES: usize = 200;

/// Creates and writes small files in one directory after the other.
pub struct Create {
    /// The number of directories.
    pub dirs: usize,
    /// The number of files in each.
    pub files_per_dir: usize,
}

impl Create {
    fn files(&self, dir: &Path) -> impl Iterator<Item = (usize, PathBuf)> {
        let (dir, per_dir) = (dir.to_owned(), self.files_per_dir);
        (0..self.dirs * per_dir)
            .map(move |number| (number, dir.join(format!("dir{:03}/file{number:06}", number / per_dir))))
    }
}

fn contents(number: usize) -> [u8; FILE_BYTES] {
    std::array::from_fn(|at| (number * 7 + at) as u8)
}

impl Workload for Create {
    fn name(&self) -> &'static str {
        "create"
    }

    fn about(&self) -> String {
        format!(
            "create {} files of {FILE_BYTES} bytes in {} directories",
            self.dirs * self.files_per_dir,
            self.dirs
        )
    }

    fn writes(&self) -> bool {
        true
    }

    fn run(&self, dir: &Path) -> Result<()> {
        for number in 0..self.dirs {
            std::fs::create_dir(dir.join(format!("dir{number:03}")))?;
        }
        for (number, path) in self.files(dir) {
            // For writing only, as creat(2) and a shell's `>` do.
            let mut file = File::options().write(true).create_new(true).open(path)?;
            file.write_all(&contents(number))?;
        }
        Ok(())
    }

    fn check(&self, dir: &Path) -> Result<()> {
        for (number, path) in self.files(dir) {
            ensure!(std::fs::read(&path)? == contents(number), "{} is wrong", path.display());
        }
        Ok(())
    }
}
