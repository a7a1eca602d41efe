//! Nodes with two copies, of which parts are bad or belong to others: nothing is lost that one of them has.

use std::ops::ControlFlow;
use std::string::String;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use super::claims::{Pairs, readable, rescued, set_slot, slot, whole_nodes};
use super::findings::{Teller, assert_is_usable, assert_undone, codes, repaired, told};
use super::image::Image;
use super::open;
use super::repair::{closed_with_node_copies, open_as, pairs};
use crate::check::{FindingCode as Code, OnDamage, ScrubFrom, ScrubOptions};
use crate::format::node::{Entries, RunRef};
use crate::format::superblock::features::Features;
use crate::settings::OpenMode;
use crate::space::BlockRange;

const BLOCK: usize = betree_platform::BLOCK_BYTES;

/// A node with two copies, each in one part.
struct Copied {
    slot: u32,
    halves: [BlockRange; 2],
}

fn copied(image: &Image) -> Vec<Copied> {
    let halves = |(number, parts, _): (u32, Vec<BlockRange>, usize)| {
        let stored = slot(image, number);
        let is_whole = stored.copied == 1 && stored.references.get() > 0 && parts.len() == 2;
        is_whole.then(|| Copied { slot: number, halves: [parts[0], parts[1]] })
    };
    let all: Vec<_> = image.nodes().into_iter().filter_map(halves).collect();
    assert!(all.len() > 2, "{} nodes", all.len());
    all
}

fn all_pairs(image: &Image) -> Pairs {
    pairs(&open_as(&image.device(), OpenMode::ReadOnly))
}

/// What can be read.
fn left_in(image: &Image) -> Pairs {
    readable(&open_as(&image.device(), OpenMode::ReadOnly))
}

/// A volume in which a node is lost, whatever copies it has.
fn without_header(image: &Image, slot: u32) -> Image {
    let mut image = image.clone();
    set_slot(&mut image, slot, |stored| stored.header_checksum = 0.into());
    image
}

/// Names and first blocks of what a half may be said to be at.
fn rivals(image: &Image, of: &Copied) -> Vec<(String, u64)> {
    let blocks = image.bytes.len() as u64 / BLOCK as u64;
    let table = image.superblock().table.parts()[0].start_block;
    let mut all = vec![
        ("a superblock".into(), 0),
        ("the log".into(), image.superblock().log_offset / BLOCK as u64),
        ("the directory".into(), table),
        ("a page".into(), image.page_start(0)),
        ("the last block and behind".into(), blocks - 1 + u64::from(of.halves[0].len_blocks == 1)),
        ("behind the end".into(), blocks + 9),
        ("its first copy".into(), of.halves[0].start_block),
        ("its second copy".into(), of.halves[1].start_block),
    ];
    let nodes = image.nodes().into_iter().filter(|(number, ..)| *number != of.slot);
    let nodes =
        nodes.step_by(11).map(|(number, parts, _)| (std::format!("node {number}"), parts[0].start_block));
    all.extend(nodes);
    all
}

