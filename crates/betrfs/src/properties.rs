//! Properties of directories, inherited by everything below.

/// The properties that an object has of its own: a directory those that were set on it, and a file with
/// several names, which lies in no directory, those that it had when it got the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnProperties {
    /// Whether accesses leave the times of access of what is in it as they are.
    pub noatime: Option<bool>,
}

/// The place of the bits of `noatime`: 0 for none of its own, else the value and 1.
const NOATIME_MASK: u32 = 3;

impl OwnProperties {
    /// These, and where they say nothing those of a place further up.
    #[must_use]
    pub fn or(self, above: OwnProperties) -> OwnProperties {
        OwnProperties { noatime: self.noatime.or(above.noatime) }
    }

    /// The properties as a number, for an atomic.
    pub(crate) fn to_bits(self) -> u32 {
        self.noatime.map_or(0, |on| 1 + u32::from(on))
    }

    /// The properties of a number.
    pub(crate) fn from_bits(bits: u32) -> OwnProperties {
        let noatime = match bits & NOATIME_MASK {
            1 => Some(false),
            2 => Some(true),
            _ => None,
        };
        OwnProperties { noatime }
    }

    /// The own properties of a copy: with them it has, in a place that gives it `there`, what the source has.
    /// `self` are the source's own, `had` those and what it inherits.
    pub(crate) fn kept(self, had: OwnProperties, there: OwnProperties) -> OwnProperties {
        fn kept<T: Copy + PartialEq>(own: Option<T>, had: T, there: T) -> Option<T> {
            own.or_else(|| (had != there).then_some(had))
        }
        let noatime = |of: OwnProperties| of.noatime.unwrap_or(Properties::NOATIME);
        OwnProperties { noatime: kept(self.noatime, noatime(had), noatime(there)) }
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
}

impl Properties {
    /// The usual value of `noatime`.
    pub const NOATIME: bool = false;
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
}

impl SetProperties {
    /// What own properties become.
    pub(crate) fn of(&self, own: OwnProperties) -> OwnProperties {
        OwnProperties { noatime: self.noatime.of(own.noatime) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_come_back_from_their_number() {
        for noatime in [None, Some(false), Some(true)] {
            let own = OwnProperties { noatime };
            assert_eq!(OwnProperties::from_bits(own.to_bits()), own);
        }
    }

    /// A copy has what its source had, and takes for its own only what its place does not give.
    #[test]
    fn a_copy_keeps_what_its_source_had() {
        let of = |noatime| OwnProperties { noatime };
        let all = [None, Some(false), Some(true)];
        for case in 0..27 {
            let [own, above, there] = [case % 3, case / 3 % 3, case / 9].map(|at| of(all[at]));
            let kept = own.kept(own.or(above), there);
            let value = |own: OwnProperties| own.noatime.unwrap_or(false);
            assert_eq!(value(kept.or(there)), value(own.or(above)), "{own:?} {above:?} {there:?}");
            let is_given = own.noatime.is_none() && value(there) == value(above);
            assert_eq!(kept.noatime.is_none(), is_given, "{own:?} {above:?} {there:?}");
        }
    }
}
