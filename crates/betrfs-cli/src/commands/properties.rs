//! Names and values of the properties of directories, as `betrfs set` and `get` have them.

use betrfs::{
    DataCompression, Properties, Property, PropertyChange, PropertySource, SetProperties, ZstdLevel,
};
use clap::ValueEnum;

/// The word for a property that is not to be the directory's own any more.
const INHERIT: &str = "inherit";

/// A property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// How data is compressed that is written: none, lz4, zstd or zstd:LEVEL
    Compression,
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
            Name::Compression => "compression",
            Name::Noatime => "noatime",
        }
    }

    /// The property of a directory.
    pub fn shown(self, properties: &Properties) -> Shown {
        match self {
            Name::Compression => {
                let Property { value, source } = properties.compression;
                let value = match value {
                    DataCompression::None => "none".to_owned(),
                    DataCompression::Lz4 => "lz4".to_owned(),
                    DataCompression::Zstd(level) => format!("zstd:{}", level.get()),
                };
                Shown { value, source }
            }
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
            Name::Compression => all.compression = self.set.compression,
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
        Name::Compression => {
            let compression = match value {
                INHERIT => PropertyChange::Inherit,
                _ => PropertyChange::Set(compression(value)?),
            };
            SetProperties { compression, ..SetProperties::default() }
        }
        Name::Noatime => {
            let noatime = match value {
                INHERIT => PropertyChange::Inherit,
                "on" => PropertyChange::Set(true),
                "off" => PropertyChange::Set(false),
                _ => return Err(format!("`{value}` is no value of noatime: give on, off or inherit")),
            };
            SetProperties { noatime, ..SetProperties::default() }
        }
    };
    Ok(Change { name, set })
}

fn compression(value: &str) -> Result<DataCompression, String> {
    let known = match value.split_once(':') {
        None if value == "none" => Some(DataCompression::None),
        None if value == "lz4" => Some(DataCompression::Lz4),
        None if value == "zstd" => Some(DataCompression::Zstd(ZstdLevel::DEFAULT)),
        // Digits alone: a number's sign is no level.
        Some(("zstd", level)) if level.bytes().all(|byte| byte.is_ascii_digit()) => {
            level.parse().ok().and_then(ZstdLevel::new).map(DataCompression::Zstd)
        }
        _ => None,
    };
    known.ok_or_else(|| {
        format!("`{value}` is no value of compression: give none, lz4, zstd, zstd:1 to zstd:19, or inherit")
    })
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
            assert_eq!(set, SetProperties { noatime, ..SetProperties::default() });
        }
        let zstd = |level| PropertyChange::Set(DataCompression::Zstd(ZstdLevel::new(level).unwrap()));
        for (text, compression) in [
            ("compression=none", PropertyChange::Set(DataCompression::None)),
            ("compression=lz4", PropertyChange::Set(DataCompression::Lz4)),
            ("compression=zstd", zstd(3)),
            ("compression=zstd:1", zstd(1)),
            ("compression=zstd:19", zstd(19)),
            ("compression=inherit", PropertyChange::Inherit),
        ] {
            let mut set = SetProperties { noatime: PropertyChange::Set(true), ..SetProperties::default() };
            change(text).unwrap().add_to(&mut set);
            assert_eq!(set, SetProperties { noatime: PropertyChange::Set(true), compression });
        }
        for (text, word) in [
            ("noatime", "no `=`"),
            ("", "no `=`"),
            ("noatime=", "on, off or inherit"),
            ("noatime=On", "on, off or inherit"),
            ("Noatime=on", "only compression, noatime"),
            ("=on", "only compression, noatime"),
            ("compression=", "zstd:1 to zstd:19"),
            ("compression=zstd:", "zstd:1 to zstd:19"),
            ("compression=zstd:0", "zstd:1 to zstd:19"),
            ("compression=zstd:20", "zstd:1 to zstd:19"),
            ("compression=zstd:+3", "zstd:1 to zstd:19"),
            ("compression=zstd:300", "zstd:1 to zstd:19"),
            ("compression=lz4:1", "zstd:1 to zstd:19"),
            ("compression=gzip", "zstd:1 to zstd:19"),
        ] {
            let refused = change(text).unwrap_err();
            assert!(refused.contains(word), "{text}: {refused}");
        }
    }
}
