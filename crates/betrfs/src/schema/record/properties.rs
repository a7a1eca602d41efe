//! Properties in the tail of a record.

use betree::{TaggedTail, ZstdLevel};

use crate::properties::{DataCompression, OwnProperties};
use crate::schema::Record;

/// The tag of `noatime`: one byte, 0 or 1.
const NOATIME: u16 = 0x10;
/// The tag of `compression`: two bytes, 0 none, 1 LZ4 or 2 zstd, and the level, which only zstd has.
const COMPRESSION: u16 = 0x11;

impl Record {
    /// The properties that the object has of its own. A value that this version does not know counts as none,
    /// and is kept until another one is set.
    pub fn properties(&self) -> OwnProperties {
        let mut own = OwnProperties::default();
        for (tag, value) in self.rare().tail.iter() {
            match (tag, value) {
                (NOATIME, [0]) => own.noatime = Some(false),
                (NOATIME, [1]) => own.noatime = Some(true),
                (COMPRESSION, [0, 0]) => own.compression = Some(DataCompression::None),
                (COMPRESSION, [1, 0]) => own.compression = Some(DataCompression::Lz4),
                (COMPRESSION, [2, level]) => {
                    own.compression = ZstdLevel::new(*level).map(DataCompression::Zstd);
                }
                _ => {}
            }
        }
        own
    }

    /// Sets them; `false`, without a change, if the record has no room for them.
    #[must_use]
    pub fn set_properties(&mut self, own: OwnProperties) -> bool {
        let old = self.properties();
        let noatime = own.noatime.map(|on| [u8::from(on)]);
        let compression = own.compression.map(|compression| match compression {
            DataCompression::None => [0, 0],
            DataCompression::Lz4 => [1, 0],
            DataCompression::Zstd(level) => [2, level.get()],
        });
        let mut tail = self.rare().tail.clone();
        let fits = (own.noatime == old.noatime || put(&mut tail, NOATIME, noatime.as_ref()))
            && (own.compression == old.compression || put(&mut tail, COMPRESSION, compression.as_ref()));
        if fits && own != old {
            self.change_rare(|rare| rare.tail = tail);
        }
        fits
    }
}

/// Sets the value of a tag, or removes it; `false` if there is no room for it.
fn put<const N: usize>(tail: &mut TaggedTail, tag: u16, value: Option<&[u8; N]>) -> bool {
    *tail = tail.without(tag);
    value.is_none_or(|value| tail.set(tag, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Stored;
    use crate::types::FileType;

    #[test]
    fn they_come_back_beside_other_tags() {
        let zstd = |level| ZstdLevel::new(level).map(DataCompression::Zstd);
        let compressions = [None, Some(DataCompression::None), Some(DataCompression::Lz4), zstd(1), zstd(19)];
        for (at, compression) in compressions.into_iter().cycle().enumerate().take(15) {
            let own = OwnProperties { noatime: [None, Some(false), Some(true)][at % 3], compression };
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
        let values = [(NOATIME, &b""[..]), (NOATIME, b"\x02"), (NOATIME, b"\x01\x01")];
        let more = [&b""[..], b"\x03\x00", b"\x00\x01", b"\x02\x00", b"\x02\x14", b"\x02\x03\x00"];
        for (tag, value) in values.into_iter().chain(more.map(|value| (COMPRESSION, value))) {
            let mut record = Record::new(FileType::Directory, 0o755, 1, 0);
            record.change_rare(|rare| assert!(rare.tail.set(tag, value)));
            let before = record.clone();
            assert_eq!(record.properties(), OwnProperties::default());
            assert!(record.set_properties(OwnProperties::default()));
            assert_eq!(record, before);
            let all = OwnProperties { noatime: Some(true), compression: Some(DataCompression::Lz4) };
            assert!(record.set_properties(all));
            assert_eq!(record.properties(), all);
        }
    }

    #[test]
    fn a_full_record_refuses_them() {
        let mut record = Record::new(FileType::Directory, 0o755, 1, 0);
        record.change_rare(|rare| assert!(rare.tail.set(900, &[0; 65_531])));
        let before = record.clone();
        let compression = Some(DataCompression::Lz4);
        for own in [
            OwnProperties { noatime: Some(true), compression: None },
            OwnProperties { noatime: None, compression },
        ] {
            assert!(!record.set_properties(own));
            assert_eq!(record, before);
        }
    }
}
