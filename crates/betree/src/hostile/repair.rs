//! Wrong numbers of references under right checksums, and nodes to which nothing leads: a repair sets the
//! numbers, frees the space, and changes nothing else.

use std::ops::Range;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use betree_platform::BLOCK_BYTES;

use super::image::{Image, Patch};
use super::{DICTS, GEOMETRY, fill, open, options, sound};
use crate::batch::Batch;
use crate::check::{Finding, FindingCode, undo_repair};
use crate::env::Env;
use crate::error::Error;
use crate::format::node::Entries;
use crate::format::superblock::features::Features;
use crate::format::table::{decode_page, encode_page};
use crate::io::mem::MemDevice;
use crate::key::Cut;
use crate::settings::{DictId, NodeCopies, OpenMode};

/// The places of dictionary and height in a node's header.
pub(super) const DICT_AT: usize = 52;
const HEIGHT_AT: usize = 53;

/// What a repair writes beside: the second copies of the only page and of the directory.
const COPY_BYTES: u64 = 2 * 4096;

/// A sound volume that was closed, without second copies.
pub(super) fn closed() -> Image {
    closed_with_copies().without_table_copy()
}

/// A sound volume that was closed.
pub(super) fn closed_with_copies() -> Image {
    let device = sound().device();
    let env = open(device.clone()).unwrap();
    fill(&env, 264..300);
    env.close().unwrap();
    Image { bytes: device.bytes() }
}

/// A sound volume that was closed, with second copies of interior nodes, and none of the node table.
pub(super) fn closed_with_node_copies() -> Image {
    let device = sound().device();
    let env = open(device.clone()).unwrap();
    env.set_node_copies(NodeCopies::Two).unwrap();
    fill_and_work(&env, 264..400);
    env.close().unwrap();
    Image { bytes: device.bytes() }.without_table_copy()
}

/// A sound volume that was closed, with a node table of several pages and second copies of these.
pub(super) fn of_several_pages() -> Image {
    let device = MemDevice::new(1024);
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    let env = open(device.clone()).unwrap();
    fill_and_work(&env, 0..900);
    env.close().unwrap();
    Image { bytes: device.bytes() }
}

fn fill_and_work(env: &Env, numbers: Range<u32>) {
    for first in numbers.clone().step_by(20) {
        fill(env, first..numbers.end.min(first + 20));
        while env.run_due_work().unwrap() {}
    }
}

pub(super) fn open_as(device: &Arc<MemDevice>, mode: OpenMode) -> Env {
    let mut options = options();
    options.mode = mode;
    Env::open(device.clone(), options).unwrap()
}

pub(super) fn problems(env: &Env) -> Vec<FindingCode> {
    let mut codes = Vec::new();
    let mut tell = |found: Finding| codes.extend(found.is_problem.then_some(found.code));
    env.check(&mut tell, &mut |_, _| ()).unwrap();
    codes
}

pub(super) fn pairs(env: &Env) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for dict in (0..DICTS).map(DictId) {
        let mut cursor = env.cursor(dict, Cut::LOW, Cut::HIGH);
        while let Some((key, value)) = cursor.next().unwrap() {
            all.push((key.to_vec(), value.to_vec()));
        }
    }
    all
}

/// A segment that is whole and makes no sense: the volume is refused, and a repair lets the log end there.
#[test]
fn a_senseless_segment_of_the_log_ends_it_for_a_repair() {
    senseless_segment_ends_the_log(&|bytes| bytes[88..92].copy_from_slice(&77u32.to_le_bytes()));
    // The dictionary of the first change.
    senseless_segment_ends_the_log(&|bytes| bytes[97] = DICTS);
    // The number of the header's first change, which the segments before it have.
    senseless_segment_ends_the_log(&|bytes| bytes[40..48].copy_from_slice(&1u64.to_le_bytes()));
}

