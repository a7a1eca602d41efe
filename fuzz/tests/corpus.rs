//! Each target takes its corpus, and a few inputs made of it.
#![allow(clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use betree::debug::{Entries, Inspector, RunRef};
use betree::{Finding, FindingCode};
use betree_platform::BLOCK_BYTES;
use betree_sim::MemDevice;
use betrfs::Volume;
use betrfs_fuzz::runner::{corpus, run, try_guarded};
use betrfs_fuzz::structures::Image;
use betrfs_fuzz::volume::{CACHE_BYTES, VOLUME_BYTES, read_blocks};
use betrfs_fuzz::{TARGETS, header, log, page, superblock, volume};

const SEEDS: u64 = 60;

#[test]
fn every_target_takes_its_corpus_and_inputs_made_of_it() {
    for target in &TARGETS {
        let corpus = corpus(target).unwrap();
        assert!(corpus.len() >= 2, "{}", target.name);
        for (number, input) in corpus.iter().enumerate() {
            let what = format!("{} of the corpus of {}", number, target.name);
            if let Err(why) = try_guarded(target, input, &what) {
                panic!("{what}: {why}");
            }
        }
        match run(target, 0..SEEDS, Duration::MAX) {
            Ok(tried) => assert_eq!(tried, SEEDS),
            Err(what) => panic!("{what}"),
        }
    }
}

/// With a checksum that does not fit, nothing behind it would be reached.
#[test]
fn forged_structures_have_checksums_that_fit() {
    let whole = volume::batches(volume::sample().unwrap());
    assert!(whole > Some(1), "{whole:?}");
    // What the older generation names is partly written over.
    let opened = |input: &Vec<u8>| volume::batches(superblock::forge(input).unwrap());
    let opened: Vec<_> = superblock::examples().iter().map(opened).collect();
    assert!(opened.contains(&whole), "{opened:?}");
    let mut unknown = superblock::examples().pop().unwrap();
    unknown[0] ^= 1;
    let older = volume::batches(superblock::forge(&unknown).unwrap());
    assert_ne!(older, whole, "the newest superblock is another one");
    let last = log::examples().pop().unwrap();
    assert_eq!(volume::batches(log::forge(&last).unwrap()), whole);
    assert!(volume::batches(log::forge(&[]).unwrap()) < whole, "the last segment is another one");
}

#[test]
fn the_sound_volume_is_sound_and_has_a_log() {
    assert_eq!(volume::use_all(volume::sample().unwrap()), Ok(()));
    assert!(log::examples().len() >= 2);
    assert!(betrfs_fuzz::pairs::examples().len() >= 10);
}

#[test]
fn forged_nodes_have_checksums_that_fit() {
    let image = Image::sound().unwrap();
    let heights: Vec<u8> = image.nodes.iter().map(|node| image.header(node)[37]).collect();
    assert!(heights.iter().max() >= Some(&2), "{heights:?}");
    let same = |device: MemDevice| {
        let all = read_blocks(&device, 0, VOLUME_BYTES as usize / BLOCK_BYTES);
        assert!(all == Image::sound().unwrap().bytes(0..VOLUME_BYTES as usize));
    };
    page::examples().iter().for_each(|input| same(page::forge(input).unwrap()));
    header::examples().iter().for_each(|input| same(header::forge(input).unwrap()));
    for (node, run) in image.runs() {
        let (mut forged, mut raw) = (image.clone(), image.run(&node, &run));
        let middle = raw.len() / 2;
        let Some(byte) = raw.get_mut(middle) else { continue };
        *byte ^= 1;
        forged.put_run(&node, &run, &raw);
        assert_ne!(forged.header(&node), image.header(&node));
        let told = checksums_told(forged.device().unwrap()).unwrap();
        assert_eq!(told, Vec::<String>::new(), "a run of the node in slot {}", node.slot);
    }
}

/// What does not match its checksum, but for second copies, which were not forged.
fn checksums_told(device: MemDevice) -> betree::Result<Vec<String>> {
    let mut told = Vec::new();
    let mut tell = |found: Finding| {
        if found.code != FindingCode::BadCopy && found.what.contains("checksum") {
            told.push(found.what);
        }
    };
    let volume = Inspector::open(Arc::new(device), Volume::engine_options(CACHE_BYTES), &mut tell)?;
    for id in volume.ids() {
        let Some(node) = volume.node(id, &mut tell) else { continue };
        let runs: Vec<RunRef> = match node.header.as_ref().map(|header| &header.entries) {
            Some(Entries::Leaf(basements)) => basements.iter().flat_map(|(_, runs)| runs.clone()).collect(),
            Some(Entries::Interior(edges)) => edges.iter().flat_map(|edge| edge.partition.clone()).collect(),
            None => Vec::new(),
        };
        runs.iter().for_each(|run| volume.messages(&node, run, &mut |_| (), &mut tell));
    }
    Ok(told)
}
