//! Properties of directories as arguments of ioctl(2).
//!
//! ```text
//! one word pair for each property, 8 of them, zeros where there is none: first u32 | second u32
//! to set:   what is to happen (0 nothing, 1 inherit, 2 set) | value
//! answer:   value | levels up to the directory that it is from (0 its own, ffffffff the default)
//! order:    noatime (0 off, 1 on), compression (0 none, 1 LZ4, from 2 on zstd of level 1 and above)
//! ```

use betrfs::{
    DataCompression, Properties, Property, PropertyChange, PropertySource, SetProperties, ZstdLevel,
};
use rustix::ioctl::opcode;

/// The argument of [`SET_PROPERTIES`] and the answer to [`GET_PROPERTIES`].
pub type PropertiesBytes = [u8; 64];
/// On a file or directory: the properties that count for it.
pub const GET_PROPERTIES: u32 = opcode::read::<PropertiesBytes>(b'B', 11);
/// On a directory: changes its properties, all or none of those asked for.
pub const SET_PROPERTIES: u32 = opcode::write::<PropertiesBytes>(b'B', 12);

/// A pair of words for each property.
type Words = [[u32; 2]; 8];

const INHERIT: u32 = 1;
const SET: u32 = 2;
const DEFAULT: u32 = u32::MAX;

/// Encodes the argument of [`SET_PROPERTIES`].
pub fn set_properties_bytes(set: &SetProperties) -> PropertiesBytes {
    let SetProperties { noatime, compression } = *set;
    let mut words = Words::default();
    let [first, second, ..] = &mut words;
    (*first, *second) = (change_words(noatime, u32::from), change_words(compression, code_of));
    bytes_of(&words)
}

/// Decodes the argument of [`SET_PROPERTIES`]; `None` for one that this version does not know.
pub fn set_properties_of(bytes: &[u8]) -> Option<SetProperties> {
    let [noatime, compression, later @ ..] = words_of(bytes)?;
    let is_known = later.iter().all(|words| *words == [0, 0]);
    is_known.then_some(())?;
    let (noatime, compression) = (change_of(noatime, switch)?, change_of(compression, compression_of)?);
    Some(SetProperties { noatime, compression })
}

/// Encodes the answer to [`GET_PROPERTIES`].
pub fn properties_bytes(properties: &Properties) -> PropertiesBytes {
    let Properties { noatime, compression } = *properties;
    let mut words = Words::default();
    let [first, second, ..] = &mut words;
    (*first, *second) = (property_words(noatime, u32::from), property_words(compression, code_of));
    bytes_of(&words)
}

/// Decodes the answer to [`GET_PROPERTIES`]; `None` for one that this version does not know.
pub fn properties_of(bytes: &PropertiesBytes) -> Option<Properties> {
    let [noatime, compression, ..] = words_of(bytes)?;
    let (noatime, compression) = (property_of(noatime, switch)?, property_of(compression, compression_of)?);
    Some(Properties { noatime, compression })
}

fn change_words<T>(change: PropertyChange<T>, code: impl FnOnce(T) -> u32) -> [u32; 2] {
    match change {
        PropertyChange::Keep => [0, 0],
        PropertyChange::Inherit => [INHERIT, 0],
        PropertyChange::Set(value) => [SET, code(value)],
    }
}

fn change_of<T>(words: [u32; 2], value: impl FnOnce(u32) -> Option<T>) -> Option<PropertyChange<T>> {
    match words {
        [0, 0] => Some(PropertyChange::Keep),
        [INHERIT, 0] => Some(PropertyChange::Inherit),
        [SET, code] => value(code).map(PropertyChange::Set),
        _ => None,
    }
}

fn property_words<T>(property: Property<T>, code: impl FnOnce(T) -> u32) -> [u32; 2] {
    let levels = match property.source {
        PropertySource::Own => 0,
        PropertySource::Inherited { levels } => levels,
        PropertySource::Default => DEFAULT,
    };
    [code(property.value), levels]
}

fn property_of<T>([code, levels]: [u32; 2], value: impl FnOnce(u32) -> Option<T>) -> Option<Property<T>> {
    let source = match levels {
        0 => PropertySource::Own,
        DEFAULT => PropertySource::Default,
        levels => PropertySource::Inherited { levels },
    };
    Some(Property { value: value(code)?, source })
}

fn switch(code: u32) -> Option<bool> {
    match code {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn code_of(compression: DataCompression) -> u32 {
    match compression {
        DataCompression::None => 0,
        DataCompression::Lz4 => 1,
        DataCompression::Zstd(level) => 1 + u32::from(level.get()),
    }
}

fn compression_of(code: u32) -> Option<DataCompression> {
    match code {
        0 => Some(DataCompression::None),
        1 => Some(DataCompression::Lz4),
        code => ZstdLevel::new(u8::try_from(code - 1).ok()?).map(DataCompression::Zstd),
    }
}

fn bytes_of(words: &Words) -> PropertiesBytes {
    let mut bytes = [0; size_of::<PropertiesBytes>()];
    let all = words.iter().flatten().flat_map(|word| word.to_le_bytes());
    bytes.iter_mut().zip(all).for_each(|(to, byte)| *to = byte);
    bytes
}

fn words_of(bytes: &[u8]) -> Option<Words> {
    let (bytes, _) = bytes.split_first_chunk::<{ size_of::<PropertiesBytes>() }>()?;
    let mut words = Words::default();
    let (all, _) = bytes.as_chunks::<4>();
    words.iter_mut().flatten().zip(all).for_each(|(to, word)| *to = u32::from_le_bytes(*word));
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compressions() -> Vec<DataCompression> {
        (0..100).filter_map(compression_of).collect()
    }

    #[test]
    fn changes_and_answers_come_back() {
        assert_eq!(compressions().len(), 2 + 19);
        for noatime in [
            PropertyChange::Keep,
            PropertyChange::Inherit,
            PropertyChange::Set(false),
            PropertyChange::Set(true),
        ] {
            let changes = compressions().into_iter().map(PropertyChange::Set);
            for compression in changes.chain([PropertyChange::Keep, PropertyChange::Inherit]) {
                let set = SetProperties { noatime, compression };
                assert_eq!(set_properties_of(&set_properties_bytes(&set)), Some(set));
            }
        }
        for source in [
            PropertySource::Own,
            PropertySource::Default,
            PropertySource::Inherited { levels: 1 },
            PropertySource::Inherited { levels: 32_000 },
        ] {
            for value in compressions() {
                let noatime = Property { value: true, source };
                let properties = Properties { noatime, compression: Property { value, source } };
                assert_eq!(properties_of(&properties_bytes(&properties)), Some(properties));
            }
        }
    }

    #[test]
    fn what_this_version_does_not_know_is_refused() {
        let set = SetProperties { noatime: PropertyChange::Set(true), ..SetProperties::default() };
        let bytes = set_properties_bytes(&set);
        assert_eq!(set_properties_of(&bytes[1..]), None, "too short");
        for (at, value) in [(0, 3), (0, 0), (0, 1), (4, 2), (8, 3), (12, 1), (16, 1), (32, 1), (60, 1)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(set_properties_of(&other), None, "{value} at {at}");
        }
        for (at, value) in [(0, 2), (8, 21), (8, 255)] {
            let mut answer = [0; size_of::<PropertiesBytes>()];
            answer[at] = value;
            assert_eq!(properties_of(&answer), None, "{value} at {at}");
        }
    }
}
