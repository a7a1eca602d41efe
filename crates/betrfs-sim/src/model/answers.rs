//! Questions: which errors they have, and what they change (times of access).

use super::file_changes::check_file;
use super::{Done, ObjectId, Refusal, Rules, Spot, Standing, State, Why};
use crate::at::At;
use crate::op::Op;

impl State {
    pub(super) fn ask_about(&self, op: &Op, at: &At) -> Result<Done, Refusal> {
        let Spot::Object(id) = self.resolve(at)? else { return Err(Refusal::Unsaid) };
        match (op, self.object(id).standing) {
            // Its attributes are asked for, or it is made durable with everything else.
            (Op::Stat { .. } | Op::Fsync { .. }, _) | (_, Standing::Named) => Ok(Done::default()),
            (Op::OpenFilesIn { .. }, Standing::Kept | Standing::Unnamed) => Ok(Done::default()),
            _ => Err(Refusal::Unsaid),
        }
    }

    pub(super) fn ask_file(&mut self, op: &Op, at: &At, now_ns: i64, rules: &Rules) -> Result<Done, Refusal> {
        let id = self.find(at)?;
        check_file(self.object(id))?;
        if let (Op::Seek { offset, what, .. }, Some(contents)) = (op, self.object(id).contents())
            && contents.seek(*offset, *what).is_none()
        {
            return Err(Why::NoSuchPlace.into());
        }
        if matches!(op, Op::Read { .. }) {
            self.read_by_history(id, now_ns, rules);
        }
        Ok(Done::default())
    }

    /// Notes that an object was read.
    pub fn read_by_history(&mut self, id: ObjectId, now_ns: i64, rules: &Rules) {
        if rules.reads_count {
            self.change(id).atime.accessed(now_ns);
        }
    }

    /// Notes that everything was read.
    pub fn all_read(&mut self, now_ns: i64) {
        (0..self.objects_made() as ObjectId).for_each(|id| self.change(id).atime.accessed(now_ns));
    }

    pub(super) fn ask_dir(&mut self, at: &At, now_ns: i64, rules: &Rules) -> Result<Done, Refusal> {
        match self.resolve(at)? {
            Spot::Snapshots(_) => Ok(Done::default()),
            Spot::Object(id) if self.object(id).is_dir() => {
                self.read_by_history(id, now_ns, rules);
                Ok(Done::default())
            }
            Spot::Object(id) if self.object(id).standing == Standing::Named => Err(Why::NotADirectory.into()),
            Spot::Object(_) => Err(Refusal::Unsaid),
        }
    }

    pub(super) fn ask_snapshots(&self, at: &At) -> Result<Done, Refusal> {
        let Spot::Object(id) = self.resolve(at)? else { return Err(Refusal::Unsaid) };
        let object = self.object(id);
        match (object.is_dir(), object.standing) {
            (false, Standing::Named) => Err(Why::NotADirectory.into()),
            (true, Standing::Named) if !object.is_frozen => Ok(Done::default()),
            _ => Err(Refusal::Unsaid),
        }
    }
}
