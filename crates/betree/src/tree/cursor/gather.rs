//! The sources of a chunk: what is above a place in memtables, partitions and a basement.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::{Tree, astray};
use super::chunk::Chunk;
use super::source::{Copied, Source};
use super::walk::{Direction, Level, Stop, Walk, Window};
use crate::error::{Error, Result};
use crate::key::{Cut, Translation};
use crate::memtable::Memtable;
use crate::message::{Bytes, Kind, Msn, RangeDelete};
use crate::node_id::NodeId;
use crate::planted::{self, Bug};
use crate::run::{Layers, Run};
use crate::transaction::{Leads, Stretch};

/// A chunk takes at most as many messages of one memtable as a basement holds messages of this size, in
/// bytes.
const SMALL_MESSAGE_BYTES: u32 = 16;
/// And at most this many.
const MEMTABLE_POINTS_MAX: usize = 256;
/// The first chunk after a seek takes this many: a memtable is copied under its lock, and a seek often wants
/// one pair.
pub(super) const MEMTABLE_POINTS_FIRST: usize = 8;

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
        match direction {
            Direction::Forward => Window { lo: (&self.lo).max(at).clone(), hi: self.hi.clone() },
            Direction::Backward => Window { lo: self.lo.clone(), hi: (&self.hi).min(at).clone() },
        }
    }
}

/// What hides everything below.
enum Hiding {
    /// A range that was deleted.
    Deleted,
    /// What is known to be lost, or cannot be read now.
    Lost(Error),
}

impl Hiding {
    fn of(range: &RangeDelete) -> Hiding {
        match range.is_damage() && !planted::is(Bug::DamagePassedOver) {
            true => Hiding::Lost(range.lost()),
            false => Hiding::Deleted,
        }
    }
}

/// What a memtable has for a chunk.
struct FromMemtable {
    points: Copied,
    ranges: Vec<RangeDelete>,
}

impl Tree<'_> {
    /// The chunk ahead of a place in the range of `scope`, with at most `points_max` messages of each
    /// memtable.
    pub(super) fn read_chunk(
        &self,
        scope: &Scope,
        at: &Cut,
        direction: Direction,
        points_max: usize,
    ) -> Result<Chunk> {
        self.store.disk.refuse_if_forked()?;
        let most = (self.geometry.basement_bytes / SMALL_MESSAGE_BYTES) as usize;
        let points_max = points_max.min(most.clamp(1, MEMTABLE_POINTS_MAX));
        let mut gone = None;
        loop {
            if let Some(chunk) = self.try_chunk(scope, at, direction, points_max, &mut gone)? {
                return Ok(chunk);
            }
        }
    }

    /// As [`read_chunk`](Tree::read_chunk); `None` if a node had to be read and the walk must begin anew.
    fn try_chunk(
        &self,
        scope: &Scope,
        at: &Cut,
        direction: Direction,
        points_max: usize,
        gone: &mut Option<NodeId>,
    ) -> Result<Option<Chunk>> {
        let stretch = self.overlay.around(at, direction == Direction::Backward);
        let (Walk { mut window, levels, stop }, memtables) =
            self.look_around(scope, at, direction, &stretch, points_max)?;
        if let Stop::Leaf(place) = &stop
            && stretch.leads == Leads::Here
            && self.refuse_out_of_reach(&place.basement.piece).is_ok()
        {
            // The read below reports errors of the basement wanted now; those of others wait for their
            // readers.
            let _ = self.read_ahead(place, scope, at, direction);
        }
        let mut runs: Vec<(Arc<Run>, &Level)> = Vec::new();
        let below = match &stop {
            Stop::Leaf(place) => Some(&place.basement),
            Stop::Nothing | Stop::Missing(_) | Stop::Astray(_) => None,
        };
        let mut hiding = None;
        'levels: for level in levels.iter().chain(below) {
            self.refuse_out_of_reach(&level.piece)?;
            let (layers, error) = self.store.newest_layers(&level.piece);
            for run in layers.iter().flat_map(Layers::newest_first) {
                runs.push((run.clone(), level));
                if run.ranges().is_empty() {
                    continue;
                }
                if let Some(range) = range_around(run, &level.down.cut_ref(at), direction) {
                    // The chunk ends with the range.
                    let (lo, hi) = (level.down.cut_ref(&window.lo), level.down.cut_ref(&window.hi));
                    if let Some(part) = range.clip(&lo, &hi) {
                        window.meet(&level.up.cut(&part.lo), &level.up.cut(&part.hi));
                    }
                    hiding = Some(Hiding::of(range));
                    break 'levels;
                }
                end_before_damage(run, level, at, direction, &mut window);
            }
            if let Some(error) = error {
                hiding = Some(Hiding::Lost(error));
                break;
            }
        }
        match &stop {
            Stop::Missing(id) if hiding.is_none() => match self.find_for_search(*id, gone) {
                Ok(()) => return Ok(None),
                Err(Error::NotInMemory) => return Err(Error::NotInMemory),
                Err(error) => hiding = Some(Hiding::Lost(error)),
            },
            Stop::Astray(id) if hiding.is_none() => hiding = Some(Hiding::Lost(astray(*id))),
            Stop::Nothing | Stop::Leaf(_) | Stop::Missing(_) | Stop::Astray(_) => {}
        }
        let mut lost_below = None;
        if let Some(Hiding::Lost(error)) = hiding {
            let deleted = memtables.iter().find_map(|memtable| around(&memtable.ranges, at, direction));
            if let Some(range) = deleted {
                // All that the runs have is older.
                window.meet(&range.lo, &range.hi);
                runs.clear();
            } else {
                let Some(key) = next_key(at, direction) else { return Err(error) };
                let is_in = |run: &Run, level: &Level| {
                    let key = level.down.key(key);
                    let point = run.lower_bound(&key);
                    point < run.len() && run.key(point) == &*key
                };
                if !memtables.iter().any(|memtable| memtable.points.has(key))
                    && !runs.iter().any(|(run, level)| is_in(run, level))
                {
                    return Err(error);
                }
                // Messages over the damage may say what is at this key; around it all is lost.
                window.meet(&Cut::before(key), &Cut::just_after(key));
                lost_below = Some(error);
            }
        }
        let copied = memtables
            .into_iter()
            .map(|FromMemtable { points, ranges }| Source::of_memtable(points, &ranges, &window, direction));
        let of_runs = runs
            .into_iter()
            .map(|(run, level)| Source::of_run(run, (&level.down, &level.up), &window, direction));
        let sources = copied.chain(of_runs).collect();
        Ok(Some(Chunk::new(window, direction, sources, lost_below)))
    }

    /// The walk to a place and the memtables' messages around it, as of one moment.
    fn look_around(
        &self,
        scope: &Scope,
        at: &Cut,
        direction: Direction,
        stretch: &Stretch,
        points_max: usize,
    ) -> Result<(Walk, Vec<FromMemtable>)> {
        let is_backward = direction == Direction::Backward;
        let state = self.dict.state.read();
        self.at.refuse_if_ended()?;
        // What a range delete may widen the chunk to.
        let mut bounds = scope.ahead(at, direction);
        bounds.meet(&stretch.lo, &stretch.hi);
        let own = self.overlay.memtables_around(at, is_backward, |lo, hi| bounds.meet(lo, hi));
        let mut walk = self.walk_in(&state, at, direction, stretch.clone());
        walk.window.meet(&bounds.lo, &bounds.hi);
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
            let range = memtable.range_around(&down.cut_ref(at), is_backward, moment)?;
            let part = range.clip(&down.cut_ref(&bounds.lo), &down.cut_ref(&bounds.hi))?;
            let part = part.translate(&down.inverse(bounds.lo.bytes()));
            let hides = part.lo <= walk.window.lo && part.hi >= walk.window.hi;
            hides.then_some((number, part))
        });
        if let Some((number, part)) = hiding {
            memtables_left = number;
            walk = Walk::of_nothing(part.lo, part.hi);
        }
        let mut sources = Vec::new();
        for (memtable, moment, down) in memtables().take(memtables_left) {
            sources.push(copy_memtable(memtable, moment, down, direction, points_max, &mut walk.window));
        }
        Ok((walk, sources))
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
) -> FromMemtable {
    let up = down.inverse(window.lo.bytes());
    let (lo, hi) = (down.cut(&window.lo), down.cut(&window.hi));
    let mut points = Copied::default();
    // The key of the first message that is too many.
    let mut keep = |(key, kind, value): (&[u8], Kind, &Bytes)| -> Option<Vec<u8>> {
        if points.len() >= points_max {
            let key = up.key(key);
            if points.last_key() != Some(&*key) {
                return Some(key.into_owned());
            }
        }
        points.push(key, &up, kind, value);
        None
    };
    match direction {
        Direction::Forward => {
            if let Some(key) = memtable.messages_within(&lo, &hi, moment).find_map(&mut keep) {
                window.hi = Cut::before(key);
            }
        }
        Direction::Backward => {
            if let Some(key) = memtable.messages_back_within(&lo, &hi, moment).find_map(&mut keep) {
                window.lo = Cut::just_after(&key);
            }
            points.reverse();
        }
    }
    let ranges = memtable.ranges_within(&down.cut_ref(&window.lo), &down.cut_ref(&window.hi), moment);
    FromMemtable { points, ranges: ranges.iter().map(|range| range.translate(&up)).collect() }
}

