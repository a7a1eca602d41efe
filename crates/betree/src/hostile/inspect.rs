//! `debug` shows a sound image whole, reports a flipped byte of each structure, and returns for every hostile
//! image.

use std::collections::BTreeSet;
use std::format;
use std::sync::Arc;
use std::vec::Vec;

use betree_platform::BLOCK_BYTES;
use seeded::Rng;

use super::image::Image;
use super::{BLOCKS, DICTS, GEOMETRY, key, open, options, sound};
use crate::batch::Batch;
use crate::check::{Finding, FindingCode, Place};
use crate::debug::{
    Change, Entries, Inspector, Kind, LogEnd, NodeId, Owned, Owner, Passed, PendingWhat, Step, Superblocks,
    superblocks,
};
use crate::env::Env;
use crate::error::Result;
use crate::format::node::RunRef;
use crate::io::mem::MemDevice;
use crate::message::PairCompression;
use crate::settings::DictId;

/// Everything that is shown of an image.
struct Shown {
    superblocks: Result<Superblocks>,
    /// The place and the number of records of each segment.
    segments: Vec<(u64, u64)>,
    puts: u64,
    end: Option<LogEnd>,
    /// Nodes with readable headers, and the number of their messages and pairs.
    nodes: Vec<(NodeId, u64)>,
    ways: Vec<Vec<Step>>,
    map: Vec<Owned>,
    findings: Vec<Finding>,
}

/// Looks at everything in an image.
fn inspect(image: &Image) -> Shown {
    let device: Arc<MemDevice> = image.device();
    let mut findings = Vec::new();
    let mut tell = |finding: Finding| findings.push(finding);
    let mut shown = Shown {
        superblocks: superblocks(device.clone(), &mut tell),
        segments: Vec::new(),
        puts: 0,
        end: None,
        nodes: Vec::new(),
        ways: Vec::new(),
        map: Vec::new(),
        findings: Vec::new(),
    };
    if let Ok(Superblocks { current: Ok(superblock), .. }) = &shown.superblocks {
        let mut segments = Vec::new();
        shown.end = crate::debug::log(
            device.clone(),
            superblock,
            &mut |segment| {
                let mut records = 0;
                let mut record = |record: &crate::debug::LogRecord<'_>| {
                    records += 1;
                    let is_put = |(_, change): &(DictId, Change<'_>)| matches!(change, Change::Put { .. });
                    shown.puts += record.changes().filter(is_put).count() as u64;
                };
                segment.each_record(&mut record, &mut |_| ());
                segments.push((segment.offset, records));
            },
            &mut tell,
        );
        shown.segments = segments;
    }
    if let Ok(inspector) = Inspector::open(device.clone(), options(), &mut |_| ()) {
        for id in inspector.ids() {
            let Some(node) = inspector.node(id, &mut tell) else { continue };
            let Some(header) = &node.header else { continue };
            let runs: Vec<&RunRef> = match &header.entries {
                Entries::Leaf(basements) => basements.iter().flat_map(|(_, runs)| runs).collect(),
                Entries::Interior(edges) => edges.iter().flat_map(|edge| &edge.partition).collect(),
            };
            let mut messages = 0;
            runs.into_iter()
                .for_each(|run| inspector.messages(&node, run, &mut |_| messages += 1, &mut tell));
            shown.nodes.push((id, messages));
        }
        for dict in (0..DICTS).map(DictId) {
            let way = |number| inspector.way(dict, &key(number), &mut tell);
            shown.ways.extend((0..264).step_by(33).map(way));
        }
        shown.map = inspector.map();
    }
    assert!(device.durable_bytes() == image.bytes, "it was changed");
    Shown { findings, ..shown }
}

/// For [`use_all`](super::use_all).
pub(super) fn look_at_all(image: &Image) {
    inspect(image);
}

/// The place of the one problem.
fn only_problem(shown: &Shown, code: FindingCode) -> Place {
    let all: BTreeSet<_> =
        shown.findings.iter().filter(|f| f.is_problem).map(|f| (f.code, f.place)).collect();
    assert_eq!(all.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [code], "{:?}", shown.findings);
    all.first().unwrap().1
}