#[test]
fn a_half_that_others_claim_takes_nothing_away() {
    let image = closed_with_node_copies();
    let expected = all_pairs(&image);
    let (mut refused, mut opened, mut tried) = (0, 0, 0);
    for node in copied(&image) {
        for (side, (rival, start_block)) in
            (0..2).flat_map(|side| rivals(&image, &node).into_iter().map(move |rival| (side, rival)))
        {
            let mut halves = node.halves;
            if halves[side].start_block == start_block {
                continue;
            }
            let what = std::format!("half {side} of the node in slot {} is at {rival}", node.slot);
            halves[side].start_block = start_block;
            let mut hostile = image.clone();
            hostile.set_parts(node.slot, &halves);
            let found = codes(&told(Teller::Check, &hostile));
            assert!(found.values().any(|is_problem| *is_problem), "{what}");
            assert!(!found.contains_key(&Code::BadNode), "{what}: {found:?}");
            assert!(rescued(&hostile).1 == expected, "{what}");
            let device = hostile.device();
            match open(device.clone()) {
                // It is written anew without the half that is none, or with another one.
                Ok(env) => {
                    assert!(pairs(&env) == expected, "{what}");
                    env.close().unwrap();
                    drop(env);
                    let after = Image { bytes: device.bytes() };
                    assert_eq!(told(Teller::Check, &after), [], "{what}");
                    opened += 1;
                }
                Err(_) => refused += 1,
            }
            let after = repaired(&hostile, true);
            assert_eq!(told(Teller::Check, &after), [], "{what}");
            assert_eq!(after.superblock().features.incompat & Features::KNOWN_DAMAGE, 0, "{what}");
            assert!(all_pairs(&after) == expected, "{what}");
            tried += 1;
            if tried % 7 == 0 {
                assert_is_usable(&after);
                assert_undone(&after, &hostile);
            }
        }
    }
    std::println!("{refused} were refused, {opened} were opened");
    assert!(refused > 10 && opened > 10);
}

/// As one without a second copy.
#[test]
fn a_node_whose_halves_both_belong_to_others_is_lost() {
    let image = closed_with_node_copies();
    for node in copied(&image) {
        let len_blocks = node.halves[0].len_blocks;
        let others = whole_nodes(&image).into_iter().filter(|other| other.slot != node.slot);
        let others: Vec<u64> = others
            .filter(|other| other.part.len_blocks >= len_blocks)
            .map(|other| other.part.start_block)
            .collect();
        let half = |start_block: u64| BlockRange { start_block, len_blocks };
        let mut hostile = image.clone();
        hostile.set_parts(node.slot, &[half(others[0]), half(others[others.len() - 1])]);
        let without = without_header(&image, node.slot);
        let [hostile_after, without_after] = [&hostile, &without].map(|image| repaired(image, true));
        assert!(left_in(&hostile_after) == left_in(&without_after), "slot {}", node.slot);
        let mut found = codes(&told(Teller::Check, &hostile_after));
        found.remove(&Code::KnownDamage);
        assert!(found.is_empty(), "slot {}: {found:?}", node.slot);
        assert_is_usable(&hostile_after);
        assert_undone(&hostile_after, &hostile);
    }
}

/// With a second copy of a leaf, which no version writes and each one reads.
fn with_copied_leaf(image: &Image) -> (Image, Copied) {
    let mut image = image.clone();
    let leaf = whole_nodes(&image).into_iter().find(|node| node.height == 0).unwrap();
    let env = open_as(&image.device(), OpenMode::ReadOnly);
    let mut free = env.engine.store.space.free_ranges().into_iter();
    let free = free.rfind(|range| range.len_blocks >= leaf.part.len_blocks).unwrap();
    let copy = BlockRange { start_block: free.start_block, len_blocks: leaf.part.len_blocks };
    let bytes = image.contents(leaf.slot, 0..leaf.part.len_blocks as usize * BLOCK);
    let at = copy.start_block as usize * BLOCK;
    image.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
    image.set_parts(leaf.slot, &[leaf.part, copy]);
    set_slot(&mut image, leaf.slot, |stored| stored.copied = 1);
    (image, Copied { slot: leaf.slot, halves: [leaf.part, copy] })
}

/// The runs of a node, in the order of its header.
fn runs_of(image: &Image, slot: u32) -> Vec<RunRef> {
    match image.header(slot).entries {
        Entries::Leaf(basements) => basements.into_iter().flat_map(|(_, runs)| runs).collect(),
        Entries::Interior(edges) => edges.into_iter().flat_map(|edge| edge.partition).collect(),
    }
}

/// A byte of the header and one of each run, counted from the start of the node.
fn bytes_of_parts(image: &Image, slot: u32) -> Vec<usize> {
    let runs = runs_of(image, slot).into_iter();
    core::iter::once(20).chain(runs.map(|run| (run.offset + run.stored_len) as usize - 1)).collect()
}

