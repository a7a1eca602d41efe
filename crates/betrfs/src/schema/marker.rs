//! The small records of the reserved spaces: markers of what has no name, and the volume's own.
//!
//! ```text
//! marker: version u8 | kind u8 | reserved u16 | then, of kind 0: the own key of the file;
//!         of kind 3: inode number u64 of the directory | name of the snapshot
//!         kinds: 0 an unlinked file, 1 a removed tree, 2 a copy of a tree that is not complete,
//!         3 a snapshot of a directory that is not complete, and must become so
//! volume: schema u32 | reserved u32 | features u64 | ids u64 | oids u64 | 32 bytes that are kept
//! ```
//! An unknown kind or feature is refused.

use alloc::format;
use alloc::vec::Vec;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Result};
use crate::schema::{damaged, key, unknown};

const MARKER_VERSION: u8 = 1;
const UNLINKED: u8 = 0;
const REMOVED: u8 = 1;
const COPY: u8 = 2;
const KEPT: u8 = 3;

/// What has no name, and is to be deleted or to get one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// A file that was unlinked while it was open: its blocks, at this own key.
    Unlinked { base: Vec<u8> },
    /// The detached tree of the marker's own number.
    Detached(Detached),
    /// The detached tree of the marker's own number is what was in a directory before it went back to an
    /// earlier state. It becomes a snapshot.
    Kept(KeptAs),
}

/// The snapshot that a detached tree becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptAs {
    /// The inode number of the directory, which may be moved meanwhile.
    pub of: u64,
    /// The snapshot's name.
    pub name: Vec<u8>,
}

/// Why a tree has no name (`volume/detached.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detached {
    /// It was removed. All names in it count for their files with several names.
    Removed,
    /// It is a copy that is not complete. Names in it count if they lead to objects that were made for it:
    /// those have higher numbers than the tree.
    Copy,
}

impl Detached {
    /// Whether the name of an object counts in the detached tree of this number.
    pub fn counts(self, number: u64, oid: u64) -> bool {
        self == Detached::Removed || oid > number
    }
}

impl Marker {
    /// Its bytes in `meta`.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, number, rest) = match self {
            Marker::Unlinked { base } => (UNLINKED, None, base.as_slice()),
            Marker::Detached(Detached::Removed) => (REMOVED, None, &[][..]),
            Marker::Detached(Detached::Copy) => (COPY, None, &[][..]),
            Marker::Kept(KeptAs { of, name }) => (KEPT, Some(*of), name.as_slice()),
        };
        let mut bytes = Vec::with_capacity(12 + rest.len());
        bytes.extend_from_slice(&[MARKER_VERSION, kind, 0, 0]);
        bytes.extend(number.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend_from_slice(rest);
        bytes
    }

    /// Reads the marker at `at`.
    pub fn decode(at: &[u8], bytes: &[u8]) -> Result<Marker> {
        match bytes {
            [MARKER_VERSION, UNLINKED, 0, 0, base @ ..]
                if key::split_entry(base).is_some() || key::object_id(base).is_some() =>
            {
                Ok(Marker::Unlinked { base: base.to_vec() })
            }
            [MARKER_VERSION, UNLINKED, 0, 0, ..] => Err(damaged(at, "it names no file")),
            [MARKER_VERSION, REMOVED, 0, 0] => Ok(Marker::Detached(Detached::Removed)),
            [MARKER_VERSION, COPY, 0, 0] => Ok(Marker::Detached(Detached::Copy)),
            [MARKER_VERSION, KEPT, 0, 0, rest @ ..] => match rest.split_first_chunk() {
                Some((of, name)) if key::split_entry(&key::entry(b"", name)).is_some() => {
                    Ok(Marker::Kept(KeptAs { of: u64::from_le_bytes(*of), name: name.to_vec() }))
                }
                _ => Err(damaged(at, "it names no snapshot")),
            },
            [MARKER_VERSION, kind, ..] if *kind > KEPT => Err(unknown(at, "marker of kind", *kind)),
            [MARKER_VERSION, ..] => Err(damaged(at, "it is too short, or reserved bytes are in use")),
            [version, ..] => Err(unknown(at, "marker of version", *version)),
            [] => Err(damaged(at, "it is empty")),
        }
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct VolumeBytes {
    schema: U32,
    reserved: U32,
    features: U64,
    ids: U64,
    oids: U64,
    kept: [u8; 32],
}

const _: () = assert!(size_of::<VolumeBytes>() == 64);

/// The version of keys and records that this library writes. Versions 1 and 2 were earlier formats.
const SCHEMA: u32 = 3;

/// Limit of the ids. They are used one by one, and never come near the end of their type.
pub(crate) const NUMBERS_MAX: u64 = 1 << 62;
/// The lowest inode id and object id in use.
const FIRST_ID: u64 = 2;
pub(crate) const FIRST_OID: u64 = 1;

/// The feature of a volume on which a directory had a quota: a program that does not count would leave wrong
/// uses behind.
pub(crate) const QUOTAS: u64 = 1;

/// The volume's own record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeRecord {
    /// Properties that a version has to know to open the volume.
    pub features: u64,
    /// Inode ids from here on are unused.
    pub ids: u64,
    /// Object ids from here on are unused.
    pub oids: u64,
    /// Values of later versions: kept.
    pub kept: [u8; 32],
}

