//! Repairs: wrong numbers and records of each kind under right checksums. The check names each, the repair
//! mends it and changes nothing else, a crash leaves the volume as it was or repaired, and it can be undone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use betree::{Batch, Cut, DictId, Env, Geometry, Remedy};
use betree_platform::Device;
use betree_sim::{MemDevice, SimDisk};
use betrfs::{
    AclKind, FormatOptions, Mending, OpenOptions, QuotaLimits, Repair, Report, SetAttr, SetGroupId, Volume,
    XattrMode, problem_codes,
};

use crate::acls::list;
use crate::repair_cases::{CASES, Case, WITHOUT_AN_IMAGE};
use crate::support::*;

pub const META: DictId = DictId(0);
pub const DATA: DictId = DictId(1);
pub const LINKS: DictId = DictId(2);
pub const USER: DictId = DictId(3);
pub const VOLUME_BYTES: u64 = 8 << 20;
pub const CACHE_BYTES: usize = 4 << 20;

/// Offsets in an inode's record, and of the object numbers in the volume's record.
pub const MODE_AT: usize = 4;
pub const LINKS_AT: usize = 20;
pub const FLAGS_AT: usize = 24;
pub const SIZE_AT: usize = 32;
pub const ENTRIES_AT: usize = 88;
pub const SNAPSHOTS_AT: usize = 104;
pub const OIDS_AT: usize = 24;
/// The offset of the inode number in a redirect.
pub const INO_AT: usize = 16;

pub type Pairs = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

pub fn options() -> OpenOptions {
    OpenOptions { cache_bytes: CACHE_BYTES, ..OpenOptions::new(TestPlatform::new()) }
}

/// Makes a volume with every kind of record on a device.
fn fill(device: Arc<dyn Device>) {
    let geometry = Geometry {
        node_bytes: 16 << 10,
        basement_bytes: 4 << 10,
        fanout_max: 4,
        log_bytes: 1 << 20,
        dicts: 4,
    };
    let options = options();
    let format = FormatOptions { geometry: Some(geometry), ..FormatOptions::default() };
    Volume::format(device.clone(), &format, &*options.platform).unwrap();
    let volume = Volume::open(device, options).unwrap();
    let dir = mkdir(&volume, ROOT, "d").node;
    let file = mkfile(&volume, dir, "f").node;
    volume.write(file, 0, &[1; 10_000]).unwrap();
    volume.set_xattr(file, b"user.x", &[1; 3000], XattrMode::Any).unwrap();
    volume.symlink(dir, b"s", b"to somewhere", 0, 0).unwrap();
    let linked = mkfile(&volume, ROOT, "a").node;
    volume.link(linked, dir, b"b").unwrap();
    volume.write(linked, 0, b"linked").unwrap();
    let sparse = mkfile(&volume, ROOT, "sparse").node;
    volume.setattr(sparse, &SetAttr { size: Some(1 << 20), ..SetAttr::default() }).unwrap();
    volume.write(sparse, 1 << 19, &[2; 5000]).unwrap();
    let held = mkdir(&volume, ROOT, "held").node;
    mkfile(&volume, held, "inside");
    for users in [1, 50] {
        let dir = mkdir(&volume, ROOT, &format!("for {users}")).node;
        for kind in [AclKind::Access, AclKind::Default] {
            volume.set_acl(dir, kind, &list(users), XattrMode::Any, SetGroupId::Kept).unwrap();
        }
    }
    let snapshots = volume.lookup(held, betrfs::SNAPSHOTS_NAME).unwrap().node;
    mkdir(&volume, snapshots, "monday");
    let limited = mkdir(&volume, ROOT, "limited").node;
    volume.set_quota(limited, QuotaLimits::default()).unwrap();
    mkfile(&volume, limited, "inside");
    volume.close().unwrap();
}

pub fn sample() -> MemDevice {
    let device = Arc::new(MemDevice::new(VOLUME_BYTES));
    fill(device.clone());
    device.copy()
}

/// All pairs, as an opening for changes would see them; nothing is written.
pub fn pairs(device: &Arc<dyn Device>) -> Pairs {
    let mut engine_options = Volume::engine_options(CACHE_BYTES);
    engine_options.mode = betrfs::OpenMode::ReadOnly;
    let env = Env::open(device.clone(), engine_options).unwrap();
    let mut all = Pairs::new();
    for dict in [META, DATA, LINKS, USER] {
        let mut cursor = env.cursor(dict, Cut::LOW, Cut::HIGH);
        while let Some((key, value)) = cursor.next().unwrap() {
            all.insert((dict.0, key.to_vec()), value.to_vec());
        }
    }
    all
}