/// With these bytes of halves changed.
fn damaged(image: &Image, bytes: &[(BlockRange, usize)]) -> Image {
    let mut image = image.clone();
    for (half, at) in bytes {
        image.bytes[half.start_block as usize * BLOCK + at] ^= 0x10;
    }
    image
}

/// Each part of a node with copies, and each half.
fn cases() -> Vec<(Image, Copied, Vec<usize>)> {
    let image = closed_with_node_copies();
    let (with_leaf, leaf) = with_copied_leaf(&image);
    let of_leaf = bytes_of_parts(&with_leaf, leaf.slot);
    let has_runs = |node: &Copied| !runs_of(&image, node.slot).is_empty();
    let interior = copied(&image).into_iter().find(has_runs).unwrap();
    let of_interior = bytes_of_parts(&image, interior.slot);
    assert!(of_leaf.len() > 2 && of_interior.len() > 1);
    vec![(with_leaf, leaf, of_leaf), (image, interior, of_interior)]
}

/// Closes a volume that was read whole, after a scrub that may mend.
fn scrubbed(image: &Image) -> (Vec<Code>, Image) {
    let device = image.device();
    let env = Arc::new(open(device.clone()).unwrap());
    let options = ScrubOptions { from: ScrubFrom::Start, on_damage: OnDamage::Mend };
    let mut found = Vec::new();
    env.scrub(options, &mut |one| found.push(one.code), &mut |_| ControlFlow::Continue(())).unwrap();
    env.close().unwrap();
    drop(env);
    (found, Image { bytes: device.bytes() })
}

#[test]
fn each_part_of_one_half_is_taken_from_the_other_and_mended() {
    for (image, node, parts) in cases() {
        let expected = all_pairs(&image);
        for (side, at) in (0..2).flat_map(|side| parts.iter().map(move |at| (side, *at))) {
            let what = std::format!("byte {at} of half {side} of slot {}", node.slot);
            let hostile = damaged(&image, &[(node.halves[side], at)]);
            let found = told(Teller::Check, &hostile);
            assert!(
                !found.is_empty() && found.iter().all(|one| one.code == Code::BadNodeCopy),
                "{what}: {found:?}"
            );
            let half_at = node.halves[side].start_block * BLOCK as u64;
            let half = half_at..half_at + node.halves[side].len_blocks * BLOCK as u64;
            assert!(found.iter().all(|one| half.contains(&one.place.offset().unwrap())), "{what}: {found:?}");
            assert!(rescued(&hostile) == (vec![], expected.clone()), "{what}");
            {
                let env = open_as(&hostile.device(), OpenMode::ReadOnly);
                assert!(pairs(&env) == expected, "{what}");
                assert_eq!(env.stats().copies_used > 0, side == 0, "{what}");
            }
            let (codes, after) = scrubbed(&hostile);
            assert!(codes == [Code::BadNodeCopy] && all_pairs(&after) == expected, "{what}: {codes:?}");
            assert_eq!(told(Teller::Check, &after), [], "{what}");
            let after = repaired(&hostile, false);
            assert!(told(Teller::Check, &after).is_empty() && all_pairs(&after) == expected, "{what}");
            assert_is_usable(&after);
            assert_undone(&after, &hostile);
        }
    }
}

/// Each half is bad in another part.
#[test]
fn two_halves_make_a_whole() {
    for (image, node, parts) in cases() {
        let expected = all_pairs(&image);
        let [first, second] = node.halves;
        for (at, other) in parts.iter().zip(parts.iter().skip(1)).flat_map(|(a, b)| [(*a, *b), (*b, *a)]) {
            let what = std::format!("bytes {at} and {other} of slot {}", node.slot);
            let hostile = damaged(&image, &[(first, at), (second, other)]);
            assert!(all_pairs(&hostile) == expected && rescued(&hostile).1 == expected, "{what}");
            for after in [scrubbed(&hostile).1, repaired(&hostile, false)] {
                assert!(told(Teller::Check, &after).is_empty() && all_pairs(&after) == expected, "{what}");
            }
        }
    }
}

