//! Steps of a history that open files, and use open ones whatever has happened to their names.

use std::fs as system;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use betrfs_std::OpenOptions;
use rustix::io::Errno;

use super::{Outcome, Pair, Worlds, nothing, ours, show_ours, show_theirs, theirs};

impl Worlds {
    /// Opens a file in both worlds.
    pub(super) fn step_of_files(&mut self, path: &Path, at: &Path) -> (String, Outcome, Outcome) {
        let (mut mine, mut open) = (OpenOptions::new(), system::File::options());
        let mut flags = [false; 6];
        for flag in &mut flags {
            *flag = self.rng.percent(40);
        }
        let [read, write, append, truncate, create, create_new] = flags;
        mine.read(read).write(write).append(append).truncate(truncate).create(create).create_new(create_new);
        open.read(read).write(write).append(append).truncate(truncate).create(create).create_new(create_new);
        // The system opens directories for reading too.
        let no_dir = |file: system::File| match file.metadata()?.is_dir() {
            true => Err(Errno::ISDIR.into()),
            false => Ok(file),
        };
        let (mine, open) = (mine.open(self.base(), path), open.open(at).and_then(no_dir));
        let what = format!("open {flags:?} {path:?}");
        match (mine, open) {
            (Ok(mine), Ok(open)) => {
                let both = (mine.metadata().unwrap(), open.metadata().unwrap());
                let outcome = (show_ours(both.0), show_theirs(both.1));
                self.open.push(Pair { ours: mine, theirs: open });
                if self.open.len() > 5 {
                    self.open.remove(self.rng.below(5));
                }
                (what, Ok(outcome.0), Ok(outcome.1))
            }
            (mine, open) => (what, ours(mine, nothing), theirs(open, nothing)),
        }
    }

    /// A step with one of the open files.
    pub(super) fn step_of_handles(&mut self) -> (String, Outcome, Outcome) {
        let bytes = self.bytes();
        let Worlds { open, rng, .. } = self;
        if open.is_empty() {
            return (String::new(), Ok(String::new()), Ok(String::new()));
        }
        let at = rng.below(open.len());
        let Pair { ours: mine, theirs: file } = &mut open[at];
        let (place, len) = (rng.below_u64(30_000), rng.below(6000));
        let done =
            |name: &str, ours: Outcome, theirs: Outcome| (format!("{name} {place} {len}"), ours, theirs);
        let count = |bytes: usize| bytes.to_string();
        match rng.below(9) {
            0 => {
                let (mut a, mut b) = (vec![0; len], vec![0; len]);
                let (ours, theirs) = (theirs(mine.read(&mut a), count), theirs(file.read(&mut b), count));
                assert!(a == b, "what was read differs");
                done("read", ours, theirs)
            }
            1 | 2 => {
                let written = (mine.write(&bytes), file.write(&bytes));
                done("write", theirs(written.0, count), theirs(written.1, count))
            }
            3 | 4 => {
                let to = match rng.below(3) {
                    0 => SeekFrom::Start(place),
                    1 => SeekFrom::Current(place as i64 - 15_000),
                    _ => SeekFrom::End(place as i64 - 15_000),
                };
                let show = |place: u64| place.to_string();
                done("seek", theirs(mine.seek(to), show), theirs(file.seek(to), show))
            }
            5 => {
                let (mut a, mut b) = (vec![0; len], vec![0; len]);
                let (ours, theirs) =
                    (ours(mine.read_at(&mut a, place), count), theirs(file.read_at(&mut b, place), count));
                assert!(a == b, "what was read differs");
                done("read_at", ours, theirs)
            }
            6 => {
                let place = place * 40;
                let written = (mine.write_at(&bytes, place), file.write_at(&bytes, place));
                done("write_at", ours(written.0, count), theirs(written.1, count))
            }
            7 => done("set_len", ours(mine.set_len(place), nothing), theirs(file.set_len(place), nothing)),
            _ => {
                let (mut a, mut b) = (Vec::new(), Vec::new());
                let read = (mine.read_to_end(&mut a), file.read_to_end(&mut b));
                assert!(a == b, "what was read differs");
                done("read_to_end", theirs(read.0, count), theirs(read.1, count))
            }
        }
    }
}
