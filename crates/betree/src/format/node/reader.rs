//! The parts of a node's header from bytes. Bytes that no version writes are refused.

use alloc::vec::Vec;

use super::{BadHeader, NO_CHILD, RunRef, Section, StoredAs, StoredEdge};
use crate::format::limits::BOUND_BYTES_MAX;
use crate::key::{Cut, Translation};
use crate::message::{Goto, Msn};
use crate::node_id::NodeId;

/// The bytes of a header that are still to be read, and the limits of what they may say.
pub(super) struct Reader<'b> {
    pub rest: &'b [u8],
    /// The length of the node's extent.
    pub extent_bytes: u64,
    /// The most bytes that the remaining runs may have together: as stored, and before compression.
    pub stored_left: u64,
    pub raw_left: u64,
    /// No message has this number yet.
    pub next_msn: Msn,
}

impl<'b> Reader<'b> {
    pub fn take(&mut self, len: usize) -> Result<&'b [u8], &'static str> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or("the header ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn u16(&mut self) -> Result<u16, &'static str> {
        let bytes = self.take(2)?.first_chunk().ok_or("the header ends too early")?;
        Ok(u16::from_le_bytes(*bytes))
    }

    pub fn u32(&mut self) -> Result<u32, &'static str> {
        let bytes = self.take(4)?.first_chunk().ok_or("the header ends too early")?;
        Ok(u32::from_le_bytes(*bytes))
    }

    pub fn u64(&mut self) -> Result<u64, &'static str> {
        let bytes = self.take(8)?.first_chunk().ok_or("the header ends too early")?;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub fn bytes(&mut self) -> Result<&'b [u8], &'static str> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    /// A bound's bytes, or a prefix.
    pub fn bound(&mut self) -> Result<&'b [u8], &'static str> {
        let bytes = self.bytes()?;
        if bytes.len() > BOUND_BYTES_MAX { Err("a bound longer than any key") } else { Ok(bytes) }
    }

    pub fn cut(&mut self) -> Result<Cut, &'static str> {
        match self.take(1)? {
            [0] => Ok(Cut::before(self.bound()?)),
            [1] => Ok(Cut::after(self.bound()?)),
            _ => Err("a bound on neither side"),
        }
    }

    fn run(&mut self) -> Result<RunRef, BadHeader> {
        let (offset, stored_len, raw_len) = (self.u32()?, self.u32()?, self.u32()?);
        let form = self.u32()?;
        let unknown = |number| BadHeader::Unknown { what: "a node has a run of codec", number };
        let (codec, ranges) = (form as u8, form >> 8);
        let (stored_as, asked) = StoredAs::and_asked(codec).ok_or(unknown(u64::from(codec)))?;
        let checksum = self.u64()?;
        if u64::from(offset) + u64::from(stored_len) > self.extent_bytes {
            return Err("a run outside of the extent".into());
        }
        if u64::from(raw_len) > stored_as.raw_len_max(stored_len) {
            return Err("a run longer than what is stored can hold".into());
        }
        let left = self.stored_left.checked_sub(stored_len.into());
        self.stored_left = left.ok_or("more runs than the extent has room for")?;
        let left = self.raw_left.checked_sub(raw_len.max(stored_len).into());
        self.raw_left = left.ok_or("more contents than this volume allows in a node")?;
        let last_msn = self.u64()?;
        if last_msn >= self.next_msn {
            return Err("a message that is newer than the volume".into());
        }
        Ok(RunRef { offset, stored_len, raw_len, stored_as, asked, ranges, checksum, last_msn })
    }

    pub fn runs(&mut self) -> Result<Vec<RunRef>, BadHeader> {
        let mut runs = Vec::new();
        for _ in 0..self.u32()? {
            runs.push(self.run()?);
        }
        if !runs.is_sorted_by(|older: &RunRef, newer| older.last_msn < newer.last_msn) {
            return Err("runs out of order".into());
        }
        Ok(runs)
    }

    /// A child, whose slot may be [`NO_CHILD`].
    fn child(&mut self) -> Result<NodeId, BadHeader> {
        let id = NodeId { slot: self.u32()?, generation: self.u32()? };
        match self.u16()? {
            0 => Ok(id),
            table => Err(BadHeader::Unknown {
                what: "a node has a child in the node table of number",
                number: table.into(),
            }),
        }
    }

    pub fn sections(&mut self) -> Result<Vec<Section>, BadHeader> {
        let mut sections: Vec<Section> = Vec::new();
        for _ in 0..self.u16()? {
            let (kind, offset, len) = (self.u16()?, self.u32()?, self.u32()?);
            let checksum = self.u64()?;
            if sections.last().is_some_and(|last| last.kind >= kind) {
                return Err("sections out of order".into());
            }
            if u64::from(offset) + u64::from(len) > self.extent_bytes {
                return Err("a section outside of the extent".into());
            }
            if kind & Section::MUST_BE_KNOWN != 0 {
                return Err(BadHeader::Unknown { what: "a node has a section of kind", number: kind.into() });
            }
            sections.push(Section { kind, offset, len, checksum });
        }
        Ok(sections)
    }

    pub fn edge(&mut self) -> Result<StoredEdge, BadHeader> {
        let hi = self.cut()?;
        let strip_len = self.u32()? as usize;
        let prepend = self.bound()?.to_vec();
        let child = Some(self.child()?).filter(|child| child.slot != NO_CHILD);
        let longest_key = self.u32()?;
        let partition = self.runs()?;
        let mut gotos = Vec::new();
        for _ in 0..self.u32()? {
            gotos.push(self.goto()?);
        }
        let translation = Translation { strip_len, prepend };
        Ok(StoredEdge { hi, translation, child, longest_key, partition, gotos })
    }

    fn goto(&mut self) -> Result<Goto, BadHeader> {
        Ok(Goto {
            lo: self.cut()?,
            hi: self.cut()?,
            translation: Translation { strip_len: self.u32()? as usize, prepend: self.bound()?.to_vec() },
            target: self.child()?,
            longest_key: self.u32()?,
        })
    }
}
