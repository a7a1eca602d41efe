//! Properties in the tail of a record.

use crate::properties::OwnProperties;
use crate::schema::Record;

/// The tag of `noatime`: one byte, 0 or 1.
const NOATIME: u16 = 0x10;

impl Record {
    /// The properties that the object has of its own. A value that this version does not know counts as none,
    /// and is kept until another one is set.
    pub fn properties(&self) -> OwnProperties {
        let mut own = OwnProperties::default();
        for (tag, value) in self.rare().tail.iter() {
            match (tag, value) {
                (NOATIME, [0]) => own.noatime = Some(false),
                (NOATIME, [1]) => own.noatime = Some(true),
                _ => {}
            }
        }
        own
    }

    /// Sets them; `false`, without a change, if the record has no room for them.
    #[must_use]
    pub fn set_properties(&mut self, own: OwnProperties) -> bool {
        if own == self.properties() {
            return true;
        }
        let mut tail = self.rare().tail.without(NOATIME);
        let fits = own.noatime.is_none_or(|on| tail.set(NOATIME, &[u8::from(on)]));
        if fits {
            self.change_rare(|rare| rare.tail = tail);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Stored;
    use crate::types::FileType;

    #[test]
    fn they_come_back_beside_other_tags() {
        for noatime in [None, Some(false), Some(true), None] {
            let own = OwnProperties { noatime };
            let mut record = Record::new(FileType::Directory, 0o755, 1, 0);
            record.set_maker(Some(7));
            record.change_rare(|rare| assert!(rare.tail.set(900, b"later")));
            let before = record.clone();
            assert!(record.set_properties(own));
            assert_eq!(Stored::decode(b"k", &record.encode()), Ok(Stored::Inode(record.clone())));
            assert_eq!((record.properties(), record.maker()), (own, Some(7)));
            assert!(record.set_properties(OwnProperties::default()));
            assert_eq!(record, before);
        }
    }

    #[test]
    fn values_of_later_versions_are_none_and_stay() {
        for value in [&b""[..], b"\x02", b"\x01\x01"] {
            let mut record = Record::new(FileType::Directory, 0o755, 1, 0);
            record.change_rare(|rare| assert!(rare.tail.set(NOATIME, value)));
            let before = record.clone();
            assert_eq!(record.properties(), OwnProperties::default());
            assert!(record.set_properties(OwnProperties::default()));
            assert_eq!(record, before);
            let on = OwnProperties { noatime: Some(true) };
            assert!(record.set_properties(on));
            assert_eq!(record.properties(), on);
        }
    }

    #[test]
    fn a_full_record_refuses_them() {
        let mut record = Record::new(FileType::Directory, 0o755, 1, 0);
        record.change_rare(|rare| assert!(rare.tail.set(900, &[0; 65_531])));
        let before = record.clone();
        assert!(!record.set_properties(OwnProperties { noatime: Some(true) }));
        assert_eq!(record, before);
    }
}
