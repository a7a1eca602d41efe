//! Properties of directories, inherited by everything below.

use betree::{PairCompression, ZstdLevel};

/// The properties that an object has of its own: a directory those that were set on it, and a file with
/// several names, which lies in no directory, those that it had when it got the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnProperties {
    /// Whether accesses leave the times of access of what is in it as they are.
    pub noatime: Option<bool>,
    /// How data is compressed that is written to what is in it.
    pub compression: Option<DataCompression>,
}

/// How the data of files is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataCompression {
    /// Not at all.
    None,
    /// By LZ4.
    Lz4,
    /// By zstd of this level.
    Zstd(ZstdLevel),
}

impl DataCompression {
    /// What the engine is asked for. LZ4 is what it does without being asked.
    pub(crate) fn asked(self) -> PairCompression {
        match self {
            DataCompression::None => PairCompression::None,
            DataCompression::Lz4 => PairCompression::Usual,
            DataCompression::Zstd(level) => PairCompression::Zstd(level),
        }
    }

    /// Its number: 0 none, 1 LZ4, from 2 on zstd of level 1 and above.
    fn code(self) -> u32 {
        match self {
            DataCompression::None => 0,
            DataCompression::Lz4 => 1,
            DataCompression::Zstd(level) => 1 + u32::from(level.get()),
        }
    }

    fn of_code(code: u32) -> Option<DataCompression> {
        match code {
            0 => Some(DataCompression::None),
            1 => Some(DataCompression::Lz4),
            code => ZstdLevel::new(u8::try_from(code - 1).ok()?).map(DataCompression::Zstd),
        }
    }
}

/// The bits of `noatime`: 0 for none of its own, else the value and 1.
const NOATIME_MASK: u32 = 3;
/// The first of the bits of `compression`, likewise.
const COMPRESSION_SHIFT: u32 = 8;

impl OwnProperties {
    /// These, and where they say nothing those of a place further up.
    #[must_use]
    pub fn or(self, above: OwnProperties) -> OwnProperties {
        OwnProperties {
            noatime: self.noatime.or(above.noatime),
            compression: self.compression.or(above.compression),
        }
    }

    /// The properties as a number, for an atomic.
    pub(crate) fn to_bits(self) -> u32 {
        let noatime = self.noatime.map_or(0, |on| 1 + u32::from(on));
        noatime | self.compression.map_or(0, |compression| 1 + compression.code()) << COMPRESSION_SHIFT
    }

    /// The properties of a number.
    pub(crate) fn from_bits(bits: u32) -> OwnProperties {
        let noatime = match bits & NOATIME_MASK {
            1 => Some(false),
            2 => Some(true),
            _ => None,
        };
        let compression = (bits >> COMPRESSION_SHIFT).checked_sub(1).and_then(DataCompression::of_code);
        OwnProperties { noatime, compression }
    }

    /// The own properties of a copy: with them it has, in a place that gives it `there`, what the source has.
    /// `self` are the source's own, `had` those and what it inherits.
    pub(crate) fn kept(self, had: OwnProperties, there: OwnProperties) -> OwnProperties {
        fn kept<T: Copy + PartialEq>(own: Option<T>, had: T, there: T) -> Option<T> {
            own.or_else(|| (had != there).then_some(had))
        }
        let noatime = |of: OwnProperties| of.noatime.unwrap_or(Properties::NOATIME);
        let compression = |of: OwnProperties| of.compression.unwrap_or(Properties::COMPRESSION);
        OwnProperties {
            noatime: kept(self.noatime, noatime(had), noatime(there)),
            compression: kept(self.compression, compression(had), compression(there)),
        }
    }
}

/// Where an object has the value of a property from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertySource {
    /// From nowhere: it is the usual value.
    Default,
    /// It is its own.
    Own,
    /// From the nearest directory above that has one of its own, so many components of the path further up.
    Inherited {
        /// The number of components: 1 for the directory right above.
        levels: u32,
    },
}

/// The value of a property, and where it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property<T> {
    /// The value that counts.
    pub value: T,
    /// Where it is from.
    pub source: PropertySource,
}

impl<T> Property<T> {
    /// The property with the first value that is found on the way up, at a number of levels.
    pub(crate) fn found(found: Option<(u32, T)>, default: T) -> Property<T> {
        match found {
            None => Property { value: default, source: PropertySource::Default },
            Some((0, value)) => Property { value, source: PropertySource::Own },
            Some((levels, value)) => Property { value, source: PropertySource::Inherited { levels } },
        }
    }
}

/// The properties that count for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Whether accesses leave times of access as they are.
    pub noatime: Property<bool>,
    /// How data is compressed that is written.
    pub compression: Property<DataCompression>,
}

impl Properties {
    /// The usual value of `noatime`.
    pub const NOATIME: bool = false;
    /// The usual compression.
    pub const COMPRESSION: DataCompression = DataCompression::Lz4;
}

/// What becomes of a property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PropertyChange<T> {
    /// It stays as it is.
    #[default]
    Keep,
    /// The directory has none of its own any more.
    Inherit,
    /// The directory has this one.
    Set(T),
}

impl<T: Copy> PropertyChange<T> {
    /// What an own property becomes.
    pub(crate) fn of(self, own: Option<T>) -> Option<T> {
        match self {
            PropertyChange::Keep => own,
            PropertyChange::Inherit => None,
            PropertyChange::Set(value) => Some(value),
        }
    }
}

/// A change of the properties of a directory; the default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetProperties {
    /// Whether accesses leave times of access as they are.
    pub noatime: PropertyChange<bool>,
    /// How data is compressed that is written.
    pub compression: PropertyChange<DataCompression>,
}

impl SetProperties {
    /// What own properties become.
    pub(crate) fn of(&self, own: OwnProperties) -> OwnProperties {
        OwnProperties {
            noatime: self.noatime.of(own.noatime),
            compression: self.compression.of(own.compression),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// None, and all values of `compression` that matter here.
    fn compressions() -> [Option<DataCompression>; 5] {
        let zstd = |level| ZstdLevel::new(level).map(DataCompression::Zstd);
        [None, Some(DataCompression::None), Some(DataCompression::Lz4), zstd(1), zstd(19)]
    }

    #[test]
    fn properties_come_back_from_their_number() {
        for noatime in [None, Some(false), Some(true)] {
            for compression in compressions() {
                let own = OwnProperties { noatime, compression };
                assert_eq!(OwnProperties::from_bits(own.to_bits()), own);
            }
        }
    }

    /// A copy has what its source had, and takes for its own only what its place does not give.
    #[test]
    fn a_copy_keeps_what_its_source_had() {
        let switches = [None, Some(false), Some(true)];
        let compressions = compressions();
        for case in 0..125 {
            let [own, above, there] = [case % 5, case / 5 % 5, case / 25]
                .map(|at| OwnProperties { noatime: switches[at % 3], compression: compressions[at] });
            let kept = own.kept(own.or(above), there);
            let values = |own: OwnProperties| {
                (own.noatime.unwrap_or(false), own.compression.unwrap_or(DataCompression::Lz4))
            };
            assert_eq!(values(kept.or(there)), values(own.or(above)), "{own:?} {above:?} {there:?}");
            let is_given = own.noatime.is_none() && values(there).0 == values(above).0;
            assert_eq!(kept.noatime.is_none(), is_given, "{own:?} {above:?} {there:?}");
            let is_given = own.compression.is_none() && values(there).1 == values(above).1;
            assert_eq!(kept.compression.is_none(), is_given, "{own:?} {above:?} {there:?}");
        }
    }
}
