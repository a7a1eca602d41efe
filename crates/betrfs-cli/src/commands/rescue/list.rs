//! The list of what is missing: a line for each part, an item of the JSON document, or both. Nothing of it is
//! kept in memory.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::rc::Rc;

use betrfs::rescue::{Location, Lost};
use serde::Serialize;

use crate::json_stream::JsonStream;
use crate::name::Name;

/// See the module.
pub struct List {
    lines: Option<Box<dyn Write>>,
    /// The document, in which a list is begun.
    document: Option<Rc<RefCell<JsonStream>>>,
    /// Where the lines go, for messages.
    place: String,
    /// The number of parts.
    pub count: u64,
}

/// A part for programs.
#[derive(Serialize)]
struct Missing<'a> {
    /// Null for a structure of the volume.
    #[serde(flatten)]
    path: Name,
    /// `all`, `record`, `bytes`, `attribute`, `name`, `names`, `volume` or `structure`.
    part: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Bytes>,
    #[serde(flatten)]
    attribute: Option<Name>,
    /// The path behind the last of the names.
    #[serde(skip_serializing_if = "Option::is_none")]
    up_to: Option<&'a str>,
    /// Which structure of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<&'a str>,
    reason: &'a str,
}

#[derive(Serialize)]
struct Bytes {
    from: u64,
    /// Behind the last.
    to: u64,
}

impl<'a> Missing<'a> {
    fn new(path: Option<OsString>, part: &'static str, reason: &'a str) -> Missing<'a> {
        let path = Name::or_null("path", path);
        Missing { path, part, bytes: None, attribute: None, up_to: None, place: None, reason }
    }

    fn of(lost: &'a Lost, reason: &'a str) -> Missing<'a> {
        let new = |path: OsString, part| Missing::new(Some(path), part, reason);
        match lost {
            Lost::Volume => new("/".into(), "volume"),
            Lost::Names { from, to } => Missing { up_to: Some(to), ..new(from.into(), "names") },
            Lost::Object(location) => new(bytes_of(location), "all"),
            Lost::Record(location) => new(bytes_of(location), "record"),
            Lost::Bytes { of, from, to } => {
                Missing { bytes: Some(Bytes { from: *from, to: *to }), ..new(bytes_of(of), "bytes") }
            }
            Lost::Attribute { of, name } => {
                let attribute = Name::new("attribute", OsString::from_vec(name.clone()));
                Missing { attribute: Some(attribute), ..new(bytes_of(of), "attribute") }
            }
            Lost::Senseless(what) => new(what.into(), "all"),
        }
    }
}

impl List {
    /// An empty list: of lines, in a document, or both. `place` is where the lines go.
    pub fn new(
        lines: Option<Box<dyn Write>>,
        document: Option<Rc<RefCell<JsonStream>>>,
        place: String,
    ) -> List {
        List { lines, document, place, count: 0 }
    }

    /// Adds a part.
    ///
    /// # Errors
    /// Its line cannot be written. A closed pipe is no failure.
    pub fn add(&mut self, lost: &Lost, why: &str) -> io::Result<()> {
        let (path, part) = match lost {
            Lost::Volume => (String::from("/"), String::from("the volume's record")),
            Lost::Names { from, to } => {
                (escaped(from.as_bytes()), format!("names up to {}", escaped(to.as_bytes())))
            }
            Lost::Object(location) => (path_of(location), String::from("all")),
            Lost::Record(location) => (path_of(location), String::from("record")),
            Lost::Bytes { of, from, to } => (path_of(of), format!("bytes {from}-{}", to.saturating_sub(1))),
            Lost::Attribute { of, name } => (path_of(of), format!("attribute {}", escaped(name))),
            Lost::Senseless(what) => (escaped(what.as_bytes()), String::from("all")),
        };
        self.write((&path, &part, why), || Missing::of(lost, why))
    }

    /// Adds the name of an object in the target.
    ///
    /// # Errors
    /// As [`add`](List::add).
    pub fn add_name(&mut self, location: &Location, why: &str) -> io::Result<()> {
        self.write((&path_of(location), "name", why), || Missing::new(Some(bytes_of(location)), "name", why))
    }

    /// Adds a structure of the volume, of which an older state may be all that is left.
    ///
    /// # Errors
    /// As [`add`](List::add).
    pub fn add_structure(&mut self, place: &str, why: &str) -> io::Result<()> {
        let missing = || Missing { place: Some(place), ..Missing::new(None, "structure", why) };
        self.write(("-", place, why), missing)
    }

    fn write<'a>(
        &mut self,
        (path, part, why): (&str, &str, &str),
        missing: impl FnOnce() -> Missing<'a>,
    ) -> io::Result<()> {
        self.count += 1;
        if let Some(document) = &self.document {
            document.borrow_mut().item(&missing());
        }
        let why = escaped(why.as_bytes());
        let written = self.lines.as_mut().map_or(Ok(()), |lines| writeln!(lines, "{path}\t{part}\t{why}"));
        self.told(written)
    }

    /// Writes what is buffered of the lines.
    ///
    /// # Errors
    /// As [`add`](List::add).
    pub fn finish(&mut self) -> io::Result<()> {
        let flushed = self.lines.as_mut().map_or(Ok(()), |lines| lines.flush());
        self.told(flushed)
    }

    /// The outcome of a write of lines, with their place.
    fn told(&self, written: io::Result<()>) -> io::Result<()> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|error| {
                io::Error::new(error.kind(), format!("cannot write the list to {}: {error}", self.place))
            }),
        }
    }
}

fn path_of(location: &Location) -> String {
    match location {
        Location::Root => String::from("/"),
        Location::Path(names) => names.iter().map(|name| format!("/{}", escaped(name))).collect(),
        Location::Linked(number) => format!("linked file {number}"),
    }
}

/// The same for programs: the path byte for byte.
fn bytes_of(location: &Location) -> OsString {
    match location {
        Location::Root => "/".into(),
        Location::Path(names) => {
            OsString::from_vec(names.iter().flat_map(|name| [b"/", name.as_slice()].concat()).collect())
        }
        Location::Linked(number) => format!("linked file {number}").into(),
    }
}

/// Text without control characters and backslashes; bytes that are not UTF-8 are escaped too.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_make_a_line_or_a_column() {
        assert_eq!(escaped(b"a\nb\tc\\d\xff\xc3\xa9"), "a\\nb\\tc\\\\d\\xff\u{e9}");
    }
}
