//! The report of a check, within bounds.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use betree::{Cut, Finding, FindingCode, Place, counted};

use super::code::{Code, is_of_later_version};
use super::losses::{Losses, Lost, ObjectNames};
use crate::error::Error;

/// Number of problems reported.
const PROBLEMS_MAX: usize = 1000;
/// Number of notes reported.
const NOTES_MAX: usize = 100;
/// Number of files listed.
const FILES_MAX: usize = 10_000;
/// Number of errors told apart. Known damage beyond has no place.
const ERRORS_MAX: usize = 100_000;

/// A problem that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The kind of problem, by a name that stays the same in later versions: one of
    /// [`problem_codes`](super::problem_codes).
    pub code: &'static str,
    /// The damaged structure on the device; `None` if all can be read but do not fit together.
    pub place: Option<Place>,
    /// The paths of the first files with this problem, or with parts that are unreadable because of it.
    pub files: Vec<String>,
    /// A sentence with the place, and the parts of files lost by it.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.what, self.code)
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The first problems, and the first one that is of a later version.
    pub problems: Vec<Problem>,
    /// Number of problems beyond those in `problems`.
    pub problems_more: u64,
    /// What repairs have noted as lost, with the files that it makes unreadable: no problem, for all else can
    /// be changed, and what is written or deleted over it heals it. The first ranges.
    pub known_damage: Vec<Problem>,
    /// Number of ranges of known damage beyond those, at most.
    pub known_damage_more: u64,
    /// Sentences that are not about problems: checks that could not be made, and why.
    pub notes: Vec<String>,
    /// The paths of files and directories with a problem or an unreadable part. Files that left no readable
    /// trace are missing.
    pub files: BTreeSet<String>,
    /// Number of files beyond those in `files`, at most.
    pub files_more: u64,
    /// Why the volume cannot be opened or closed, if so.
    pub refused: Option<Error>,
}

impl Report {
    /// The number of problems.
    pub fn found(&self) -> u64 {
        self.problems.len() as u64 + self.problems_more
    }

    /// Whether a later version of this program made something in the volume
    /// ([`is_of_later_version`](super::is_of_later_version)).
    pub fn is_of_later_version(&self) -> bool {
        self.problems.iter().any(|problem| is_of_later_version(problem.code))
    }
}

struct Line {
    code: &'static str,
    place: Option<Place>,
    /// The own key of the file with the problem.
    own: Option<Vec<u8>>,
    what: String,
    losses: Option<usize>,
    /// Number of ranges of known damage of the same node beyond the one in `what`.
    ranges_more: u64,
}

/// The findings so far.
#[derive(Default)]
pub(super) struct Findings {
    lines: Vec<Line>,
    more: u64,
    known: Vec<Line>,
    known_more: u64,
    /// The losses that a scan has met. Known damage that deletes above it hide is none.
    met: BTreeSet<usize>,
    notes: Vec<String>,
    losses: Vec<Losses>,
    /// The number of an error's losses, by its sentence.
    by_error: BTreeMap<String, usize>,
    /// By their own keys.
    files: BTreeSet<Vec<u8>>,
    files_more: u64,
}

impl Findings {
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn push(&mut self, line: Line) {
        // Whether there is one of a later version decides what may be done about all others.
        let is_later = |line: &Line| is_of_later_version(line.code);
        if self.lines.len() < PROBLEMS_MAX || is_later(&line) && !self.lines.iter().any(is_later) {
            // A superblock is reported before and after a volume turns out not to open.
            if self.lines.iter().any(|known| known.what == line.what) {
                return;
            }
            self.lines.push(line);
        } else {
            self.more += 1;
        }
    }

    /// Adds a finding of the engine.
    pub fn found(&mut self, found: Finding) {
        let Finding { code, place, what, is_problem, hides, .. } = found;
        if let (FindingCode::KnownDamage, Some(error)) = (code, &hides) {
            return self.found_known(error, Some(place), what);
        }
        if !is_problem {
            self.note(what);
            return;
        }
        // Losses are kept only for problems that are listed.
        let hides = hides.filter(|_| self.lines.len() < PROBLEMS_MAX);
        let losses = hides.map(|error| self.losses_of(&error));
        self.push(Line { code: code.name(), place: Some(place), own: None, what, losses, ranges_more: 0 });
    }

