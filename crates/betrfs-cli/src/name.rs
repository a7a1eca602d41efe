//! Fields of JSON documents with names and paths, which need not be UTF-8. JSON has only text: bytes that are
//! not UTF-8 become replacement characters in the field `path`, and then the field `path_hex` beside it has
//! all bytes in hexadecimal. Of names that are UTF-8 there is no second field.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The end of the name of a field that has the bytes of another.
const HEX: &str = "_hex";

/// A name or a path as a field of a document, to be flattened into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    field: &'static str,
    /// `None` is null.
    value: Option<OsString>,
}

impl Name {
    /// The field with this name.
    pub fn new(field: &'static str, value: impl Into<OsString>) -> Name {
        Name::or_null(field, Some(value))
    }

    /// The field with this name, null without a value.
    pub fn or_null(field: &'static str, value: Option<impl Into<OsString>>) -> Name {
        Name { field, value: value.map(Into::into) }
    }

    /// The name for people; `None` where it is null.
    pub fn shown(&self) -> Option<Cow<'_, str>> {
        self.value.as_ref().map(|value| value.to_string_lossy())
    }
}

/// For people; nothing where it is null.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown().unwrap_or_default())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry(self.field, &self.shown())?;
        if let Some(hex) = self.value.as_ref().and_then(hex_of) {
            fields.serialize_entry(&format!("{}{HEX}", self.field), &hex)?;
        }
        fields.end()
    }
}

/// The bytes of a name that is not UTF-8.
fn hex_of(name: &OsString) -> Option<String> {
    name.to_str().is_none().then(|| hex(name.as_bytes()))
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use serde_json::json;

    use super::*;

    fn bytes(name: &[u8]) -> OsString {
        OsString::from_vec(name.to_vec())
    }

    #[derive(Serialize)]
    struct Document {
        #[serde(flatten)]
        path: Name,
        size_bytes: u64,
    }

    #[test]
    fn only_what_is_not_utf8_has_its_bytes_beside_it() {
        let told = |path: Name| serde_json::to_value(Document { path, size_bytes: 3 }).unwrap();
        assert_eq!(told(Name::new("path", "\u{e4}")), json!({ "path": "\u{e4}", "size_bytes": 3 }));
        assert_eq!(
            told(Name::new("path", bytes(b"a\xff"))),
            json!({ "path": "a\u{fffd}", "path_hex": "61ff", "size_bytes": 3 })
        );
        assert_eq!(
            told(Name::or_null("path", None::<OsString>)),
            json!({ "path": null, "size_bytes": 3 })
        );
    }
}
