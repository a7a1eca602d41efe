//! The step of a cursor: the pairs around a place.
//!
//! A *chunk* is the largest part of the key space around a place that one basement, one null edge or one
//! range delete serves. Messages of the memtables and of the partitions above are merged with the basement's
//! pairs for this part alone, newest first, and copied; a read changes no node (§3.4.4).

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::super::{Tree, astray};
use super::message_iter::{MessageIter, Points, Window};
use super::walk::{Direction, LeafPlace, Level, Stop, Walk};
use crate::error::Result;
use crate::key::{Cut, Translation};
use crate::memtable::Memtable;
use crate::message::{Kind, Msn, Point, RangeDelete};
use crate::node::Basement;
use crate::node_id::NodeId;
use crate::run::Run;
use crate::store::{LEAVES_AHEAD, Request};
use crate::transaction::{Leads, Stretch};
use crate::upsert::fold;

/// A chunk takes at most as many messages of one memtable as a basement holds messages of this size, in
/// bytes.
const SMALL_MESSAGE_BYTES: u32 = 16;
/// And at most this many.
const MEMTABLE_POINTS_MAX: usize = 256;

/// A scan that has read this many basements in a row may well want the next leaf; a file of a few blocks ends
/// before.
const LONG_SCAN_BASEMENTS: usize = 4;

/// Values of at least this size are shared with their run, not copied, in bytes.
const LARGE_VALUE_BYTES: usize = 512;

/// The pairs of a chunk, copied out of the tree except for large values.
#[derive(Default)]
pub(crate) struct Chunk {
    pub lo: Option<Cut>,
    pub hi: Option<Cut>,
    bytes: Vec<u8>,
    pairs: Vec<Pair>,
    /// The runs that hold the large values.
    runs: Vec<Arc<Run>>,
}

/// A pair, by its ends among the chunk's bytes; its key begins where the pair before ends.
struct Pair {
    key_end: usize,
    end: usize,
    /// The run and the point in it that hold the value; otherwise it follows the key.
    shared: Option<(usize, usize)>,
}

impl Chunk {
    fn clear(&mut self) {
        self.bytes.clear();
        self.pairs.clear();
        self.runs.clear();
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.pairs.push(Pair { key_end, end: self.bytes.len(), shared: None });
    }

    /// Adds a pair whose value stays in a run.
    fn push_shared(&mut self, key: &[u8], run: &Arc<Run>, index: usize) {
        let at = match self.runs.iter().rposition(|known| Arc::ptr_eq(known, run)) {
            Some(at) => at,
            None => {
                self.runs.push(run.clone());
                self.runs.len() - 1
            }
        };
        self.bytes.extend_from_slice(key);
        let end = self.bytes.len();
        self.pairs.push(Pair { key_end: end, end, shared: Some((at, index)) });
    }

    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    fn key(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).and_then(|i| self.pairs.get(i)).map_or(0, |pair| pair.end);
        let end = self.pairs.get(index).map_or(start, |pair| pair.key_end);
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// The pair at `index`; empty past the end.
    pub fn pair(&self, index: usize) -> (&[u8], &[u8]) {
        let value = match self.pairs.get(index) {
            Some(Pair { shared: Some((run, point)), .. }) => {
                self.runs.get(*run).map_or(&[][..], |run| run.point(*point).value)
            }
            Some(pair) => self.bytes.get(pair.key_end..pair.end).unwrap_or_default(),
            None => &[],
        };
        (self.key(index), value)
    }

    /// The index of the first pair behind the cut.
    pub fn first_behind(&self, cut: &Cut) -> usize {
        let (mut lo, mut hi) = (0, self.len());
        while lo < hi {
            let middle = lo + (hi - lo) / 2;
            if cut.is_above(self.key(middle)) { lo = middle + 1 } else { hi = middle }
        }
        lo
    }
}

