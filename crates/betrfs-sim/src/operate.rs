//! Operations on both sides: the client does them on the volume, the model says what should come of it.

use betrfs::{FileType, SetAttr};

use crate::at::At;
use crate::client::{By, Failed, Parts};
use crate::failure::{Failure, wrong};
use crate::kernel::connection::PLAIN_USER;
use crate::listing::Listing;
use crate::model::{Done, Lag, Refusal, Spot, State, Why};
use crate::op::Op;
use crate::other_syncs;
use crate::perform::Answer;
use crate::world::World;

/// What should come of an operation.
struct Right {
    /// The state that it leaves if it succeeds.
    after: State,
    /// Whether it succeeds.
    outcome: Result<Done, Vec<Why>>,
    /// The state that it leaves if it is refused, where that is another one: without the set-id bits.
    refused: Option<State>,
}

impl World {
    /// Does an operation on both sides, in the parts that the client makes of it.
    pub(crate) fn operate(&mut self, op: &Op, now_ns: i64) -> Result<(), Failure> {
        let Some(client) = &mut self.client else { return wrong("no volume is open") };
        let Some(Parts { ops, undo }) = client.parts(op, self.past.latest()) else {
            self.reached.note("left out");
            return Ok(());
        };
        for (number, part) in ops.iter().enumerate() {
            if self.operate_part(part, now_ns)? || self.disk.disk().is_cut() {
                continue;
            }
            if number > 0 {
                undo.iter().try_for_each(|part| self.operate_part(part, now_ns).map(drop))?;
            }
            break;
        }
        Ok(())
    }

    /// What should come of an operation; `None` if the model does not say.
    fn right(&self, op: &Op, now_ns: i64) -> Option<Right> {
        let mut after = self.past.latest().clone();
        let (mut refused, mut or) = (None, Vec::new());
        if let Some((at, outside_group)) = self.loses_set_id_first(op) {
            let set = SetAttr { kill_set_id: true, outside_group, ..SetAttr::default() };
            match after.apply(&Op::SetAttr { at: at.clone(), set }, now_ns, &self.rules) {
                Ok(done) => or = done.or,
                Err(Refusal::With(whys)) => return Some(Right { after, outcome: Err(whys), refused }),
                Err(Refusal::Unsaid) => return None,
            }
            refused = Some(after.clone());
        }
        let outcome = match after.apply(op, now_ns, &self.rules) {
            Ok(mut done) => {
                refused.iter().for_each(|state| done.between.insert(0, state.clone()));
                done.or.extend(or);
                Ok(done)
            }
            Err(Refusal::With(whys)) => Err(whys),
            Err(Refusal::Unsaid) => return None,
        };
        if let (By::Requests, Op::Open { slot, .. } | Op::OpenHeld { slot }) = (self.by, op)
            && let Some(held) = after.slots().get(slot).copied()
        {
            // What is read from the kernel's pages later is not seen.
            after.read_by_history(held.id, now_ns, &self.rules);
        }
        Some(Right { after, outcome, refused })
    }

