//! The output of a subcommand: lines for people, or one document for programs. Both are written item by item,
//! so that a large volume needs no more memory than a small one.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::io::{self, BufWriter, Stdout, Write};
use std::path::Path;

use betree::Finding;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::format::Format;
use crate::json_stream::JsonStream;
use crate::name::Name;
use crate::plain_text::in_lines;

/// The most problems, and the most notes, that are listed.
const TOLD_MAX: usize = 1000;

/// The findings of a subcommand.
#[derive(Default)]
pub struct Found {
    problems: RefCell<Vec<Finding>>,
    problems_more: Cell<u64>,
    notes: RefCell<Vec<String>>,
}

impl Found {
    /// Takes findings, each once.
    pub fn tell(&self) -> impl FnMut(Finding) + '_ {
        |finding| {
            if !finding.is_problem {
                return self.note(finding.what);
            }
            let mut problems = self.problems.borrow_mut();
            if problems.contains(&finding) {
                return;
            }
            if problems.len() < TOLD_MAX {
                problems.push(finding);
            } else {
                self.problems_more.set(self.problems_more.get().saturating_add(1));
            }
        }
    }

    /// Takes a sentence that is not about damage.
    pub fn note(&self, what: String) {
        let mut notes = self.notes.borrow_mut();
        if notes.len() < TOLD_MAX && !notes.contains(&what) {
            notes.push(what);
        }
    }
}

/// A page in one of the two forms. Parts for the other form are dropped.
pub enum Page {
    /// Lines.
    Text {
        /// Where they go.
        out: BufWriter<Stdout>,
        /// The error of the first failed write.
        unwritten: Option<io::Error>,
    },
    /// The document.
    Json(JsonStream),
}

impl Page {
    /// Begins a page about a volume.
    pub fn new(format: Format, volume: &Path) -> Page {
        match format {
            Format::Text => Page::Text { out: BufWriter::new(io::stdout()), unwritten: None },
            Format::Json => {
                let mut document = JsonStream::begin();
                document.fields(&Name::new("volume", volume));
                Page::Json(document)
            }
        }
    }

    /// A field of the document.
    pub fn field(&mut self, name: &str, value: &Value) {
        if let Page::Json(document) = self {
            document.field(name, value);
        }
    }

    /// A line for people.
    pub fn line(&mut self, line: impl Display) {
        if let Page::Text { out, unwritten: unwritten @ None } = self {
            *unwritten = writeln!(out, "{}", in_lines(&line.to_string())).err();
        }
    }

    /// Begins a list of the document.
    pub fn list(&mut self, name: &str) {
        if let Page::Json(document) = self {
            document.list(name);
        }
    }

    /// An item of the list: one line of the document, or some lines for people.
    pub fn item(&mut self, value: impl FnOnce() -> Value, lines: impl FnOnce() -> String) {
        match self {
            Page::Json(document) => document.item(&value()),
            Page::Text { .. } => self.line(lines()),
        }
    }

    /// Ends the list.
    pub fn end_list(&mut self) {
        if let Page::Json(document) = self {
            document.end_list();
        }
    }

    /// Ends the page with the findings, and returns the outcome of the command.
    pub fn finish(mut self, shown: &str, found: Found, failure: Option<Failure>) -> Outcome {
        let (problems, more) = (found.problems.into_inner(), found.problems_more.get());
        let notes = found.notes.into_inner();
        for problem in &problems {
            self.line(format_args!("{shown}: {problem}"));
        }
        for note in &notes {
            self.line(format_args!("{shown}: {note}"));
        }
        if more > 0 {
            self.line(format_args!("{shown}: and {more} problems more, which are not listed"));
        }
        self.list("problems");
        if let Page::Json(document) = &mut self {
            problems.iter().for_each(|problem| document.item(&finding_json(problem)));
        }
        self.end_list();
        self.field("problems_more", &json!(more));
        self.field("notes", &json!(notes));
        self.field("error", &json!(failure.as_ref().map(ToString::to_string)));
        match self {
            Page::Json(mut document) => document.end()?,
            Page::Text { mut out, unwritten } => {
                let unwritten = unwritten.or_else(|| out.flush().err());
                if let Some(error) = unwritten.filter(|error| error.kind() != io::ErrorKind::BrokenPipe) {
                    return Err(Failure::new(format!("cannot write to standard output: {error}")));
                }
            }
        }
        let count = problems.len() as u64 + more;
        match failure {
            Some(failure) => Err(failure),
            None if count == 0 => Ok(()),
            None => Err(Failure::damage(format!(
                "{shown} is damaged ({count} found): `betrfs check` names the files that are unreadable in part"
            ))),
        }
    }
}

/// A finding for programs, as `betrfs check` prints a problem.
pub fn finding_json(problem: &Finding) -> Value {
    json!({
        "code": problem.code.name(),
        "place": problem.place.name(),
        "offset": problem.place.offset(),
        "what": problem.what,
    })
}
