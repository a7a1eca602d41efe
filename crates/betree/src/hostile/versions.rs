//! Volumes of other versions, earlier and later: each unknown bit, tag and kind has the effect that
//! docs/format.md defines.

use core::ops::ControlFlow;
use std::string::{String, ToString};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::vec;
use std::vec::Vec;

use betree_platform::BLOCK_BYTES;

use super::image::Image;
use super::{Append, DICTS, GEOMETRY, fill, open, options, sound};
use crate::batch::Batch;
use crate::check::{Finding, FindingCode};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::format::node::{Header, Section};
use crate::format::superblock::table_copy::TableCopy;
use crate::format::superblock::{Identity, Superblock, VERSION};
use crate::format::tail::TaggedTail;
use crate::health::{State, Watcher};
use crate::io::mem::MemDevice;
use crate::key::Cut;
use crate::settings::{DictId, OpenMode, Options};
use crate::upsert::{Replace, Upsert};

/// The offset of the feature words in a superblock: compat, ro_compat, incompat.
const COMPAT: usize = 504;
const RO_COMPAT: usize = 512;
const INCOMPAT: usize = 520;

/// A sound volume with another value of one byte in its superblocks.
fn with_byte(at: usize, value: u8) -> Image {
    let mut image = sound();
    image.patch_superblock(&|block| block[at] = value);
    image
}

fn pairs(env: &Env) -> Vec<(u8, Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for dict in 0..DICTS {
        let mut cursor = env.cursor(DictId(dict), Cut::LOW, Cut::HIGH);
        while let Some((key, value)) = cursor.next().unwrap() {
            all.push((dict, key.to_vec(), value.to_vec()));
        }
    }
    all
}

fn put(env: &Env) -> Result<()> {
    let mut batch = Batch::new();
    batch.put(DictId(0), b"new", b"value");
    env.commit(&batch)
}

#[test]
fn a_volume_of_an_earlier_version_is_refused_with_advice_to_copy_its_contents() {
    for version in 1..VERSION {
        let image = with_byte(8, version as u8);
        let older = Error::OlderFormat { found: version, known: VERSION };
        assert_eq!(open(image.device()).err(), Some(older.clone()));
        let looked_at = Env::open_damaged(image.device(), options(), &mut |_| ());
        assert_eq!(looked_at.err(), Some(older.clone()));
        let sentence = older.to_string();
        assert!(sentence.contains("copy its contents to a new volume"), "{sentence}");
    }
    let newer = Error::NewerFormat { found: VERSION + 1, known: VERSION };
    assert_eq!(open(with_byte(8, VERSION as u8 + 1).device()).err(), Some(newer));
}

#[test]
fn an_unknown_incompatible_feature_is_refused_by_its_number() {
    // Bit 0 is known damage, bit 1 pairs that ask for a compression, bit 2 nodes with two copies, bit 3 an
    // open end.
    for bit in 4..64 {
        let image = with_byte(INCOMPAT + bit / 8, 1 << (bit % 8));
        let refused = Error::UnknownFeatures { bits: 1 << bit };
        assert_eq!(open(image.device()).err(), Some(refused.clone()));
        assert!(refused.to_string().contains(&std::format!("does not know: {bit} (bits")), "{refused}");
        let looked_at = Env::open_damaged(image.device(), options(), &mut |_| ());
        assert_eq!(looked_at.err(), Some(refused));
    }
}

#[test]
fn an_unknown_read_only_feature_opens_for_reading_and_nothing_is_written() {
    let sound = sound();
    let expected = pairs(&open(sound.device()).unwrap());
    for bit in [0, 17, 63] {
        let image = with_byte(RO_COMPAT + bit / 8, 1 << (bit % 8));
        let device = image.device();
        let env = open(device.clone()).unwrap();
        assert!(env.replayed_batches() > 0, "the log is replayed in memory");
        assert_eq!(pairs(&env), expected);
        let Err(Error::ReadOnly { why }) = put(&env) else { panic!("a change was taken") };
        assert!(why.contains(&std::format!("does not know, {bit} (bits")), "{why}");
        assert!(matches!(env.state(), State::ReadOnly(trouble) if trouble.why == why));
        assert!(matches!(env.set_label("other"), Err(Error::ReadOnly { .. })));
        assert!(matches!(env.check(&mut |_| (), &mut |_, _| ()), Err(Error::ReadOnly { .. })));
        assert_eq!(env.run_due_work(), Ok(false));
        assert_eq!((env.reclaim(), env.sync(), env.close()), (Ok(()), Ok(()), Ok(())));
        drop(env);
        assert!(device.bytes() == image.bytes, "something was written");
    }
}

