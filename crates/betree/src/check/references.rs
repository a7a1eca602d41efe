//! The references to nodes: whether as many edges and GOTOs lead to each as the node table counts.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use super::walk::Walk;
use super::{Finding, FindingCode as Code};
use crate::dict::Dict;
use crate::error::{self, Error, Result};
use crate::node::Node;
use crate::node_id::NodeId;
use crate::store::ReadScope;
use crate::tree::leads_down;

/// How many slots of the node table are looked at while others wait for it.
pub(super) const SLOTS_AT_ONCE: u32 = 1024;
/// How many nodes without references are listed, at most.
const UNFREED_MAX: usize = 1000;

/// The references to nodes as they were counted.
pub(super) struct Counted {
    /// Nodes with their number of references as counted, and by the node table.
    pub wrong: Vec<(NodeId, u32, u32)>,
    /// The number of nodes of which unreadable ones may have more.
    unchecked: u64,
    /// Nodes that have none, and that are not known to be dead.
    unfreed: Vec<NodeId>,
}

impl Walk<'_, '_> {
    /// The number of references to a node as of the walk's moment, by the node table, and whether it has
    /// changed since.
    pub fn references_of(&self, id: NodeId) -> (u32, bool) {
        let mut now = None;
        for dict in &self.engine.dicts {
            let state = dict.state.read();
            let references = self.engine.table.lock().references(id);
            let epoch = self.moment(dict).epoch;
            // Only the history of the node's own dictionary knows of it.
            if state.history.has_counted(id, epoch) {
                return (state.history.references(id, epoch, references), true);
            }
            // The first: a change that comes later is in a history that is still to be looked at.
            now.get_or_insert(references);
        }
        (now.unwrap_or(0), false)
    }

    /// Counts the references of nodes that have none themselves, and wait to be freed. Reads headers of
    /// interior nodes alone. `dead` are nodes with their dictionaries. Returns the first of those that cannot
    /// be read, and so not be freed.
    ///
    /// # Errors
    /// As [`trees`](Walk::trees).
    pub fn dead(
        &mut self,
        mut dead: Vec<(&Dict, NodeId)>,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Vec<NodeId>> {
        let mut unread = Vec::new();
        let total = self.found.len() as u64;
        // What a tree shows was walked through already, whatever the node table says.
        dead.retain(|(_, id)| self.found.get(id).is_none_or(|found| found.references == 0));
        for (_, id) in &dead {
            self.found.entry(*id).or_default();
        }
        while let Some((dict, id)) = dead.pop() {
            if progress(total, total).is_break() {
                return Err(Error::Interrupted);
            }
            if self.height(id) == Some(0) {
                continue;
            }
            let Some(node) = self.dead_node(dict, id)? else {
                self.lacks(id);
                if unread.len() < UNFREED_MAX {
                    unread.push(id);
                }
                continue;
            };
            for below in node.references() {
                let found = self.found.entry(below).or_default();
                found.references += 1;
                if found.references == 1 {
                    dead.push((dict, below));
                }
            }
        }
        Ok(unread)
    }

    /// A node that no tree shows any more; `None` if it cannot be read.
    fn dead_node(&self, dict: &Dict, id: NodeId) -> Result<Option<Arc<Node>>> {
        let place = match self.version(dict, id)? {
            (node, None) => return Ok(node),
            (_, Some(place)) => place,
        };
        let read = self.engine.store.read_node(id, &place, ReadScope::Header, None).ok();
        Ok(read.filter(|node| leads_down(&self.engine.table.lock(), node, &place).is_ok()))
    }

    /// Compares each node's references with the edges and GOTOs to it.
    ///
    /// # Errors
    /// [`Error::ViewEnded`].
    pub fn count_references(&mut self) -> Result<Counted> {
        let mut unfreed = Vec::new();
        let mut unchecked = 0;
        let mut wrong = Vec::new();
        let mut missed = Vec::new();
        let mut first = 0;
        loop {
            let Some(nodes) = self.engine.table.lock().nodes_in(first, SLOTS_AT_ONCE) else { break };
            for (id, now) in nodes {
                if self.found.contains_key(&id) {
                    continue;
                }
                let (references, has_changed) = self.references_of(id);
                if now == 0 && !has_changed && unfreed.len() < UNFREED_MAX {
                    // It leads to others.
                    self.lacks(id);
                    unfreed.push(id);
                }
                // A node that came since had none.
                if references > 0 {
                    missed.push((id, 0, references));
                }
            }
            first += SLOTS_AT_ONCE;
        }
        let counted = self.found.iter().filter_map(|(id, found)| {
            let (references, _) = self.references_of(*id);
            // A node that the table lacks is reported as such.
            let is_known = references > 0 || self.engine.table.lock().holds(*id);
            is_known.then_some((*id, found.references, references))
        });
        for (id, counted, references) in counted.chain(missed) {
            if counted < references && self.unread > 0 {
                unchecked += 1;
            } else if counted != references {
                wrong.push((id, counted, references));
            }
        }
        // What was looked at belongs to the walk's moment only if its view has not ended.
        if let Some(dict) = self.engine.dicts.first() {
            self.moment(dict).refuse_if_ended()?;
        }
        wrong.sort_unstable();
        Ok(Counted { wrong, unchecked, unfreed })
    }

    /// Reports nodes with another number of references than the node table says. Returns nodes that have
    /// none, and that are not known to be dead.
    ///
    /// # Errors
    /// [`Error::ViewEnded`].
    pub fn references(&mut self) -> Result<Vec<NodeId>> {
        let Counted { wrong, unchecked, unfreed } = self.count_references()?;
        for (id, counted, references) in wrong {
            let what = {
                let counted = error::counted(counted.into(), "reference", "references");
                format!("node {id} has {counted}; the node table says {references}")
            };
            let found = Finding::problem(Code::WrongReferences, self.place(id), what);
            (self.tell)(found);
        }
        if let (Some(id), true) = (self.first_unread, unchecked > 0) {
            let more = match self.unread - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let what = format!(
                "not checked: the number of references to {}, because node {id}{more}, which may lead there, \
                 could not be read",
                error::counted(unchecked, "node", "nodes")
            );
            let found = Finding::note(Code::ReferencesNotChecked, self.place(id), what);
            (self.tell)(found);
        }
        Ok(unfreed)
    }

    /// Reports nodes without references that could not be freed because something is unreadable.
    pub fn unfreed(&mut self, mut unfreed: Vec<NodeId>) {
        unfreed.sort_unstable();
        for id in unfreed {
            let place = self.engine.table.lock().place(id);
            let read = place.map(|place| self.engine.store.read_node(id, &place, ReadScope::Header, None));
            let (code, why) = match read {
                Some(Err(error)) => (Code::NotFreed.by(&error), error.to_string()),
                _ => (Code::NotFreed, "it could not be read".into()),
            };
            let what = format!("node {id} has no references and cannot be freed: {why}");
            let found = Finding::problem(code, self.place(id), what);
            (self.tell)(found);
        }
    }
}
