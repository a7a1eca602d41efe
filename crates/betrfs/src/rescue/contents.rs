//! Blocks of files, and extended attributes.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use super::names::reasons;
use super::{Copying, Location, Lost};
use crate::schema::block::{BLOCK, BLOCK_BYTES};
use crate::schema::key::{self, DataTag};
use crate::schema::{DATA, Extents, Record, Recount, XattrValue};

/// The longest value of an extended attribute, as Linux allows it.
const VALUE_BYTES_MAX: usize = 64 << 10;

impl Copying<'_> {
    /// The extended attributes of an object.
    pub(super) fn attributes(&mut self, own: &[u8], of: &Location, record: &Record) -> ControlFlow<()> {
        for attr in &record.xattrs {
            let why = match &attr.value {
                XattrValue::Inline(value) => {
                    self.to.attribute(&attr.name, value)?;
                    continue;
                }
                XattrValue::Stored(len) => match self.op.get(DATA, &key::xattr(own, &attr.name)) {
                    Ok(Some(value)) if value.len() > VALUE_BYTES_MAX => "it is too long".into(),
                    Ok(Some(value)) if value.len() == *len as usize => {
                        self.to.attribute(&attr.name, &value)?;
                        continue;
                    }
                    Ok(Some(_)) => "its length is wrong".into(),
                    Ok(None) => "its value is not there".into(),
                    Err(error) => error.to_string(),
                },
            };
            self.to.lost(&Lost::Attribute { of: of.clone(), name: attr.name.clone() }, &why)?;
        }
        ControlFlow::Continue(())
    }

    /// The blocks of a file. Without a record, all that are there are taken.
    pub(super) fn blocks(&mut self, own: &[u8], of: &Location, record: Option<&Record>) -> ControlFlow<()> {
        let size = record.map_or(u64::MAX, |record| record.size);
        let is_dense = record.is_some_and(|record| !record.is_sparse());
        let mut recount = record.and_then(Record::extents).map(Extents::recount);
        // The number of the block that is due, and whether any could not be read.
        let (mut due, mut lacks) = (0u64, false);
        let mut pairs = self.op.scan(DATA, key::blocks_from(own, 0));
        loop {
            let mut passed = Vec::new();
            let next = pairs.next_past(&mut |unreadable| passed.push(unreadable));
            for unreadable in passed {
                let behind = key::first_block_behind(own, &unreadable.hi);
                lacks = true;
                self.bytes_lost(of, size, (due, behind), &reasons(&unreadable))?;
                due = due.max(behind);
            }
            let Some((at, block)) = next else { break };
            let Some((_, DataTag::Block(number))) = key::split_data(at) else {
                self.to.lost(&Lost::Senseless(key::describe(at)), "it is no key of a block")?;
                continue;
            };
            if number > due && is_dense {
                self.bytes_lost(of, size, (due, number), "the blocks are not there")?;
            }
            due = number.saturating_add(1);
            if block.len() > BLOCK_BYTES {
                self.bytes_lost(of, size, (number, due), "the block is too long")?;
                continue;
            }
            if let Some(recount) = &mut recount {
                recount.found(number);
            }
            let offset = number.saturating_mul(BLOCK);
            let room = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
            let bytes = block.get(..room).unwrap_or(block);
            if !bytes.is_empty() {
                self.to.data(offset, bytes)?;
            }
        }
        if is_dense {
            self.bytes_lost(of, size, (due, size.div_ceil(BLOCK)), "the blocks are not there")?;
        }
        match recount.and_then(Recount::finish) {
            Some(number) if !lacks => {
                let why = "other blocks are there than the record of the file says";
                self.bytes_lost(of, size, (number, number.saturating_add(1)), why)
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// Tells of blocks that are lost, as far as they are in the file.
    fn bytes_lost(
        &mut self,
        of: &Location,
        size: u64,
        (first, end): (u64, u64),
        why: &str,
    ) -> ControlFlow<()> {
        let (from, to) = (first.saturating_mul(BLOCK), end.saturating_mul(BLOCK).min(size));
        if from >= to {
            return ControlFlow::Continue(());
        }
        self.to.lost(&Lost::Bytes { of: of.clone(), from, to }, why)
    }
}
