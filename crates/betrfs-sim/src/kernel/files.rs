//! Requests about contents, and the kernel's pages.

use betrfs::{FallocateMode, SeekWhat, SetAttr, TimeSet};
use betrfs_fuse::Errno;
use betrfs_fuse::wire::{self, Opcode, fattr};

use super::cache::{PAGE_BYTES, is_file, stale};
use super::names::libc_flags::{APPEND, RDONLY, TRUNC, WRONLY};
use super::{Kernel, Open};
use crate::at::{At, Base};
use crate::client::Failed;

/// The most bytes of one READ or WRITE.
const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// The flag of fallocate(2) that leaves the size as it is.
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

impl Kernel {
    /// Opens a file.
    pub(super) fn open(&self, node: u64, flags: i32) -> Result<Open, Failed> {
        let flags = flags as u32;
        let kills = self.manner.is_plain && flags as i32 & TRUNC != 0;
        let open_flags = if kills { wire::OPEN_KILL_SUIDGID } else { 0 };
        let reply = self.send(Opcode::Open, node, &wire::OpenIn { flags, open_flags }, b"")?;
        let open = Open::of(node, &Self::parse(&reply)?, flags);
        if flags as i32 & TRUNC != 0 {
            let mut caches = self.caches.lock();
            caches.mark(node, stale::WRITTEN);
            if let Some(inode) = caches.inodes.get_mut(&node) {
                inode.attr.size = 0;
                inode.pages.clear();
            }
        }
        Ok(open)
    }

    /// Closes a file.
    pub(super) fn release(&self, open: Open) {
        let release = wire::ReleaseIn { fh: open.fh, flags: open.flags, ..wire::ReleaseIn::default() };
        // Nobody waits for its reply.
        let _ = self.send(Opcode::Release, open.node, &release, b"");
    }

    /// Runs `run` with a file that is open for writing or reading: the one of a slot, or one opened for this.
    fn with_open<T>(
        &self,
        at: &At,
        node: u64,
        flags: i32,
        run: impl FnOnce(&Open) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        if let (Base::Slot(slot), true) = (at.base, at.names.is_empty())
            && let Some(open) = self.held.get(&slot).and_then(|held| held.open)
            && open.flags as i32 & 3 == flags & 3
        {
            return run(&open);
        }
        let open = self.open(node, flags)?;
        let result = run(&open);
        self.release(open);
        result
    }

    fn is_file(&self, node: u64) -> bool {
        self.caches.lock().inodes.get(&node).is_some_and(|inode| is_file(&inode.attr))
    }

    /// Writes; returns the number of bytes.
    pub(super) fn write(&mut self, at: &At, offset: u64, data: &[u8]) -> Result<u64, Failed> {
        let node = self.walk(at)?;
        if let Some(open) = self.made.take() {
            let written = self.write_by(&open, offset, data);
            self.release(open);
            return written;
        }
        if !self.is_file(node) {
            // The kernel opens nothing else for writing; the server refuses it itself.
            let open = Open { node, fh: 0, flags: WRONLY as u32, is_past_pages: false };
            return self.write_by(&open, offset, data);
        }
        let flags = if self.manner.only_at_end { WRONLY | APPEND } else { WRONLY };
        self.with_open(at, node, flags, |open| self.write_by(open, offset, data))
    }

    fn write_by(&self, open: &Open, offset: u64, data: &[u8]) -> Result<u64, Failed> {
        let mut done = 0;
        loop {
            let from = offset + done;
            let rest = &data[done as usize..];
            let len = (REQUEST_BYTES_MAX - from % REQUEST_BYTES_MAX).min(rest.len() as u64);
            let piece = &rest[..len as usize];
            match self.write_piece(open, from, piece) {
                Ok(written) => {
                    done += written;
                    if written < len || done == data.len() as u64 {
                        return Ok(done);
                    }
                }
                Err(failed) if done == 0 => return Err(failed),
                Err(_) => return Ok(done),
            }
        }
    }

