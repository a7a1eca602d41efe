//! An ordered map for keys with long common prefixes, such as paths of one directory's files.
//!
//! A search in a tree that compares whole keys follows some thirty pointers, and mostly compares bytes that
//! all these keys share. Here a node knows the bytes that its keys share, and keeps the next eight bytes of
//! each key side by side, as numbers: a search reads a key itself only where these *heads* are equal (a
//! B+-tree with key heads: Graefe and Larson, *B-Tree Indexes and CPU Caches*, ICDE 2001).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::message::Msn;

/// The most entries of a leaf, and the most children of an inner node.
const FANOUT: usize = 64;

/// The bytes of a head.
const HEAD_BYTES: usize = 8;

const _: () = assert!(FANOUT <= 1 << u8::BITS, "a slot is a byte");

/// The sorted keys of a node.
///
/// An insertion moves nine bytes for each key behind it: the keys themselves, and their values, stay in
/// *slots* in the order of their arrival.
#[derive(Default)]
struct Keys {
    /// The common prefix. A copy, because reading it from a key is another miss of the processor's cache.
    shared: Vec<u8>,
    heads: Vec<u64>,
    /// The slot of each key, in the keys' order.
    slots: Vec<u8>,
    /// The keys by slot.
    keys: Vec<Box<[u8]>>,
}

/// The first bytes behind the shared ones, as a number of the same order. Shorter rests are padded with
/// zeros, so keys with equal heads have to be compared.
fn head_of(rest: &[u8]) -> u64 {
    let mut head = [0; HEAD_BYTES];
    let len = rest.len().min(HEAD_BYTES);
    if let (Some(room), Some(bytes)) = (head.get_mut(..len), rest.get(..len)) {
        room.copy_from_slice(bytes);
    }
    u64::from_be_bytes(head)
}

fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn shared_part<'k>(a: &'k [u8], b: &[u8]) -> &'k [u8] {
    a.get(..shared_bytes(a, b)).unwrap_or_default()
}

/// The items of slots, in the order of `slots`.
fn in_order<T>(slots: &[u8], items: Vec<T>) -> Vec<T> {
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    slots.iter().filter_map(|slot| items.get_mut(usize::from(*slot))?.take()).collect()
}

/// Splits off the items from a place on. Both parts get room for a full node, because they will fill up.
fn split_items<T>(items: &mut Vec<T>, at: usize) -> Vec<T> {
    let mut behind = Vec::with_capacity(FANOUT);
    behind.extend(items.drain(at.min(items.len())..));
    items.reserve_exact(FANOUT - items.len().min(FANOUT));
    behind
}

impl Keys {
    fn len(&self) -> usize {
        self.slots.len()
    }

    /// The slot of the key at a place in the order.
    fn slot(&self, at: usize) -> Option<usize> {
        self.slots.get(at).copied().map(usize::from)
    }

    fn get(&self, at: usize) -> Option<&[u8]> {
        self.keys.get(self.slot(at)?).map(|key| &**key)
    }

    fn last(&self) -> Option<&[u8]> {
        self.get(self.len().checked_sub(1)?)
    }

    /// The place of a key in the order or, as an error, the place where it would be.
    fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let (start, rest) = key.split_at(self.shared.len().min(key.len()));
        match start.cmp(&self.shared) {
            Ordering::Less => return Err(0),
            Ordering::Greater => return Err(self.len()),
            Ordering::Equal => {}
        }
        let head = head_of(rest);
        let from = self.heads.partition_point(|other| *other < head);
        // Mostly one or none.
        let same = self.heads.iter().skip(from).take_while(|other| **other == head).count();
        let same = self.slots.get(from..from + same).unwrap_or_default();
        let behind = |slot: &u8| {
            let key = self.keys.get(usize::from(*slot)).map_or(&[][..], |key| key);
            key.get(self.shared.len()..).unwrap_or_default().cmp(rest)
        };
        same.binary_search_by(behind).map(|at| from + at).map_err(|at| from + at)
    }

    /// Inserts a key at the place from [`search`](Keys::search), in the next slot. There must be fewer than
    /// [`FANOUT`] keys.
    fn insert(&mut self, at: usize, key: Box<[u8]>) {
        if self.keys.is_empty() {
            self.shared = key.to_vec();
        } else if !key.starts_with(&self.shared) {
            let shared = shared_bytes(&self.shared, &key);
            self.shared.truncate(shared);
            self.make_heads();
        }
        self.heads.insert(at, head_of(key.get(self.shared.len()..).unwrap_or_default()));
        self.slots.insert(at, self.keys.len() as u8);
        self.keys.push(key);
    }

    /// Removes the key at a place. Returns its slot, which the key of the last slot takes.
    fn remove(&mut self, at: usize) -> Option<usize> {
        let slot = self.slot(at)?;
        self.heads.remove(at);
        self.slots.remove(at);
        self.keys.swap_remove(slot);
        if let Some(moved) = self.slots.iter_mut().find(|slot| usize::from(**slot) == self.keys.len()) {
            *moved = slot as u8;
        }
        Some(slot)
    }

    /// Splits off the keys from a place on. In both parts the slots are then in the keys' order.
    fn split_off(&mut self, at: usize) -> Keys {
        self.keys = in_order(&self.slots, core::mem::take(&mut self.keys));
        let mut behind = Keys { keys: split_items(&mut self.keys, at), ..Keys::default() };
        for half in [self, &mut behind] {
            // Sorted keys share the common prefix of the first and the last.
            let ends = half.keys.first().zip(half.keys.last());
            half.shared = ends.map_or(&[][..], |(first, last)| shared_part(first, last)).to_vec();
            half.slots = Vec::with_capacity(FANOUT);
            half.slots.extend((0..=u8::MAX).take(half.keys.len()));
            half.heads.reserve_exact(FANOUT - half.heads.len().min(FANOUT));
            half.make_heads();
        }
        behind
    }

    fn make_heads(&mut self) {
        let (keys, shared_len) = (&self.keys, self.shared.len());
        let key = |slot: &u8| keys.get(usize::from(*slot)).map_or(&[][..], |key| key);
        self.heads.clear();
        self.heads
            .extend(self.slots.iter().map(|slot| head_of(key(slot).get(shared_len..).unwrap_or_default())));
    }
}