    /// Adds known damage, of which readers get an error.
    fn found_known(&mut self, error: &betree::Error, place: Option<Place>, what: String) {
        if self.known.len() >= PROBLEMS_MAX {
            self.known_more += 1;
            return;
        }
        // A lost leaf of many files is known damage in many ranges: they are one line.
        if let Some(line) = self.known.iter_mut().find(|line| place.is_some() && line.place == place) {
            line.ranges_more += 1;
            if let (Some(losses), true) = (line.losses, self.by_error.len() < ERRORS_MAX) {
                self.by_error.entry(error.to_string()).or_insert(losses);
            }
            return;
        }
        // Clones of one leaf say the same of their parts.
        let losses = self.losses_of(error);
        if self.known.iter().all(|line| line.losses != Some(losses)) {
            let code = FindingCode::KnownDamage.name();
            self.known.push(Line { code, place, own: None, what, losses: Some(losses), ranges_more: 0 });
        }
    }

    /// Adds a problem that the engine does not know of.
    pub fn problem(&mut self, code: Code, what: String) {
        self.push(Line { code: code.name(), place: None, own: None, what, losses: None, ranges_more: 0 });
    }

    /// Adds a problem of the file with this own key.
    pub fn problem_of(&mut self, code: Code, own: &[u8], what: String) {
        self.name(own);
        self.push(Line {
            code: code.name(),
            place: None,
            own: Some(own.to_vec()),
            what,
            losses: None,
            ranges_more: 0,
        });
    }

    pub fn note(&mut self, what: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(what);
        }
    }

    fn losses_of(&mut self, error: &betree::Error) -> usize {
        let next = self.losses.len();
        let known = *self.by_error.entry(error.to_string()).or_insert(next);
        if known == next {
            self.losses.push(Losses::default());
        }
        known
    }

    /// The number of the losses by an error that a reader met. An error that the engine did not report
    /// becomes a problem. `None` if there are too many problems.
    pub fn blame(&mut self, error: &betree::Error) -> Option<usize> {
        let what = error.to_string();
        if let betree::Error::KnownDamage { .. } = error {
            self.found_known(error, None, what.clone());
        }
        if let Some(known) = self.by_error.get(&what) {
            self.met.insert(*known);
            return Some(*known);
        }
        if self.lines.len() >= PROBLEMS_MAX {
            return None;
        }
        let losses = self.losses_of(error);
        self.push(Line {
            code: Code::NotRead.name(),
            place: None,
            own: None,
            what,
            losses: Some(losses),
            ranges_more: 0,
        });
        Some(losses)
    }

    /// Adds the loss of a part of a file.
    pub fn lose(&mut self, losses: usize, lost: &Lost<'_>) {
        if let Some(losses) = self.losses.get_mut(losses) {
            losses.add(lost);
        }
        match lost {
            Lost::Data { own, .. } | Lost::Attribute { own, .. } | Lost::Name { own } => self.name(own),
            // The file itself can be read.
            Lost::Link { .. } => {}
        }
    }

    /// Adds the loss of all names between two cuts.
    pub fn lose_names(&mut self, losses: usize, lo: &Cut, hi: &Cut) {
        if let Some(losses) = self.losses.get_mut(losses) {
            losses.add_names(lo, hi);
        }
    }

    /// Lists a file with a problem.
    pub fn name(&mut self, own: &[u8]) {
        if self.files.len() < FILES_MAX {
            self.files.insert(own.to_vec());
        } else if !self.files.contains(own) {
            self.files_more += 1;
        }
    }

    /// The whole report.
    pub fn report(mut self, objects: &ObjectNames, refused: Option<Error>) -> Report {
        self.known.retain(|line| line.losses.is_some_and(|losses| self.met.contains(&losses)));
        let problem = |Line { code, place, own, what, losses, ranges_more }: Line| {
            let what = match ranges_more {
                0 => what,
                more => format!("{what}, and {} more", counted(more, "range", "ranges")),
            };
            let losses = losses.and_then(|losses| self.losses.get(losses));
            let own = own.iter().flat_map(|own| objects.paths_of(own));
            let files = own.chain(losses.into_iter().flat_map(|losses| losses.paths(objects))).collect();
            let what = match losses.and_then(|losses| losses.tell(objects)) {
                Some(lost) => format!("{what}; cannot be read because of it: {lost}"),
                None => what,
            };
            Problem { code, place, files, what }
        };
        Report {
            problems: self.lines.into_iter().map(problem).collect(),
            problems_more: self.more,
            known_damage: self.known.into_iter().map(problem).collect(),
            known_damage_more: self.known_more,
            notes: self.notes,
            files: self.files.iter().flat_map(|own| objects.paths_of(own)).collect(),
            files_more: self.files_more.saturating_add(objects.more),
            refused,
        }
    }
}