/// The first copy rots and is mended, then the second one of the new version.
#[test]
fn a_half_that_rots_after_the_other_was_mended_takes_nothing_away() {
    let image = closed_with_node_copies();
    let expected = all_pairs(&image);
    let mut node = copied(&image).into_iter().next().unwrap();
    let mut image = image;
    for side in [0, 1, 0] {
        let hostile = damaged(&image, &[(node.halves[side], 20)]);
        let (codes, after) = scrubbed(&hostile);
        assert_eq!(codes, [Code::BadNodeCopy]);
        let moved = copied(&after).into_iter().find(|other| other.slot == node.slot).unwrap();
        let taken = moved.halves.iter().any(|half| node.halves.contains(half));
        assert!(!taken, "a bad block may be bad again");
        assert!(told(Teller::Check, &after).is_empty() && all_pairs(&after) == expected);
        (image, node) = (after, moved);
    }
}

/// A part that is bad in both halves is lost as one without a copy, and nothing makes that worse.
#[test]
fn what_is_bad_in_both_halves_is_lost() {
    for (image, node, parts) in cases() {
        let expected = all_pairs(&image);
        for at in parts {
            let what = std::format!("byte {at} of slot {}", node.slot);
            let hostile = damaged(&image, &node.halves.map(|half| (half, at)));
            let code = if at == 20 { Code::BadNode } else { Code::BadPiece };
            let found = codes(&told(Teller::Check, &hostile));
            assert!(found.get(&code) == Some(&true), "{what}: {found:?}");
            // Below a lost interior node, what waited in it is lost.
            let left = rescued(&hostile).1;
            match code {
                Code::BadNode => assert!(left == rescued(&without_header(&image, node.slot)).1, "{what}"),
                _ => assert!(left.iter().all(|pair| expected.contains(pair)), "{what}"),
            }
            if open(hostile.device()).is_ok() {
                let (_, after) = scrubbed(&hostile);
                assert_eq!(codes(&told(Teller::Check, &after)), found, "{what}");
            }
            let after = repaired(&hostile, true);
            let mut found = codes(&told(Teller::Check, &after));
            // The nodes below an interior one may be found again.
            found.remove(&Code::KnownDamage);
            assert!(found.is_empty(), "{what}: {found:?}");
            assert_is_usable(&after);
            assert_undone(&after, &hostile);
        }
    }
}

/// The flag of a slot says that a node has two copies, or has not. What it hides may be lost, and no more.
#[test]
fn a_wrong_flag_of_copies_loses_what_is_below_alone() {
    let image = closed_with_node_copies();
    let expected = all_pairs(&image);
    let slots: Vec<u32> = image.nodes().into_iter().map(|(number, ..)| number).collect();
    let (mut tried, mut kept) = (0, 0);
    for number in slots.into_iter().filter(|number| slot(&image, *number).references.get() > 0) {
        for flag in [0, 1, 2, u8::MAX].into_iter().filter(|flag| *flag != slot(&image, number).copied) {
            let what = std::format!("flag {flag} of slot {number}");
            let mut hostile = image.clone();
            set_slot(&mut hostile, number, |stored| stored.copied = flag);
            let found = codes(&told(Teller::Check, &hostile));
            assert!(found.values().any(|is_problem| *is_problem), "{what}");
            let after = repaired(&hostile, true);
            let mut found = codes(&told(Teller::Check, &after));
            found.remove(&Code::KnownDamage);
            assert!(found.is_empty(), "{what}: {found:?}");
            let left = left_in(&after);
            if left == expected {
                kept += 1;
            } else {
                let without = repaired(&without_header(&image, number), true);
                assert!(left == left_in(&without), "{what}");
            }
            tried += 1;
            if tried % 10 == 0 {
                assert_is_usable(&after);
                assert_undone(&after, &hostile);
            }
        }
    }
    std::println!("{kept} of {tried} have lost nothing");
    assert!(tried > 60 && kept > 0 && kept < tried);
}