struct Leaf<V> {
    keys: Keys,
    /// The value of each key, by slot.
    values: Vec<V>,
    /// No value in it was changed under a greater number.
    newest: Msn,
    before: Option<usize>,
    behind: Option<usize>,
}

#[derive(Default)]
struct Inner {
    /// Separators, one fewer than children: a child's keys are not below the separator before it, and below
    /// the one behind it.
    keys: Keys,
    children: Vec<usize>,
}

impl Inner {
    /// The index of the child that has, or would have, a key.
    fn child_index(&self, key: &[u8]) -> usize {
        self.keys.search(key).map_or_else(|at| at, |at| at + 1)
    }
}

/// The map. A removal never merges leaves: a memtable does not live long.
pub(super) struct KeyMap<V> {
    leaves: Vec<Leaf<V>>,
    inner: Vec<Inner>,
    /// A leaf if `height` is 0.
    root: usize,
    /// The number of levels of inner nodes.
    height: usize,
    /// The leaf with the highest keys.
    last: usize,
}

impl<V> Default for KeyMap<V> {
    fn default() -> KeyMap<V> {
        KeyMap { leaves: Vec::new(), inner: Vec::new(), root: 0, height: 0, last: 0 }
    }
}

impl<V> KeyMap<V> {
    /// The leaf that has, or would have, a key.
    fn leaf_of(&self, key: &[u8]) -> usize {
        (0..self.height).fold(self.root, |id, _| {
            let child = self.inner.get(id).and_then(|inner| inner.children.get(inner.child_index(key)));
            child.copied().unwrap_or_default()
        })
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        let leaf = self.leaves.get(self.leaf_of(key))?;
        leaf.values.get(leaf.keys.slot(leaf.keys.search(key).ok()?)?)
    }

    /// Calls `change` with the value of a key, to be changed in place under a number. Without a value, the
    /// returned one becomes the value; otherwise it is dropped.
    pub fn change(&mut self, key: &[u8], msn: Msn, change: impl FnOnce(Option<&mut V>) -> Option<V>) {
        if self.leaves.is_empty() {
            let (keys, values) = (Keys::default(), Vec::new());
            self.leaves.push(Leaf { keys, values, newest: msn, before: None, behind: None });
        }
        let id = self.leaf_of(key);
        let Some(leaf) = self.leaves.get_mut(id) else { return };
        leaf.newest = leaf.newest.max(msn);
        match leaf.keys.search(key) {
            Ok(at) => {
                let value = leaf.keys.slot(at).and_then(|slot| leaf.values.get_mut(slot));
                drop(change(value));
            }
            Err(at) => {
                let Some(new) = change(None) else { return };
                if leaf.values.len() < FANOUT {
                    leaf.keys.insert(at, key.into());
                    leaf.values.push(new);
                    return;
                }
                self.make_room(key);
                let id = self.leaf_of(key);
                if let Some(leaf) = self.leaves.get_mut(id)
                    && let Err(at) = leaf.keys.search(key)
                {
                    leaf.keys.insert(at, key.into());
                    leaf.values.push(new);
                }
            }
        }
    }

    /// Removes a key. Returns its value.
    pub fn remove(&mut self, key: &[u8]) -> Option<V> {
        let id = self.leaf_of(key);
        let leaf = self.leaves.get_mut(id)?;
        let at = leaf.keys.search(key).ok()?;
        let slot = leaf.keys.remove(at)?;
        (slot < leaf.values.len()).then(|| leaf.values.swap_remove(slot))
    }

