//! A JSON document that is written field by field, so that its lists need no memory.

use std::fmt::Display;
use std::io::{self, BufWriter, Stdout, Write};

use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::format::SCHEMA_VERSION;
use crate::plain_text::json_escaped;

/// The document, on standard output.
pub struct JsonStream {
    out: BufWriter<Stdout>,
    /// The error of the first failed write.
    unwritten: Option<io::Error>,
    /// Whether the current list has an item.
    has_item: bool,
}

impl JsonStream {
    /// Begins the document with the version of its form.
    pub fn begin() -> JsonStream {
        let mut begun = JsonStream { out: BufWriter::new(io::stdout()), unwritten: None, has_item: false };
        begun.write(format_args!("{{\n  \"schema_version\": {SCHEMA_VERSION}"));
        begun
    }

    fn write(&mut self, text: impl Display) {
        if self.unwritten.is_none() {
            self.unwritten = write!(self.out, "{}", json_escaped(&text.to_string())).err();
        }
    }

    /// Adds a field.
    pub fn field(&mut self, name: &str, value: &Value) {
        self.write(format_args!(",\n  {}: {value}", json!(name)));
    }

    /// Adds all fields of what is serialized as an object.
    pub fn fields(&mut self, of: &impl Serialize) {
        match serde_json::to_value(of) {
            Ok(Value::Object(fields)) => fields.iter().for_each(|(name, value)| self.field(name, value)),
            Ok(_) => {}
            Err(error) => self.unwritten = self.unwritten.take().or(Some(error.into())),
        }
    }

    /// Begins a list.
    pub fn list(&mut self, name: &str) {
        self.has_item = false;
        self.write(format_args!(",\n  {}: [", json!(name)));
    }

    /// Adds an item to the list, on a line of its own.
    pub fn item(&mut self, value: &impl Serialize) {
        let comma = if self.has_item { "," } else { "" };
        self.has_item = true;
        match serde_json::to_string(value) {
            Ok(value) => self.write(format_args!("{comma}\n    {value}")),
            Err(error) => self.unwritten = self.unwritten.take().or(Some(error.into())),
        }
    }

    /// Ends the list.
    pub fn end_list(&mut self) {
        self.write(if self.has_item { "\n  ]" } else { "]" });
    }

    /// Ends the document. A closed pipe is no failure; any other write error is one.
    pub fn end(&mut self) -> Outcome {
        self.write("\n}\n");
        match self.unwritten.take().or_else(|| self.out.flush().err()) {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::new(format!("cannot write to standard output: {error}")))
            }
            _ => Ok(()),
        }
    }
}