impl VolumeRecord {
    /// The record's bytes in `meta`.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = VolumeBytes {
            schema: U32::new(SCHEMA),
            reserved: U32::ZERO,
            features: U64::new(self.features),
            ids: U64::new(self.ids),
            oids: U64::new(self.oids),
            kept: self.kept,
        };
        bytes.as_bytes().to_vec()
    }

    /// Decodes the record; a volume of another version is refused.
    pub fn decode(bytes: &[u8]) -> Result<VolumeRecord> {
        let parsed = VolumeBytes::ref_from_bytes(bytes)
            .map_err(|_| damaged(&key::VOLUME_KEY, "it is not of its size"))?;
        if parsed.schema.get() != SCHEMA || parsed.features.get() & !QUOTAS != 0 {
            let (schema, features) = (parsed.schema.get(), parsed.features.get());
            return Err(Error::NotAVolume {
                why: format!(
                    "its schema {schema} with features {features:#x} is of another version of betrfs: this one \
                     knows schema {SCHEMA}"
                ),
            });
        }
        let (ids, oids) = (parsed.ids.get(), parsed.oids.get());
        if !(FIRST_ID..=NUMBERS_MAX).contains(&ids) || !(FIRST_OID..=NUMBERS_MAX).contains(&oids) {
            return Err(damaged(&key::VOLUME_KEY, "no volume comes to its numbers"));
        }
        Ok(VolumeRecord { features: parsed.features.get(), ids, oids, kept: parsed.kept })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_and_the_volume_record_come_back_and_other_bytes_are_refused() {
        let unlinked = Marker::Unlinked { base: key::entry(b"", b"f") };
        let detached = [Detached::Removed, Detached::Copy].map(Marker::Detached);
        let kept = Marker::Kept(KeptAs { of: 7, name: b"monday".to_vec() });
        for marker in detached.into_iter().chain([unlinked, kept]) {
            assert_eq!(Marker::decode(b"m", &marker.encode()), Ok(marker));
        }
        let bad =
            [&b""[..], b"\x01", b"\x01\0\0\0", b"\x01\0\0\0xyz", b"\x01\0\x01\0\0\0f", b"\x01\x02\0\0f"];
        let of_no_name = [&b"\x01\x03\0\0\0\0\0\0\0\0\0\0"[..], b"\x01\x03\0\0f"];
        for bad in bad.into_iter().chain(of_no_name) {
            assert!(matches!(Marker::decode(b"m", bad), Err(Error::Damaged { .. })), "{bad:?}");
        }
        for later in [&b"\x02\0\0\0\0\0f"[..], b"\x01\x04\0\0\0\0f"] {
            assert!(matches!(Marker::decode(b"m", later), Err(Error::UnknownKind { .. })), "{later:?}");
        }
        let record = VolumeRecord { features: QUOTAS, ids: 3, oids: 4, kept: [9; 32] };
        assert_eq!(VolumeRecord::decode(&record.encode()), Ok(record));
        assert!(VolumeRecord::decode(&record.encode()[1..]).is_err());
        for number in [0, NUMBERS_MAX + 1, u64::MAX - 1, u64::MAX] {
            for hostile in [VolumeRecord { ids: number, ..record }, VolumeRecord { oids: number, ..record }] {
                assert!(matches!(VolumeRecord::decode(&hostile.encode()), Err(Error::Damaged { .. })));
            }
        }
        let later = VolumeRecord { features: QUOTAS | 2, ..record };
        assert!(matches!(VolumeRecord::decode(&later.encode()), Err(Error::NotAVolume { .. })));
    }
}
