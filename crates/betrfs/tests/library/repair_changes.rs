//! What the changes of a repair take along, and what they leave: what is there already, what belongs to
//! others, and what may be there although it cannot be read.

use std::collections::BTreeSet;
use std::sync::Arc;

use betree::Batch;
use betree::debug::{Inspector, Owner};
use betree_platform::{BLOCK_BYTES, Device};
use betree_sim::{MemDevice, Rng};
use betrfs::{Error, FileType, Mending, Repair, Volume, XattrMode};

use crate::repair::{
    DATA, DIR, FILE, FLAGS_AT, FOR_1, FOR_50, LINKS, META, MODE_AT, NAME, OTHER_NAME, Pairs, SPARSE, codes,
    key, object, options, pairs, repair, sample, set, with,
};
use crate::support::*;

/// The names of the object are gone.
fn make_nameless(batch: &mut Batch) {
    for name in [NAME, OTHER_NAME] {
        batch.delete(META, name);
        batch.delete(LINKS, name);
    }
}

fn mended(repair: &Repair) -> BTreeSet<&'static str> {
    repair.mended.iter().map(|mended| mended.code).collect()
}

fn perm(pairs: &Pairs, own: &[u8]) -> u32 {
    u32::from_le_bytes(*pairs[&key(META, own)][MODE_AT..].first_chunk().unwrap()) & 0o7777
}

/// The bits of the mask, which without a list would be the group's.
#[test]
fn a_list_of_access_that_goes_takes_the_bits_of_the_group_along_and_a_default_one_none() {
    let device = with(&sample(), |pairs, batch| {
        // The tag of the last entry of the last attribute, which is the default list.
        let at = pairs[&key(META, FOR_1)].len() - 8;
        set(pairs, batch, META, FOR_1, at, &[0x40]);
        set(pairs, batch, DATA, &[FOR_50, b"\0\xffsystem.posix_acl_access"].concat(), 0, &[3]);
    });
    let before = pairs(&device);
    assert_eq!((perm(&before, FOR_1), perm(&before, FOR_50)), (0o750, 0o750));
    // The value of the one that does not fit into its record goes after it.
    let expected = BTreeSet::from(["bad-access-control-list", "ownerless-data"]);
    assert_eq!(mended(&repair(&device, Mending::All)), expected);
    let after = pairs(&device);
    assert_eq!((perm(&after, FOR_1), perm(&after, FOR_50)), (0o750, 0o700));
}

/// The name that it would get there has another file, which nobody named so but by chance.
#[test]
fn a_nameless_file_takes_no_name_that_is_there() {
    let device: Arc<dyn Device> = Arc::new(sample());
    let volume = Volume::open(device.clone(), options()).unwrap();
    let lost = mkdir(&volume, ROOT, "lost+found").node;
    let file = mkfile(&volume, lost, "#1").node;
    volume.write(file, 0, b"of somebody").unwrap();
    volume.close().unwrap();
    drop(volume);
    let damaged = damaged_as(&device, |_, batch| make_nameless(batch));
    let repaired = repair(&damaged, Mending::All);
    assert_eq!(repaired.after.found(), 0, "{repaired:#?}");
    let volume = Volume::open(damaged, options()).unwrap();
    assert_eq!(contents(&volume, "/lost+found/#1"), b"of somebody");
    assert_eq!(contents(&volume, "/lost+found/#1.1"), b"linked");
    volume.close().unwrap();
}

pub fn damaged_as(device: &Arc<dyn Device>, change: impl Fn(&Pairs, &mut Batch)) -> Arc<dyn Device> {
    let copy = MemDevice::new(device.len());
    let mut bytes = betree_platform::AlignedBuf::of_bytes(device.len() as usize).unwrap();
    device.read_at(0, bytes.bytes_mut()).unwrap();
    copy.write_at(0, bytes.bytes()).unwrap();
    with(&copy, change)
}

#[test]
fn files_without_a_name_come_to_a_directory_of_root_alone_beside_what_has_its_name() {
    let device: Arc<dyn Device> = Arc::new(sample());
    let volume = Volume::open(device.clone(), options()).unwrap();
    mkfile(&volume, ROOT, "lost+found");
    volume.close().unwrap();
    drop(volume);
    let damaged = damaged_as(&device, |_, batch| make_nameless(batch));
    let repaired = repair(&damaged, Mending::All);
    assert_eq!(repaired.after.found(), 0, "{repaired:#?}");
    let volume = Volume::open(damaged, options()).unwrap();
    let attr = |path: &str| volume.resolve(path.as_bytes()).unwrap().attr;
    assert_eq!(attr("/lost+found").file_type, FileType::Regular);
    let lost = attr("/lost+found.1");
    assert_eq!((lost.file_type, lost.perm, lost.uid), (FileType::Directory, 0o700, 0));
    assert_eq!(contents(&volume, "/lost+found.1/#1"), b"linked");
    volume.close().unwrap();
}

