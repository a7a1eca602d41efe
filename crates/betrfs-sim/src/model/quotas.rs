//! Quotas of directories: what counts, and which operations they refuse.
//!
//! What is used is exact: the blocks and the number of the objects below the directory. An operation that
//! grows it over a limit must be refused. One may also be refused, or not, where files without a name, which
//! count no longer but hold their room until they are closed, would bring it over the limit.

use std::collections::BTreeSet;

use betrfs::{QuotaLimits, QuotaUse};

use super::refusal::refuse_if;
use super::{Body, Done, ObjectId, ROOT, Refusal, Standing, State, Why};
use crate::at::At;
use crate::op::Op;

/// The unit of what is set aside, in bytes.
const BLOCK: u64 = 4096;

/// What quotas say to a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// It must be made.
    Fits,
    /// It is made or refused.
    Either,
    /// It must be refused.
    Exceeds,
}

impl State {
    pub(super) fn set_quota(&mut self, at: &At, limits: Option<QuotaLimits>) -> Result<Done, Refusal> {
        let id = self.changeable_dir(self.resolve(at)?)?;
        let own = self.object(id).dir().and_then(|dir| dir.quota);
        refuse_if(limits.is_none() && own.is_none(), Why::NoData)?;
        refuse_if(own.is_none() && self.has_names_outside(id), Why::LinkedOutside)?;
        self.has_quotas = true;
        if let Some(dir) = self.change(id).dir_mut() {
            dir.quota = limits;
        }
        Ok(Done::default())
    }

    /// Whether a file below a directory has a name elsewhere.
    fn has_names_outside(&self, dir: ObjectId) -> bool {
        let mut below = Vec::new();
        self.names_below(dir, &mut below);
        let names_of = |id: ObjectId| below.iter().filter(|other| **other == id).count() as u32;
        below.iter().any(|id| !self.object(*id).is_dir() && self.object(*id).names > names_of(*id))
    }

    /// The objects below a directory, each once for each name.
    fn names_below(&self, dir: ObjectId, below: &mut Vec<ObjectId>) {
        for id in self.object(dir).dir().into_iter().flat_map(|dir| dir.entries.values()) {
            below.push(*id);
            self.names_below(*id, below);
        }
    }

    /// What counts below a directory.
    pub fn used(&self, dir: ObjectId) -> QuotaUse {
        let mut below = Vec::new();
        self.names_below(dir, &mut below);
        let objects: BTreeSet<ObjectId> = below.into_iter().collect();
        let bytes = objects.iter().map(|id| self.counted_bytes(*id)).sum();
        QuotaUse { bytes, objects: objects.len() as u64 }
    }

    fn counted_bytes(&self, id: ObjectId) -> u64 {
        self.object(id).contents().map_or(0, |contents| contents.blocks_512() * 512)
    }

    /// What files without a name may hold of quotas, wherever they were.
    fn held_by_unnamed(&self) -> QuotaUse {
        let holds = |id: &ObjectId| {
            let object = self.object(*id);
            let is_unnamed = !matches!(object.standing, Standing::Named | Standing::Gone);
            is_unnamed && matches!(object.body, Body::File(_))
        };
        let unnamed: Vec<ObjectId> = (0..self.objects_made() as ObjectId).filter(holds).collect();
        let bytes = unnamed.iter().map(|id| self.counted_bytes(*id)).sum();
        QuotaUse { bytes, objects: unnamed.len() as u64 }
    }

    /// The directories with a quota.
    fn quotas(&self) -> Vec<(ObjectId, QuotaLimits)> {
        let quota = |id: ObjectId| {
            let object = self.object(id);
            let is_live = object.standing == Standing::Named && !object.is_frozen;
            Some((id, object.dir().filter(|_| is_live)?.quota?))
        };
        (0..self.objects_made() as ObjectId).filter_map(quota).collect()
    }

    /// The quota that a directory is in: the directory that has it, and how many levels further up it is.
    pub fn quota_of(&self, dir: ObjectId) -> Option<(u64, ObjectId, QuotaLimits)> {
        let above = |id: &ObjectId| self.object(*id).dir().map(|dir| dir.parent).filter(|_| *id != ROOT);
        let ways = std::iter::successors(Some(dir), above);
        (0..).zip(ways).find_map(|(levels, id)| Some((levels, id, self.object(id).dir()?.quota?)))
    }

    /// The quota that the names of a file are in: all are in one.
    fn quota_of_file(&self, file: ObjectId) -> Option<ObjectId> {
        let has_it = |dir: &ObjectId| {
            let object = self.object(*dir);
            let dir = object.dir().filter(|_| object.standing == Standing::Named && !object.is_frozen);
            dir.is_some_and(|dir| dir.entries.values().any(|id| *id == file))
        };
        let dir = (0..self.objects_made() as ObjectId).find(has_it)?;
        self.quota_of(dir).map(|(_, quota, _)| quota)
    }

