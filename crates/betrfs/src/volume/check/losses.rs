//! The parts of files lost by one unreadable structure.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use betree::{Cut, counted};

use crate::planted::{self, Bug};
use crate::schema::key;

/// Number of files named for each problem.
const NAMED_MAX: usize = 10;
/// Number of ranges of names for each problem.
const RANGES_MAX: usize = 3;

/// Number of names of one linked file that are kept whatever others have, and that sentences tell.
const NAMES_TOLD_MAX: usize = 4;
/// Number of names of linked files that are kept.
const NAMES_MAX: usize = 40_000;

/// The names of files with several names, by object id.
#[derive(Default)]
pub(super) struct ObjectNames {
    by_object: BTreeMap<u64, BTreeSet<Vec<u8>>>,
    kept: usize,
    /// Number of times that a name was not kept.
    pub more: u64,
}

impl ObjectNames {
    pub fn add(&mut self, oid: u64, at: &[u8]) {
        let names = self.by_object.entry(oid).or_default();
        if names.contains(at) || planted::is(Bug::NamesOfDamagedFileCut) && !names.is_empty() {
            return;
        }
        if names.len() < NAMES_TOLD_MAX || self.kept < NAMES_MAX {
            names.insert(at.to_vec());
            self.kept += 1;
        } else {
            self.more += 1;
        }
    }

    /// The paths of a file; for a file with several, the known ones.
    pub fn paths_of(&self, own: &[u8]) -> Vec<String> {
        match key::object_id(own).and_then(|oid| self.by_object.get(&oid)) {
            Some(names) => names.iter().map(|name| key::describe(name)).collect(),
            None => alloc::vec![key::describe(own)],
        }
    }

    /// The first of them, in a sentence.
    fn told(&self, own: &[u8]) -> String {
        let paths = self.paths_of(own);
        let (first, more) = paths.split_at(paths.len().min(NAMES_TOLD_MAX));
        let first = first.join(" = ");
        match more.len() as u64 {
            0 => first,
            more => format!("{first} ({})", counted(more, "more name", "more names")),
        }
    }
}

/// A lost part of a file, by the file's own key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lost<'k> {
    /// Bytes; from 0 to the size, all of them.
    Data { own: &'k [u8], from: u64, to: u64, size: u64 },
    /// The value of an extended attribute.
    Attribute { own: &'k [u8], name: &'k [u8] },
    /// The name with its record.
    Name { own: &'k [u8] },
    /// The entry in the list of the names of linked files.
    Link { own: &'k [u8] },
}

/// A part of a file.
enum Part {
    Whole,
    Bytes(u64, u64),
    Attribute(Vec<u8>),
}

/// Files, the first of them with their names.
#[derive(Default)]
struct Named {
    first: Vec<(Vec<u8>, Part)>,
    more: u64,
    last: Vec<u8>,
}

impl Named {
    fn add(&mut self, own: &[u8], part: Part) {
        if let Some((_, known)) = self.first.iter_mut().find(|(known, _)| known == own) {
            match (known, part) {
                (Part::Bytes(_, end), Part::Bytes(_, to)) => *end = (*end).max(to),
                (known, Part::Whole) => *known = Part::Whole,
                _ => {}
            }
        } else if self.first.len() < NAMED_MAX {
            self.first.push((own.to_vec(), part));
        } else if self.last != own {
            self.more += 1;
            self.last = own.to_vec();
        }
    }

    fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    fn tell(&self, objects: &ObjectNames) -> String {
        let one = |(own, part): &(Vec<u8>, Part)| {
            let path = objects.told(own);
            match part {
                Part::Whole => path,
                Part::Bytes(from, to) => format!("{path} (bytes {from} to {})", to.saturating_sub(1)),
                Part::Attribute(name) => format!("{path} (attribute {})", String::from_utf8_lossy(name)),
            }
        };
        let all: Vec<String> = self.first.iter().map(one).collect();
        and_more(&all.join(", "), self.more)
    }
}

/// The list, followed by the number of further entries.
pub(super) fn and_more(list: &str, more: u64) -> String {
    if more == 0 { String::from(list) } else { format!("{list} and {more} more") }
}

/// Everything lost by one structure.
#[derive(Default)]
pub(super) struct Losses {
    data: Named,
    names: Named,
    links: Named,
    ranges: Vec<(Cut, Cut)>,
    ranges_more: u64,
}

impl Losses {
    pub fn add(&mut self, lost: &Lost<'_>) {
        match lost {
            Lost::Data { own, from: 0, to, size } if to >= size => self.data.add(own, Part::Whole),
            Lost::Data { own, from, to, size } => self.data.add(own, Part::Bytes(*from, *to.min(size))),
            Lost::Attribute { own, name } => self.data.add(own, Part::Attribute(name.to_vec())),
            Lost::Name { own } => self.names.add(own, Part::Whole),
            Lost::Link { own } => self.links.add(own, Part::Whole),
        }
    }

    /// Adds all names between two cuts.
    pub fn add_names(&mut self, lo: &Cut, hi: &Cut) {
        // A scan of a part may have added a part of the range before.
        self.ranges.retain(|(from, to)| from < lo || to > hi);
        let room = self.ranges.len() < RANGES_MAX;
        match self.ranges.last_mut() {
            Some((_, end)) if end == lo => *end = hi.clone(),
            _ if room => self.ranges.push((lo.clone(), hi.clone())),
            _ => self.ranges_more += 1,
        }
    }

    /// The paths of the first files with losses.
    pub fn paths(&self, objects: &ObjectNames) -> Vec<String> {
        let owns: BTreeSet<&Vec<u8>> =
            self.data.first.iter().chain(&self.names.first).map(|(own, _)| own).collect();
        owns.into_iter().flat_map(|own| objects.paths_of(own)).collect()
    }

    /// Half a sentence about the losses, if there are any.
    pub fn tell(&self, objects: &ObjectNames) -> Option<String> {
        let mut parts = Vec::new();
        if !self.data.is_empty() {
            parts.push(format!("the data of {}", self.data.tell(objects)));
        }
        if !self.ranges.is_empty() {
            let range = |(lo, hi): &(Cut, Cut)| {
                format!(
                    "from {} to {}",
                    key::describe_cut(lo, "the first"),
                    key::describe_cut(hi, "the last")
                )
            };
            let ranges: Vec<String> = self.ranges.iter().map(range).collect();
            let mut names = format!("the names {}", and_more(&ranges.join(", "), self.ranges_more));
            if !self.names.is_empty() {
                names = format!("{names}, among them {}", self.names.tell(objects));
            }
            parts.push(names);
        } else if !self.names.is_empty() {
            parts.push(format!("the names {}", self.names.tell(objects)));
        }
        if !self.links.is_empty() {
            parts.push(format!("the entries in the list of links of {}", self.links.tell(objects)));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}