/// The keys that a cursor goes through.
pub(super) struct Scope {
    /// The bounds of the cursor's range.
    pub lo: Cut,
    pub hi: Cut,
    /// The bounds of the whole that the range is a part of, if the caller has named one.
    pub whole: Option<(Cut, Cut)>,
}

impl Scope {
    /// The part of the range ahead of a place. A look behind the place would return the same messages of a
    /// full memtable again.
    fn ahead(&self, at: &Cut, direction: Direction) -> Window {
        let mut ahead = Window { lo: self.lo.clone(), hi: self.hi.clone() };
        match direction {
            Direction::Forward => ahead.meet(at, &Cut::HIGH),
            Direction::Backward => ahead.meet(&Cut::LOW, at),
        }
        ahead
    }
}

impl Tree<'_> {
    /// Fills `chunk` with the pairs around `at` on the side of `direction`, inside the range of `scope`.
    pub(super) fn read_chunk(
        &self,
        scope: &Scope,
        at: &Cut,
        direction: Direction,
        chunk: &mut Chunk,
    ) -> Result<()> {
        let mut gone = None;
        loop {
            if self.try_chunk(scope, at, direction, chunk, &mut gone)? {
                return Ok(());
            }
        }
    }

    /// As [`read_chunk`](Tree::read_chunk); `false` if a node had to be read and the walk must begin anew.
    fn try_chunk(
        &self,
        scope: &Scope,
        at: &Cut,
        direction: Direction,
        chunk: &mut Chunk,
        gone: &mut Option<NodeId>,
    ) -> Result<bool> {
        let stretch = self.overlay.around(at, direction == Direction::Backward);
        let (Walk { mut window, levels, mut stop }, mut sources) =
            self.look_around(scope, at, direction, &stretch)?;
        if let Stop::Leaf(place) = &stop
            && stretch.leads == Leads::Here
        {
            // The read below reports errors of the basement wanted now; those of others wait for their
            // readers.
            let _ = self.read_ahead(place, scope, at, direction);
        }
        'levels: for level in &levels {
            for run in self.store.layers(&level.piece)?.newest_first() {
                sources.push(message_iter_of(run.clone(), level, direction));
                if let Some(range) = range_around(run, &level.at, direction) {
                    // It hides everything below: the chunk ends with the range.
                    if let Some(part) = range.clip(&level.window.lo, &level.window.hi) {
                        window.meet(&level.up.cut(&part.lo), &level.up.cut(&part.hi));
                    }
                    stop = Stop::Nothing;
                    break 'levels;
                }
            }
        }
        match stop {
            Stop::Nothing => {}
            Stop::Missing(id) => {
                self.find_for_search(id, gone)?;
                return Ok(false);
            }
            Stop::Astray(id) => return Err(astray(id)),
            Stop::Leaf(LeafPlace { basement, .. }) => {
                for run in self.store.layers(&basement.piece)?.newest_first() {
                    sources.push(message_iter_of(run.clone(), &basement, direction));
                }
            }
        }
        self.merge_chunk(sources, &window, chunk)?;
        chunk.lo = Some(window.lo);
        chunk.hi = Some(window.hi);
        Ok(true)
    }

    /// The walk to a place and the memtables' messages around it, as of one moment.
    fn look_around(
        &self,
        scope: &Scope,
        at: &Cut,
        direction: Direction,
        stretch: &Stretch,
    ) -> Result<(Walk, Vec<MessageIter>)> {
        let is_backward = direction == Direction::Backward;
        let state = self.dict.state.read();
        self.at.refuse_if_ended()?;
        // What a range delete may widen the chunk to.
        let mut bounds = scope.ahead(at, direction);
        bounds.meet(&stretch.lo, &stretch.hi);
        let own = self.overlay.memtables_around(at, is_backward, |lo, hi| bounds.meet(lo, hi));
        let mut walk = self.walk_in(&state, at, direction, stretch.clone());
        walk.window.meet(&bounds.lo, &bounds.hi);
        let small = (self.geometry.basement_bytes / SMALL_MESSAGE_BYTES) as usize;
        let points_max = small.clamp(1, MEMTABLE_POINTS_MAX);
        let here = Translation::default();
        let leads = match &stretch.leads {
            Leads::Here => Some(&here),
            Leads::To(down) => Some(down),
            Leads::Nowhere => None,
        };
        let memtables = || {
            let of_view = leads.into_iter().flat_map(|down| {
                state.memtables(&self.at).map(move |memtable| (memtable, self.at.msn, down))
            });
            own.iter().map(|memtable| (*memtable, Msn::MAX, &here)).chain(of_view)
        };
        let mut memtables_left = usize::MAX;
        // A range delete that hides the whole window makes the walk needless: the chunk ends with the range.
        let hiding = (1..).zip(memtables()).find_map(|(number, (memtable, moment, down))| {
            let range = memtable.range_around(&down.cut(at), is_backward, moment)?;
            let part = range.clip(&down.cut(&bounds.lo), &down.cut(&bounds.hi))?;
            let part = part.translate(&down.inverse(bounds.lo.bytes()));
            let hides = part.lo <= walk.window.lo && part.hi >= walk.window.hi;
            hides.then_some((number, part))
        });
        if let Some((number, part)) = hiding {
            memtables_left = number;
            walk = Walk::of_nothing(part.lo, part.hi);
        }
        let mut sources: Vec<MessageIter> = Vec::new();
        for (memtable, moment, down) in memtables().take(memtables_left) {
            sources.push(copy_memtable(memtable, moment, down, direction, points_max, &mut walk.window));
        }
        Ok((walk, sources))
    }

    /// Reads a basement that is not in memory, behind some that are: a scan. Reads twice as many basements at
    /// once as were read so far, so that a scan that ends soon has read little in vain. A long scan near the
    /// leaf's end asks other threads for the next leaf.
    ///
    /// Reads nothing beyond the scan's whole, or a read of one file would bring all its neighbours in vain. A
    /// walk from file to file in order is recognized by the basements before the file in memory, or because
    /// it reaches the beginning of a leaf that was read ahead.
    fn read_ahead(&self, place: &LeafPlace, scope: &Scope, at: &Cut, direction: Direction) -> Result<()> {
        let LeafPlace { leaf, index, end, basement: Level { up, .. } } = place;
        let basements = leaf.basements();
        let (lo, hi) = scope.whole.as_ref().map_or((&scope.lo, &scope.hi), |(lo, hi)| (lo, hi));
        let begins_before = |b: &Basement, cut: &Cut| up.cut(&Cut::before(b.first.as_slice())) < *cut;
        let is_beginning = *index < LONG_SCAN_BASEMENTS;
        let was_expected = is_beginning && self.store.readahead.has_come(leaf.id, self.dict.index, at);
        let is_here = |b: &Basement| b.piece.is_resident();
        let here = basements.get(*index).is_some_and(is_here);
        let behind = match direction {
            Direction::Forward => basements.iter().take(*index).rev().take_while(|b| is_here(b)).count(),
            Direction::Backward => basements.iter().skip(*index + 1).take_while(|b| is_here(b)).count(),
        };
        if here && !was_expected {
            return Ok(());
        }
        let mut ahead = if was_expected { basements.len() } else { behind * 2 };
        if direction == Direction::Forward {
            let (near, rest) = basements.split_at_checked(*index).unwrap_or_default();
            let near = near.get(near.len() - behind..).unwrap_or_default();
            // The basement in which the whole begins is among them.
            let before = near.partition_point(|b| begins_before(b, lo));
            if !was_expected && before < 2 {
                ahead = ahead.min(rest.partition_point(|b| begins_before(b, hi)));
            }
            if scope.whole.is_some() {
                ahead = ahead.max(rest.partition_point(|b| begins_before(b, &scope.hi)));
            }
            let goes_on = *end < *hi && behind >= LONG_SCAN_BASEMENTS;
            let is_long = was_expected || goes_on || before >= LONG_SCAN_BASEMENTS;
            if is_long && *end != Cut::HIGH && *index + ahead >= basements.len() {
                let request = Request { dict: self.dict.index, at: end.clone(), more: LEAVES_AHEAD - 1 };
                self.store.readahead.ask(request);
            }
        }
        if here {
            return Ok(());
        }
        if ahead < 2 {
            self.store.wait_for_reader(leaf.id);
            return Ok(());
        }
        let wanted = match direction {
            Direction::Forward => basements.get(*index..(*index + ahead).min(basements.len())),
            Direction::Backward => basements.get((*index + 1).saturating_sub(ahead)..=*index),
        };
        let pieces: Vec<_> = wanted.unwrap_or_default().iter().map(|b| b.piece.clone()).collect();
        self.store.load_together(leaf.id, &pieces)
    }

    /// Reads the leaf behind a place and the messages pending above it, ahead of a scan, and asks for `more`
    /// leaves behind it, which other threads may read at the same time.
    pub fn read_leaf(&self, at: &Cut, mut more: usize) -> Result<()> {
        let mut ask_for_more = |end: Cut| {
            if more > 0 && end != Cut::HIGH {
                self.store.readahead.ask(Request { dict: self.dict.index, at: end, more: more - 1 });
                more = 0;
            }
        };
        let mut gone = None;
        loop {
            let Walk { window, levels, stop } = self.walk(&self.dict.state.read(), at, Direction::Forward);
            match stop {
                Stop::Nothing => {}
                Stop::Astray(id) => return Err(astray(id)),
                Stop::Missing(id) => {
                    let is_leaf = self.table.lock().height(id) == Some(0);
                    if is_leaf {
                        // Its parent's edge ends where it does.
                        ask_for_more(window.hi);
                        if self.store.is_being_read(id) {
                            return Ok(());
                        }
                    }
                    if !is_leaf || !self.find_whole(id)? {
                        self.find_for_search(id, &mut gone)?;
                    }
                    continue;
                }
                Stop::Leaf(LeafPlace { leaf, end, .. }) => {
                    ask_for_more(end);
                    self.store.readahead.expect(leaf.id);
                    self.store.read_alone(leaf.id, || self.store.load(&leaf.pieces())).transpose()?;
                }
            }
            let pending: Vec<_> = levels.into_iter().map(|level| level.piece).collect();
            return self.store.load(&pending);
        }
    }

    /// Merges the sources, newest first, for the window.
    fn merge_chunk(&self, mut sources: Vec<MessageIter>, window: &Window, chunk: &mut Chunk) -> Result<()> {
        chunk.clear();
        sources.iter_mut().for_each(|source| source.clip(window));
        let expiry = self.expiry();
        let mut key: Vec<u8> = Vec::new();
        loop {
            let mut first: Option<(usize, &MessageIter)> = None;
            let mut holders = 0;
            for (index, source) in sources.iter().enumerate().filter(|(_, s)| s.more) {
                match first.map(|(_, s)| source.head.cmp(&s.head)) {
                    None | Some(Ordering::Less) => (first, holders) = (Some((index, source)), 1),
                    Some(Ordering::Equal) => holders += 1,
                    Some(Ordering::Greater) => {}
                }
            }
            let Some((index, source)) = first else { return Ok(()) };
            let newer = sources.get(..index).unwrap_or_default();
            if holders == 1
                && let Some(value) = source.single_put()
            {
                if !newer.iter().any(|s| s.covers(&source.head)) && !expiry.has_expired(value) {
                    match source.place() {
                        Some((run, at)) if value.len() >= LARGE_VALUE_BYTES => {
                            chunk.push_shared(&source.head, run, at);
                        }
                        _ => chunk.push(&source.head, value),
                    }
                }
                if let Some(source) = sources.get_mut(index) {
                    source.step();
                }
                continue;
            }
            key.clear();
            key.extend_from_slice(&source.head);
            if let Some(value) =
                self.merge_key(&key, &mut sources)?.filter(|value| !expiry.has_expired(value))
            {
                chunk.push(&key, &value);
            }
            for source in sources.iter_mut().filter(|s| s.more && s.head == key) {
                source.look();
            }
        }
    }

    /// Merges several sources, or several messages, for one key. Returns its value, if it has one.
    fn merge_key(&self, key: &[u8], sources: &mut [MessageIter]) -> Result<Option<Vec<u8>>> {
        // Newest source first, so that a base ends the search; oldest message first in each source.
        let mut groups: Vec<Vec<Point<'_>>> = Vec::new();
        let mut ended = false;
        for source in sources {
            let covered = source.covers(key);
            let mut group = Vec::new();
            if source.more && source.head == key {
                source.take(key, &mut group);
            }
            if !ended {
                ended = covered || group.iter().any(|p| p.kind != Kind::Upsert);
                groups.push(group);
            }
        }
        let messages: Vec<Point<'_>> = groups.into_iter().rev().flatten().collect();
        Ok(fold(None, &messages, self.upsert)?.map(Cow::into_owned))
    }
}