/// Without it the snapshot could not be read, nor removed.
#[test]
fn a_directory_that_is_missing_in_a_snapshot_is_made_for_root_alone() {
    let device: Arc<dyn Device> = Arc::new(sample());
    let volume = Volume::open(device.clone(), options()).unwrap();
    let held = volume.resolve(b"/held").unwrap().node;
    mkfile(&volume, mkdir(&volume, held, "below").node, "deep");
    let snapshots = volume.lookup(held, betrfs::SNAPSHOTS_NAME).unwrap().node;
    mkdir(&volume, snapshots, "tuesday");
    volume.close().unwrap();
    drop(volume);
    let in_snapshot = |pairs: &Pairs| {
        let is_it = |at: &[u8]| {
            let shown = at.escape_ascii().to_string();
            shown.contains("tuesday") && shown.ends_with("below")
        };
        pairs.keys().find(|(dict, at)| *dict == META.0 && is_it(at)).unwrap().1.clone()
    };
    let damaged = damaged_as(&device, |pairs, batch| batch.delete(META, &in_snapshot(pairs)));
    let own = in_snapshot(&pairs(&device));
    let repaired = repair(&damaged, Mending::All);
    assert!(codes(&repaired.before).contains("no-directory"), "{repaired:#?}");
    assert_eq!(repaired.after.found(), 0, "{repaired:#?}");
    assert_eq!(perm(&pairs(&damaged), &own), 0o700);
}

/// The record of the snapshot itself.
#[test]
fn a_snapshot_that_is_made_again_is_one() {
    let own = |pairs: &Pairs| {
        let is_it = |at: &[u8]| at.first() == Some(&3) && at.ends_with(b"monday");
        pairs.keys().find(|(dict, at)| *dict == META.0 && is_it(at)).unwrap().1.clone()
    };
    let device = with(&sample(), |pairs, batch| batch.delete(META, &own(pairs)));
    let repaired = repair(&device, Mending::All);
    assert!(codes(&repaired.before).contains("no-directory"), "{repaired:#?}");
    assert_eq!(repaired.after.found(), 0, "{repaired:#?}");
    let made = pairs(&device);
    assert_eq!(made[&key(META, &own(&made))][FLAGS_AT] & 4, 4, "it is marked as read-only");
    let volume = Volume::open(device, options()).unwrap();
    let ino = |path: &str| volume.resolve(path.as_bytes()).unwrap().attr.ino;
    assert_ne!(ino("/held/.betrfs-snapshots/monday/inside"), ino("/held/inside"));
    let snapshot = volume.resolve(b"/held/.betrfs-snapshots/monday").unwrap().node;
    assert_eq!(names(&volume, snapshot), ["inside"]);
    assert_eq!(volume.create(snapshot, b"new", &new_file()), Err(Error::InSnapshot));
    let snapshots =
        volume.lookup(volume.resolve(b"/held").unwrap().node, betrfs::SNAPSHOTS_NAME).unwrap().node;
    volume.rmdir(snapshots, b"monday").unwrap();
    assert_sound(&volume);
}

/// As where the newest names of a volume are lost, and the data are there.
#[test]
fn files_whose_records_are_lost_come_back_with_their_data() {
    let device = with(&sample(), |pairs, batch| {
        for own in [DIR, FILE, SPARSE] {
            batch.delete(META, own);
        }
        batch.delete(META, &object(pairs));
        make_nameless(batch);
    });
    // Nothing is taken away but the value of an attribute, which no record has.
    let repaired = repair(&device, Mending::All);
    assert_eq!(repaired.after.found(), 0, "{repaired:#?}");
    let taken: Vec<_> = repaired.mended.iter().filter(|mended| mended.loses).collect();
    assert!(matches!(taken[..], [one] if one.code == "ownerless-data"), "{taken:?}");
    let volume = Volume::open(device, options()).unwrap();
    assert_eq!(contents(&volume, "/d/f"), [1; 10_000]);
    // Of the hole at its end nothing is known.
    assert_eq!(contents(&volume, "/sparse"), [&[0; 1 << 19][..], &[2; 5000]].concat());
    let lost = names(&volume, volume.resolve(b"/lost+found").unwrap().node);
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(contents(&volume, &format!("/lost+found/{}", lost[0])), b"linked");
    let modes = ["/d", "/d/f"].map(|path| volume.resolve(path.as_bytes()).unwrap().attr.perm);
    assert_eq!(modes, [0o700, 0o600], "what was in them may be nobody else's business");
    assert_sound(&volume);
}

