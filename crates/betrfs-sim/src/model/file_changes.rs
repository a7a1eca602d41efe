//! Operations that change the contents of files.

use betrfs::{FILE_BYTES_MAX, FallocateMode};

use super::quotas::Verdict;
use super::refusal::refuse_if;
use super::{Body, Contents, Done, Object, ObjectId, Refusal, Rules, Standing, State, Why};
use crate::at::At;

/// Ranges of this size and more are shared where both files have them at the same offset.
const SHARED_BYTES_MIN: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// Refuses a change that an object's flags forbid. Of one in a snapshot a mount may tell that first, as where
/// set-id bits are cleared before a write.
pub(super) fn refuse_protected(object: &Object, is_refused: bool) -> Result<(), Refusal> {
    match is_refused {
        false => Ok(()),
        true if object.is_frozen => Err(Refusal::With(vec![Why::Protected, Why::InSnapshot])),
        true => Err(Why::Protected.into()),
    }
}

impl State {
    /// Writes at an offset or at the end, in pieces. An append writes one piece.
    pub(super) fn write(
        &mut self,
        at: &At,
        offset: Option<u64>,
        data: &[u8],
        now_ns: i64,
        rules: &Rules,
    ) -> Result<Done, Refusal> {
        let id = self.find(at)?;
        refuse_if(
            offset.is_some_and(|offset| offset + data.len() as u64 > FILE_BYTES_MAX),
            Why::FileTooLarge,
        )?;
        let or = self.check_write(id, offset, data)?;
        let size = self.object(id).size();
        let mut pieces = match offset {
            Some(offset) => self.write_pieces(id, offset, data, now_ns, rules)?,
            None => {
                let piece = &data[..data.len().min(rules.piece_bytes as usize)];
                self.write_pieces(id, size, piece, now_ns, &Rules { piece_bytes: u64::MAX, ..*rules })?
            }
        };
        pieces.or.extend(or);
        Ok(pieces)
    }

    /// Whether a file can be written there; returns the errors that are possible as well.
    fn check_write(&self, id: ObjectId, offset: Option<u64>, data: &[u8]) -> Result<Vec<Why>, Refusal> {
        let object = self.object(id);
        check_file(object)?;
        if data.is_empty() {
            return Ok(Vec::new());
        }
        self.check_unprotected(id, offset)?;
        self.check_frozen(id)
    }

    /// Refuses changes that a file's flags forbid.
    fn check_unprotected(&self, id: ObjectId, offset: Option<u64>) -> Result<(), Refusal> {
        let object = self.object(id);
        let is_before_end = offset.is_some_and(|offset| offset < object.size());
        refuse_protected(object, if is_before_end { object.is_protected() } else { object.is_immutable() })
    }

    /// Refuses changes in a snapshot. Of a file whose snapshot was removed it is open whether it can be
    /// changed.
    pub(super) fn check_frozen(&self, id: ObjectId) -> Result<Vec<Why>, Refusal> {
        let object = self.object(id);
        match (object.is_frozen, object.standing) {
            (false, _) => Ok(Vec::new()),
            (true, Standing::Named) => Err(Why::InSnapshot.into()),
            (true, _) => Ok(vec![Why::InSnapshot]),
        }
    }

    /// Writes bytes in pieces, as many as quotas have room for.
    fn write_pieces(
        &mut self,
        id: ObjectId,
        offset: u64,
        data: &[u8],
        now_ns: i64,
        rules: &Rules,
    ) -> Result<Done, Refusal> {
        let (mut at, mut rest, mut done) = (offset, data, Done::default());
        while !rest.is_empty() {
            let len = (rules.piece_bytes - at % rules.piece_bytes).min(rest.len() as u64);
            let (piece, after) = rest.split_at(len as usize);
            let before = self.has_quotas.then(|| self.clone());
            let object = self.change(id);
            if let Body::File(contents) = &mut object.body {
                contents.write(at, piece);
            }
            object.modified(now_ns);
            object.drop_capabilities();
            let is_whole = len == data.len() as u64;
            match before.map(|before| (self.verdict_after(&before), before)) {
                Some((Verdict::Exceeds, before)) => {
                    *self = before;
                    if done.written == 0 {
                        return Err(Why::QuotaExceeded.into());
                    }
                    break;
                }
                Some((Verdict::Either, _)) if is_whole => done.or.push(Why::QuotaExceeded),
                // How many of several pieces fit is not said.
                Some((Verdict::Either, _)) => return Err(Refusal::Unsaid),
                Some((Verdict::Fits, _)) | None => {}
            }
            done.written += len;
            (at, rest) = (at + len, after);
            if !rest.is_empty() {
                done.between.push(self.clone());
            }
        }
        Ok(done)
    }

