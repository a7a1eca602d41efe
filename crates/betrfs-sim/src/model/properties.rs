//! Properties of directories: what counts, where it is from, and what a copy keeps.

use betrfs::{DataCompression, PropertyChange, PropertySource, SetProperties};

use super::refusal::refuse_if;
use super::{Done, ObjectId, ROOT, Refusal, State, Why};
use crate::at::At;

/// The values that a directory has of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnValues {
    /// Whether accesses leave times of access as they are.
    pub noatime: Option<bool>,
    /// How data is compressed.
    pub compression: Option<DataCompression>,
}

/// The values that count somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    /// Whether accesses leave times of access as they are.
    pub noatime: bool,
    /// How data is compressed.
    pub compression: DataCompression,
}

impl OwnValues {
    fn change(&mut self, set: &SetProperties) {
        fn changed<T: Copy>(own: Option<T>, change: PropertyChange<T>) -> Option<T> {
            match change {
                PropertyChange::Keep => own,
                PropertyChange::Inherit => None,
                PropertyChange::Set(value) => Some(value),
            }
        }
        self.noatime = changed(self.noatime, set.noatime);
        self.compression = changed(self.compression, set.compression);
    }

    /// Adds what a copy had at its source, and has not at its own place.
    pub(super) fn keep(&mut self, had: Values, there: Values) {
        if had.noatime != there.noatime {
            self.noatime = self.noatime.or(Some(had.noatime));
        }
        if had.compression != there.compression {
            self.compression = self.compression.or(Some(had.compression));
        }
    }
}

impl State {
    /// Sets properties for everyone.
    pub(super) fn set_properties(
        &mut self,
        at: &At,
        set: &SetProperties,
        now_ns: i64,
    ) -> Result<Done, Refusal> {
        let id = self.find(at)?;
        let object = self.object(id);
        refuse_if(!object.is_dir(), Why::NotADirectory)?;
        refuse_if(object.is_protected(), Why::Protected)?;
        let or = self.check_frozen(id)?;
        let object = self.change(id);
        object.ctime_ns = now_ns;
        if let Some(dir) = object.dir_mut() {
            dir.own.change(set);
        }
        Ok(Done { or, ..Done::default() })
    }

    /// The directory from which one inherits. A snapshot inherits what its directory inherits.
    fn heir_of(&self, id: ObjectId) -> Option<ObjectId> {
        let above = |id: ObjectId| self.object(id).dir().map(|dir| dir.parent).filter(|_| id != ROOT);
        let parent = above(id)?;
        let is_snapshot = self.object(id).is_frozen && !self.object(parent).is_frozen;
        if is_snapshot { above(parent) } else { Some(parent) }
    }

    /// The first of the values `of` a directory and those above it, with the number of levels up.
    fn nearest<T>(&self, id: ObjectId, of: impl Fn(&OwnValues) -> Option<T>) -> Option<(u32, T)> {
        let ways = std::iter::successors(Some(id), |id| self.heir_of(*id));
        (0..).zip(ways).find_map(|(levels, id)| Some((levels, of(&self.object(id).dir()?.own)?)))
    }

    /// The values that count for a directory and what is in it.
    pub fn values(&self, id: ObjectId) -> Values {
        Values {
            noatime: self.nearest(id, |own| own.noatime).is_some_and(|(_, value)| value),
            compression: self
                .nearest(id, |own| own.compression)
                .map_or(DataCompression::Lz4, |(_, value)| value),
        }
    }

    /// Where these values of a directory are from.
    pub fn sources(&self, id: ObjectId) -> [PropertySource; 2] {
        let source = |levels: Option<u32>| match levels {
            None => PropertySource::Default,
            Some(0) => PropertySource::Own,
            Some(levels) => PropertySource::Inherited { levels },
        };
        [
            source(self.nearest(id, |own| own.noatime).map(|(levels, _)| levels)),
            source(self.nearest(id, |own| own.compression).map(|(levels, _)| levels)),
        ]
    }

    /// Gives the copy of a directory the values that it had at its source, where its place does not.
    pub(super) fn keep_values(&mut self, copy: ObjectId, had: Values, there: Values) {
        if let Some(dir) = self.change(copy).dir_mut() {
            dir.own.keep(had, there);
        }
    }
}