/// The name goes, so it need not be listed.
#[test]
fn of_two_changes_of_one_pair_the_second_waits_for_the_next_look() {
    let device = with(&sample(), |pairs, batch| {
        batch.delete(META, &object(pairs));
        batch.delete(DATA, &[&object(pairs)[..], &[0; 9]].concat());
        batch.delete(LINKS, NAME);
    });
    let repaired = repair(&device, Mending::All);
    assert_eq!(codes(&repaired.before), BTreeSet::from(["lost-file", "name-not-listed"]), "{repaired:#?}");
    assert_eq!(mended(&repaired), BTreeSet::from(["lost-file", "wrong-entry-counts"]), "{repaired:#?}");
    assert_eq!(repaired.after.found(), 0, "{repaired:#?}");
}

/// A record is made for its blocks, and its names lead to it.
#[test]
fn a_linked_file_whose_record_is_lost_keeps_its_names() {
    for mending in [Mending::Safe, Mending::All] {
        let device = with(&sample(), |pairs, batch| {
            batch.delete(META, &object(pairs));
            batch.delete(LINKS, NAME);
        });
        let repaired = repair(&device, mending);
        let expected = ["lost-record", "name-not-listed", "wrong-link-count", "wrong-redirect"];
        assert_eq!(mended(&repaired), BTreeSet::from(expected), "{repaired:#?}");
        assert_eq!(repaired.after.found(), 0, "{repaired:#?}");
        let volume = Volume::open(device, options()).unwrap();
        for path in ["/a", "/d/b"] {
            assert_eq!(contents(&volume, path), b"linked");
            assert_eq!(volume.resolve(path.as_bytes()).unwrap().attr.nlink, 2);
        }
        assert!(volume.resolve(b"/lost+found").is_err());
        assert_sound(&volume);
    }
}

/// Through a name there it could be written.
#[test]
fn no_name_in_a_snapshot_leads_to_a_file_that_a_repair_has_made() {
    let device: Arc<dyn Device> = Arc::new(sample());
    let volume = Volume::open(device.clone(), options()).unwrap();
    let held = volume.resolve(b"/held").unwrap().node;
    let one = volume.create_with(held, b"one", &new_file(), b"of held").unwrap().node;
    volume.link(one, held, b"two").unwrap();
    mkdir(&volume, volume.lookup(held, betrfs::SNAPSHOTS_NAME).unwrap().node, "tuesday");
    volume.close().unwrap();
    drop(volume);
    let damaged = damaged_as(&device, |pairs, batch| {
        let of_snapshot = pairs.iter().find(|((dict, at), _)| *dict == LINKS.0 && at[0] == 3).unwrap();
        batch.delete(META, &[&[1], &of_snapshot.1[..]].concat());
    });
    let repaired = repair(&damaged, Mending::All);
    assert!(codes(&repaired.before).contains("lost-file"), "{repaired:#?}");
    assert_eq!(repaired.after.found(), 0, "{repaired:#?}");
    let volume = Volume::open(damaged, options()).unwrap();
    let snapshot = volume.resolve(b"/held/.betrfs-snapshots/tuesday").unwrap().node;
    assert_eq!(names(&volume, snapshot), ["inside"]);
    let lost = names(&volume, volume.resolve(b"/lost+found").unwrap().node);
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(contents(&volume, &format!("/lost+found/{}", lost[0])), b"of held");
    assert_eq!(contents(&volume, "/held/two"), b"of held");
    assert_sound(&volume);
}

/// What was in it may have been nobody else's business.
#[test]
fn a_directory_that_is_made_again_is_for_root_alone() {
    let device = with(&sample(), |_, batch| batch.delete(META, DIR));
    assert_eq!(repair(&device, Mending::All).after.found(), 0);
    assert_eq!(perm(&pairs(&device), DIR), 0o700);
}

/// Blocks of a dictionary's leaves.
pub fn leaves(disk: &Disk, dict: u8) -> Vec<u64> {
    nodes(disk, dict, |height| height == 0)
}

/// The same of the other nodes.
pub fn interior(disk: &Disk, dict: u8) -> Vec<u64> {
    nodes(disk, dict, |height| height > 0)
}

