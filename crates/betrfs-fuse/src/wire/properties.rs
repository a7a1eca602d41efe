//! Properties of directories as arguments of ioctl(2).
//!
//! ```text
//! one word pair for each property, 8 of them, zeros where there is none: first u32 | second u32
//! to set:   what is to happen (0 nothing, 1 inherit, 2 set) | value
//! answer:   value | levels up to the directory that it is from (0 its own, ffffffff the default)
//! order:    noatime (0 off, 1 on)
//! ```

use betrfs::{Properties, Property, PropertyChange, PropertySource, SetProperties};
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
    let SetProperties { noatime } = *set;
    let mut words = Words::default();
    let [first, ..] = &mut words;
    *first = change_words(noatime, u32::from);
    bytes_of(&words)
}

/// Decodes the argument of [`SET_PROPERTIES`]; `None` for one that this version does not know.
pub fn set_properties_of(bytes: &[u8]) -> Option<SetProperties> {
    let [noatime, later @ ..] = words_of(bytes)?;
    let is_known = later.iter().all(|words| *words == [0, 0]);
    is_known.then_some(())?;
    Some(SetProperties { noatime: change_of(noatime, switch)? })
}

/// Encodes the answer to [`GET_PROPERTIES`].
pub fn properties_bytes(properties: &Properties) -> PropertiesBytes {
    let Properties { noatime } = *properties;
    let mut words = Words::default();
    let [first, ..] = &mut words;
    *first = property_words(noatime, u32::from);
    bytes_of(&words)
}

/// Decodes the answer to [`GET_PROPERTIES`]; `None` for one that this version does not know.
pub fn properties_of(bytes: &PropertiesBytes) -> Option<Properties> {
    let [noatime, ..] = words_of(bytes)?;
    Some(Properties { noatime: property_of(noatime, switch)? })
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

    #[test]
    fn changes_and_answers_come_back() {
        for noatime in [
            PropertyChange::Keep,
            PropertyChange::Inherit,
            PropertyChange::Set(false),
            PropertyChange::Set(true),
        ] {
            let set = SetProperties { noatime };
            assert_eq!(set_properties_of(&set_properties_bytes(&set)), Some(set));
        }
        for source in [
            PropertySource::Own,
            PropertySource::Default,
            PropertySource::Inherited { levels: 1 },
            PropertySource::Inherited { levels: 32_000 },
        ] {
            let properties = Properties { noatime: Property { value: true, source } };
            assert_eq!(properties_of(&properties_bytes(&properties)), Some(properties));
        }
    }

    #[test]
    fn what_this_version_does_not_know_is_refused() {
        let set = SetProperties { noatime: PropertyChange::Set(true) };
        let bytes = set_properties_bytes(&set);
        assert_eq!(set_properties_of(&bytes[1..]), None, "too short");
        for (at, value) in [(0, 3), (0, 0), (0, 1), (4, 2), (32, 1), (60, 1)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(set_properties_of(&other), None, "{value} at {at}");
        }
        let mut answer = [0; size_of::<PropertiesBytes>()];
        answer[0] = 2;
        assert_eq!(properties_of(&answer), None);
    }
}