    /// Splits every full node on the path to a key, from the root down: so a parent has room for the second
    /// half of its child.
    fn make_room(&mut self, key: &[u8]) {
        if self.is_full(self.root, self.height) {
            self.inner.push(Inner { keys: Keys::default(), children: alloc::vec![self.root] });
            self.root = self.inner.len() - 1;
            self.height += 1;
        }
        let mut parent = self.root;
        for height in (0..self.height).rev() {
            let Some(inner) = self.inner.get(parent) else { return };
            let index = inner.child_index(key);
            let Some(mut child) = inner.children.get(index).copied() else { return };
            if self.is_full(child, height) {
                let Some((between, new)) = self.split(child, height, key) else { return };
                if *key >= *between {
                    child = new;
                }
                if let Some(inner) = self.inner.get_mut(parent) {
                    inner.keys.insert(index, between);
                    inner.children.insert(index + 1, new);
                }
            }
            parent = child;
        }
    }

    fn is_full(&self, id: usize, height: usize) -> bool {
        let len = if height == 0 {
            self.leaves.get(id).map(|leaf| leaf.values.len())
        } else {
            self.inner.get(id).map(|inner| inner.children.len())
        };
        len.is_some_and(|len| len >= FANOUT)
    }

    /// Splits a full node. Returns the separator and the new node, which comes right behind it.
    fn split(&mut self, id: usize, height: usize, key: &[u8]) -> Option<(Box<[u8]>, usize)> {
        if height > 0 {
            let inner = self.inner.get_mut(id)?;
            let mut keys = inner.keys.split_off(FANOUT / 2 - 1);
            let between = keys.get(0)?.into();
            keys.remove(0);
            let children = split_items(&mut inner.children, FANOUT / 2);
            self.inner.push(Inner { keys, children });
            return Some((between, self.inner.len() - 1));
        }
        let new = self.leaves.len();
        let leaf = self.leaves.get_mut(id)?;
        // Insertions at the end mostly continue there.
        let is_end = leaf.keys.last().is_some_and(|last| key > last);
        let at = if is_end { FANOUT / 8 * 7 } else { FANOUT / 2 };
        leaf.values = in_order(&leaf.keys.slots, core::mem::take(&mut leaf.values));
        let values = split_items(&mut leaf.values, at);
        let keys = leaf.keys.split_off(at);
        let between = keys.get(0)?.into();
        let (behind, newest) = (leaf.behind.replace(new), leaf.newest);
        self.leaves.push(Leaf { keys, values, newest, before: Some(id), behind });
        match behind.and_then(|behind| self.leaves.get_mut(behind)) {
            Some(behind) => behind.before = Some(new),
            None => self.last = new,
        }
        Some((between, new))
    }

    /// The entries from `from` on and below `to`, in order.
    pub fn range(&self, from: &[u8], to: Option<&[u8]>) -> Range<'_, V> {
        let place = |key: &[u8]| {
            let id = self.leaf_of(key);
            let leaf = self.leaves.get(id);
            (id, leaf.map_or(0, |leaf| leaf.keys.search(key).unwrap_or_else(|at| at)))
        };
        let end = || (self.last, self.leaves.get(self.last).map_or(0, |leaf| leaf.values.len()));
        // The first leaf never moves: splits put new ones behind.
        let front = if from.is_empty() { (0, 0) } else { place(from) };
        Range { map: self, front, back: to.map_or_else(end, place), since: None }
    }

    /// As [`range`](KeyMap::range), without the entries of leaves in which nothing was changed since a
    /// number: all entries that were changed since then, and some others.
    pub fn range_since(&self, from: &[u8], to: Option<&[u8]>, since: Msn) -> Range<'_, V> {
        Range { since: Some(since), ..self.range(from, to) }
    }
}

/// Entries in order, from both ends.
pub(super) struct Range<'m, V> {
    map: &'m KeyMap<V>,
    /// Leaf and place of the next entry from the front, and of the end of the entries left at the back.
    front: (usize, usize),
    back: (usize, usize),
    /// From the front, leaves without a greater number are passed over.
    since: Option<Msn>,
}

impl<'m, V> Leaf<V> {
    fn entry(&'m self, at: usize) -> Option<(&'m [u8], &'m V)> {
        Some((self.keys.get(at)?, self.values.get(self.keys.slot(at)?)?))
    }
}

impl<'m, V> Iterator for Range<'m, V> {
    type Item = (&'m [u8], &'m V);

    fn next(&mut self) -> Option<Self::Item> {
        while self.front != self.back {
            let leaf = self.map.leaves.get(self.front.0)?;
            if self.since.is_some_and(|since| leaf.newest <= since) {
                // The end may be in this leaf.
                self.front = if self.front.0 == self.back.0 { self.back } else { (leaf.behind?, 0) };
                continue;
            }
            if let Some(entry) = leaf.entry(self.front.1) {
                self.front.1 += 1;
                return Some(entry);
            }
            self.front = (leaf.behind?, 0);
        }
        None
    }
}

impl<V> DoubleEndedIterator for Range<'_, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        while self.front != self.back {
            let leaf = self.map.leaves.get(self.back.0)?;
            if let Some(at) = self.back.1.checked_sub(1) {
                self.back.1 = at;
                return leaf.entry(at);
            }
            let before = leaf.before?;
            self.back = (before, self.map.leaves.get(before)?.values.len());
        }
        None
    }
}

#[cfg(test)]
mod tests;