/// The range of a run that covers the keys next to the place.
pub(super) fn range_around<'r>(run: &'r Run, at: &Cut, direction: Direction) -> Option<&'r RangeDelete> {
    around(run.ranges(), at, direction)
}

/// The one of disjoint ranges in order that covers the keys next to the place.
fn around<'r>(ranges: &'r [RangeDelete], at: &Cut, direction: Direction) -> Option<&'r RangeDelete> {
    match direction {
        Direction::Forward => {
            let index = ranges.partition_point(|r| r.hi <= *at);
            ranges.get(index).filter(|r| r.lo <= *at)
        }
        Direction::Backward => {
            let index = ranges.partition_point(|r| r.hi < *at);
            ranges.get(index).filter(|r| r.lo < *at)
        }
    }
}

/// Ends a chunk before the known damage of a run ahead of the place: a chunk with pairs has none.
fn end_before_damage(run: &Run, level: &Level, at: &Cut, direction: Direction, window: &mut Window) {
    if planted::is(Bug::DamagePassedOver) {
        return;
    }
    let (lo, hi) = (level.down.cut_ref(&window.lo), level.down.cut_ref(&window.hi));
    let place = level.down.cut_ref(at);
    match direction {
        Direction::Forward => {
            if let Some(range) = run.damage().find(|range| range.lo > *place).filter(|range| range.lo < *hi) {
                window.meet(&Cut::LOW, &level.up.cut(&range.lo));
            }
        }
        Direction::Backward => {
            let before = run.damage().filter(|range| range.hi < *place).last();
            if let Some(range) = before.filter(|range| range.hi > *lo) {
                window.meet(&level.up.cut(&range.hi), &Cut::HIGH);
            }
        }
    }
}

/// The key that is right ahead of a place, with no other key between them; `None` if there is none.
pub(super) fn next_key(at: &Cut, direction: Direction) -> Option<&[u8]> {
    match direction {
        _ if at.is_after() => None,
        Direction::Forward => Some(at.bytes()),
        Direction::Backward => at.bytes().strip_suffix(&[0]),
    }
}
