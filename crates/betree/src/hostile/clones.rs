//! Repairs of nodes with messages and clones that wait: what becomes of those beside and above what is lost.

use core::ops::ControlFlow;
use std::vec::Vec;

use betree_platform::BLOCK_BYTES;

use super::image::Image;
use super::open;
use super::repair::{DICT_AT, closed, of_several_pages, open_as, problems};
use crate::batch::Batch;
use crate::env::Env;
use crate::error::Error;
use crate::format::node::{Entries, StoredEdge};
use crate::key::Cut;
use crate::node_id::NodeId;
use crate::settings::{DictId, OpenMode};

const DICT: DictId = DictId(0);

/// A volume with clones that wait in the root of the first dictionary.
fn sample() -> Image {
    let device = of_several_pages().device();
    let env = open(device.clone()).unwrap();
    let mut batch = Batch::new();
    for (from, to) in [("/d0/k1", "/d2/y"), ("/d0/k2", "/d2/z"), ("/d2/k1", "/a"), ("/d2/k2", "/b")] {
        batch.clone_range(DICT, from.as_bytes(), to.as_bytes());
    }
    env.commit(&batch).unwrap();
    env.checkpoint().unwrap();
    env.abandon();
    Image { bytes: device.bytes() }.without_table_copy()
}

/// The edges of the root.
fn root(image: &Image) -> Vec<StoredEdge> {
    let header = image.header(image.superblock().dicts[usize::from(DICT.0)].slot);
    let Entries::Interior(edges) = header.entries else { panic!("it is an interior node") };
    edges
}

fn lose(image: &mut Image, id: NodeId) {
    let (_, parts, _) = image.nodes().into_iter().find(|(slot, ..)| *slot == id.slot).unwrap();
    image.bytes[parts[0].start_block as usize * BLOCK_BYTES + DICT_AT] ^= 0x40;
}

fn pairs_within(env: &Env, lo: &Cut, hi: &Cut) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = env.cursor(DICT, lo.clone(), hi.clone());
    let mut all = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        all.push((key.to_vec(), value.to_vec()));
    }
    all
}

/// The volume in memory, repaired.
fn repaired(image: &Image) -> Env {
    let env = open_as(&image.device(), OpenMode::Repair);
    assert!(env.note_damage().unwrap().lost > 0);
    env.mend_references(&mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(problems(&env), []);
    env
}

fn is_known_damage(env: &Env, key: &[u8]) -> bool {
    matches!(env.get(DICT, key), Err(Error::KnownDamage { .. }))
}

/// What stood there before the clone is no answer.
#[test]
fn a_clone_whose_source_is_lost_is_known_damage() {
    let image = sample();
    let sound = open_as(&image.device(), OpenMode::ReadOnly);
    let mut keys = 0;
    for goto in root(&image).iter().flat_map(|edge| &edge.gotos) {
        let mut hostile = image.clone();
        lose(&mut hostile, goto.target);
        let env = repaired(&hostile);
        for (key, _) in pairs_within(&sound, &goto.lo, &goto.hi) {
            keys += 1;
            assert!(is_known_damage(&env, &key), "{}", key.escape_ascii());
        }
    }
    assert!(keys > 10, "{keys}");
}

#[test]
fn a_clone_that_waits_above_a_lost_node_is_there() {
    let image = sample();
    let sound = open_as(&image.device(), OpenMode::ReadOnly);
    let mut keys = 0;
    for edge in root(&image) {
        let Some(child) = edge.child.filter(|_| !edge.gotos.is_empty()) else { continue };
        let mut hostile = image.clone();
        // With what is below it, so that it is not found again.
        if let Entries::Interior(below) = image.header(child.slot).entries {
            below.iter().filter_map(|edge| edge.child).for_each(|child| lose(&mut hostile, child));
        }
        lose(&mut hostile, child);
        let env = repaired(&hostile);
        for goto in edge.gotos.iter().filter(|goto| goto.target != child) {
            for (key, value) in pairs_within(&sound, &goto.lo, &goto.hi) {
                // Its own source may be among what is lost.
                keys += u32::from(env.get(DICT, &key) == Ok(Some(value)));
            }
        }
    }
    assert!(keys > 10, "{keys}");
}

/// Nobody can read what is below: it would take space for ever.
#[test]
fn what_lies_below_lost_messages_goes_with_them() {
    let image = closed();
    let sound = open_as(&image.device(), OpenMode::ReadOnly);
    let references = |id: NodeId| sound.engine.table.lock().references(id);
    let mut gone = 0;
    for (slot, ..) in image.nodes() {
        let header = image.header(slot);
        let Entries::Interior(edges) = &header.entries else { continue };
        for edge in edges.iter().filter(|edge| !edge.partition.is_empty() && references(header.id) > 0) {
            let Some(child) = edge.child.filter(|child| references(*child) == 1) else { continue };
            let at = edge.partition[0].offset as usize;
            let byte = image.contents(slot, at..at + 1)[0];
            let mut hostile = image.clone();
            hostile.set_contents(slot, at, &[byte ^ 1]);
            let env = repaired(&hostile);
            assert_eq!(env.engine.table.lock().references(child), 0, "{child:?}");
            gone += 1;
        }
    }
    assert!(gone > 0);
}