    fn write_piece(&self, open: &Open, offset: u64, piece: &[u8]) -> Result<u64, Failed> {
        let write_flags = if self.manner.is_plain { wire::WRITE_KILL_SUIDGID } else { 0 };
        let write = wire::WriteIn {
            fh: open.fh,
            offset,
            size: piece.len() as u32,
            write_flags,
            flags: open.flags,
            ..wire::WriteIn::default()
        };
        let end = offset + piece.len() as u64;
        let reply = self.send(Opcode::Write, open.node, &write, piece);
        let mut caches = self.caches.lock();
        let inode = caches.inodes.get_mut(&open.node);
        let written = match reply.and_then(|reply| Self::parse::<wire::WriteOut>(&reply)) {
            Ok(out) if out.size as usize <= piece.len() => u64::from(out.size),
            Ok(out) => {
                return Err(Failed::Wrong(format!("{} of {} bytes were written", out.size, piece.len())));
            }
            Err(failed) => {
                inode.into_iter().for_each(|inode| inode.drop_pages(offset, end));
                return Err(failed);
            }
        };
        if let Some(inode) = inode {
            if open.is_past_pages {
                inode.drop_pages(offset, end);
            } else {
                inode.write_pages(offset, &piece[..written as usize]);
            }
            inode.attr.size = inode.attr.size.max(offset + written);
            inode.stale |= stale::WRITTEN;
        }
        Ok(written)
    }

    /// Reads, by the pages where it is a file.
    pub(super) fn read(&self, at: &At, offset: u64, len: usize) -> Result<Vec<u8>, Failed> {
        let node = self.walk(at)?;
        if !self.is_file(node) {
            return self.ask_bytes(
                node,
                &Open { node, fh: 0, flags: 0, is_past_pages: false },
                offset,
                len as u64,
            );
        }
        self.with_open(at, node, RDONLY, |open| self.read_pages(open, offset, len as u64))
    }