/// Hears of troubles.
#[derive(Default)]
struct Counting(AtomicU64);

impl Watcher for Counting {
    fn now_ns(&self) -> i64 {
        1
    }

    fn state_changed(&self, _: &State) {
        self.0.fetch_add(1, Relaxed);
    }

    fn copy_used(&self, _: &Error) {}

    fn work_failed(&self, _: &Error) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_volume_opened_for_reading_is_checked_with_its_log_and_nothing_is_written() {
    let sound = sound();
    let expected = pairs(&open(sound.device()).unwrap());
    let (device, watcher) = (sound.device(), Arc::new(Counting::default()));
    let mut options = options();
    options.mode = OpenMode::ReadOnly;
    options.watcher = Some(watcher.clone());
    let env = Env::open(device.clone(), options).unwrap();
    assert!(env.replayed_batches() > 0, "the log is replayed in memory");
    assert_eq!(pairs(&env), expected);
    let mut findings = Vec::new();
    env.check(&mut |found| findings.push(found), &mut |_, _| ()).unwrap();
    assert_eq!(findings, [], "space is checked too");
    let mut tell = |found: Finding| assert!(!found.is_problem, "{found}");
    assert_eq!(env.check_in_use(&mut tell, &mut |_, _| ControlFlow::Continue(())), Ok(()));
    let Err(Error::ReadOnly { why }) = put(&env) else { panic!("a change was taken") };
    assert!(why.contains("opened for reading"), "{why}");
    assert!(matches!(env.state(), State::ReadOnly(trouble) if trouble.why == why));
    assert_eq!(env.run_due_work(), Ok(false));
    assert_eq!((env.reclaim(), env.sync(), env.close()), (Ok(()), Ok(()), Ok(())));
    drop(env);
    assert!(device.bytes() == sound.bytes, "something was written");
    assert_eq!(watcher.0.load(Relaxed), 0, "it is no trouble");
}

#[test]
fn an_opening_for_reading_leaves_a_bad_copy_of_the_superblock_as_it_is() {
    for slot in 0..4 {
        let mut image = sound();
        image.bytes[slot * BLOCK_BYTES + 100] ^= 1;
        let device = image.device();
        let mut options = options();
        options.mode = OpenMode::ReadOnly;
        let env = Env::open(device.clone(), options).unwrap();
        let mut codes = Vec::new();
        env.check(&mut |found| codes.push(found.code), &mut |_, _| ()).unwrap();
        assert_eq!(codes, [FindingCode::BadSuperblock], "slot {slot}");
        drop(env);
        assert!(device.bytes() == image.bytes, "slot {slot}: something was written");
    }
}

#[test]
fn every_write_of_the_superblock_keeps_unknown_compatible_features_and_tags() {
    let mut tail = TaggedTail::default();
    assert!(tail.set(1, b"one") && tail.set(40_000, &[9; 300]));
    let mut image = sound();
    let bytes = tail.as_bytes().to_vec();
    image.patch_superblock(&|block| {
        block[COMPAT..COMPAT + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        block[1096..1098].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
        block[1098..1098 + bytes.len()].copy_from_slice(&bytes);
    });
    let device = image.device();
    let env = open(device.clone()).unwrap();
    put(&env).unwrap();
    env.checkpoint().unwrap();
    env.set_label("a label").unwrap();
    fill(&env, 300..310);
    env.close().unwrap();
    drop(env);
    let mut superblock = Image { bytes: device.bytes() }.superblock();
    assert!(TableCopy::put(None, superblock.generation, &mut superblock.tail));
    assert_eq!((superblock.features.compat, superblock.tail), (u64::MAX, tail));
    assert_eq!(open(device).unwrap().identity().label, "a label");
}

struct Other(&'static str, u32);

impl Upsert for Other {
    fn name(&self) -> &str {
        self.0
    }

    fn version(&self) -> u32 {
        self.1
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        Append.apply(old, delta)
    }
}

#[test]
fn a_volume_opens_only_with_the_upsert_function_that_it_was_used_with() {
    let image = sound();
    let made_with = || String::from("`append 64` version 1");
    for (other, opened_with) in
        [(Other("append 64", 2), "`append 64` version 2"), (Other("ad", 1), "`ad` version 1")]
    {
        let with = Options::new(256 << 10, Arc::new(other));
        let refused = Error::OtherUpsert { dict: 0, made_with: made_with(), opened_with: opened_with.into() };
        assert_eq!(Env::open(image.device(), with.clone()).err(), Some(refused.clone()));
        assert_eq!(Env::open_damaged(image.device(), with, &mut |_| ()).err(), Some(refused));
    }
    let same = Options::new(256 << 10, Arc::new(Other("append 64", 1)));
    assert!(Env::open(image.device(), same).is_ok());
    for name in ["", "a name of twenty-eight bytes"] {
        let unnamed = Options::new(256 << 10, Arc::new(Other(name, 1)));
        assert!(matches!(Env::open(image.device(), unnamed), Err(Error::BadIdentity(_))));
    }
}

#[test]
fn a_new_volume_takes_the_upsert_function_of_its_first_opening() {
    let device = MemDevice::new(super::BLOCKS);
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    assert!(Env::open(device.clone(), Options::new(256 << 10, Arc::new(Replace))).is_ok());
    assert!(matches!(open(device), Err(Error::OtherUpsert { .. })));
}

#[test]
fn label_and_uuid_are_kept_and_can_be_changed() {
    let device = MemDevice::new(super::BLOCKS);
    let made = Identity { label: "first".into(), made_ns: 77, ..Identity::new([1; 16], [2; 16]) };
    assert_eq!(made.uuid.get_version_num(), 4);
    let too_long = Identity { label: "x".repeat(256), ..made.clone() };
    assert!(matches!(Env::format(device.clone(), &GEOMETRY, too_long), Err(Error::BadIdentity(_))));
    Env::format(device.clone(), &GEOMETRY, made.clone()).unwrap();
    let env = open(device.clone()).unwrap();
    assert_eq!(env.identity(), made);
    for bad in ["x".repeat(256), "a\0b".into(), "a\nb".into()] {
        assert!(matches!(env.set_label(&bad), Err(Error::BadIdentity(_))), "{bad:?}");
    }
    let label = "ä".repeat(127);
    env.set_label(&label).unwrap();
    env.set_uuid(uuid::Uuid::max()).unwrap();
    let changed = Identity { label, uuid: uuid::Uuid::max(), ..made };
    // It is durable without another call.
    let crashed = MemDevice::holding(device.durable_bytes());
    assert_eq!(open(crashed).unwrap().identity(), changed);
    device.fail_writes(true);
    assert!(env.set_label("never").is_err());
    assert_eq!(env.identity(), changed);
}

#[test]
fn superblocks_of_one_volume_may_differ_in_label_and_size() {
    // The other pair is of the previous checkpoint.
    let device = MemDevice::new(super::BLOCKS);
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    let env = open(device.clone()).unwrap();
    env.set_label("newest").unwrap();
    let labels: Vec<String> = (0..4)
        .map(|slot| match Superblock::decode(&device.bytes()[slot * 4096..][..4096]) {
            crate::format::superblock::Decoded::Good(superblock) => superblock.identity.label,
            other => panic!("{other:?}"),
        })
        .collect();
    let mut sorted = labels.clone();
    sorted.sort();
    assert_eq!(sorted, vec!["", "", "newest", "newest"]);
    assert!(env.close().is_ok() && open(device).is_ok());
}

#[test]
fn a_log_record_of_a_later_version_is_refused_by_its_kind_and_not_skipped() {
    let mut image = sound();
    let place = image.segments()[1].clone();
    // The kind of the first change: behind the headers of segment and record.
    image.patch_segment(&place, &|bytes| bytes[80 + 16] = 77);
    let (what, offset) = ("a log record of kind", place.start as u64);
    let refused = Error::UnknownKind { what, number: 77, offset };
    assert_eq!(open(image.device()).err(), Some(refused.clone()));
    assert!(refused.to_string().starts_with("a log record of kind 77, which this version does not know"));
    let mut told = Vec::new();
    Env::open_damaged(image.device(), options(), &mut |finding| told.extend(finding.into_problem())).unwrap();
    assert_eq!(told, [refused.to_string()]);
}

/// A sound volume whose headers are changed, each keeping its length.
fn with_headers(change: impl Fn(&mut Header)) -> Image {
    let mut image = sound();
    for (slot, ..) in image.nodes() {
        let mut header = image.header(slot);
        change(&mut header);
        let bytes = header.encode();
        image.patch_header(slot, &|old| {
            assert_eq!(old.len(), bytes.len());
            old.copy_from_slice(&bytes);
        });
    }
    image
}

/// The problems that a check of an image's last checkpoint reports.
fn problems(image: &Image) -> Vec<String> {
    let mut all = Vec::new();
    let env = Env::open_damaged(image.device(), options(), &mut |_| ()).unwrap();
    env.check(&mut |finding| all.extend(finding.into_problem()), &mut |_, _| ()).unwrap();
    all
}

/// A sound volume with a section of this kind in one leaf's header.
fn with_section(kind: u16) -> Image {
    let mut image = sound();
    let nodes = image.nodes();
    let (slot, ..) = nodes.iter().find(|(slot, ..)| image.header(*slot).height == 0).unwrap();
    let mut header = image.header(*slot);
    header.sections.push(Section { kind, offset: 0, len: 16, checksum: 1 });
    image.set_header(*slot, &header);
    image
}

#[test]
fn the_kind_of_an_unknown_section_decides_whether_its_node_is_readable() {
    let expected = pairs(&open(sound().device()).unwrap());
    let image = with_section(0x7abc);
    assert_eq!(problems(&image), [""; 0]);
    let env = open(image.device()).unwrap();
    assert_eq!(pairs(&env), expected);
    env.close().unwrap();
    let must = with_section(0x8abc);
    let told = problems(&must);
    let sentence = "a node has a section of kind 35516, which this version does not know, at byte ";
    assert!(told.len() == 1 && told[0].contains(sentence), "{told:?}");
    let env = Env::open_damaged(must.device(), options(), &mut |_| ()).unwrap();
    let mut errors = Vec::new();
    for dict in 0..DICTS {
        let mut cursor = env.cursor(DictId(dict), Cut::LOW, Cut::HIGH);
        while cursor.next_past(&mut |unreadable| errors.extend(unreadable.errors)).is_some() {}
    }
    assert!(
        !errors.is_empty() && errors.iter().all(|e| matches!(e, Error::UnknownKind { number: 0x8abc, .. })),
        "{errors:?}"
    );
}

#[test]
fn a_check_reports_a_header_in_the_wrong_place() {
    assert_eq!(problems(&with_headers(|_| ())), [""; 0]);
    for (change, what) in [
        ((|header| header.origin.volume_id[0] ^= 1) as fn(&mut Header), "it is of another volume"),
        (|header| header.origin.dict ^= 1, "and stands in dictionary"),
        (|header| header.origin.checkpoint = 1 << 40, "it is of a later checkpoint than the volume's"),
        (|header| header.extent_blocks += 1, "its extent is not as long as it says"),
        (|header| header.id.generation += 1, "should"),
        (|header| header.height = header.height.max(1) + 1, "height"),
    ] {
        // A leaf's entries have another form, so only interior nodes get another height.
        let image = with_headers(|header| {
            if (header.height == 0) != (what == "height") {
                change(header);
            }
        });
        let told = problems(&image);
        assert!(!told.is_empty() && told.iter().any(|told| told.contains(what)), "{what}: {told:?}");
    }
}