/// A copy with other pairs.
pub fn with(device: &MemDevice, change: impl Fn(&Pairs, &mut Batch)) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(device.copy());
    damage(&device, change);
    device
}

fn damage(device: &Arc<dyn Device>, change: impl Fn(&Pairs, &mut Batch)) {
    let before = pairs(device);
    let env = Env::open(device.clone(), Volume::engine_options(CACHE_BYTES)).unwrap();
    let mut batch = Batch::new();
    change(&before, &mut batch);
    env.commit(&batch).unwrap();
    env.close().unwrap();
}

pub fn examine(device: &Arc<dyn Device>) -> Report {
    Volume::examine(device.clone(), options(), &mut |_, _| ()).unwrap()
}

pub fn repair(device: &Arc<dyn Device>, mending: Mending) -> Repair {
    Volume::repair(device.clone(), &options(), mending, &mut |_| true, &mut |_, _| ()).unwrap()
}

pub fn codes(report: &Report) -> BTreeSet<&'static str> {
    report.problems.iter().map(|problem| problem.code).collect()
}

/// The keys at which two volumes differ, as they are printed.
fn differences(left: &Pairs, right: &Pairs) -> BTreeSet<String> {
    let keys: BTreeSet<_> = left.keys().chain(right.keys()).collect();
    let differ = keys.into_iter().filter(|key| left.get(*key) != right.get(*key));
    differ.map(|(dict, key)| format!("{dict} {}", key.escape_ascii())).collect()
}

pub fn key(dict: DictId, key: &[u8]) -> (u8, Vec<u8>) {
    (dict.0, key.to_vec())
}

/// Puts bytes into the value of a key.
pub fn set(pairs: &Pairs, batch: &mut Batch, dict: DictId, at: &[u8], offset: usize, bytes: &[u8]) {
    let mut value = pairs[&key(dict, at)].clone();
    value[offset..offset + bytes.len()].copy_from_slice(bytes);
    batch.put(dict, at, &value);
}

/// Directories with short access control lists, and with long ones.
pub const FOR_1: &[u8] = b"\0\0for 1";
pub const FOR_50: &[u8] = b"\0\0for 50";
pub const DIR: &[u8] = b"\0\0d";
pub const FILE: &[u8] = b"\0d\0\0f";
pub const SYMLINK: &[u8] = b"\0d\0\0s";
pub const NAME: &[u8] = b"\0\0a";
pub const OTHER_NAME: &[u8] = b"\0d\0\0b";
pub const SPARSE: &[u8] = b"\0\0sparse";
pub const HELD: &[u8] = b"\0\0held";
pub const ROOT_KEY: &[u8] = b"\x05";
pub const VOLUME_KEY: &[u8] = b"\x05\x01";

/// The key of the only object.
pub fn object(pairs: &Pairs) -> Vec<u8> {
    let mut objects = pairs.keys().filter(|(dict, key)| *dict == META.0 && key[0] == 1);
    objects.next().unwrap().1.clone()
}

pub fn block(own: &[u8], number: u64) -> Vec<u8> {
    [own, b"\0", &number.to_be_bytes()].concat()
}

#[test]
fn each_kind_of_wrong_record_is_named_and_mended_and_nothing_else_is_changed() {
    let sound = sample();
    let sound_device: Arc<dyn Device> = Arc::new(sound.copy());
    let expected = pairs(&sound_device);
    assert_eq!(examine(&sound_device), Report::default());
    let remedies: BTreeMap<_, _> = problem_codes().collect();
    for Case { code, change, differs } in CASES {
        let device = with(&sound, change);
        let damaged = pairs(&device);
        let found = examine(&device);
        assert!(codes(&found).contains(code), "{code}: {found:#?}");
        let repaired = repair(&device, Mending::All);
        assert_eq!(repaired.before.problems, found.problems, "{code}");
        let left = examine(&device);
        if let Remedy::Left(_) = remedies[code] {
            assert!(codes(&left).contains(code), "{code}: {left:#?}");
            assert_eq!(differences(&pairs(&device), &damaged), BTreeSet::new(), "{code}");
            continue;
        }
        if *code == "lost-block" {
            // What was in it nobody knows: see `lost_blocks`.
            assert_eq!((&*left.problems, left.known_damage.len()), (&[][..], 1), "{left:#?}");
            continue;
        }
        assert_eq!(left, Report::default(), "{code}: {repaired:#?}");
        assert_eq!((&repaired.after, repaired.generation.is_some()), (&left, true), "{code}");
        let differ = differences(&pairs(&device), &expected);
        assert_eq!(differ, differs.iter().map(ToString::to_string).collect(), "{code}: {repaired:#?}");
        // What is taken away is said to be, and only that.
        let lost = repaired.mended.iter().any(|mended| mended.loses);
        // The change takes along what belongs to it, but counts of directories and values of attributes.
        let mut known = codes(&found);
        known.extend(["wrong-entry-counts", "ownerless-data"]);
        assert!(repaired.mended.iter().all(|mended| known.contains(mended.code)), "{code}: {repaired:#?}");
        assert_eq!(lost, matches!(remedies[code], Remedy::Dropped(_)), "{code}: {repaired:#?}");
        // It can be used.
        let volume = Volume::open(device.clone(), options()).unwrap();
        mkfile(&volume, ROOT, "new");
        assert_sound(&volume);
        volume.close().unwrap();
    }
    let all: BTreeSet<_> = CASES.iter().map(|case| case.code).collect();
    let engine: BTreeSet<_> = betree::FindingCode::ALL.iter().map(|code| code.name()).collect();
    for code in problem_codes().map(|(code, _)| code).filter(|code| !engine.contains(code)) {
        let is_without = WITHOUT_AN_IMAGE.iter().any(|(without, _)| *without == code);
        assert!(all.contains(code) != is_without, "{code} has no image, or an image and a reason for none");
    }
}