    /// The file whose set-id bits are cleared before an operation changes it, as a change of its own, and
    /// whether the caller is outside of its group.
    fn loses_set_id_first<'a>(&self, op: &'a Op) -> Option<(&'a At, bool)> {
        let sets_aside = self.client.as_ref().is_some_and(|client| client.sets_id_aside());
        let at = match op {
            Op::SetAttr { at, set } if set.kill_set_id && self.by == By::Requests => at,
            Op::Write { at, .. } | Op::Fallocate { at, .. } if sets_aside => at,
            // Without a source there is no request.
            Op::CopyRange { from, to, .. } if sets_aside && self.past.latest().resolve(from).is_ok() => to,
            _ => return None,
        };
        let Ok(Spot::Object(id)) = self.past.latest().resolve(at) else { return None };
        let object = self.past.latest().object(id);
        let outside_group = sets_aside && object.gid != PLAIN_USER;
        let loses_any = object.file_type() == FileType::Regular && object.loses_set_id(outside_group);
        loses_any.then_some((at, outside_group))
    }

    /// Does a part of an operation; returns whether it succeeded.
    fn operate_part(&mut self, op: &Op, now_ns: i64) -> Result<bool, Failure> {
        let Some(Right { mut after, outcome, refused }) = self.right(op, now_ns) else {
            self.reached.note("left out");
            return Ok(false);
        };
        let cookie = match op {
            Op::ListOn { slot, .. } => self.listings.entry(*slot).or_default().cookie(),
            _ => 0,
        };
        let Some(client) = &mut self.client else { return wrong("no volume is open") };
        if let Op::Close { slot } = op
            && let Some(held) = self.past.latest().slots().get(slot)
        {
            client.close_slot(*slot, held.is_open);
            self.listings.remove(slot);
        }
        other_syncs::op_begins();
        let result = client.perform(op, cookie);
        if let (Op::CopyRange { from, .. }, Err(_)) = (op, &result) {
            self.may_have_read(from, now_ns);
        }
        if other_syncs::take_was() {
            self.reached.note("another program synced within an operation");
            self.past.is_durable();
            if matches!(op, Op::Restore { .. }) {
                self.remade_from = Some(self.past.latest().next_object());
            }
        }
        let is_cut = self.disk.disk().is_cut();
        if self.disk.has_struck() {
            after.note_lag(Lag::Names);
        }
        match (result, outcome) {
            (Err(failed), outcome) if is_cut => {
                match (outcome, refused) {
                    (Ok(done), _) => self.past.unfinished(done.between, after),
                    (Err(_), Some(refused)) => self.past.unfinished(Vec::new(), refused),
                    (Err(_), None) => {}
                }
                Err(failed.into())
            }
            (Ok(Answer::Written(count)), Ok(done)) if count != done.written && is_cut => {
                self.past.unfinished(done.between, after);
                Ok(false)
            }
            (Ok(Answer::Written(count)), Ok(done)) if count < done.written && self.disk.has_struck() => {
                self.stopped_early(op, count, now_ns).map(|()| true)
            }
            // Nothing was changed.
            (Err(failed), _) if self.excuses(&failed) => Err(failed.into()),
            (Ok(answer), Ok(done)) => {
                if let Answer::Written(count) = answer
                    && count != done.written
                {
                    return wrong(format!("it took {count} bytes, and should take {}", done.written));
                }
                self.past.add(done.between, after);
                if matches!(op, Op::Fsync { .. } | Op::Sync) {
                    self.past.is_durable();
                }
                if matches!(op, Op::Restore { .. }) {
                    self.listings.values_mut().for_each(Listing::were_replaced);
                }
                self.names_may_have_changed();
                self.judge(op, &answer).or_else(wrong)?;
                self.check_memory()?;
                if matches!(op, Op::Restore { .. }) && self.disk.has_struck() {
                    // The state before may become a snapshot only once the disk is sound.
                    self.heal()?;
                }
                Ok(true)
            }
            (Err(failed), Ok(done)) if failed.is_of(&done.or) => {
                self.note_refusal(&failed);
                Ok(false)
            }
            (Err(failed), Err(whys)) if failed.is_of(&whys) => {
                self.reached.note("refused");
                self.note_refusal(&failed);
                refused.into_iter().for_each(|state| self.past.add(Vec::new(), state));
                self.check_memory()?;
                Ok(false)
            }
            (Err(failed), Err(whys)) => {
                wrong(format!("it was refused with \"{failed}\", and should be with one of {whys:?}"))
            }
            (Err(failed), Ok(_)) => wrong(format!("it failed with \"{failed}\", and should not")),
            (Ok(_), Err(whys)) => wrong(format!("it succeeded, and should be refused with one of {whys:?}")),
        }
    }

    fn note_refusal(&mut self, failed: &Failed) {
        if failed.is_of(&[Why::QuotaExceeded]) {
            self.reached.note("refused by a quota");
        }
    }

    /// Compares what the client remembers with the model.
    pub(crate) fn check_memory(&mut self) -> Result<(), Failure> {
        match &mut self.client {
            Some(client) if !self.is_damaged => {
                client.check_memory(self.past.latest(), &mut self.inos).or_else(wrong)
            }
            _ => Ok(()),
        }
    }

    /// Notes that an operation may have read an object before it failed.
    fn may_have_read(&mut self, at: &At, now_ns: i64) {
        let mut state = self.past.latest().clone();
        if let Ok(Spot::Object(id)) = state.resolve(at) {
            state.read_by_history(id, now_ns, &self.rules);
            self.past.amend(state);
        }
    }
}