fn flip(image: &Image, at: usize) -> Image {
    let mut flipped = image.clone();
    flipped.bytes[at] ^= 0x10;
    flipped
}

#[test]
fn a_sound_image_is_shown_whole() {
    let image = sound();
    let shown = inspect(&image);
    assert_eq!(shown.findings, []);
    let all = shown.superblocks.unwrap();
    let current = all.current.unwrap();
    assert_eq!(current, image.superblock());
    let generations: Vec<u64> =
        all.copies.iter().map(|copy| copy.found.as_ref().unwrap().generation).collect();
    let newest = current.generation;
    assert!(generations[0] == generations[1] && generations[2] == generations[3], "{generations:?}");
    assert_eq!(generations.iter().filter(|generation| **generation == newest).count(), 2);

    let places: Vec<u64> = image.segments().iter().map(|place| place.start as u64).collect();
    assert_eq!(shown.segments, [(places[0], 12), (places[1], 12)]);
    assert_eq!(shown.puts, 24);
    let end = shown.end.unwrap();
    assert_eq!((end.segments, end.torn, end.lost), (2, None, None));

    let slots: Vec<u32> = image.nodes().iter().map(|(slot, ..)| *slot).collect();
    assert_eq!(shown.nodes.iter().map(|(id, _)| id.slot).collect::<Vec<_>>(), slots);
    let messages: u64 = shown.nodes.iter().map(|(_, messages)| messages).sum();
    assert!(messages > 240, "{messages}");

    let mut next = 0;
    for Owned { blocks, .. } in &shown.map {
        assert_eq!(blocks.start_block, next);
        next += blocks.len_blocks;
    }
    assert_eq!(next, BLOCKS as u64);
    let nodes: BTreeSet<u32> = shown
        .map
        .iter()
        .filter_map(|o| if let Owner::Node(id) = o.owner { Some(id.slot) } else { None })
        .collect();
    assert_eq!(nodes.into_iter().collect::<Vec<_>>(), slots);
    assert!(shown.map.iter().any(|owned| owned.owner == Owner::Nobody));
}

/// The messages on the way of a key, newest first, make its value: of keys and of their clones.
#[test]
fn the_way_of_a_key_leads_down_to_its_value() {
    let image = sound();
    let inspector = Inspector::open(image.device(), options(), &mut |_| ()).unwrap();
    let clones = (0..240).filter(|number| number % 3 == 1).flat_map(|number| {
        let rest = key(number)[3..].to_vec();
        [49, 99, 149, 199].map(|clone| [format!("/c{clone}").as_bytes(), &rest].concat())
    });
    let keys: Vec<Vec<u8>> = (0..240).map(key).chain(clones).collect();
    let (mut in_leaf, mut gotos, mut values) = (0, 0, 0);
    for dict in (0..DICTS).map(DictId) {
        for key in &keys {
            let steps = inspector.way(dict, key, &mut |finding| panic!("{finding}"));
            for two in steps.windows(2) {
                let child = match &two[0].passed {
                    Some(Passed::Edge { child, .. }) => *child,
                    Some(Passed::Goto { target, .. }) => Some(*target),
                    other => panic!("{other:?}"),
                };
                assert!(child == Some(two[1].id) && two[0].height > two[1].height);
            }
            let all = || steps.iter().flat_map(|step| &step.pending);
            // A message above another is newer, and a pair is older than all messages.
            assert!(all().is_sorted_by(|newer, older| newer.msn > older.msn), "{steps:?}");
            let of_kind = |kinds: &[Kind]| {
                all().position(|p| matches!(p.what, PendingWhat::Point { kind, .. } if kinds.contains(&kind)))
            };
            let deleted = all().position(|p| matches!(p.what, PendingWhat::Range { .. }));
            let first = of_kind(&[Kind::Put(PairCompression::Usual), Kind::Upsert(PairCompression::Usual)]);
            let is_there = first.is_some_and(|first| deleted.is_none_or(|deleted| first < deleted));
            assert_eq!(inspector.get(dict, key).unwrap().is_some(), is_there, "{steps:?}");
            values += usize::from(is_there);
            gotos += steps.iter().filter(|step| matches!(step.passed, Some(Passed::Goto { .. }))).count();
            in_leaf += usize::from(matches!(steps.last().unwrap().passed, Some(Passed::Basement { .. })));
        }
    }
    assert!(in_leaf > 100 && values > 200 && gotos > 10, "{in_leaf} {values} {gotos}");
}