    pub(super) fn fallocate(
        &mut self,
        at: &At,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        now_ns: i64,
    ) -> Result<Done, Refusal> {
        let id = self.find(at)?;
        refuse_if(len == 0, Why::Invalid)?;
        let object = self.object(id);
        check_file(object)?;
        let is_refused = match mode {
            FallocateMode::Allocate { .. } => object.is_immutable(),
            _ => object.is_protected(),
        };
        refuse_if(is_refused, Why::Protected)?;
        let or = self.check_frozen(id)?;
        let object = self.change(id);
        if let Body::File(contents) = &mut object.body
            && contents.fallocate(mode, offset, len)
        {
            object.modified(now_ns);
        }
        Ok(Done { or, ..Done::default() })
    }

    pub(super) fn copy_range(
        &mut self,
        (from, from_offset): (&At, u64),
        (to, to_offset): (&At, u64),
        len: u64,
        now_ns: i64,
        rules: &Rules,
    ) -> Result<Done, Refusal> {
        let (from, to) = (self.find(from)?, self.find(to)?);
        let overlaps = from_offset < to_offset + len && to_offset < from_offset + len;
        refuse_if(from == to && overlaps, Why::Invalid)?;
        let may_share = from_offset == to_offset && from != to && len >= SHARED_BYTES_MIN;
        if may_share && from_offset.is_multiple_of(BLOCK) {
            check_file(self.object(from))?;
            check_file(self.object(to))?;
            self.check_unprotected(to, Some(to_offset))?;
            let (source, size) = (self.contents(from)?, self.object(to).size());
            let wanted = to_offset + len;
            let is_whole = wanted >= source.size() && size <= source.size();
            let end = if is_whole { source.size() } else { wanted.min(source.size()) / BLOCK * BLOCK };
            if end.saturating_sub(to_offset) >= SHARED_BYTES_MIN {
                let mut or = self.check_frozen(to)?;
                let before = self.has_quotas.then(|| self.clone());
                let object = self.change(to);
                if let Body::File(contents) = &mut object.body {
                    contents.share(&source, to_offset, end);
                }
                object.modified(now_ns);
                object.drop_capabilities();
                match before.map(|before| self.verdict_after(&before)) {
                    Some(Verdict::Exceeds) => return Err(Why::QuotaExceeded.into()),
                    Some(Verdict::Either) => or.push(Why::QuotaExceeded),
                    Some(Verdict::Fits) | None => {}
                }
                return Ok(Done { or, written: end - to_offset, ..Done::default() });
            }
        }
        check_file(self.object(from))?;
        let source = self.contents(from)?;
        let data = source.part(from_offset, len as usize).to_vec();
        let or = if data.is_empty() { Vec::new() } else { self.check_write(to, Some(to_offset), &data)? };
        // Each piece that is read is written by itself; the time of access may come along with any.
        self.read_by_history(from, now_ns, rules);
        let mut done = Done { or, ..Done::default() };
        for (number, piece) in data.chunks(rules.piece_bytes as usize).enumerate() {
            if number > 0 {
                done.between.push(self.clone());
            }
            let at = to_offset + number as u64 * rules.piece_bytes;
            let part = match self.write_pieces(to, at, piece, now_ns, rules) {
                Err(Refusal::With(_)) if number > 0 => break,
                part => part?,
            };
            if !part.or.is_empty() && data.len() > piece.len() {
                return Err(Refusal::Unsaid);
            }
            done.between.extend(part.between);
            done.or.extend(part.or);
            done.written += part.written;
            if part.written < piece.len() as u64 {
                break;
            }
        }
        Ok(done)
    }

    fn contents(&self, id: ObjectId) -> Result<Contents, Refusal> {
        self.object(id).contents().cloned().ok_or(Why::Invalid.into())
    }
}

/// Whether an object has bytes.
pub(super) fn check_file(object: &Object) -> Result<(), Refusal> {
    match object.body {
        Body::File(_) => Ok(()),
        Body::Dir(_) => Err(Why::IsADirectory.into()),
        _ => Err(Why::Invalid.into()),
    }
}
