//! Listings: READDIR and READDIRPLUS, with little room for the replies, and the listings that the kernel
//! keeps.

use betrfs::FileType;
use betrfs_fuse::wire::{self, Dirent, EntryOut, Opcode};
use zerocopy::FromBytes;

use super::Kernel;
use super::cache::{Kept, stale};
use super::connection::Request;
use crate::at::At;
use crate::client::Failed;
use crate::perform::Listed;
use zerocopy::IntoBytes;

/// The longest name of a history.
const NAME_BYTES_MAX: usize = 40;
/// Entries begin at multiples of this.
const ALIGNMENT: usize = 8;
/// The cookie of the last of `.` and `..`.
const COOKIE_DOTS_MAX: u64 = 2;

/// A part of a listing.
struct Page {
    listed: Vec<Listed>,
    last_cookie: Option<u64>,
}

impl Kernel {
    /// All entries of a directory, some at a time, or as the kernel has kept them.
    pub(super) fn list_all(&self, at: &At, chunk: usize) -> Result<Vec<Listed>, Failed> {
        let dir = self.walk(at)?;
        let kept = self.caches.lock().inodes.get(&dir).and_then(|inode| inode.listing.clone());
        if let Some(kept) = kept
            && self.manner.is_old
        {
            self.caches.lock().counts.listings += 1;
            return kept.into_iter().map(listed).collect();
        }
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.list_page(dir, cookie, chunk)?;
            let Some(last_cookie) = page.last_cookie else { break };
            cookie = last_cookie;
            all.extend(page.listed);
        }
        let kept = all.iter().map(|entry: &Listed| Kept {
            name: entry.name.clone(),
            cookie: entry.cookie,
            ino: entry.ino,
            kind: super::names::type_bits(entry.file_type) >> 12,
        });
        let kept = kept.collect();
        if let Some(inode) = self.caches.lock().inodes.get_mut(&dir) {
            inode.listing = Some(kept);
        }
        Ok(all)
    }

    /// The entries of a held directory behind a cookie.
    pub(super) fn list_on(&self, dir: u64, cookie: u64, count: usize) -> Result<Vec<Listed>, Failed> {
        let page = self.list_page(dir, cookie, count)?;
        match page.last_cookie {
            // The two first were all that had room.
            Some(last) if page.listed.is_empty() => Ok(self.list_page(dir, last, count)?.listed),
            _ => Ok(page.listed),
        }
    }

    fn list_page(&self, dir: u64, offset: u64, count: usize) -> Result<Page, Failed> {
        let plus = self.manner.with_objects;
        let entry_bytes = if plus { size_of::<EntryOut>() } else { 0 };
        let each = (entry_bytes + size_of::<Dirent>() + NAME_BYTES_MAX).next_multiple_of(ALIGNMENT);
        let dots = if offset < COOKIE_DOTS_MAX { 2 } else { 0 };
        let read = wire::ReadIn { offset, size: (each * (count + dots)) as u32, ..wire::ReadIn::default() };
        let opcode = if plus { Opcode::Readdirplus } else { Opcode::Readdir };
        let mut request = Request::new(opcode, dir);
        request.header.pid = self.manner.lister;
        request.structure = read.as_bytes().to_vec();
        let reply = self.deliver(request)?;
        if reply.len() > read.size as usize {
            return Err(Failed::Wrong(format!("a listing of {} bytes, for {}", reply.len(), read.size)));
        }
        self.caches.lock().mark(dir, stale::ATIME);
        self.take_page(dir, &reply, plus)
    }

    fn take_page(&self, dir: u64, reply: &[u8], plus: bool) -> Result<Page, Failed> {
        let (mut page, mut rest) = (Page { listed: Vec::new(), last_cookie: None }, reply);
        let cut = |_| Failed::Wrong("an entry of a listing is cut short".into());
        while !rest.is_empty() {
            let whole = rest.len();
            let mut object = None;
            if plus {
                let (entry, after) =
                    EntryOut::read_from_prefix(rest).map_err(|error| cut(error.to_string()))?;
                (object, rest) = (Some(entry), after);
            }
            let (dirent, after) = Dirent::read_from_prefix(rest).map_err(|error| cut(error.to_string()))?;
            let name = after.get(..dirent.name_len as usize).ok_or_else(|| cut(String::new()))?;
            let len = (whole - after.len() + name.len()).next_multiple_of(ALIGNMENT);
            rest = reply.get(reply.len() - whole + len..).ok_or_else(|| cut(String::new()))?;
            page.last_cookie = Some(dirent.cookie);
            let object = object.filter(|entry| entry.nodeid != 0);
            if [&b"."[..], b".."].contains(&name) {
                if object.is_some() {
                    return Err(Failed::Wrong("a listing has an object of . or ..".into()));
                }
                continue;
            }
            if let Some(entry) = &object {
                self.entered(dir, name, entry)?;
            }
            let kept =
                Kept { name: name.to_vec(), cookie: dirent.cookie, ino: dirent.ino, kind: dirent.kind };
            let attr = object.map(|entry| super::perform::attr_of(&entry.attr, None)).transpose()?;
            page.listed.push(Listed { attr, ..listed(kept)? });
        }
        Ok(page)
    }
}

fn listed(kept: Kept) -> Result<Listed, Failed> {
    let Kept { name, cookie, ino, kind } = kept;
    Ok(Listed { name, cookie, ino, file_type: file_type_of(kind)?, attr: None })
}

/// The type of a code.
pub(super) fn file_type_of(kind: u32) -> Result<FileType, Failed> {
    match kind {
        1 => Ok(FileType::Fifo),
        2 => Ok(FileType::CharDevice),
        4 => Ok(FileType::Directory),
        6 => Ok(FileType::BlockDevice),
        8 => Ok(FileType::Regular),
        10 => Ok(FileType::Symlink),
        12 => Ok(FileType::Socket),
        _ => Err(Failed::Wrong(format!("{kind} is the code of no type"))),
    }
}
