//! Each target takes its corpus, and a few inputs made of it.
#![allow(clippy::panic)]

use std::time::Duration;

use betrfs_fuzz::image::Image;
use betrfs_fuzz::run::{corpus, run, try_guarded};
use betrfs_fuzz::{TARGETS, headers, log, superblock, tables, volume};

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
    let same = |image: Image| {
        let places = 0..volume::VOLUME_BYTES as usize;
        assert!(image.bytes(places.clone()) == Image::sound().unwrap().bytes(places));
    };
    tables::examples().iter().for_each(|input| same(tables::forge(input).unwrap()));
    headers::examples().iter().for_each(|input| same(headers::forge(input).unwrap()));
    let (node, run) = image.runs().swap_remove(0);
    let mut changed = image.run(&node, &run);
    changed.reverse();
    let mut forged = image.clone();
    forged.put_run(&node, &run, &changed);
    assert_ne!(forged.header(&node), image.header(&node), "the run's checksum");
    assert_ne!(forged.page(0), image.page(0), "the header's checksum");
    assert_ne!(forged.directory(), image.directory(), "the page's checksum");
    assert!((0..4).any(|copy| forged.superblock(copy) != image.superblock(copy)), "the directory's checksum");
}