fn senseless_segment_ends_the_log(patch: Patch<'_>) {
    let image = sound();
    let segments = image.segments();
    let senseless = segments[segments.len() / 2].clone();
    let mut hostile = image.clone();
    hostile.patch_segment(&senseless, patch);
    let device = hostile.device();
    assert!(open(device.clone()).is_err());
    let mut told = Vec::new();
    let env = Env::open_for_repair(device.clone(), options(), &mut |found| told.push(found)).unwrap();
    let [Finding { code: FindingCode::BadLog, place, .. }] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(place.offset(), Some(senseless.start as u64));
    let left = pairs(&env);
    let rescued = Env::open_for_rescue(device.clone(), options(), &mut |_| ()).unwrap();
    assert!(left == pairs(&rescued) && left.len() < pairs(&open(image.device()).unwrap()).len());
    assert_eq!(problems(&env), []);
    env.write_repair().unwrap();
    drop(env);
    let env = open_as(&device, OpenMode::ReadOnly);
    assert!(pairs(&env) == left && problems(&env).is_empty());
    drop(env);
    assert!(undo_repair(device.clone()).unwrap().is_some());
    assert!(open(device).is_err(), "it is as it was");
}

/// Mends the references, looks at the result in memory, and writes it.
fn repair(device: &Arc<MemDevice>) -> u64 {
    let env = open_as(device, OpenMode::Repair);
    let mended = env.mend_references(&mut |_, _| core::ops::ControlFlow::Continue(())).unwrap();
    let dead: Vec<_> = env.engine.dicts.iter().flat_map(|dict| dict.dead.lock().clone()).collect();
    assert!(dead.iter().all(|id| env.engine.table.lock().references(*id) == 0), "what lives is never freed");
    assert_eq!(problems(&env), []);
    env.write_repair().unwrap();
    assert!(matches!(env.write_repair(), Err(Error::ReadOnly { .. })), "it is written once");
    mended
}

/// Sets the number of references in an entry of the only page.
fn set_references(image: &mut Image, slot: u32, references: u32) {
    image.patch_page(0, &|bytes| {
        let mut page = decode_page(0, bytes).unwrap();
        page.entries[slot as usize].references = references.into();
        bytes.copy_from_slice(&encode_page(0, &page));
    });
}

/// The bytes of nodes that wait to be freed. A repair frees them.
fn dead_bytes(image: &Image) -> u64 {
    let page = decode_page(0, &image.page_bytes(0)).unwrap();
    let nodes = image.nodes().into_iter();
    let dead = nodes.filter(|(slot, ..)| page.entries[*slot as usize].references.get() == 0);
    dead.flat_map(|(_, parts, _)| parts).map(|part| part.len_blocks * BLOCK_BYTES as u64).sum()
}

#[test]
fn wrong_numbers_of_references_become_those_that_were_counted() {
    let image = closed();
    let sound = open_as(&image.device(), OpenMode::ReadOnly);
    assert_eq!(problems(&sound), []);
    let (expected, space) = (pairs(&sound), sound.space());
    let nodes = image.nodes();
    let page = decode_page(0, &image.page_bytes(0)).unwrap();
    // A dead node has none, and waits to be freed.
    let is_live = |slot: u32| page.entries[slot as usize].references.get() > 0;
    assert!(nodes.iter().filter(|(slot, ..)| is_live(*slot)).count() > 20);
    for (slot, ..) in nodes.into_iter().filter(|(slot, ..)| is_live(*slot)) {
        for references in [0, 77] {
            let mut hostile = image.clone();
            set_references(&mut hostile, slot, references);
            let device = hostile.device();
            let found = problems(&open_as(&device, OpenMode::ReadOnly));
            assert_eq!(found, [FindingCode::WrongReferences], "slot {slot}: {references}");
            assert_eq!(repair(&device), 1, "slot {slot}: {references}");
            let env = open_as(&device, OpenMode::ReadOnly);
            assert_eq!(
                (problems(&env), pairs(&env)),
                (vec![], expected.clone()),
                "slot {slot}: {references}"
            );
            let used_bytes = space.used_bytes + COPY_BYTES - dead_bytes(&image);
            assert_eq!(env.space().used_bytes, used_bytes, "slot {slot}: {references}");
        }
    }
}

/// Versions that do not know known damage would take it for deletes.
#[test]
fn a_volume_with_known_damage_says_so_and_no_other() {
    let mut image = closed();
    let (_, parts, _) =
        image.nodes().into_iter().find(|(slot, ..)| image.header_bytes(*slot)[HEIGHT_AT] == 0).unwrap();
    let has_bit = |device: &Arc<MemDevice>| {
        let superblock = Image { bytes: device.bytes() }.superblock();
        superblock.features.incompat & Features::KNOWN_DAMAGE != 0
    };
    for is_lost in [false, true] {
        if is_lost {
            image.bytes[parts[0].start_block as usize * BLOCK_BYTES + DICT_AT] ^= 0x40;
        }
        let device = image.device();
        let env = open_as(&device, OpenMode::Repair);
        assert_eq!(env.note_damage().unwrap().lost > 0, is_lost);
        env.mend_references(&mut |_, _| core::ops::ControlFlow::Continue(())).unwrap();
        env.write_repair().unwrap();
        assert_eq!(has_bit(&device), is_lost);
    }
}

