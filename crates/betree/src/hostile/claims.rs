//! Blocks that two owners claim, under right checksums: an opening for changes refuses the volume, a repair
//! keeps what is there by its checksums, and takes away what is not.

use std::string::ToString;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use super::image::Image;
use super::repair::{closed, open_as, pairs, problems};
use super::{DICTS, open, options};
use crate::check::{Finding, FindingCode, NotedDamage, undo_repair};
use crate::env::Env;
use crate::error::Error;
use crate::format::table::{StoredSlot, decode_page, encode_page};
use crate::io::mem::MemDevice;
use crate::key::Cut;
use crate::settings::{DictId, OpenMode};
use crate::space::BlockRange;

pub(super) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

const BLOCK: usize = betree_platform::BLOCK_BYTES;
/// The first block of the log.
const FIRST_LOG_BLOCK: u64 = 4;

/// Changes a slot of the node table.
pub(super) fn set_slot(image: &mut Image, slot: u32, change: impl Fn(&mut StoredSlot)) {
    let (page, entry) = image.page_of(slot);
    image.patch_page(page, &|bytes| {
        let mut slots = decode_page(page as u32, bytes).unwrap();
        change(&mut slots.entries[entry]);
        bytes.copy_from_slice(&encode_page(page as u32, &slots));
    });
}

pub(super) fn set_place(image: &mut Image, slot: u32, start_block: u64, len_blocks: u64) {
    set_slot(image, slot, |stored| {
        stored.start_block = start_block.into();
        stored.len_blocks = (len_blocks as u32).into();
    });
}

pub(super) fn slot(image: &Image, slot: u32) -> StoredSlot {
    let (page, entry) = image.page_of(slot);
    decode_page(page as u32, &image.page_bytes(page)).unwrap().entries[entry]
}

/// A node in one part that a tree shows.
pub(super) struct Whole {
    pub slot: u32,
    pub part: BlockRange,
    pub height: u8,
}

pub(super) fn whole_nodes(image: &Image) -> Vec<Whole> {
    let nodes = image
        .nodes()
        .into_iter()
        .filter(|(slot_index, parts, _)| parts.len() == 1 && slot(image, *slot_index).references.get() == 1);
    nodes.map(|(slot, parts, _)| Whole { slot, part: parts[0], height: image.header(slot).height }).collect()
}

/// What a caller finds in an environment: pairs that can be read.
pub(super) fn readable(env: &Env) -> Pairs {
    let mut all = Vec::new();
    for dict in (0..DICTS).map(DictId) {
        let mut cursor = env.cursor(dict, Cut::LOW, Cut::HIGH);
        while let Some((key, value)) = cursor.next_past(&mut |_| ()) {
            all.push((key.to_vec(), value.to_vec()));
        }
    }
    all
}

fn found_in(env: &Env) -> Vec<FindingCode> {
    let mut codes = problems(env);
    codes.sort_unstable();
    codes.dedup();
    codes
}

/// What became of a volume.
pub(super) struct Repaired {
    /// What the opening told.
    pub told: Vec<Finding>,
    pub noted: NotedDamage,
    pub pairs: Pairs,
    pub device: Arc<MemDevice>,
}