#[test]
fn a_safe_repair_takes_nothing_away() {
    let sound = sample();
    let device = with(&sound, |pairs, batch| {
        set(pairs, batch, META, DIR, ENTRIES_AT, &77u64.to_le_bytes());
        batch.put(DATA, b"\0\0nobody\0\xffuser.y", b"value");
    });
    let repaired = repair(&device, Mending::Safe);
    assert_eq!(repaired.mended.iter().map(|mended| mended.code).collect::<Vec<_>>(), ["wrong-entry-counts"]);
    assert_eq!(codes(&examine(&device)), BTreeSet::from(["ownerless-data"]));
    assert_eq!(codes(&repaired.after), BTreeSet::from(["ownerless-data"]));
}

#[test]
fn nothing_is_written_without_consent_or_where_there_is_nothing_to_mend() {
    let sound = sample();
    let damaged = with(&sound, |pairs, batch| set(pairs, batch, META, FILE, LINKS_AT, &3u32.to_le_bytes()));
    let hopeless = with(&sound, |_, batch| batch.put(USER, b"key", b"of a later version"));
    for (device, asked) in [(damaged, 1), (hopeless, 0), (Arc::new(sound.copy()) as Arc<dyn Device>, 0)] {
        let before = all_bytes(&device);
        let mut consents = 0;
        let mut consent = |_: &Repair| {
            consents += 1;
            false
        };
        let repaired =
            Volume::repair(device.clone(), &options(), Mending::All, &mut consent, &mut |_, _| ()).unwrap();
        assert_eq!((repaired.generation, consents), (None, asked));
        assert!(all_bytes(&device) == before, "something was written");
    }
}

fn all_bytes(device: &Arc<dyn Device>) -> Vec<u8> {
    let mut bytes = betree_platform::AlignedBuf::of_bytes(VOLUME_BYTES as usize).unwrap();
    device.read_at(0, bytes.bytes_mut()).unwrap();
    bytes.bytes_mut().to_vec()
}

/// Damages a sample, and leaves a file in the log alone.
fn damaged_with_log(device: &Arc<dyn Device>) {
    damage(device, |pairs, batch| {
        set(pairs, batch, META, DIR, ENTRIES_AT, &77u64.to_le_bytes());
        batch.put(DATA, b"\0\0nobody\0\xffuser.y", b"value");
        batch.delete(META, NAME);
    });
    let volume = Volume::open(device.clone(), options()).unwrap();
    mkfile(&volume, ROOT, "logged");
    volume.sync().unwrap();
    volume.env().abandon();
}

#[test]
fn a_repair_is_undone_until_the_next_opening_for_changes() {
    let device: Arc<dyn Device> = Arc::new(sample());
    damaged_with_log(&device);
    let (before, found) = (pairs(&device), examine(&device));
    assert!(before.contains_key(&key(META, b"\0\0logged")));
    assert_eq!(betree::undo_repair(device.clone()), Ok(None), "nothing was repaired");
    for _ in 0..2 {
        assert!(repair(&device, Mending::All).generation.is_some());
        assert_eq!(examine(&device), Report::default());
        assert!(betree::undo_repair(device.clone()).unwrap().is_some());
        assert_eq!((pairs(&device), examine(&device)), (before.clone(), found.clone()));
        assert_eq!(betree::undo_repair(device.clone()), Ok(None), "it was undone");
    }
    repair(&device, Mending::All);
    Volume::open(device.clone(), options()).unwrap().close().unwrap();
    let repaired = pairs(&device);
    assert_eq!(betree::undo_repair(device.clone()), Ok(None), "it was opened for changes");
    assert_eq!((pairs(&device), examine(&device)), (repaired, Report::default()));
}

