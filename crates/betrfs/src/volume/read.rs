//! Reading bytes.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::contents::{read_block, read_blocks};
use crate::error::Result;
use crate::names::{InNamespace, Inode, Shared, State};
use crate::op::{Op, OpKind};
use crate::rules::check_file;
use crate::schema::key;
use crate::types::{Access, InodeId};
use crate::volume::Volume;

impl Volume {
    /// Replaces the contents of `out` by up to `len` bytes from `offset` on: fewer only at the end of the
    /// file.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let file = volume.create_with(InodeId::ROOT, b"file", &new_file, b"hello")?.node;
    /// let mut bytes = Vec::new();
    /// volume.read(file, 1, 3, &mut bytes)?;
    /// assert_eq!(bytes, b"ell");
    /// volume.read(file, 4, 100, &mut bytes)?;
    /// assert_eq!(bytes, b"o");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::IsADirectory`](crate::Error::IsADirectory) and [`Error::Invalid`](crate::Error::Invalid) for
    /// anything but a file; [`Error::Damaged`](crate::Error::Damaged) if a block is lost.
    pub fn read(&self, node: InodeId, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let op = self.query(OpKind::Read);
        out.clear();
        let inode = self.inode(node)?;
        let size = {
            let state = inode.state.read();
            check_file(&state.record)?;
            if let Some(content) = state.record.content() {
                out.extend_from_slice(part(content, offset, len));
                self.was_accessed(&inode, &state, Access::Counts);
                return Ok(());
            }
            state.record.size
        };
        let bytes = size.saturating_sub(offset).min(len as u64) as usize;
        out.try_reserve(bytes).map_err(|_| betree::Error::NoMemory { bytes: bytes as u64 })?;
        out.resize(bytes, 0);
        let filled = self.read_tree(&op, &inode, offset, out, Access::Counts)?;
        out.truncate(filled);
        Ok(())
    }

    /// Fills `out` with the bytes from `offset` on and returns their number: less than the length of `out`
    /// only at the end of the file.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::{Access, InodeId};
    ///
    /// let file = volume.create_with(InodeId::ROOT, b"file", &new_file, b"hello")?.node;
    /// let mut buffer = [0; 8];
    /// assert_eq!(volume.read_into(file, 1, &mut buffer, Access::Unnoticed)?, 4);
    /// assert_eq!(&buffer[..4], b"ello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn read_into(&self, node: InodeId, offset: u64, out: &mut [u8], access: Access) -> Result<usize> {
        let op = self.query(OpKind::Read);
        let inode = self.inode(node)?;
        {
            let state = inode.state.read();
            check_file(&state.record)?;
            if let Some(content) = state.record.content() {
                let filled = copy_part(content, offset, out);
                self.was_accessed(&inode, &state, access);
                return Ok(filled);
            }
        }
        self.read_tree(&op, &inode, offset, out, access)
    }

    /// Reads a file whose contents were not in memory a moment ago.
    fn read_tree(
        &self,
        op: &Op<'_>,
        inode: &Arc<Inode>,
        offset: u64,
        out: &mut [u8],
        access: Access,
    ) -> Result<usize> {
        let filled = op.without_waiting(|| {
            let shared = self.namespace.shared();
            let filled = {
                let state = inode.state.read();
                self.was_accessed(inode, &state, access);
                if self.contents.may_keep(&state.record) {
                    None
                } else {
                    Some(read_part(&shared, op, inode, &state, offset, out)?)
                }
            };
            match filled {
                Some(filled) => Ok(filled),
                None => self.read_whole(&shared, op, inode, offset, out),
            }
        })?;
        self.give_up_contents();
        Ok(filled)
    }

    /// Reads a small file as a whole and keeps it in memory.
    fn read_whole(
        &self,
        shared: &Shared<'_>,
        op: &Op<'_>,
        inode: &Arc<Inode>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        let mut guard = inode.state.write();
        let state = &mut *guard;
        // Another thread may have changed or read it meanwhile.
        if !self.contents.may_keep(&state.record) {
            return read_part(shared, op, inode, state, offset, out);
        }
        if state.record.content().is_none() {
            let mut bytes = read_block(op, &key::block(&inode.own_key()?, 0), &state.record)?;
            bytes.resize(state.record.size as usize, 0);
            self.contents.keep(&mut state.record, bytes.into_boxed_slice());
            if !state.content_queued {
                state.content_queued = true;
                let is_there = |node| self.table.get(node).is_some();
                self.contents.queue(inode.id, self.table.len(), is_there);
            }
        }
        Ok(copy_part(state.record.content().unwrap_or_default(), offset, out))
    }

    /// Drops contents until they are within their budget. The caller holds no inode's lock.
    fn give_up_contents(&self) {
        while let Some(node) = self.contents.next_to_drop() {
            let Some(inode) = self.table.get(node) else { continue };
            let mut state = inode.state.write();
            state.content_queued = false;
            state.record.drop_content();
        }
    }
}

/// Reads a part of a file.
fn read_part(
    _: &impl InNamespace,
    op: &Op<'_>,
    inode: &Inode,
    state: &State,
    offset: u64,
    out: &mut [u8],
) -> Result<usize> {
    let bytes = state.record.size.saturating_sub(offset).min(out.len() as u64) as usize;
    let (out, _) = out.split_at_mut(bytes);
    if !out.is_empty() {
        read_blocks(op, &inode.own_key()?, &state.record, offset, out)?;
    }
    Ok(bytes)
}

/// Up to `len` bytes of `content` from `offset` on.
fn part(content: &[u8], offset: u64, len: usize) -> &[u8] {
    let rest = usize::try_from(offset).ok().and_then(|from| content.get(from..)).unwrap_or_default();
    rest.get(..len).unwrap_or(rest)
}

/// Copies `content` from `offset` on into `out`, and returns the number of bytes copied.
fn copy_part(content: &[u8], offset: u64, out: &mut [u8]) -> usize {
    let part = part(content, offset, out.len());
    if let Some(room) = out.get_mut(..part.len()) {
        room.copy_from_slice(part);
    }
    part.len()
}