#[test]
fn messages_for_one_key_come_newest_first() {
    let device = MemDevice::new(BLOCKS);
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    let env = open(device.clone()).unwrap();
    for delta in [b"a", b"b", b"c"] {
        let mut batch = Batch::new();
        batch.upsert(DictId(0), b"k", delta);
        env.commit(&batch).unwrap();
    }
    env.close().unwrap();
    let inspector = Inspector::open(device, options(), &mut |_| ()).unwrap();
    let steps = inspector.way(DictId(0), b"k", &mut |finding| panic!("{finding}"));
    let numbers: Vec<u64> = steps[0].pending.iter().map(|pending| pending.msn).collect();
    assert_eq!(numbers, [3, 2, 1]);
}

#[test]
fn a_flipped_byte_is_reported_with_its_place_and_all_else_is_shown() {
    let image = sound().without_table_copy();
    let whole = inspect(&image);
    // A copy of the newest superblock.
    let newest = image.superblock().generation;
    let slot = if newest & 1 == 0 { 0 } else { 2 };
    let shown = inspect(&flip(&image, slot * BLOCK_BYTES + 600));
    assert!(
        shown.findings.iter().all(|f| f.place == Place::Superblock { offset: Some((slot * 4096) as u64) })
    );
    assert!(shown.superblocks.unwrap().copies[slot].found.is_err() && !shown.findings.is_empty());
    assert_eq!(shown.nodes, whole.nodes);

    let (slot, parts, _) = image.nodes()[5].clone();
    let at = parts[0].start_block as usize * BLOCK_BYTES;
    let shown = inspect(&flip(&image, at + 40));
    let place = only_problem(&shown, FindingCode::BadNode);
    assert!(matches!(place, Place::Node { slot: of, offset, .. } if of == slot && offset == Some(at as u64)));
    let others: Vec<_> = whole.nodes.iter().filter(|(id, _)| id.slot != slot).copied().collect();
    assert_eq!(shown.nodes, others);
    assert_eq!(shown.map, whole.map);

    let second = image.segments()[1].clone();
    let shown = inspect(&flip(&image, second.start + 200));
    assert_eq!(shown.end.unwrap().torn, Some(second.start as u64));
    assert_eq!(shown.segments, whole.segments[..1]);

    let directory = image.superblock().table.offset as usize;
    let shown = inspect(&flip(&image, directory + 20));
    assert!(shown.nodes.is_empty() && shown.segments == whole.segments);
    let mut findings = Vec::new();
    Inspector::open(flip(&image, directory + 20).device(), options(), &mut |f| findings.push(f)).unwrap();
    assert_eq!(findings[0].code, FindingCode::BadNodeTable);
    assert_eq!(findings[0].place.offset(), Some(directory as u64));
}

/// Damage in many places: nothing panics, and every call returns.
#[test]
fn images_with_many_flipped_bytes() {
    let image = sound();
    let blocks = image.bytes.chunks(BLOCK_BYTES).enumerate();
    let written: Vec<usize> =
        blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0)).map(|(at, _)| at).collect();
    let mut told = 0;
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut rotten = image.clone();
        for _ in 0..1 + rng.below(60) {
            let at = written[rng.below(written.len())] * BLOCK_BYTES + rng.below(BLOCK_BYTES);
            rotten.bytes[at] ^= 1 << rng.below(8);
        }
        let shown = inspect(&rotten);
        told += usize::from(!shown.findings.is_empty() || shown.superblocks.is_err());
    }
    assert!(told > 300, "{told} of 400 were told of");
}