/// The power fails at each write and sync of a repair, and of its undoing.
#[test]
fn a_crash_leaves_the_volume_as_it_was_or_repaired() {
    let made = Arc::new(SimDisk::new(VOLUME_BYTES));
    fill(made.clone());
    let made: Arc<dyn Device> = Arc::new(made.crash(0));
    damaged_with_log(&made);
    let bytes = all_bytes(&made);
    let disk = || {
        let disk = SimDisk::new(VOLUME_BYTES);
        disk.write_at(0, &bytes).unwrap();
        disk.sync().unwrap();
        disk
    };
    let (before, repaired, calls) = {
        let disk = Arc::new(disk());
        let device: Arc<dyn Device> = disk.clone();
        let (before, calls) = (pairs(&device), disk.changing_calls());
        repair(&device, Mending::All);
        (before, pairs(&device), disk.changing_calls() - calls)
    };
    assert!(before != repaired && calls > 6, "{calls} calls");
    let (mut old, mut new) = (0, 0);
    for call in 1..=calls {
        for seed in 0..6 {
            let disk = Arc::new(disk());
            disk.cut_power_at(call);
            let cut: Arc<dyn Device> = disk.clone();
            let done = Volume::repair(cut, &options(), Mending::All, &mut |_| true, &mut |_, _| ());
            assert!(done.is_err(), "call {call}");
            let device: Arc<dyn Device> = Arc::new(disk.crash(seed));
            let now = pairs(&device);
            assert!(now == before || now == repaired, "call {call}, seed {seed}");
            old += usize::from(now == before);
            new += usize::from(now == repaired);
            // The checks of what was crashed are as those of what was not.
            assert_eq!(examine(&device).problems.is_empty(), now == repaired, "call {call}, seed {seed}");
        }
    }
    assert!(old > 0 && new > 0, "{old} as before, {new} repaired");
}

/// The power fails at each write and sync of a repair that writes lost superblocks again. What is left opens
/// as it was or repaired, or another repair takes it.
#[test]
fn a_crash_while_lost_superblocks_are_written_loses_nothing() {
    let made = Arc::new(SimDisk::new(VOLUME_BYTES));
    fill(made.clone());
    let made: Arc<dyn Device> = Arc::new(made.crash(0));
    damaged_with_log(&made);
    let before = pairs(&made);
    let mut bytes = all_bytes(&made);
    bytes[..4 * betree_platform::BLOCK_BYTES].fill(0xa5);
    let disk = || {
        let disk = Arc::new(SimDisk::new(VOLUME_BYTES));
        disk.write_at(0, &bytes).unwrap();
        disk.sync().unwrap();
        disk
    };
    let (repaired, calls) = {
        let disk = disk();
        let (device, calls): (Arc<dyn Device>, _) = (disk.clone(), disk.changing_calls());
        repair(&device, Mending::All);
        (pairs(&device), disk.changing_calls() - calls)
    };
    assert!(before != repaired && calls > 6, "{calls} calls");
    let (mut refused, mut old, mut new) = (0, 0, 0);
    for call in 1..=calls {
        for seed in 0..6 {
            let disk = disk();
            disk.cut_power_at(call);
            let cut: Arc<dyn Device> = disk.clone();
            let done = Volume::repair(cut, &options(), Mending::All, &mut |_| true, &mut |_, _| ());
            assert!(done.is_err(), "call {call}");
            let device: Arc<dyn Device> = Arc::new(disk.crash(seed));
            let mut engine_options = Volume::engine_options(CACHE_BYTES);
            engine_options.mode = betrfs::OpenMode::ReadOnly;
            if Env::open(device.clone(), engine_options).is_err() {
                repair(&device, Mending::All);
                assert!(pairs(&device) == repaired, "call {call}, seed {seed}, repaired again");
                refused += 1;
                continue;
            }
            let now = pairs(&device);
            assert!(now == before || now == repaired, "call {call}, seed {seed}");
            old += usize::from(now == before);
            new += usize::from(now == repaired);
        }
    }
    assert!(refused > 0 && old > 0 && new > 0, "{refused} refused, {old} as before, {new} repaired");
}
