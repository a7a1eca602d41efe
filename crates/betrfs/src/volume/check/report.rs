//! What a check tells, in bounds.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use betree::{Cut, Finding};

use super::losses::{Losses, Lost, ObjectNames, paths_of};
use crate::error::Error;

/// So many problems are told.
const PROBLEMS_MAX: usize = 1000;
/// So many notes.
const NOTES_MAX: usize = 100;
/// So many files are listed.
const FILES_MAX: usize = 10_000;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// A sentence for each problem, with its place and what of which files is lost by it.
    pub problems: Vec<String>,
    /// How many problems more there are than are told.
    pub problems_more: u64,
    /// Sentences of what is no problem but should be known: what could not be checked, and why.
    pub notes: Vec<String>,
    /// The paths of files and directories that have problems, or of which something cannot be read. What cannot be
    /// known to have been there is not among them.
    pub files: BTreeSet<String>,
    /// At most how many files more there are than are listed.
    pub files_more: u64,
    /// Why the volume cannot be opened, or closed, if so.
    pub refused: Option<Error>,
}

struct Line {
    what: String,
    losses: Option<usize>,
}

/// What was found so far.
#[derive(Default)]
pub(super) struct Findings {
    lines: Vec<Line>,
    more: u64,
    notes: Vec<String>,
    losses: Vec<Losses>,
    /// Which losses belong to an error, by its sentence.
    by_error: BTreeMap<String, usize>,
    /// Own keys.
    files: BTreeSet<Vec<u8>>,
    files_more: u64,
}

impl Findings {
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn push(&mut self, what: String, losses: Option<usize>) {
        if self.lines.len() < PROBLEMS_MAX {
            // Of a superblock is told before and after a volume turns out not to open.
            if self.lines.iter().any(|line| line.what == what) {
                return;
            }
            self.lines.push(Line { what, losses });
        } else {
            self.more += 1;
        }
    }

    /// What the engine tells.
    pub fn found(&mut self, found: Finding) {
        match found {
            Finding::Note(what) => self.note(what),
            // Of what is not told, the losses are not kept.
            Finding::Problem { hides: Some(error), what } if self.lines.len() < PROBLEMS_MAX => {
                let losses = self.losses_of(&error);
                self.push(what, Some(losses));
            }
            Finding::Problem { what, .. } => self.push(what, None),
        }
    }

    /// A problem that the engine does not know of.
    pub fn problem(&mut self, what: String) {
        self.push(what, None);
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

    /// The number of the losses by an error that a reader met. One that the engine did not tell is a problem;
    /// `None` where not all are kept.
    pub fn blame(&mut self, error: &betree::Error) -> Option<usize> {
        if let Some(known) = self.by_error.get(&error.to_string()) {
            return Some(*known);
        }
        if self.lines.len() >= PROBLEMS_MAX {
            return None;
        }
        let losses = self.losses_of(error);
        self.push(error.to_string(), Some(losses));
        Some(losses)
    }

    /// Something of a file is lost.
    pub fn lose(&mut self, losses: usize, lost: &Lost<'_>) {
        if let Some(losses) = self.losses.get_mut(losses) {
            losses.add(lost);
        }
        match lost {
            Lost::Data { own, .. } | Lost::Attribute { own, .. } | Lost::Name { own } => self.name(own),
            // That file can be read.
            Lost::Link { .. } => {}
        }
    }

    /// All names between two cuts are lost.
    pub fn lose_names(&mut self, losses: usize, lo: &Cut, hi: &Cut) {
        if let Some(losses) = self.losses.get_mut(losses) {
            losses.add_names(lo, hi);
        }
    }

    /// A file that is not as it should be.
    pub fn name(&mut self, own: &[u8]) {
        if self.files.len() < FILES_MAX {
            self.files.insert(own.to_vec());
        } else if !self.files.contains(own) {
            self.files_more += 1;
        }
    }

    /// All of it, for whoever asked.
    pub fn report(self, objects: &ObjectNames, refused: Option<Error>) -> Report {
        let told: Vec<Option<String>> = self.losses.iter().map(|losses| losses.tell(objects)).collect();
        let sentence = |Line { what, losses }: Line| {
            let lost = losses.and_then(|losses| told.get(losses)?.as_ref());
            lost.map_or_else(|| what.clone(), |lost| format!("{what}; cannot be read because of it: {lost}"))
        };
        Report {
            problems: self.lines.into_iter().map(sentence).collect(),
            problems_more: self.more,
            notes: self.notes,
            files: self.files.iter().flat_map(|own| paths_of(own, objects)).collect(),
            files_more: self.files_more,
            refused,
        }
    }
}