/// The messages of a memtable in the window, which `down` translates to the memtable's keys; the window is
/// narrowed if they are many.
fn copy_memtable(
    memtable: &Memtable,
    moment: Msn,
    down: &Translation,
    direction: Direction,
    points_max: usize,
    window: &mut Window,
) -> MessageIter {
    let up = down.inverse(window.lo.bytes());
    let mut points: Vec<(Vec<u8>, u64, Kind, Vec<u8>)> = Vec::new();
    let mut keep = |point: Point<'_>| -> Option<Vec<u8>> {
        let key = up.key(&point.key);
        let known = points.last().is_some_and(|last| *last.0 == *key);
        if points.len() >= points_max && !known {
            return Some(key.into_owned());
        }
        points.push((key.into_owned(), point.msn, point.kind, point.value.to_vec()));
        None
    };
    let (lo, hi) = (down.cut(&window.lo), down.cut(&window.hi));
    match direction {
        Direction::Forward => {
            let too_many = memtable.points_within(&lo, &hi, moment).find_map(&mut keep);
            if let Some(key) = too_many {
                window.hi = Cut::before(key);
            }
        }
        Direction::Backward => {
            let too_many = memtable.points_within(&lo, &hi, moment).rev().find_map(&mut keep);
            if let Some(key) = too_many {
                window.lo = Cut::just_after(&key);
            }
            points.reverse();
        }
    }
    let ranges = memtable.ranges_within(&down.cut(&window.lo), &down.cut(&window.hi), moment);
    let ranges = ranges.iter().map(|range| range.translate(&up)).collect();
    MessageIter::new(Points::Copied { points, next: 0 }, ranges)
}

/// The range delete of a run that covers the keys next to the place.
pub(super) fn range_around<'r>(run: &'r Run, at: &Cut, direction: Direction) -> Option<&'r RangeDelete> {
    match direction {
        Direction::Forward => {
            let index = run.ranges().partition_point(|r| r.hi <= *at);
            run.ranges().get(index).filter(|r| r.lo <= *at)
        }
        Direction::Backward => {
            let index = run.ranges().partition_point(|r| r.hi < *at);
            run.ranges().get(index).filter(|r| r.lo < *at)
        }
    }
}

/// The messages of a run in a level's window ahead of the place.
fn message_iter_of(run: Arc<Run>, level: &Level, direction: Direction) -> MessageIter {
    let (lo, hi) = match direction {
        Direction::Forward => ((&level.window.lo).max(&level.at), &level.window.hi),
        Direction::Backward => (&level.window.lo, (&level.window.hi).min(&level.at)),
    };
    let ranges = run.ranges().iter().filter_map(|r| r.clip(lo, hi)).map(|r| r.translate(&level.up)).collect();
    let (next, end) = (run.first_behind(lo), run.first_behind(hi));
    MessageIter::new(Points::Run { run, up: level.up.clone(), next, end }, ranges)
}