/// The same of the nodes of some heights.
pub fn nodes(disk: &Disk, dict: u8, of_height: impl Fn(u8) -> bool) -> Vec<u64> {
    let options = Volume::engine_options(4 << 20);
    let inspector = Inspector::open(disk.device.clone(), options, &mut |found| panic!("{found}")).unwrap();
    let is_one = |id| {
        let header = inspector.node(id, &mut |_| ()).and_then(|node| node.header);
        header.is_some_and(|header| header.origin.dict == dict && of_height(header.height))
    };
    let blocks = inspector.map().into_iter();
    blocks
        .filter(|owned| matches!(owned.owner, Owner::Node(id) if is_one(id)))
        .map(|owned| owned.blocks.start_block)
        .collect()
}

/// A copy of a volume in which the nodes at these blocks are lost.
pub fn without(disk: &Disk, blocks: &[u64]) -> Arc<MemDevice> {
    let device = Arc::new(disk.device.copy());
    for block in blocks {
        device.write_at(block * BLOCK_BYTES as u64, &[7; BLOCK_BYTES]).unwrap();
    }
    device
}

pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.below(256) as u8).collect()
}

const FILES: u64 = 40;

/// Files with a large attribute and some contents.
fn with_attributes() -> Disk {
    let disk = Disk::of_tiny_nodes(32 << 20);
    let volume = disk.open();
    for file in 0..FILES {
        let made = mkfile(&volume, ROOT, &format!("file{file:02}")).node;
        volume.write(made, 0, &noise(file, 1000)).unwrap();
        volume.set_xattr(made, b"user.large", &noise(file, 3000), XattrMode::Any).unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    disk
}

pub fn repair_of(disk: &Disk, device: &Arc<MemDevice>) -> Repair {
    Volume::repair(device.clone(), &disk.options, Mending::All, &mut |_| true, &mut |_, _| ()).unwrap()
}

/// A lost value is an error to its readers, and does not become none.
#[test]
fn known_damage_over_values_of_attributes_stays() {
    let disk = with_attributes();
    let mut all_lost = 0;
    for block in leaves(&disk, DATA.0) {
        let device = without(&disk, &[block]);
        let repaired = repair_of(&disk, &device);
        assert!(repaired.generation.is_some() && repaired.after.found() == 0, "{repaired:#?}");
        let volume = Volume::open(device, disk.options.clone()).unwrap();
        for file in 0..FILES {
            let node = volume.resolve(format!("/file{file:02}").as_bytes()).unwrap().node;
            match volume.get_xattr(node, b"user.large") {
                Ok(value) => assert!(value == noise(file, 3000), "{file}"),
                Err(Error::Engine(betree::Error::KnownDamage { .. })) => all_lost += 1,
                Err(error) => panic!("{file}: {error}"),
            }
        }
        volume.close().unwrap();
    }
    assert!(all_lost >= FILES / 2, "{all_lost} values were lost");
}

/// A lost name may be that of a file with the lost blocks.
#[test]
fn known_damage_of_data_stays_where_names_are_lost_too() {
    let disk = with_attributes();
    let data = leaves(&disk, DATA.0);
    let lost = without(&disk, &[leaves(&disk, META.0), data[..1].to_vec()].concat());
    assert!(repair_of(&disk, &lost).generation.is_some());
    let env = betree::Env::open(lost, Volume::engine_options(4 << 20)).unwrap();
    let mut cursor = env.cursor(DATA, betree::Cut::LOW, betree::Cut::HIGH);
    let found = loop {
        match cursor.next() {
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(matches!(found, Some(betree::Error::KnownDamage { .. })), "{found:?}");
}

/// The next opening removes what is left of the file.
#[test]
fn known_damage_of_a_file_that_was_unlinked_while_open_goes_too() {
    let disk = Disk::of_tiny_nodes(32 << 20);
    let volume = disk.open();
    let gone = mkfile(&volume, ROOT, "gone").node;
    volume.write(gone, 0, &noise(1, 200_000)).unwrap();
    volume.unlink(ROOT, b"gone").unwrap();
    volume.sync().unwrap();
    volume.env().checkpoint().unwrap();
    volume.env().abandon();
    drop(volume);
    let leaves = leaves(&disk, DATA.0);
    let mut lost = 0;
    for block in leaves {
        let device = without(&disk, &[block]);
        let repaired = repair_of(&disk, &device);
        if repaired.before.found() == 0 {
            // It was to be freed.
            continue;
        }
        lost += 1;
        assert!(repaired.generation.is_some() && repaired.after.found() == 0, "{repaired:#?}");
        Volume::open(device.clone(), disk.options.clone()).unwrap().close().unwrap();
        let left = Volume::examine(device, disk.options.clone(), &mut |_, _| ()).unwrap();
        assert_eq!((left.problems, left.known_damage), (vec![], vec![]));
    }
    assert!(lost > 3, "{lost}");
}