    fn read_pages(&self, open: &Open, offset: u64, len: u64) -> Result<Vec<u8>, Failed> {
        let node = open.node;
        let size_of = || self.caches.lock().inodes.get(&node).map_or(0, |inode| inode.attr.size);
        // A file that grows grows by the kernel's own doing, so its size is asked for only where a read
        // reaches its end.
        let size = if offset + len > size_of() { self.attributes(node)?.size } else { size_of() };
        let end = (offset + len).min(size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let (first, last) = (offset / PAGE_BYTES, end.div_ceil(PAGE_BYTES));
        let missing: Vec<u64> = {
            let caches = self.caches.lock();
            let pages = caches.inodes.get(&node).map(|inode| &inode.pages);
            (first..last).filter(|page| pages.is_none_or(|pages| !pages.contains_key(page))).collect()
        };
        self.caches.lock().counts.reads += u64::from(missing.is_empty());
        for run in missing.chunk_by(|one, next| one + 1 == *next) {
            self.fill(open, run)?;
        }
        let mut bytes = Vec::new();
        let caches = self.caches.lock();
        let inode =
            caches.inodes.get(&node).ok_or_else(|| Failed::Wrong("an open file is forgotten".into()))?;
        for page in first..last {
            bytes.extend_from_slice(inode.pages.get(&page).map_or(&[][..], Vec::as_slice));
        }
        // A short reply has made the file shorter.
        let end = end.min(inode.attr.size);
        let skip = (offset % PAGE_BYTES) as usize;
        Ok(bytes.get(skip..skip + end.saturating_sub(offset) as usize).unwrap_or_default().to_vec())
    }

    /// Brings pages that lie together.
    fn fill(&self, open: &Open, run: &[u64]) -> Result<(), Failed> {
        for pages in run.chunks((REQUEST_BYTES_MAX / PAGE_BYTES) as usize) {
            let (offset, len) = (pages[0] * PAGE_BYTES, pages.len() as u64 * PAGE_BYTES);
            let mut bytes = self.ask_bytes(open.node, open, offset, len)?;
            let mut caches = self.caches.lock();
            let Some(inode) = caches.inodes.get_mut(&open.node) else { return Ok(()) };
            inode.stale |= stale::ATIME;
            let end = offset + bytes.len() as u64;
            if (bytes.len() as u64) < len && end < inode.attr.size {
                inode.attr.size = end;
            }
            bytes.resize(len as usize, 0);
            for (page, bytes) in pages.iter().zip(bytes.chunks(PAGE_BYTES as usize)) {
                inode.pages.insert(*page, bytes.to_vec());
            }
        }
        Ok(())
    }

    fn ask_bytes(&self, node: u64, open: &Open, offset: u64, len: u64) -> Result<Vec<u8>, Failed> {
        let read = wire::ReadIn {
            fh: open.fh,
            offset,
            size: len as u32,
            flags: open.flags,
            ..wire::ReadIn::default()
        };
        let bytes = self.send(Opcode::Read, node, &read, b"")?;
        if bytes.len() as u64 > len {
            return Err(Failed::Wrong(format!("READ returned {} of {len} bytes", bytes.len())));
        }
        Ok(bytes)
    }

    /// Looks for data or a hole.
    pub(super) fn seek(&self, at: &At, offset: u64, what: SeekWhat) -> Result<u64, Failed> {
        let whence = if what == SeekWhat::Data { 3 } else { 4 };
        let seek = wire::LseekIn { offset, whence, ..wire::LseekIn::default() };
        let reply = self.send(Opcode::Lseek, self.walk(at)?, &seek, b"")?;
        Ok(Self::parse::<wire::LseekOut>(&reply)?.offset)
    }

    /// Allocates, punches, zeroes.
    pub(super) fn fallocate(
        &self,
        at: &At,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    ) -> Result<(), Failed> {
        let node = self.walk(at)?;
        let bits = match mode {
            FallocateMode::Allocate { keep_size } => {
                if keep_size {
                    KEEP_SIZE
                } else {
                    0
                }
            }
            FallocateMode::PunchHole => PUNCH_HOLE | KEEP_SIZE,
            FallocateMode::Zero { keep_size } => ZERO_RANGE | if keep_size { KEEP_SIZE } else { 0 },
        };
        let fallocate = wire::FallocateIn { offset, length, mode: bits, ..wire::FallocateIn::default() };
        self.send(Opcode::Fallocate, node, &fallocate, b"")?;
        let mut caches = self.caches.lock();
        if let Some(inode) = caches.inodes.get_mut(&node) {
            if bits & KEEP_SIZE == 0 {
                inode.attr.size = inode.attr.size.max(offset + length);
            }
            if bits & (PUNCH_HOLE | ZERO_RANGE) != 0 {
                inode.drop_pages(offset, offset + length);
            }
            inode.stale |= stale::WRITTEN;
        }
        Ok(())
    }

    /// Copies between files; returns the number of bytes.
    pub(super) fn copy_range(&self, from: (&At, u64), to: (&At, u64), len: u64) -> Result<u64, Failed> {
        let (node, nodeid_out) = (self.walk(from.0)?, self.walk(to.0)?);
        let copy = wire::CopyFileRangeIn {
            offset_in: from.1,
            nodeid_out,
            offset_out: to.1,
            len,
            ..wire::CopyFileRangeIn::default()
        };
        let copied = if self.manner.is_old {
            let reply = self.send(Opcode::CopyFileRange, node, &copy, b"")?;
            u64::from(Self::parse::<wire::WriteOut>(&reply)?.size)
        } else {
            let reply = self.send(Opcode::CopyFileRange64, node, &copy, b"")?;
            Self::parse::<wire::CopyFileRangeOut>(&reply)?.bytes_copied
        };
        let mut caches = self.caches.lock();
        caches.mark(node, stale::ATIME);
        if let Some(inode) = caches.inodes.get_mut(&nodeid_out) {
            inode.drop_pages(to.1, to.1 + copied);
            if copied > 0 {
                inode.attr.size = inode.attr.size.max(to.1 + copied);
            }
            inode.stale |= stale::WRITTEN;
        }
        Ok(copied)
    }

    /// Sets attributes.
    pub(super) fn set_attributes(&self, at: &At, set: &SetAttr) -> Result<wire::Attr, Failed> {
        let node = self.walk(at)?;
        let only_size = SetAttr { size: set.size, kill_set_id: set.kill_set_id, ..SetAttr::default() };
        if self.manner.is_old && set.size == Some(0) && *set == only_size && self.is_file(node) {
            let open = self.open(node, WRONLY | TRUNC)?;
            self.release(open);
            return self.attributes(node);
        }
        let request = setattr_of(set);
        let reply = self.send(Opcode::Setattr, node, &request, b"")?;
        let out: wire::AttrOut = Self::parse(&reply)?;
        let before = self.caches.lock().inodes.get(&node).map(|inode| inode.attr.size);
        self.told(node, &out);
        if set.size.is_some()
            && before != Some(out.attr.size)
            && let Some(inode) = self.caches.lock().inodes.get_mut(&node)
        {
            inode.pages.clear();
        }
        Ok(out.attr)
    }

    /// Makes an object durable.
    pub(super) fn fsync(&self, at: &At) -> Result<(), Failed> {
        let node = self.walk(at)?;
        let is_dir =
            self.caches.lock().inodes.get(&node).is_none_or(|inode| super::cache::is_dir(&inode.attr));
        let opcode = if is_dir { Opcode::Fsyncdir } else { Opcode::Fsync };
        self.send(opcode, node, &[0_u8; 16], b"")?;
        Ok(())
    }

    /// The attributes of an object, with the time of creation if the request has it.
    pub(super) fn stat(&self, at: &At) -> Result<(wire::Attr, Option<i64>), Failed> {
        let node = self.walk(at)?;
        if self.manner.is_old {
            return Ok((self.attributes(node)?, None));
        }
        let reply = self.send(Opcode::Statx, node, &wire::StatxIn::default(), b"")?;
        let out: wire::StatxOut = Self::parse(&reply)?;
        let attr = self.attributes(node)?;
        let (stat, told) = (&out.stat, &attr);
        let is_same =
            (stat.ino, stat.size, stat.blocks, u32::from(stat.mode), stat.nlink, stat.uid, stat.gid)
                == (told.ino, told.size, told.blocks, told.mode, told.nlink, told.uid, told.gid);
        if !is_same {
            return Err(Failed::Wrong(format!("STATX tells {stat:?}, and GETATTR {told:?}")));
        }
        Ok((attr, Some(stat.btime.seconds * 1_000_000_000 + i64::from(stat.btime.nanoseconds))))
    }

    pub(super) fn held_node(&self, at: &At) -> Result<u64, Errno> {
        match at.base {
            Base::Slot(slot) if at.names.is_empty() => Ok(self.held.get(&slot).ok_or(Errno::STALE)?.node),
            _ => Err(Errno::INVAL),
        }
    }
}

fn setattr_of(set: &SetAttr) -> wire::SetattrIn {
    let mut request = wire::SetattrIn::default();
    let mut valid = 0;
    let mut has = |is_set: bool, bits: u32| valid |= if is_set { bits } else { 0 };
    has(set.perm.is_some(), fattr::MODE);
    has(set.uid.is_some(), fattr::UID);
    has(set.gid.is_some(), fattr::GID);
    has(set.size.is_some(), fattr::SIZE);
    has(set.atime_ns.is_some(), fattr::ATIME);
    has(set.atime_ns == Some(TimeSet::Now), fattr::ATIME_NOW);
    has(set.mtime_ns.is_some(), fattr::MTIME);
    has(set.mtime_ns == Some(TimeSet::Now), fattr::MTIME_NOW);
    has(set.ctime_ns.is_some(), fattr::CTIME);
    has(set.kill_set_id, fattr::KILL_SUIDGID);
    request.valid = valid;
    request.mode = set.perm.map_or(0, u32::from);
    request.uid = set.uid.unwrap_or(0);
    request.gid = set.gid.unwrap_or(0);
    request.size = set.size.unwrap_or(0);
    let time = |set: Option<TimeSet>| match set {
        Some(TimeSet::At(ns)) => (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000) as u32),
        _ => (0, 0),
    };
    (request.atime, request.atime_nsec) = time(set.atime_ns);
    (request.mtime, request.mtime_nsec) = time(set.mtime_ns);
    (request.ctime, request.ctime_nsec) = time(set.ctime_ns.map(TimeSet::At));
    request
}
