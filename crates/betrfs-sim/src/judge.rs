//! Whether the answers of the volume are those of the model.

use std::collections::BTreeSet;

use betrfs::{Attr, FileType, InodeId, SNAPSHOTS_NAME};

use crate::at::{At, SlotId};
use crate::compare::{compare_attr, compare_bytes};
use crate::model::{ObjectId, Spot, Standing, State};
use crate::op::Op;
use crate::perform::{Answer, Listed};
use crate::world::World;

impl World {
    /// Compares the answer to an operation with the state after it.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub(crate) fn judge(&mut self, op: &Op, answer: &Answer) -> Result<(), String> {
        match (op, answer) {
            (
                Op::Create { at, .. } | Op::CreateWith { at, .. } | Op::Symlink { at, .. },
                Answer::Made(attr),
            )
            | (Op::Link { to: at, .. } | Op::Clone { to: at, .. }, Answer::Made(attr))
            | (Op::Stat { at } | Op::SetAttr { at, .. }, Answer::Attr(attr)) => self.judge_attr(at, attr),
            (Op::Snapshot { of, name }, Answer::Made(attr)) => {
                self.judge_attr(&of.child(SNAPSHOTS_NAME).child(name), attr)
            }
            (Op::CreateUnnamed { slot, .. }, Answer::Attr(attr)) => self.judge_attr(&At::slot(*slot), attr),
            (Op::Read { at, offset, len }, Answer::Bytes(bytes)) => {
                let state = self.past.latest();
                let contents = self.object(at).and_then(|id| state.object(id).contents());
                compare_bytes(bytes, contents.map_or(&[], |contents| contents.part(*offset, *len)))
            }
            (Op::Seek { at, offset, what }, Answer::Place(place)) => {
                let state = self.past.latest();
                let contents = self.object(at).and_then(|id| state.object(id).contents());
                let right = contents.and_then(|contents| contents.seek(*offset, *what));
                if right == Some(*place) {
                    Ok(())
                } else {
                    Err(format!("it found {place}, and should find {right:?}"))
                }
            }
            (Op::List { at, .. }, Answer::Entries(entries)) => self.judge_whole_listing(at, entries),
            (Op::ListOn { slot, .. }, Answer::Entries(entries)) => self.judge_listing(*slot, entries),
            (Op::SnapshotsBelow { at }, Answer::Snapshots(held)) => {
                let right = self.object(at).map_or(0, |id| self.past.latest().count_snapshots(id));
                if held.count != right {
                    return Err(format!("it counts {} snapshots, and should count {right}", held.count));
                }
                for path in &held.paths {
                    let mut found = at.clone();
                    found.names.extend(path.split(|byte| *byte == b'/').map(<[u8]>::to_vec));
                    if self.object(&found).is_none() {
                        return Err(format!(
                            "it names the snapshot {}, which is not there",
                            path.escape_ascii()
                        ));
                    }
                }
                Ok(())
            }
            (Op::OpenFilesIn { at }, Answer::Open(nodes)) => {
                let found: BTreeSet<InodeId> = nodes.iter().copied().collect();
                let right = self.open_files_in(at);
                if found == right {
                    Ok(())
                } else {
                    Err(format!("it finds {found:?}, and should find {right:?}"))
                }
            }
            (Op::Usage { .. }, Answer::Usage(usage)) if usage.exclusive_bytes > usage.stored_bytes => {
                Err(format!("more is freed than stored: {usage:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Tells the listings under way which names there are.
    pub(crate) fn names_may_have_changed(&mut self) {
        let state = self.past.latest();
        for (slot, listing) in &mut self.listings {
            listing.entries_are(&names_in(state, *slot));
        }
    }

    fn object(&self, at: &At) -> Option<ObjectId> {
        match self.past.latest().resolve(at) {
            Ok(Spot::Object(id)) => Some(id),
            _ => None,
        }
    }

    fn judge_attr(&mut self, at: &At, attr: &Attr) -> Result<(), String> {
        let Some(id) = self.object(at) else { return Err("it is not there".into()) };
        let state = self.past.latest();
        match state.object(id).standing {
            Standing::Gone | Standing::Limbo if !state.has_names(id, attr.nlink, 0) => {
                return Err(format!("it is gone, and has {} names", attr.nlink));
            }
            Standing::Gone | Standing::Limbo => {}
            _ => compare_attr(state, id, attr)?,
        }
        self.inos.note(id, attr.ino)
    }

    fn judge_whole_listing(&mut self, at: &At, listed: &[Listed]) -> Result<(), String> {
        let state = self.past.latest();
        let entries = match state.resolve(at) {
            Ok(Spot::Object(id)) => state.object(id).dir().map(|dir| dir.entries.clone()),
            Ok(Spot::Snapshots(id)) => state.object(id).dir().map(|dir| dir.snapshots.clone()),
            Err(_) => None,
        }
        .unwrap_or_default();
        if !listed.iter().zip(listed.iter().skip(1)).all(|(one, next)| one.cookie < next.cookie) {
            return Err("the cookies do not ascend".into());
        }
        let names: BTreeSet<&Vec<u8>> = listed.iter().map(|entry| &entry.name).collect();
        if names.len() != listed.len() || !names.iter().copied().eq(entries.keys()) {
            return Err(format!("it lists {names:?}, and should list {:?}", entries.keys()));
        }
        listed.iter().try_for_each(|entry| match entries.get(&entry.name) {
            Some(id) => self.judge_entry(*id, entry),
            None => Ok(()),
        })
    }

    fn judge_listing(&mut self, slot: SlotId, listed: &[Listed]) -> Result<(), String> {
        let state = self.past.latest();
        let names = names_in(state, slot);
        let mut right = Vec::new();
        for entry in listed {
            let id = self.object(&At::slot(slot).child(&entry.name));
            right.extend(id.map(|id| (id, entry)));
        }
        for (id, entry) in right {
            self.judge_entry(id, entry)?;
        }
        self.listings.entry(slot).or_default().take(&names, listed)
    }

    fn judge_entry(&mut self, id: ObjectId, entry: &Listed) -> Result<(), String> {
        let told = |what: String| format!("{}: {what}", entry.name.escape_ascii());
        let state = self.past.latest();
        if entry.file_type != state.object(id).file_type() {
            return Err(told(format!("its type is {:?}", entry.file_type)));
        }
        if let Some(attr) = &entry.attr {
            compare_attr(state, id, attr).map_err(told)?;
        }
        self.inos.note(id, entry.ino).map_err(told)
    }

    /// The open files that a copy of an object would hold.
    fn open_files_in(&self, at: &At) -> BTreeSet<InodeId> {
        let Some(top) = self.object(at) else { return BTreeSet::new() };
        let state = self.past.latest();
        let mut below = BTreeSet::new();
        collect(state, top, &mut below);
        let Some(client) = &self.client else { return BTreeSet::new() };
        let open = state.slots().iter().filter(|(_, held)| held.is_open && below.contains(&held.id));
        let files = open.filter(|(_, held)| state.object(held.id).file_type() == FileType::Regular);
        files.filter_map(|(slot, _)| client.node_of(*slot)).collect()
    }
}

/// An object and all below it.
fn collect(state: &State, id: ObjectId, below: &mut BTreeSet<ObjectId>) {
    below.insert(id);
    if let Some(dir) = state.object(id).dir() {
        dir.entries.values().for_each(|id| collect(state, *id, below));
    }
}

fn names_in(state: &State, slot: SlotId) -> BTreeSet<Vec<u8>> {
    let dir = state.slots().get(&slot).and_then(|held| state.object(held.id).dir());
    dir.map_or_else(BTreeSet::new, |dir| dir.entries.keys().cloned().collect())
}
