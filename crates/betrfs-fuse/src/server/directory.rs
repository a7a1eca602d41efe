//! Requests about the listing of a directory.

use betrfs::{DirEntry, FileType, InodeId, Objects};

use super::{Answer, IntoAnswer, Server};

/// The first two entries of a listing, with their cookies; the library's cookies are larger.
const DOTS: [(&[u8], u64); 2] = [(b".", 1), (b"..", 2)];
const COOKIE_DOTS_MAX: u64 = 2;

impl Server {
    /// FSYNCDIR
    pub fn fsyncdir(&self, dir: InodeId) -> Answer<()> {
        self.volume.fsync(dir).answer()
    }

    /// READDIR and READDIRPLUS: passes the entries from `cookie` on to `take` until it returns `false`, which
    /// means that it did not take the entry.
    ///
    /// With a `walker` (a task), entries come with the objects that the task will probably ask for, and
    /// taking an object counts one lookup; `.` and `..` come without. An error is returned only if no entry
    /// was taken: entries already taken must reach the kernel, which asks for the rest again.
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

    /// Passes `.` and `..` to `take`; returns `false` when the reply is full.
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