/// Any node that lacks an edge may be a child of a lost one: nothing is put back unless all have their place.
#[test]
fn no_children_are_put_back_while_another_node_lacks_an_edge() {
    let image = closed();
    let page = decode_page(0, &image.page_bytes(0)).unwrap();
    let references = |slot: u32| page.entries[slot as usize].references.get();
    let dict_of = |slot: u32| image.header_bytes(slot)[DICT_AT];
    let found_again = |image: &Image| {
        let env = open_as(&image.device(), OpenMode::Repair);
        env.note_damage().unwrap().found_again.len()
    };
    let live: Vec<_> = image.nodes().into_iter().filter(|(slot, ..)| references(*slot) > 0).collect();
    let mut put_back = 0;
    for (slot, parts, _) in live.iter().filter(|(slot, ..)| page.entries[*slot as usize].height > 0) {
        let mut lost = image.clone();
        lost.bytes[parts[0].start_block as usize * BLOCK_BYTES + DICT_AT] ^= 0x40;
        if found_again(&lost) == 0 {
            continue;
        }
        put_back += 1;
        for (other, ..) in live.iter().filter(|(other, ..)| dict_of(*other) == dict_of(*slot)) {
            let mut lacking = lost.clone();
            set_references(&mut lacking, *other, references(*other) + 1);
            assert_eq!(found_again(&lacking), 0, "slot {slot} is lost, and slot {other} lacks an edge");
        }
    }
    assert!(put_back > 1, "{put_back}");
}

/// No edge leads to it that would tell, and copies are refused by the longest key that there may be.
#[test]
fn a_root_that_is_put_back_knows_how_long_its_keys_are() {
    let image = closed();
    let roots: Vec<_> = {
        let env = open_as(&image.device(), OpenMode::ReadOnly);
        env.engine.dicts.iter().map(|dict| dict.state.read().root).collect()
    };
    let mut put_back = 0;
    for (dict, root) in (0..).zip(roots) {
        let nodes = image.nodes();
        let (_, parts, _) = nodes.iter().find(|(slot, ..)| *slot == root.slot).unwrap();
        let mut lost = image.clone();
        lost.bytes[parts[0].start_block as usize * BLOCK_BYTES + DICT_AT] ^= 0x40;
        let device = lost.device();
        let env = open_as(&device, OpenMode::Repair);
        if env.note_damage().unwrap().found_again.is_empty() {
            continue;
        }
        put_back += 1;
        env.write_repair().unwrap();
        drop(env);
        let env = open_as(&device, OpenMode::ReadWrite);
        let mut clone = Batch::new();
        clone.clone_range(DictId(dict), b"", b"a prefix");
        env.commit(&clone).unwrap();
    }
    assert!(put_back > 0);
}

/// An edge that leads to a leaf of another dictionary has lost its child, and that dictionary nothing.
#[test]
fn a_node_of_another_dictionary_to_which_an_edge_leads_stays_there() {
    let mut image = closed();
    let page = decode_page(0, &image.page_bytes(0)).unwrap();
    let is_live = |slot: u32| page.entries[slot as usize].references.get() > 0;
    let pairs_of_other = |env: &Env| {
        let mut cursor = env.cursor(DictId(1), Cut::LOW, Cut::HIGH);
        let mut all = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            all.push((key.to_vec(), value.to_vec()));
        }
        all
    };
    let expected = pairs_of_other(&open_as(&image.device(), OpenMode::ReadOnly));
    let headers = image.nodes().into_iter().filter(|(slot, ..)| is_live(*slot));
    let headers: Vec<_> = headers.map(|(slot, ..)| image.header(slot)).collect();
    let other = headers.iter().find(|header| header.origin.dict == 1 && header.height == 0).unwrap().id;
    let mut wrong =
        headers.iter().find(|header| header.origin.dict == 0 && header.height > 0).unwrap().clone();
    let Entries::Interior(edges) = &mut wrong.entries else { panic!("it is an interior node") };
    edges.iter_mut().find(|edge| edge.child.is_some()).unwrap().child = Some(other);
    image.set_header(wrong.id.slot, &wrong);
    let device = image.device();
    let env = open_as(&device, OpenMode::Repair);
    assert!(env.note_damage().unwrap().lost > 0);
    env.mend_references(&mut |_, _| core::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!(problems(&env), []);
    env.write_repair().unwrap();
    let env = open_as(&device, OpenMode::ReadOnly);
    assert!(problems(&env).is_empty() && pairs_of_other(&env) == expected);
}