    /// What the quotas say to the change from a state to this one.
    pub(super) fn verdict_after(&self, before: &State) -> Verdict {
        let (had, has) = (before.held_by_unnamed(), self.held_by_unnamed());
        // Each dimension by itself: used before and after, held before and after, the limit.
        let of = |used: [u64; 2], held: [u64; 2], limit: Option<u64>| {
            let Some(limit) = limit else { return Verdict::Fits };
            let is_over = |before: u64, after: u64| after > before && after > limit;
            if is_over(used[0], used[1]) {
                Verdict::Exceeds
            } else if is_over(used[0] + held[0], used[1] + held[1])
                || used[1] > used[0] && used[1] + held[0].max(held[1]) > limit
            {
                Verdict::Either
            } else {
                Verdict::Fits
            }
        };
        let of_quota = |(id, limits): (ObjectId, QuotaLimits)| {
            // One that came with a copy counts from then on.
            let is_old = (id as usize) < before.objects_made()
                && before.object(id).dir().is_some_and(|dir| dir.quota.is_some());
            if !is_old {
                return Verdict::Fits;
            }
            let (was, is) = (before.used(id), self.used(id));
            let bytes = of([was.bytes, is.bytes], [had.bytes, has.bytes], limits.bytes);
            bytes.max(of([was.objects, is.objects], [had.objects, has.objects], limits.objects))
        };
        let named = self.quotas().into_iter().map(of_quota).max().unwrap_or(Verdict::Fits);
        // Quotas that are gone may still have files without a name.
        let grows = has.bytes > had.bytes || has.objects > had.objects;
        if grows { named.max(Verdict::Either) } else { named }
    }

    /// What quotas make of an operation that came to `done` from the state `before`; this is the state after
    /// it. Writes ask for each of their pieces.
    pub(super) fn under_quotas(
        &self,
        before: &State,
        op: &Op,
        done: Result<Done, Refusal>,
    ) -> Result<Done, Refusal> {
        let quota_at = |at: &At| {
            let (above, _) = at.split()?;
            let super::Spot::Object(dir) = before.resolve(&above).ok()? else { return None };
            before.quota_of(dir).map(|(_, quota, _)| quota)
        };
        let is_between = match op {
            Op::Rename { from, to, .. } => quota_at(from) != quota_at(to),
            Op::Link { from, to } => match before.resolve(from) {
                Ok(super::Spot::Object(file)) if before.object(file).standing == Standing::Named => {
                    before.quota_of_file(file) != quota_at(to)
                }
                _ => false,
            },
            _ => false,
        };
        let mut done = match done {
            Ok(_) if is_between => return Err(Why::OtherQuota.into()),
            Ok(done) => done,
            // Which of several reasons is told is left open.
            Err(Refusal::With(mut whys)) => {
                whys.push(if is_between { Why::OtherQuota } else { Why::QuotaExceeded });
                return Err(Refusal::With(whys));
            }
            Err(Refusal::Unsaid) => return Err(Refusal::Unsaid),
        };
        if matches!(op, Op::Write { .. } | Op::Append { .. } | Op::CopyRange { .. }) {
            return Ok(done);
        }
        match self.verdict_after(before) {
            // As above, of several reasons.
            Verdict::Exceeds => return Err(Refusal::With([vec![Why::QuotaExceeded], done.or].concat())),
            Verdict::Either => done.or.push(Why::QuotaExceeded),
            Verdict::Fits if self.may_lack_room(op) => done.or.push(Why::QuotaExceeded),
            Verdict::Fits => {}
        }
        Ok(done)
    }

    /// Whether an operation asks for room that it does not use: allocated blocks, and a whiteout in the place
    /// of what a rename replaces.
    fn may_lack_room(&self, op: &Op) -> bool {
        let asked = match op {
            Op::Fallocate { len, .. } => QuotaUse { bytes: len + 2 * BLOCK, objects: 0 },
            Op::Rename { flags, .. } if flags.whiteout => QuotaUse { bytes: 0, objects: 1 },
            _ => return false,
        };
        let held = self.held_by_unnamed();
        let is_over = |sum: u64, limit: Option<u64>| limit.is_some_and(|limit| sum > limit);
        self.quotas().into_iter().any(|(id, limits)| {
            let used = self.used(id);
            is_over(used.bytes + held.bytes + asked.bytes, limits.bytes)
                || is_over(used.objects + held.objects + asked.objects, limits.objects)
        })
    }
}