/// Repairs a volume that is refused, opens it for changes, and takes the repair of another copy back.
pub(super) fn repaired(image: &Image, what: &str) -> Repaired {
    let device = image.device();
    let Err(Error::Corrupt { what: "extent", why, .. }) = open(device.clone()) else {
        panic!("{what}: it was not refused")
    };
    assert!(why.starts_with("node "), "{what}: {why}");
    let mut told = Vec::new();
    let env = Env::open_for_repair(device.clone(), options(), &mut |found| told.push(found)).unwrap();
    assert!(found_in(&env).contains(&FindingCode::DisputedBlocks), "{what}");
    let noted = env.note_damage().unwrap();
    env.mend_references(&mut |_, _| core::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!(problems(&env), [], "{what}");
    assert!(device.bytes() == image.bytes, "{what}: it is in memory alone");
    env.write_repair().unwrap();
    drop(env);
    // Nothing that the checkpoint before has, whoever owns it, was overwritten.
    let after = device.bytes();
    for part in image.nodes().into_iter().flat_map(|(_, parts, _)| parts) {
        let end = part.start_block.saturating_add(part.len_blocks).min((after.len() / BLOCK) as u64);
        for block in part.start_block.max(FIRST_LOG_BLOCK)..end {
            let at = block as usize * BLOCK;
            assert!(after[at..at + BLOCK] == image.bytes[at..at + BLOCK], "{what}: block {block}");
        }
    }
    let back = MemDevice::holding(device.bytes());
    assert!(undo_repair(back.clone()).unwrap().is_some());
    let Err(Error::Corrupt { why: again, .. }) = open(back) else { panic!("{what}: it is as it was") };
    assert_eq!(again, why);
    let env = open_as(&device, OpenMode::ReadOnly);
    assert_eq!(problems(&env), [], "{what}");
    let pairs = readable(&env);
    drop(env);
    // Blocks that belong to two would be overwritten now.
    let env = open(device.clone()).unwrap();
    super::fill(&env, 300..420);
    while env.run_due_work().unwrap() {}
    env.checkpoint().unwrap();
    assert_eq!(problems(&env), [], "{what}");
    env.close().unwrap();
    Repaired { told, noted, pairs, device }
}

/// What a rescue reads.
pub(super) fn rescued(image: &Image) -> (Vec<FindingCode>, Pairs) {
    let mut told = Vec::new();
    let env = Env::open_for_rescue(image.device(), options(), &mut |found| told.push(found.code)).unwrap();
    (told, readable(&env))
}

/// What a check finds in a volume that is refused.
fn examined(image: &Image) -> Vec<FindingCode> {
    let mut codes = Vec::new();
    let mut tell = |found: Finding| codes.extend(found.is_problem.then_some(found.code));
    let env = Env::open_damaged(image.device(), options(), &mut tell).unwrap();
    env.check(&mut tell, &mut |_, _| ()).unwrap();
    codes.sort_unstable();
    codes.dedup();
    codes
}

/// The pairs of a volume, and those of one that was repaired after the node in a slot was lost.
pub(super) fn lost(image: &Image, slot: u32) -> (Pairs, Pairs) {
    let all = pairs(&open_as(&image.device(), OpenMode::ReadOnly));
    let mut without = image.clone();
    set_slot(&mut without, slot, |stored| stored.header_checksum = 0.into());
    let env = open_as(&without.device(), OpenMode::Repair);
    assert_eq!(env.note_damage().unwrap().lost, 1);
    let left = readable(&env);
    assert!(left.len() < all.len());
    (all, left)
}

/// Whether a rescue, which skips what is pending above a lost node, copies nothing but these pairs.
fn is_rescued_right(image: &Image, left: &Pairs) -> bool {
    let copied = rescued(image).1;
    !copied.is_empty() && copied.iter().all(|pair| left.contains(pair))
}

/// A slot says that its node is where another one is, before and behind it in the table.
#[test]
fn of_two_nodes_at_one_place_that_one_is_lost_that_is_not_there() {
    let image = closed();
    let nodes = whole_nodes(&image);
    let (mut first_is_wrong, mut interior, mut found_again) = (0, 0, 0);
    for (thief, owner) in nodes.iter().zip(nodes.iter().skip(1)).flat_map(|(a, b)| [(a, b), (b, a)]) {
        let what = std::format!("the node in slot {} where that in slot {} is", thief.slot, owner.slot);
        let mut hostile = image.clone();
        set_place(&mut hostile, thief.slot, owner.part.start_block, owner.part.len_blocks);
        first_is_wrong += usize::from(thief.slot < owner.slot);
        let codes = examined(&hostile);
        assert!(
            codes.contains(&FindingCode::DisputedBlocks) && codes.contains(&FindingCode::BadNode),
            "{what}: {codes:?}"
        );
        let Repaired { told, noted, pairs, .. } = repaired(&hostile, &what);
        // The second in the table is told of; that the first is not there, its readers find.
        let second = thief.slot.max(owner.slot);
        let [Finding { code: FindingCode::DisputedBlocks, what: sentence, .. }] = told.as_slice() else {
            panic!("{what}: {told:?}")
        };
        let named = std::format!("those of node {}.", thief.slot.min(owner.slot));
        assert!(
            sentence.starts_with(&std::format!("node {second}.")) && sentence.contains(&named),
            "{sentence}"
        );
        let (mut rescue_told, _) = rescued(&hostile);
        rescue_told.retain(|code| *code != FindingCode::BadNode);
        assert_eq!(rescue_told, [FindingCode::DisputedBlocks], "{what}");
        if thief.height > 0 {
            // Its children are found again, or lost too.
            interior += 1;
            found_again += noted.found_again.len();
            continue;
        }
        // The node above the lost one gets a new version with the note, and so other blocks.
        if owner.height == 0 {
            assert_eq!(noted.moved.len(), usize::from(second == owner.slot), "{what}: {noted:?}");
        }
        let (_, left) = lost(&image, thief.slot);
        assert!(pairs == left && is_rescued_right(&hostile, &left), "{what}");
    }
    std::println!(
        "{first_is_wrong} first ones were wrong, {interior} were interior, {found_again} came back"
    );
    assert!(first_is_wrong > 10 && interior > 4 && found_again > 0);
}

/// A node to which nothing leads takes nothing with it.
#[test]
fn a_node_in_no_tree_that_claims_the_blocks_of_another_goes() {
    let image = closed();
    let expected = pairs(&open_as(&image.device(), OpenMode::ReadOnly));
    let page = decode_page(0, &image.page_bytes(0)).unwrap();
    let unused = page.entries.iter().position(|slot| slot.used == 0).unwrap() as u32;
    for (references, owner) in [0, 1, 7]
        .into_iter()
        .flat_map(|count| whole_nodes(&image).into_iter().step_by(5).map(move |owner| (count, owner)))
    {
        let what = std::format!("with {references} references, where that in slot {} is", owner.slot);
        let mut hostile = image.clone();
        set_slot(&mut hostile, unused, |stored| {
            *stored = StoredSlot { references: references.into(), ..slot(&image, owner.slot) };
        });
        let Repaired { pairs, device, .. } = repaired(&hostile, &what);
        assert!(pairs == expected, "{what}");
        let known = open_as(&device, OpenMode::ReadOnly);
        assert!(readable(&known).len() > expected.len(), "it was changed since");
        assert!(rescued(&hostile).1 == expected, "{what}");
    }
}

/// A node with one block more, which holds nothing: both are there, and one of them moves.
#[test]
fn of_two_nodes_that_are_both_there_one_gets_blocks_of_its_own() {
    let image = closed();
    let expected = pairs(&open_as(&image.device(), OpenMode::ReadOnly));
    let nodes = whole_nodes(&image);
    let end = |node: &Whole| node.part.start_block + node.part.len_blocks;
    let neighbours = nodes.iter().filter_map(|node| {
        nodes.iter().find(|next| next.part.start_block == end(node)).map(|next| (node, next))
    });
    let mut tried = 0;
    for (node, next) in neighbours.step_by(3) {
        let what = std::format!("the node in slot {} with a block of that in slot {}", node.slot, next.slot);
        let mut hostile = image.clone();
        let mut header = image.header(node.slot);
        header.extent_blocks += 1;
        set_place(&mut hostile, node.slot, node.part.start_block, node.part.len_blocks + 1);
        let encoded = header.encode();
        hostile.patch_header(node.slot, &|bytes| bytes.copy_from_slice(&encoded));
        assert_eq!(examined(&hostile), [FindingCode::DisputedBlocks], "{what}");
        let Repaired { noted, pairs, .. } = repaired(&hostile, &what);
        assert_eq!((noted.lost, noted.moved.len()), (0, 1), "{what}: {noted:?}");
        assert!(pairs == expected, "{what}");
        assert!(rescued(&hostile) == (vec![FindingCode::DisputedBlocks], expected.clone()), "{what}");
        tried += 1;
    }
    assert!(tried > 3, "{tried}");
}

/// Blocks of superblocks, log and node table, and blocks behind the end. Nothing of a node is there.
#[test]
fn a_node_where_no_node_can_be_is_lost() {
    let image = closed();
    let blocks = image.bytes.len() as u64 / BLOCK as u64;
    let superblock = image.superblock();
    let directory = superblock.table.parts()[0].start_block;
    let page = image.page_start(0);
    let places = [
        (0, 1, "superblock"),
        (3, 2, "superblock"),
        (FIRST_LOG_BLOCK, 1, "those of the log"),
        (directory, 1, "those of the node table"),
        (page, 1, "those of the node table"),
        (blocks - 1, 2, "behind the end of the volume"),
        (blocks + 9, 1, "behind the end of the volume"),
        (u64::MAX, 1, "behind the end of the volume"),
        (u64::MAX / 4096, 1, "behind the end of the volume"),
        (directory, 0, "is empty"),
    ];
    let nodes = whole_nodes(&image);
    let leaf = nodes.iter().find(|node| node.height == 0).unwrap();
    let (_, left) = lost(&image, leaf.slot);
    for (start_block, len_blocks, sentence) in places {
        let what = std::format!("at block {start_block}+{len_blocks}");
        let mut hostile = image.clone();
        set_place(&mut hostile, leaf.slot, start_block, len_blocks);
        assert!(examined(&hostile).contains(&FindingCode::DisputedBlocks), "{what}");
        let Repaired { told, noted, pairs, .. } = repaired(&hostile, &what);
        assert!(told.len() == 1 && told[0].what.contains(sentence), "{what}: {told:?}");
        assert!((noted.lost, noted.moved.len()) == (1, 0) && pairs == left, "{what}: {noted:?}");
        assert!(is_rescued_right(&hostile, &left), "{what}");
    }
    // A root: all of its dictionary was in it, or is found again below it.
    let root = nodes.iter().filter(|node| node.height > 0).max_by_key(|node| node.height).unwrap();
    let mut hostile = image.clone();
    set_place(&mut hostile, root.slot, 0, 1);
    repaired(&hostile, "a root in a superblock");
}

/// A node whose bytes are in the log, which a closed volume does not read, and behind the end of the volume.
#[test]
fn a_node_that_is_there_is_kept_wherever_it_is() {
    let image = closed();
    let expected = pairs(&open_as(&image.device(), OpenMode::ReadOnly));
    let nodes = whole_nodes(&image);
    let blocks = image.bytes.len() as u64 / BLOCK as u64;
    for height in 0..2 {
        let node = nodes.iter().find(|node| node.height == height).unwrap();
        for start_block in [FIRST_LOG_BLOCK + 3, blocks + 2] {
            let mut hostile = image.clone();
            let len = node.part.len_blocks as usize * BLOCK;
            let contents = image.contents(node.slot, 0..len);
            let at = start_block as usize * BLOCK;
            hostile.bytes.resize(hostile.bytes.len().max(at + len), 0);
            hostile.bytes[at..at + len].copy_from_slice(&contents);
            set_place(&mut hostile, node.slot, start_block, node.part.len_blocks);
            let what = std::format!("height {height} at block {start_block}");
            assert_eq!(examined(&hostile), [FindingCode::DisputedBlocks], "{what}");
            let Repaired { noted, pairs, .. } = repaired(&hostile, &what);
            assert_eq!((noted.lost, noted.moved.len()), (0, 1), "{what}");
            assert!(pairs == expected && rescued(&hostile).1 == expected, "{what}");
        }
    }
}

/// A repair for which nobody has agreed to losses does not open it.
#[test]
fn without_consent_to_losses_it_is_refused() {
    let mut image = closed();
    let nodes = whole_nodes(&image);
    set_place(&mut image, nodes[1].slot, nodes[0].part.start_block, nodes[0].part.len_blocks);
    for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly, OpenMode::Repair] {
        let mut options = options();
        options.mode = mode;
        let Err(error) = Env::open(image.device(), options) else { panic!("{mode:?}: it was opened") };
        assert!(error.to_string().contains("in use already"), "{error}");
    }
}