/// A volume with a node in a free block, as empty as that is, with this number of references.
fn with_empty_node(image: &Image, height: u8, references: u32) -> Image {
    let sound = open_as(&image.device(), OpenMode::ReadOnly);
    let free =
        sound.engine.store.space.free_ranges().iter().map(|range| range.start_block).next_back().unwrap();
    let page = decode_page(0, &image.page_bytes(0)).unwrap();
    let unused = page.entries.iter().position(|slot| slot.used == 0).unwrap();
    let mut hostile = image.clone();
    hostile.patch_page(0, &|bytes| {
        let mut page = decode_page(0, bytes).unwrap();
        let slot = &mut page.entries[unused];
        (slot.used, slot.height) = (1, height);
        slot.start_block = free.into();
        slot.len_blocks = 1.into();
        slot.header_len = 100.into();
        slot.references = references.into();
        bytes.copy_from_slice(&encode_page(0, &page));
    });
    hostile
}

#[test]
fn a_node_to_which_nothing_leads_goes_with_its_space() {
    let image = closed();
    let sound = open_as(&image.device(), OpenMode::ReadOnly);
    let (expected, space) = (pairs(&sound), sound.space());
    let device = with_empty_node(&image, 0, 1).device();
    let leaky = open_as(&device, OpenMode::ReadOnly);
    assert_eq!(problems(&leaky), [FindingCode::WrongReferences]);
    assert_eq!(leaky.space().used_bytes, space.used_bytes + 4096);
    drop(leaky);
    assert_eq!(repair(&device), 1);
    let env = open_as(&device, OpenMode::ReadOnly);
    assert_eq!((problems(&env), pairs(&env)), (vec![], expected));
    assert_eq!(env.space().used_bytes, space.used_bytes + COPY_BYTES - dead_bytes(&image));
}

/// What it may lead to goes with it, and nothing of the trees.
#[test]
fn a_dead_node_that_cannot_be_read_goes_with_its_space() {
    let image = closed();
    let sound = open_as(&image.device(), OpenMode::ReadOnly);
    let (expected, space) = (pairs(&sound), sound.space());
    let device = with_empty_node(&image, 1, 0).device();
    assert_eq!(problems(&open_as(&device, OpenMode::ReadOnly)), [FindingCode::NotFreed]);
    let env = open_as(&device, OpenMode::Repair);
    assert_eq!(env.note_damage().unwrap().lost, 1);
    env.mend_references(&mut |_, _| core::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!(problems(&env), []);
    env.write_repair().unwrap();
    drop(env);
    let env = open_as(&device, OpenMode::ReadOnly);
    assert_eq!((problems(&env), pairs(&env)), (vec![], expected));
    assert!(env.space().used_bytes <= space.used_bytes + COPY_BYTES);
}

#[test]
fn a_repair_leaves_every_block_of_the_checkpoint_before_it_until_it_is_undone() {
    // With a log, which the undoing brings back.
    let image = sound();
    let device = image.device();
    let expected = pairs(&open_as(&device, OpenMode::ReadOnly));
    let env = open_as(&device, OpenMode::Repair);
    let mut batch = crate::batch::Batch::new();
    for (dict, number) in (0..600).map(|number| (DictId((number % u32::from(DICTS)) as u8), number)) {
        batch.put(dict, &super::key(number), &[9; 60]);
    }
    env.apply_in_memory(&batch).unwrap();
    assert!(device.bytes() == image.bytes, "it is in memory alone");
    env.write_repair().unwrap();
    drop(env);
    assert_ne!(pairs(&open_as(&device, OpenMode::ReadOnly)), expected);
    assert_eq!(undo_repair(device.clone()).map(|undone| undone.is_some()), Ok(true));
    let env = open_as(&device, OpenMode::ReadOnly);
    assert_eq!((problems(&env), pairs(&env)), (vec![], expected));
    assert!(env.replayed_batches() > 0);
    assert_eq!(undo_repair(device), Ok(None));
}
