//! Requests about the listing of a directory.

use betrfs::{DirEntry, Error, FileType, NodeId};

use super::{Answer, IntoAnswer, Server};

/// The listing begins with these two; the library's cookies begin behind theirs.
const DOTS: [(&[u8], u64); 2] = [(b".", 1), (b"..", 2)];
const COOKIE_DOTS_MAX: u64 = 2;

/// An entry that the scan gave without its object.
struct Bare {
    name: Vec<u8>,
    ino: u64,
    cookie: u64,
    file_type: FileType,
}

impl Server {
    /// OPENDIR
    pub fn opendir(&self, dir: NodeId) -> Answer<()> {
        self.volume.open_node(dir).answer()
    }

    /// RELEASEDIR
    pub fn releasedir(&self, dir: NodeId) {
        self.volume.release_node(dir);
    }

    /// FSYNCDIR
    pub fn fsyncdir(&self, dir: NodeId) -> Answer<()> {
        self.volume.fsync(dir).answer()
    }

    /// READDIR and READDIRPLUS: gives the entries from `cookie` on to `take` until it says `false`,
    /// which means that it did not take that one.
    ///
    /// In a listing `plus` each comes with its object, and taking it counts one lookup; but `.` and
    /// `..` come without. An error is answered only where nothing was taken: what was taken has to
    /// reach the kernel, and the rest is asked for again.
    pub fn readdir(
        &self,
        dir: NodeId,
        cookie: u64,
        plus: bool,
        take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Answer<()> {
        let mut taken = false;
        let mut take = |found: &DirEntry<'_>| {
            let took = take(found);
            taken |= took;
            took
        };
        let listed = self.list(dir, cookie, plus, &mut take);
        if taken { Ok(()) } else { listed.answer() }
    }

    fn list(
        &self,
        dir: NodeId,
        cookie: u64,
        plus: bool,
        take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> betrfs::Result<()> {
        if cookie < COOKIE_DOTS_MAX && !self.list_dots(dir, cookie, take)? {
            return Ok(());
        }
        let mut from = if cookie <= COOKIE_DOTS_MAX { 0 } else { cookie };
        loop {
            let mut bare = None;
            self.volume.readdir(dir, from, plus, &mut |found| {
                if plus && found.entry.is_none() {
                    let DirEntry { ino, cookie, file_type, .. } = *found;
                    bare = Some(Bare { name: found.name.to_vec(), ino, cookie, file_type });
                    return false;
                }
                take(found)
            })?;
            // A name of a linked file that is not in memory: looked up outside of the scan, for the
            // kernel cannot be told of an entry without its object.
            let Some(bare) = bare else { return Ok(()) };
            if !self.list_bare(dir, &bare, take)? {
                return Ok(());
            }
            from = bare.cookie;
        }
    }

    /// `false` where the reply is full.
    fn list_dots(
        &self,
        dir: NodeId,
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

    /// `false` where the reply is full.
    fn list_bare(
        &self,
        dir: NodeId,
        bare: &Bare,
        take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> betrfs::Result<bool> {
        let entry = match self.volume.lookup(dir, &bare.name) {
            Ok(entry) => entry,
            // Removed since the scan.
            Err(Error::NotFound) => return Ok(true),
            Err(error) => return Err(error),
        };
        let &Bare { ino, cookie, file_type, .. } = bare;
        let took = take(&DirEntry { ino, cookie, file_type, name: &bare.name, entry: Some(entry) });
        if !took {
            self.volume.forget(entry.node, 1);
        }
        Ok(took)
    }
}
