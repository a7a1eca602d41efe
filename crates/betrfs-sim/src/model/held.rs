//! Objects that the history holds.

use super::{Body, Done, Held, Refusal, Spot, Standing, State, Why};
use crate::at::{At, Base, SlotId};

impl State {
    pub(super) fn hold(&mut self, at: &At, slot: SlotId, is_open: bool) -> Result<Done, Refusal> {
        let is_held_itself = at.names.is_empty() && at.base != Base::Root;
        if self.slots.contains_key(&slot) || is_held_itself {
            return Err(Refusal::Unsaid);
        }
        let Spot::Object(id) = self.resolve(at)? else { return Err(Refusal::Unsaid) };
        if matches!(self.object(id).standing, Standing::Gone | Standing::Limbo) {
            return Err(Refusal::Unsaid);
        }
        self.slots.insert(slot, Held { id, is_open });
        Ok(Done::default())
    }

    pub(super) fn open_held(&mut self, slot: SlotId) -> Result<Done, Refusal> {
        let held = *self.slots.get(&slot).filter(|held| !held.is_open).ok_or(Refusal::Unsaid)?;
        let mut or = Vec::new();
        match self.object(held.id).standing {
            Standing::Gone => return Err(Why::Stale.into()),
            Standing::Limbo => {
                self.change(held.id).standing = Standing::Kept;
                or.push(Why::Stale);
            }
            Standing::Named | Standing::Kept | Standing::Unnamed => {}
        }
        self.slots.insert(slot, Held { is_open: true, ..held });
        Ok(Done { or, ..Done::default() })
    }

    pub(super) fn close(&mut self, slot: SlotId) -> Result<Done, Refusal> {
        let held = self.slots.remove(&slot).ok_or(Refusal::Unsaid)?;
        let (is_open, is_held) = (self.is_open(held.id), self.is_held(held.id));
        let object = self.change(held.id);
        if matches!(object.standing, Standing::Kept | Standing::Unnamed | Standing::Limbo) && !is_open {
            let is_file = matches!(object.body, Body::File(_));
            object.standing = if is_file && is_held { Standing::Limbo } else { Standing::Gone };
        }
        Ok(Done::default())
    }
}
