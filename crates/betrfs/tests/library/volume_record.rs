//! The record of the volume, which tells which numbers were given: without it nothing can be opened, and a
//! repair makes it again.

use std::collections::BTreeSet;
use std::sync::Arc;

use betree::{Batch, Env};
use betree_platform::{BLOCK_BYTES, Device};
use betree_sim::MemDevice;
use betrfs::{Error, Mending, QuotaLimits, Repair, Volume};

use crate::repair::{
    CACHE_BYTES, META, OIDS_AT, ROOT_KEY, VOLUME_BYTES, VOLUME_KEY, codes, examine, options, pairs, repair,
    sample, with,
};
use crate::support::*;

/// Offsets in the volume's record.
const SCHEMA_AT: usize = 0;
const FEATURES_AT: usize = 8;
const IDS_AT: usize = 16;
/// Offsets in a node's header: its checksum, its dictionary.
const CHECKSUM_AT: usize = 8;
const DICT_AT: usize = 52;

fn record(device: &Arc<dyn Device>) -> Vec<u8> {
    pairs(device).remove(&(META.0, VOLUME_KEY.to_vec())).unwrap()
}

fn number(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*record[at..].first_chunk().unwrap())
}

fn refusal(device: &Arc<dyn Device>) -> Option<Error> {
    Volume::open(device.clone(), options()).err()
}

#[test]
fn a_record_that_is_not_there_is_made_again_and_no_number_is_given_twice() {
    let crashed = Arc::new(sample());
    {
        // A crash: each chunk of numbers was reserved by one change, and nothing was given back.
        let volume = Volume::open(crashed.clone(), options()).unwrap();
        let made = mkfile(&volume, ROOT, "made before").node;
        volume.link(made, ROOT, b"linked before").unwrap();
        volume.sync().unwrap();
        volume.env().abandon();
    }
    let sound = crashed.copy();
    let sound_device: Arc<dyn Device> = Arc::new(sound.copy());
    let before = record(&sound_device);
    assert!(number(&before, IDS_AT) > 4000 && number(&before, OIDS_AT) > 4000, "{before:?}");
    let device = with(&sound, |_, batch| batch.delete(META, VOLUME_KEY));
    assert!(matches!(refusal(&device), Some(Error::Damaged { .. })), "{:?}", refusal(&device));
    assert_eq!(codes(&examine(&device)), BTreeSet::from(["no-volume-record"]));
    let changes = {
        let mut engine_options = Volume::engine_options(CACHE_BYTES);
        engine_options.mode = betrfs::OpenMode::ReadOnly;
        Env::open(device.clone(), engine_options).unwrap().changes_made_max()
    };
    // It takes away what the record said of later versions.
    let safe = repair(&device, Mending::Safe);
    assert!(safe.generation.is_none() && safe.mended.is_empty(), "{safe:#?}");
    let repaired = repair(&device, Mending::All);
    let [mended] = repaired.mended.as_slice() else { panic!("{repaired:#?}") };
    assert!(mended.code == "no-volume-record" && mended.loses, "{mended:?}");
    assert_eq!((repaired.after.found(), repaired.after.refused), (0, None));
    let made = record(&device);
    for at in [IDS_AT, OIDS_AT] {
        assert!(number(&made, at) >= number(&before, at), "{made:?} {before:?}");
        // Each change may have taken 4096 of them.
        assert!(number(&made, at) >= changes * 4096, "{made:?}: {changes} changes");
    }
    assert_eq!((number(&made, SCHEMA_AT), number(&made, FEATURES_AT)), (3, 1));
    // Taken back, it is refused again.
    let back: Arc<dyn Device> = device.clone();
    assert!(betree::undo_repair(back.clone()).unwrap().is_some());
    assert!(refusal(&back).is_some());
    repair(&device, Mending::All);
    let volume = Volume::open(device.clone(), options()).unwrap();
    let new = mkfile(&volume, ROOT, "new");
    assert!(new.node.0 >= number(&before, IDS_AT), "{:?}", new.node);
    let dir = mkdir(&volume, ROOT, "new dir").node;
    volume.link(new.node, dir, b"second").unwrap();
    let limited = mkdir(&volume, ROOT, "limited too").node;
    volume.set_quota(limited, QuotaLimits::default()).unwrap();
    assert_sound(&volume);
    volume.close().unwrap();
    let linked = pairs(&device).into_keys().filter(|(dict, key)| *dict == META.0 && key.first() == Some(&1));
    let newest = linked.map(|(_, key)| u64::from_be_bytes(*key[1..].first_chunk().unwrap())).max();
    assert!(newest >= Some(number(&before, OIDS_AT)), "{newest:?}");
}

/// Record and root stand in one leaf. With each leaf of names lost in its turn, the volume can be used after
/// a repair.
#[test]
fn records_in_a_lost_leaf_are_made_again() {
    let sound = sample();
    let mut block = vec![0; BLOCK_BYTES];
    let (mut lost, mut made) = (0, BTreeSet::new());
    for at in (0..VOLUME_BYTES).step_by(BLOCK_BYTES) {
        sound.read_at(at, &mut block).unwrap();
        if !block.starts_with(b"btrn") || block[DICT_AT] != META.0 {
            continue;
        }
        block[CHECKSUM_AT..CHECKSUM_AT + 8].fill(0);
        let device: Arc<dyn Device> = Arc::new(sound.copy());
        device.write_at(at, &block).unwrap();
        if examine(&device).found() == 0 {
            // Of an older checkpoint.
            continue;
        }
        lost += 1;
        let Repair { mended, after, generation, .. } = repair(&device, Mending::All);
        assert!(generation.is_some() && after.refused.is_none(), "at {at}: {mended:#?} {after:#?}");
        made.extend(mended.iter().map(|mended| mended.code));
        assert_eq!(examine(&device).problems, [], "at {at}");
        let volume = Volume::open(device, options()).unwrap();
        // Names may be lost there.
        let made = volume.create(ROOT, b"behind all others", &new_dir());
        let is_lost = |error: &Error| matches!(error, Error::Engine(betree::Error::KnownDamage { .. }));
        assert!(made.as_ref().err().is_none_or(is_lost), "at {at}: {made:?}");
        volume.close().unwrap();
    }
    assert!(lost > 0 && made.contains("no-volume-record") && made.contains("no-root"), "{lost}: {made:?}");
}

#[test]
fn what_is_no_file_system_or_one_of_a_later_version_is_not_made_one() {
    let empty: Arc<dyn Device> = Arc::new(MemDevice::new(VOLUME_BYTES));
    let geometry = betree::Geometry::for_volume(VOLUME_BYTES, 4);
    Env::format(empty.clone(), &geometry, [1; 16]).unwrap();
    let sound = sample();
    let later = with(&sound, |pairs, batch: &mut Batch| {
        let mut record = pairs[&(META.0, VOLUME_KEY.to_vec())].clone();
        record[SCHEMA_AT] = 4;
        batch.put(META, VOLUME_KEY, &record);
        batch.delete(META, ROOT_KEY);
    });
    for device in [empty, later] {
        let before = pairs(&device);
        let repaired =
            Volume::repair(device.clone(), &options(), Mending::All, &mut |_| true, &mut |_, _| ());
        assert!(matches!(repaired, Err(Error::NotAVolume { .. })), "{repaired:?}");
        assert!(pairs(&device) == before);
        assert!(matches!(refusal(&device), Some(Error::NotAVolume { .. })));
    }
}
