//! The list of what is missing: one line for each part.

use std::io::{self, Write};

use betrfs::rescue::{Location, Lost};

/// See the module.
pub struct List {
    out: Box<dyn Write>,
    /// The number of lines.
    pub count: u64,
}

impl List {
    /// An empty list.
    pub fn new(out: Box<dyn Write>) -> List {
        List { out, count: 0 }
    }

    /// Adds a line.
    ///
    /// # Errors
    /// It cannot be written. A closed pipe is no failure.
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
        self.write(&path, &part, why)
    }

    /// Adds a line about a part of an object in the target.
    ///
    /// # Errors
    /// As [`add`](List::add).
    pub fn add_part(&mut self, location: &Location, part: &str, why: &str) -> io::Result<()> {
        self.write(&path_of(location), part, why)
    }

    /// Adds a line about a structure of the volume, of which an older state may be all that is left.
    ///
    /// # Errors
    /// As [`add`](List::add).
    pub fn add_structure(&mut self, place: &str, why: &str) -> io::Result<()> {
        self.write("-", place, why)
    }

    fn write(&mut self, path: &str, part: &str, why: &str) -> io::Result<()> {
        self.count += 1;
        let why = escaped(why.as_bytes());
        match writeln!(self.out, "{path}\t{part}\t{why}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// As [`add`](List::add).
    pub fn finish(&mut self) -> io::Result<()> {
        match self.out.flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
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
