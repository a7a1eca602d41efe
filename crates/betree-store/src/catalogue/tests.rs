//! Catalogues that no store has written.

use betree::Options;
use betree_std::FileDevice;

use super::*;
use crate::{Error, Store};

/// Opens a store after a change of what the engine has.
fn opened(change: impl FnOnce(&mut Batch)) -> crate::Result<Store> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    Store::open(&path).unwrap().dict("d").unwrap().put("k", "v").unwrap();
    let device = Arc::new(FileDevice::open(&path).unwrap());
    let merges = Arc::new(Merges::of(&BTreeMap::new(), &BTreeMap::new()).unwrap());
    let env = Env::open(device.clone(), Options::new(1 << 20, merges)).unwrap();
    let mut batch = Batch::new();
    change(&mut batch);
    env.commit(&batch).unwrap();
    env.close().unwrap();
    device.release();
    Store::open(&path)
}

fn with_entry(name: &[u8], entry: &[u8]) -> crate::Result<Store> {
    opened(|batch| batch.put(ENGINE_DICT, &key(NAMES, name), entry))
}

#[test]
fn what_is_not_known_or_does_not_fit_is_refused() {
    assert_eq!(with_entry(b"e", &[1, 1, 0, 0, 0, 0]).unwrap().dicts(), ["d", "e"]);
    let damaged: [(&[u8], &[u8]); 6] = [
        (b"e", &[]),
        (b"e", &[1, 1, 0, 0, 0]),
        (b"e", &[1, 0, 0, 0, 0, 0]),
        (b"e", &[1, 77, 0, 0, 0, 0]),
        (b"e", &[1, 1, 0, 0, 0, 0, 0xff]),
        (b"\xff", &[1, 1, 0, 0, 0, 0]),
    ];
    for (name, entry) in damaged {
        let refused = with_entry(name, entry);
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{entry:?}: {refused:?}");
    }
    for entry in [&[2, 1, 0, 0, 0, 0][..], &[1, 1, 0, 0, 0, 4]] {
        let refused = with_entry(b"e", entry);
        assert!(matches!(refused, Err(Error::NewerStore { .. })), "{entry:?}: {refused:?}");
    }
    let refused = with_entry(b"e", b"\x01\x01\0\0\0\0sum");
    assert!(matches!(refused, Err(Error::UnknownMerge { .. })), "{refused:?}");
    let number =
        |name, value: &'static [u8]| opened(move |batch| batch.put(ENGINE_DICT, &key(NUMBERS, name), value));
    assert!(matches!(number(LAYOUT, &[2, 0, 0, 0]), Err(Error::NewerStore { .. })));
    assert!(matches!(number(NEXT, &[2, 0, 0]), Err(Error::Damaged { .. })));
    assert!(matches!(number(GENERATION, &[0; 9]), Err(Error::Damaged { .. })));
    let without_layout = opened(|batch| batch.delete(ENGINE_DICT, &key(NUMBERS, LAYOUT)));
    assert!(matches!(without_layout, Err(Error::NotAStore { .. })));
}

/// Programs that do not know values that expire know the first flag alone, and refuse all others.
#[test]
fn an_expiring_dictionary_has_a_flag_that_older_programs_refuse() {
    let entry = Entry { number: 1, has_parts: false, is_expiring: true, merge: Some("m".into()) };
    assert_eq!(entry.stored(), [1, 1, 0, 0, 0, 2, b'm']);
    let is_expiring = |entry: Entry| entry_of("e", &entry.stored()).ok().map(|entry| entry.is_expiring);
    assert_eq!(is_expiring(entry.clone()), Some(true));
    assert_eq!(is_expiring(Entry { has_parts: true, ..entry.clone() }), Some(true));
    assert_eq!(is_expiring(Entry { has_parts: true, is_expiring: false, ..entry }), Some(false));
}

#[test]
fn a_reference_without_its_parts_or_of_an_unknown_form_is_damage() {
    let reference = |len| crate::value::Reference { generation: 1, len, expires_ns: None };
    let forms = [
        reference(10).stored(),
        reference(u64::MAX).stored(),
        reference(10).stored()[..20].to_vec(),
        crate::value::Reference { expires_ns: Some(i64::MAX), ..reference(10) }.stored(),
        // What expires has a whole time.
        crate::expiring::absent_until(i64::MAX)[..16].to_vec(),
    ];
    for form in forms {
        let store = opened(|batch| batch.put(ENGINE_DICT, &crate::keys::pair_key(1, b"k"), &form)).unwrap();
        let dict = store.open_dict("d").unwrap();
        let read = dict.get("k");
        assert!(matches!(read, Err(Error::Damaged { .. })), "{read:?}");
        assert!(matches!(dict.iter().next(), Some(Err(Error::Damaged { .. }))));
        dict.put("k", "whole again").unwrap();
        assert_eq!(dict.get("k").unwrap().unwrap(), "whole again");
    }
}
