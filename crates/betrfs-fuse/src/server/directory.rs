//! Requests about the listing of a directory.

use betrfs::{DirEntry, FileType, InodeId, Objects};

use super::{Answer, IntoAnswer, Server};

/// The listing begins with these two; the library's cookies begin behind theirs.
const DOTS: [(&[u8], u64); 2] = [(b".", 1), (b"..", 2)];
const COOKIE_DOTS_MAX: u64 = 2;

impl Server {
    /// FSYNCDIR
    pub fn fsyncdir(&self, dir: InodeId) -> Answer<()> {
        self.volume.fsync(dir).answer()
    }

    /// READDIR and READDIRPLUS: gives the entries from `cookie` on to `take` until it says `false`,
    /// which means that it did not take that one.
    ///
    /// In a listing for a `walker` entries come with the objects that it is likely to ask for, and
    /// taking one counts one lookup; `.` and `..` come without. An error is answered only where
    /// nothing was taken: what was taken has to reach the kernel, and the rest is asked for again.
    pub fn readdir(
        &self,
        dir: InodeId,
        cookie: u64,
        walker: Option<u32>,
        take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Answer<()> {
        let mut taken = false;
        let mut take = |found: &DirEntry<'_>| {
            let took = take(found);
            taken |= took;
            took
        };
        let objects = walker.map_or(Objects::None, |task| self.readdirplus_policy.lists(task, dir));
        let listed = self.list(dir, cookie, objects, &mut take);
        if taken { Ok(()) } else { listed.answer() }
    }

    fn list(
        &self,
        dir: InodeId,
        cookie: u64,
        objects: Objects,
        take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> betrfs::Result<()> {
        if cookie < COOKIE_DOTS_MAX && !self.list_dots(dir, cookie, take)? {
            return Ok(());
        }
        let from = if cookie <= COOKIE_DOTS_MAX { 0 } else { cookie };
        self.volume.readdir(dir, from, objects, take)
    }

    /// `false` where the reply is full.
    fn list_dots(
        &self,
        dir: InodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> betrfs::Result<bool> {
        let ino = self.volume.getattr(dir)?.ino;
        let rest = DOTS.iter().filter(|(_, next)| *next > cookie);
        for &(name, cookie) in rest {
            if !take(&DirEntry { ino, cookie, file_type: FileType::Directory, name, entry: None }) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
