//! Names and values of the properties of directories, as `betrfs set` and `get` have them.

use betrfs::{Properties, Property, PropertyChange, PropertySource, SetProperties};
use clap::ValueEnum;

/// The word for a property that is not to be the directory's own any more.
const INHERIT: &str = "inherit";

/// A property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// Whether reads leave times of access as they are: on or off
    Noatime,
}

/// The value of a property in words, and where it is from.
pub struct Shown {
    /// The value.
    pub value: String,
    /// Where it is from.
    pub source: PropertySource,
}

/// One property and what becomes of it, as in `noatime=on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The property.
    pub name: Name,
    set: SetProperties,
}

impl Name {
    /// The property as users write it.
    pub fn word(self) -> &'static str {
        match self {
            Name::Noatime => "noatime",
        }
    }

    /// The property of a directory.
    pub fn shown(self, properties: &Properties) -> Shown {
        match self {
            Name::Noatime => {
                let Property { value, source } = properties.noatime;
                Shown { value: if value { "on" } else { "off" }.to_owned(), source }
            }
        }
    }
}

impl Change {
    /// Adds the change to those of other properties.
    pub fn add_to(self, all: &mut SetProperties) {
        match self.name {
            Name::Noatime => all.noatime = self.set.noatime,
        }
    }
}

/// Reads `NAME=VALUE`.
///
/// # Errors
/// A sentence that says what is expected.
pub fn change(text: &str) -> Result<Change, String> {
    let names = || Name::value_variants().iter().map(|name| name.word()).collect::<Vec<_>>().join(", ");
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` has no `=`: give a property and its value, as in noatime=on"))?;
    let known = Name::value_variants().iter().find(|known| known.word() == name);
    let name = *known.ok_or_else(|| format!("there is no property `{name}`, only {}", names()))?;
    let set = match name {
        Name::Noatime => {
            let noatime = match value {
                INHERIT => PropertyChange::Inherit,
                "on" => PropertyChange::Set(true),
                "off" => PropertyChange::Set(false),
                _ => return Err(format!("`{value}` is no value of noatime: give on, off or inherit")),
            };
            SetProperties { noatime }
        }
    };
    Ok(Change { name, set })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_and_others_are_refused_with_what_is_expected() {
        for (text, noatime) in [
            ("noatime=on", PropertyChange::Set(true)),
            ("noatime=off", PropertyChange::Set(false)),
            ("noatime=inherit", PropertyChange::Inherit),
        ] {
            let mut set = SetProperties::default();
            change(text).unwrap().add_to(&mut set);
            assert_eq!(set, SetProperties { noatime });
        }
        for (text, word) in [
            ("noatime", "no `=`"),
            ("", "no `=`"),
            ("noatime=", "on, off or inherit"),
            ("noatime=On", "on, off or inherit"),
            ("Noatime=on", "only noatime"),
            ("=on", "only noatime"),
        ] {
            let refused = change(text).unwrap_err();
            assert!(refused.contains(word), "{text}: {refused}");
        }
    }
}
