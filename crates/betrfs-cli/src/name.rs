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

/// A list of names as a field of a document, to be flattened into it. If one of them is not UTF-8, a list of
/// the same length stands beside it, with null for those that are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameList {
    field: &'static str,
    /// The names.
    pub values: Vec<OsString>,
}

impl NameList {
    /// The field, without a name yet.
    pub fn new(field: &'static str) -> NameList {
        NameList { field, values: Vec::new() }
    }
}

impl Serialize for NameList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        let shown: Vec<_> = self.values.iter().map(|value| value.to_string_lossy()).collect();
        fields.serialize_entry(self.field, &shown)?;
        let hex: Vec<_> = self.values.iter().map(hex_of).collect();
        if hex.iter().any(Option::is_some) {
            fields.serialize_entry(&format!("{}{HEX}", self.field), &hex)?;
        }
        fields.end()
    }
}

/// The field with the bytes of a name that stands in a document already, to be flattened beside it: nothing
/// if the name is UTF-8.
pub struct HexOf(pub Name);

impl Serialize for HexOf {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hex = self.0.value.as_ref().and_then(hex_of);
        let mut fields = serializer.serialize_map(None)?;
        if let Some(hex) = hex {
            fields.serialize_entry(&format!("{}{HEX}", self.0.field), &hex)?;
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
        #[serde(flatten)]
        removed: NameList,
        size_bytes: u64,
    }

    #[test]
    fn only_what_is_not_utf8_has_its_bytes_beside_it() {
        let told = |path: Name, removed: &[&[u8]]| {
            let values = removed.iter().map(|name| bytes(name)).collect();
            let removed = NameList { values, ..NameList::new("removed") };
            serde_json::to_value(Document { path, removed, size_bytes: 3 }).unwrap()
        };
        assert_eq!(
            told(Name::new("path", "\u{e4}"), &[b"b"]),
            json!({ "path": "\u{e4}", "removed": ["b"], "size_bytes": 3 })
        );
        assert_eq!(
            told(Name::new("path", bytes(b"a\xff")), &[b"b", b"\xfe\n"]),
            json!({
                "path": "a\u{fffd}", "path_hex": "61ff",
                "removed": ["b", "\u{fffd}\n"], "removed_hex": [null, "fe0a"], "size_bytes": 3,
            })
        );
        assert_eq!(
            told(Name::or_null("path", None::<OsString>), &[]),
            json!({ "path": null, "removed": [], "size_bytes": 3 })
        );
        let beside = |name: &[u8]| serde_json::to_value(HexOf(Name::new("volume", bytes(name)))).unwrap();
        assert_eq!((beside(b"v"), beside(b"v\xff")), (json!({}), json!({ "volume_hex": "76ff" })));
    }
}
