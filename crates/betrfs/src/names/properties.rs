//! The properties that an inode inherits. Those of directories are outside of their states, whose locks the
//! inodes below may not take: so the way up takes no lock but those of places.

use core::sync::atomic::Ordering::Relaxed;

use super::{Inode, Place};
use crate::properties::{OwnProperties, Properties, Property};
use crate::schema::Record;

impl Inode {
    /// Notes the properties that a directory has of its own, as its new record has them.
    pub fn set_own_properties(&self, own: OwnProperties) {
        if let Some(of_dir) = &self.of_dir {
            of_dir.properties.store(own.to_bits(), Relaxed);
        }
    }

    /// The properties that count for the object with this record, as far as some directory has any.
    pub fn effective_properties(&self, record: &Record) -> OwnProperties {
        let mut all = record.properties();
        self.above_with_properties(|_, own| all = all.or(own));
        all
    }

    /// The properties that count for an object with this record, each with the place that it is from.
    pub fn properties(&self, record: &Record) -> Properties {
        let own = record.properties();
        let mut noatime = own.noatime.map(|value| (0, value));
        let mut compression = own.compression.map(|value| (0, value));
        self.above_with_properties(|levels, own| {
            noatime = noatime.or(own.noatime.map(|value| (levels, value)));
            compression = compression.or(own.compression.map(|value| (levels, value)));
        });
        Properties {
            noatime: Property::found(noatime, Properties::NOATIME),
            compression: Property::found(compression, Properties::COMPRESSION),
        }
    }

    /// Visits the own properties of all directories above, from the nearest one on, with the number of
    /// components up to it. A snapshot inherits what its directory inherits, not what that one has.
    pub fn above_with_properties(&self, mut visit: impl FnMut(u32, OwnProperties)) {
        let mut place = self.place();
        for levels in 1.. {
            place = match place {
                Place::Named { parent, .. } => {
                    visit(levels, parent.own_properties());
                    parent.place()
                }
                Place::Snapshots { of } => of.place(),
                Place::Root | Place::Object { .. } | Place::Orphan { .. } | Place::Gone => return,
            };
        }
    }

    /// The properties that a directory gives to what is in it.
    pub fn given_properties(&self) -> OwnProperties {
        let mut all = self.own_properties();
        self.above_with_properties(|_, own| all = all.or(own));
        all
    }

    fn own_properties(&self) -> OwnProperties {
        let bits = self.of_dir.as_ref().map_or(0, |of_dir| of_dir.properties.load(Relaxed));
        OwnProperties::from_bits(bits)
    }
}
