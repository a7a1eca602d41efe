//! Looking through names for an inode number.
//!
//! A number is the id in the object's record plus the salts of the directories above. Most directories have
//! no salt; those that have one (copies, snapshots, what was moved out of them) are put off when the search
//! comes to their records, and looked through later, so that all names of one pass are below the same salts.
//! And however many copies of copies there are, the names outside of them come first.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use betree::{Cut, View};

use super::number_map::{NumberMap, STRETCH_NAMES, Stretch};
use crate::error::{Error, Result};
use crate::names::ino_of;
use crate::op::Op;
use crate::schema::{META, Numbers, damaged, key};

/// Bytes of paths that are put off at once; with more, the search is given up.
const PUT_OFF_BYTES_MAX: usize = 16 << 20;

/// The place of an object in a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Under this own key.
    Named(Vec<u8>),
    /// Under this object id.
    Object(u64),
}

/// A search for one number in a view.
pub(super) struct Search<'a> {
    pub op: &'a Op<'a>,
    pub view: &'a View,
    pub number: u64,
}

/// A search of all names.
struct Everywhere<'a> {
    search: &'a Search<'a>,
    map: &'a mut NumberMap,
    found: Option<Found>,
    /// Number of names looked at.
    names: u64,
    names_max: u64,
    put_off: VecDeque<PutOff>,
    put_off_bytes: usize,
    /// The first failure: the object may be in what could not be read.
    error: Option<Error>,
}

/// Everything below a directory, to be looked through later.
struct PutOff {
    path: Vec<u8>,
    /// The sum of the salts of the directory and of those above.
    salts: u64,
}

impl Search<'_> {
    /// Looks for the number in a stretch, whose names may have changed since.
    pub fn look_in(&self, stretch: &Stretch) -> Result<Option<Found>> {
        let bounds = (Cut::before(stretch.key.clone()), Cut::HIGH);
        let mut names = self.op.scan_of(self.view, META, bounds);
        for _ in 0..2 * STRETCH_NAMES {
            let Some((at, bytes)) = names.next()? else { break };
            if let Some(numbers) = Numbers::read(at, bytes)?
                && ino_of(numbers.id, stretch.salts) == self.number
            {
                return found(at).map(Some);
            }
        }
        Ok(None)
    }

    /// Looks for the number everywhere, and makes the map anew meanwhile: a later search is spared this one.
    /// `salts` is the root's. The search is given up when `names_max` names were looked at.
    pub fn look_everywhere(&self, salts: u64, names_max: u64, map: &mut NumberMap) -> Result<Option<Found>> {
        map.clear();
        let mut all = Everywhere {
            search: self,
            map,
            found: None,
            names: 0,
            names_max,
            put_off: VecDeque::new(),
            put_off_bytes: 0,
            error: None,
        };
        let [names, snapshots] = key::names();
        for (bounds, salts) in [(names, salts), (key::objects(), 0), (snapshots, 0)] {
            all.look_through(bounds, salts);
        }
        while let Some(PutOff { path, salts }) = all.put_off.pop_front() {
            all.put_off_bytes = all.put_off_bytes.saturating_sub(path.len());
            all.look_through(key::subtree(&path), salts);
        }
        let (is_too_much, names) = (all.is_too_much(), all.names);
        match (all.found, all.error) {
            (Some(found), _) => Ok(Some(found)),
            (None, Some(error)) => Err(error),
            (None, None) if is_too_much => Err(Error::SearchGivenUp { names }),
            (None, None) => Ok(None),
        }
    }
}

impl Everywhere<'_> {
    fn is_done(&self) -> bool {
        self.is_too_much() || self.found.is_some() && self.map.is_full()
    }

    fn is_too_much(&self) -> bool {
        self.names >= self.names_max || self.put_off_bytes > PUT_OFF_BYTES_MAX
    }

    /// Looks through names below salts of this sum.
    fn look_through(&mut self, bounds: (Cut, Cut), salts: u64) {
        let Search { op, view, number } = *self.search;
        let mut names = op.scan_of(view, META, bounds);
        // Directories ahead that are put off; the directory whose names come now.
        let (mut ahead, mut dir) = (BTreeSet::new(), None);
        self.map.begin_stretch();
        while !self.is_done() {
            let error = &mut self.error;
            let next = names.next_past(&mut |passed| {
                let why = passed.errors.into_iter().next().map(Error::from);
                *error = error.take().or(why);
            });
            let Some((at, bytes)) = next else { return };
            self.names += 1;
            let read = Numbers::read(at, bytes).and_then(|numbers| Ok((numbers, place(at)?)));
            let (numbers, path) = match read {
                Ok(read) => read,
                Err(error) => {
                    self.error.get_or_insert(error);
                    continue;
                }
            };
            if path != dir.as_deref() {
                if let Some(beyond) = path.and_then(|path| beyond_put_off(&mut ahead, path)) {
                    names.seek(&beyond);
                    self.map.begin_stretch();
                    continue;
                }
                dir = path.map(<[u8]>::to_vec);
            }
            let Some(Numbers { id, salt }) = numbers else { continue };
            let here = ino_of(id, salts);
            self.map.add(here, at, salts);
            if here == number && self.found.is_none() {
                self.found = found(at).ok();
            }
            if let (Some(salt @ 1..), Some((path, name))) = (salt, key::split_entry(at)) {
                let path = key::child_path(path, name);
                ahead.insert(path.clone());
                self.put_off_bytes += path.len();
                self.put_off.push_back(PutOff { path, salts: salts.wrapping_add(salt) });
            }
        }
    }
}

/// The directory of a name; `None` for an object.
fn place(at: &[u8]) -> Result<Option<&[u8]>> {
    match (key::split_entry(at), key::object_id(at)) {
        (Some((path, _)), _) => Ok(Some(path)),
        (None, Some(_)) => Ok(None),
        (None, None) => Err(damaged(at, "it is no name")),
    }
}

fn found(at: &[u8]) -> Result<Found> {
    place(at)?;
    Ok(key::object_id(at).map_or_else(|| Found::Named(at.to_vec()), Found::Object))
}

/// The end of everything below the directory that is put off and has the names of `path` in it or below, if
/// there is one. The names of a directory come behind its own key, and those of its siblings in the order of
/// their paths: directories before `path` are passed.
fn beyond_put_off(ahead: &mut BTreeSet<Vec<u8>>, path: &[u8]) -> Option<Cut> {
    while ahead.first().is_some_and(|first| first.as_slice() <= path) {
        let passed = ahead.pop_first()?;
        if passed == path || key::is_below(&passed, path) {
            return Some(key::subtree(&passed).1);
        }
    }
    None
}
