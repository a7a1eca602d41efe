//! Frees nodes without references.

use alloc::vec::Vec;

use super::Tree;
use crate::error::{Error, Result};
use crate::node_id::NodeId;

impl Tree<'_> {
    /// Frees one dead node: drops its references and its table entry in one step, so that no checkpoint sees
    /// half of that (§5.3.4). `false` if no node is dead.
    ///
    /// The references of an unreadable dead node are unknown. It stays in the table, with all that it names;
    /// nothing else is lost. The next opening tries again; where the device failed, which may pass, the next
    /// checkpoint does.
    ///
    /// Called with the structure lock held.
    pub fn free_one(&self) -> Result<bool> {
        let Some(id) = self.dict.dead.lock().last().copied() else { return Ok(false) };
        let leaf = self.table.lock().height(id) == Some(0);
        let found = if leaf { Ok(None) } else { self.find(id) };
        let node = match found {
            Err(error @ (Error::Corrupt { .. } | Error::Device(_))) => {
                self.dict.dead.lock().retain(|other| *other != id);
                if let Error::Device(_) = error {
                    self.dict.unread_dead.lock().push(id);
                }
                return Ok(true);
            }
            found => found?,
        };
        let children: Vec<NodeId> = node.iter().flat_map(|node| node.references()).collect();
        let mut state = self.dict.state.write();
        let mut table = self.table.lock();
        let mut dead = self.dict.dead.lock();
        dead.retain(|other| *other != id);
        let named = self.dict.named.lock();
        let epoch = state.epoch;
        dead.extend(children.into_iter().filter(|child| {
            state.history.counted(*child, -1, epoch, &named);
            table.count(*child, -1) == Some(0)
        }));
        let place = table.place(id);
        state.remove(id, place, &named);
        table.remove(id);
        self.refuse_changes_if_misfit(&mut table);
        Ok(true)
    }
}
