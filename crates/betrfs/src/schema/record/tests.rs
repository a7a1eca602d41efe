//! Tests of records and redirects as bytes.

use alloc::boxed::Box;
use alloc::vec;

use proptest::prelude::*;

use super::layout::{TYPES, VERSION};
use super::*;
use crate::error::Error;
use crate::schema::XattrValue;

fn sample() -> Record {
    let mut record = Record::new(FileType::Symlink, 0o1777, 77, -5);
    record.size = 9;
    record.make_sparse().add(1 << 40, 1 << 41);
    record.target = Box::from(&b"elsewhere"[..]);
    record.change_rare(|rare| {
        (rare.generation, rare.project) = (0x0102_0304, 0x0506_0708);
        rare.flags = InodeFlags::from_bits(0x8000_0090);
        assert!(rare.tail.set(7, b"seven") && rare.tail.set(900, b""));
    });
    record.xattrs = vec![
        Xattr { name: b"user.a".to_vec(), value: XattrValue::Inline(b"".to_vec()) },
        Xattr { name: b"user.b".to_vec(), value: XattrValue::Stored(65536) },
    ];
    record
}

#[test]
fn records_come_back() {
    assert_eq!(Stored::decode(b"k", &sample().encode()), Ok(Stored::Inode(sample())));
    for (file_type, _) in TYPES {
        let record = Record::new(file_type, 0o7777, u64::MAX, i64::MAX);
        assert_eq!(Stored::decode(b"k", &record.encode()), Ok(Stored::Inode(record)));
    }
    let redirect = Redirect { oid: 1, ino: 2, file_type: FileType::Fifo };
    assert_eq!(Stored::decode(b"k", &redirect.encode()), Ok(Stored::Redirect(redirect)));
}

#[test]
fn fields_stand_at_their_documented_places() {
    let bytes = sample().encode();
    assert_eq!(bytes[28..32], [9, 0, 13, 0], "target, tail");
    assert_eq!(bytes[108..120], [4, 3, 2, 1, 0x90, 0, 0, 0x80, 8, 7, 6, 5]);
    assert_eq!(bytes[120..128], [0; 8]);
    assert_eq!(bytes[bytes.len() - 13..], *b"\x07\0\x05\0seven\x84\x03\0\0");
}

#[test]
fn every_truncation_is_damage() {
    for whole in [sample().encode(), Redirect { oid: 1, ino: 2, file_type: FileType::Fifo }.encode()] {
        for len in 0..whole.len() {
            assert!(Stored::decode(b"\0\0a", &whole[..len]).is_err(), "cut at {len}");
        }
        let mut longer = whole.clone();
        longer.push(0);
        assert!(Stored::decode(b"\0\0a", &longer).is_err());
    }
}

#[test]
fn kinds_and_versions_of_later_programs_are_named() {
    let kind_of = |bytes: &[u8]| match Stored::decode(b"k", bytes) {
        Err(Error::UnknownKind { what, kind, .. }) => (what, kind),
        other => panic!("{other:?}"),
    };
    let mut bytes = sample().encode();
    bytes[1] = 3;
    assert_eq!(kind_of(&bytes), ("record of kind", 3));
    bytes[0] = 2;
    assert_eq!(kind_of(&bytes), ("record of version", 2));
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
        kind in 0u8..4,
    ) {
        let _ = Stored::decode(b"k", &bytes);
        if let [version, second, ..] = bytes.as_mut_slice() {
            (*version, *second) = (VERSION, kind);
            let _ = Stored::decode(b"k", &bytes);
        }
    }

    #[test]
    fn flipped_bytes_decode_or_are_damage(at in 0usize..160, with: u8) {
        let mut bytes = sample().encode();
        let at = at % bytes.len();
        bytes[at] ^= with;
        if let Ok(Stored::Inode(record)) = Stored::decode(b"k", &bytes) {
            let again = record.encode();
            prop_assert_eq!(Stored::decode(b"k", &again), Ok(Stored::Inode(record)));
        }
    }
}
