//! Forged images, not damaged ones: each number of each structure is replaced, with a fitting checksum.
//! Opening, reading, checking and changing them may fail or not; but no call panics, runs for ever, or asks
//! for more memory than the volume's size.

mod claims;
mod clones;
mod findings;
mod image;
mod inspect;
mod repair;
mod second_copies;
mod table_claims;
mod undo;
mod versions;

use std::format;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

use crate::batch::Batch;
use crate::check::Finding;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::format::node::{Entries, Header, RunRef, StoredAs};
use crate::io::asked;
use crate::io::mem::MemDevice;
use crate::key::Cut;
use crate::settings::{Compression, DictId, Geometry, Options};
use crate::upsert::Upsert;
use image::{Image, Patch};

const DICTS: u8 = 2;
const GEOMETRY: Geometry =
    Geometry { node_bytes: 2048, basement_bytes: 512, fanout_max: 4, log_bytes: 256 << 10, dicts: DICTS };
const BLOCKS: usize = 320;
/// The replacements of numbers of four bytes.
const WORDS: [u32; 4] = [0, 1, 0x8000_0000, u32::MAX];
/// The replacements of numbers of eight bytes.
const LONG_WORDS: [u64; 3] = [0, 1 << 62, u64::MAX];
/// More pairs than any cursor of the sound volume returns.
const PAIRS_MAX: usize = 10_000;

struct Append;

impl Upsert for Append {
    fn name(&self) -> &str {
        "append 64"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        let all = [old.unwrap_or_default(), delta].concat();
        Some(all[all.len().saturating_sub(64)..].to_vec())
    }
}

fn options() -> Options {
    Options { compression: Compression::Lz4, ..Options::new(256 << 10, Arc::new(Append)) }
}

fn open(device: Arc<MemDevice>) -> Result<Env> {
    Env::open(device, options())
}

fn key(number: u32) -> Vec<u8> {
    format!("/d{}/k{number:03}", number % 3).into_bytes()
}

fn fill(env: &Env, numbers: core::ops::Range<u32>) {
    for number in numbers {
        let dict = DictId((number % u32::from(DICTS)) as u8);
        let mut batch = Batch::new();
        batch.put(dict, &key(number), &[number as u8; 60]);
        batch.upsert(dict, &key(number / 2), b"more");
        if number % 40 == 39 {
            batch.delete_range(dict, &Cut::before(key(number / 3)), &Cut::after(key(number / 3)));
        }
        if number % 50 == 49 {
            batch.clone_range(dict, b"/d1", format!("/c{number}").as_bytes());
        }
        env.commit(&batch).unwrap();
    }
}

/// A volume of a few levels, with records in the log.
fn sound() -> Image {
    let device = MemDevice::new(BLOCKS);
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    let env = open(device.clone()).unwrap();
    fill(&env, 0..240);
    while env.run_due_work().unwrap() {}
    env.checkpoint().unwrap();
    for numbers in [240..252, 252..264] {
        fill(&env, numbers);
        env.sync().unwrap();
    }
    Image { bytes: device.durable_bytes() }
}

/// Uses an image in every way. Returns whether any call reported a problem.
fn is_refused(image: &Image, what: &str) -> bool {
    asked::largest();
    let refused = use_all(image);
    let asked = asked::largest();
    assert!(asked <= image.bytes.len(), "{what}: a buffer of {asked} bytes");
    refused
}

fn use_all(image: &Image) -> bool {
    inspect::look_at_all(image);
    let Ok(env) = open(image.device()).map(Arc::new) else {
        look_at(image);
        return true;
    };
    let mut refused = false;
    for dict in (0..DICTS).map(DictId) {
        refused |= walk(&env, dict).is_err();
        for number in (0..264).step_by(7) {
            refused |= env.get(dict, &key(number)).is_err();
        }
        refused |= env.view().usage(dict, &Cut::LOW, &Cut::HIGH).is_err();
    }
    let mut tell = |finding: Finding| refused |= finding.into_problem().is_some();
    let checked = env.check(&mut tell, &mut |_, _| ());
    refused |= checked.is_err();
    for dict in (0..DICTS).map(DictId) {
        let mut batch = Batch::new();
        batch.put(dict, &key(500), b"new");
        batch.delete_range(dict, &Cut::before(*b"/d2"), &Cut::after(*b"/d2"));
        refused |= env.commit(&batch).is_err();
        let mut batch = Batch::new();
        batch.clone_range(dict, b"/d1", b"/e");
        refused |= env.commit(&batch).is_err();
    }
    let mut steps = 0;
    while let Ok(true) = env.run_due_work() {
        steps += 1;
        assert!(steps < 10_000, "background work does not end");
    }
    refused | env.sync().is_err() | env.close().is_err()
}

/// Checks and reads an image that cannot be opened.
fn look_at(image: &Image) {
    if let Ok(env) = Env::open_damaged(image.device(), options(), &mut |_| ()) {
        let _ = env.check(&mut |_| (), &mut |_, _| ());
        for dict in (0..DICTS).map(DictId) {
            let mut cursor = env.cursor(dict, Cut::LOW, Cut::HIGH);
            let mut pairs = 0;
            while cursor.next_past(&mut |_| ()).is_some() && pairs < PAIRS_MAX {
                pairs += 1;
            }
        }
    }
}

fn walk(env: &Env, dict: DictId) -> Result<()> {
    let mut cursor = env.cursor(dict, Cut::LOW, Cut::HIGH);
    let mut pairs = 0;
    while cursor.next()?.is_some() && pairs < PAIRS_MAX {
        pairs += 1;
    }
    while cursor.prev()?.is_some() && pairs < 2 * PAIRS_MAX {
        pairs += 1;
    }
    Ok(())
}

/// Replaces the number at every multiple of `step` in a structure of `len` bytes. Returns how many images
/// were refused, and how many were tried.
fn try_all(
    what: &str,
    len: usize,
    step: usize,
    image: &Image,
    patch: impl Fn(&mut Image, Patch<'_>),
) -> (usize, usize) {
    let (mut refused, mut all) = (0, 0);
    let mut attempt = |at: usize, number: &[u8]| {
        let mut hostile = image.clone();
        patch(&mut hostile, &|bytes: &mut [u8]| {
            if let Some(room) = bytes.get_mut(at..at + number.len()) {
                room.copy_from_slice(number);
            }
        });
        if hostile.bytes != image.bytes {
            all += 1;
            refused += usize::from(is_refused(&hostile, &format!("{what}: {number:x?} at {at}")));
        }
    };
    for at in (0..len).step_by(step) {
        for word in WORDS {
            attempt(at, &word.to_le_bytes());
        }
        if at % 8 == 0 || step == 1 {
            for word in LONG_WORDS {
                attempt(at, &word.to_le_bytes());
            }
        }
    }
    std::println!("{what}: {refused} of {all} were refused");
    (refused, all)
}

#[test]
fn a_sound_volume_is_not_refused() {
    let image = sound();
    assert!(image.segments().len() >= 2 && image.nodes().len() > 20);
    let heights: Vec<u8> = image.nodes().iter().map(|(slot, ..)| image.header(*slot).height).collect();
    assert!(heights.iter().max() >= Some(&2), "{heights:?}");
    assert!(!is_refused(&image, "sound"));
    let mut same = image.clone();
    same.patch_superblock(&|_| ());
    same.patch_directory(&|_| ());
    same.patch_page(0, &|_| ());
    image.nodes().iter().for_each(|(slot, ..)| same.patch_header(*slot, &|_| ()));
    image.segments().iter().for_each(|place| same.patch_segment(place, &|_| ()));
    assert!(same.bytes == image.bytes);
}

#[test]
fn every_number_of_the_superblock() {
    let image = sound();
    let (refused, all) = try_all("superblock", 1120, 4, &image, |image, patch| image.patch_superblock(patch));
    assert!(refused > all / 3);
}

/// A reader would show pairs of one dictionary in another.
#[test]
fn a_root_of_another_dictionary_is_refused() {
    let mut image = sound();
    let (roots, entry) = (136, 16);
    image.patch_superblock(&|bytes| bytes.copy_within(roots + entry..roots + entry + 8, roots));
    let Err(Error::Corrupt { why, .. }) = open(image.device()) else { panic!("it was opened") };
    assert_eq!(why, "it is of dictionary 1, and stands in dictionary 0");
}

#[test]
fn every_number_of_the_directory_and_of_pages() {
    let image = sound();
    let len = image.directory_len();
    let (refused, all) = try_all("directory", len, 4, &image, |image, patch| image.patch_directory(patch));
    assert!(refused > all / 2);
    // The head, and the slots of some nodes.
    let len = image.page_bytes(0).len().min(16 + 12 * 40);
    let (refused, all) = try_all("page", len, 4, &image, |image, patch| image.patch_page(0, patch));
    assert!(refused > all / 2);
}

#[test]
fn every_number_of_headers() {
    let image = sound();
    let mut heights = Vec::new();
    for (slot, _, len) in image.nodes() {
        let header = image.header(slot);
        let gotos = match &header.entries {
            Entries::Interior(edges) => edges.iter().any(|edge| !edge.gotos.is_empty()),
            Entries::Leaf(_) => false,
        };
        if heights.contains(&(header.height, gotos)) {
            continue;
        }
        heights.push((header.height, gotos));
        let what = format!("header of node {slot} of height {}", header.height);
        let (refused, all) = try_all(&what, len.min(424), 1, &image, |image, patch| {
            image.patch_header(slot, patch);
        });
        assert!(refused > all / 3);
    }
    assert!(heights.len() > 2, "{heights:?}");
}

/// Changes a run as it is stored, and its lengths and checksum in the header.
fn set_run(image: &mut Image, slot: u32, chosen: usize, raw: &[u8], stored_as: StoredAs) {
    let stored = match stored_as {
        StoredAs::Lz4 => lz4_flex::block::compress(raw),
        _ => raw.to_vec(),
    };
    change_run(image, slot, chosen, &stored, |run| {
        (run.stored_len, run.raw_len, run.stored_as) = (stored.len() as u32, raw.len() as u32, stored_as);
    });
}

fn change_run(image: &mut Image, slot: u32, chosen: usize, stored: &[u8], change: impl Fn(&mut RunRef)) {
    let mut header = image.header(slot);
    let mut all: Vec<&mut RunRef> = match &mut header.entries {
        Entries::Leaf(basements) => basements.iter_mut().flat_map(|(_, runs)| runs).collect(),
        Entries::Interior(edges) => edges.iter_mut().flat_map(|edge| &mut edge.partition).collect(),
    };
    let run = &mut *all[chosen];
    change(run);
    run.checksum = xxhash_rust::xxh3::xxh3_64(stored);
    let at = run.offset as usize;
    let header = Header::encode(&header);
    image.set_contents(slot, at, stored);
    image.patch_header(slot, &|bytes| bytes.copy_from_slice(&header));
}

/// Runs of nodes before compression: at least one of pairs and one of messages.
fn some_runs(image: &Image) -> Vec<(u32, usize, Vec<u8>)> {
    let mut found: Vec<(u8, u32, Vec<u8>)> = Vec::new();
    for (slot, ..) in image.nodes() {
        let header = image.header(slot);
        let runs: Vec<RunRef> = match &header.entries {
            Entries::Leaf(basements) => basements.iter().flat_map(|(_, runs)| runs.clone()).collect(),
            Entries::Interior(edges) => edges.iter().flat_map(|edge| edge.partition.clone()).collect(),
        };
        let is_new = !found.iter().any(|(height, ..)| *height == header.height);
        if let Some(run) = runs.first().filter(|_| is_new) {
            let stored = image.contents(slot, run.offset as usize..(run.offset + run.stored_len) as usize);
            let raw = match run.stored_as {
                StoredAs::Lz4 => lz4_flex::block::decompress(&stored, run.raw_len as usize).unwrap(),
                _ => stored,
            };
            found.push((header.height, slot, raw));
        }
    }
    found.into_iter().map(|(_, slot, raw)| (slot, 0, raw)).collect()
}

#[test]
fn every_number_of_runs() {
    let image = sound();
    let runs = some_runs(&image);
    assert!(runs.len() >= 2);
    for (slot, chosen, raw) in runs {
        // The first and the last bytes hold every field.
        let whole = raw.len();
        let fits = |raw: &[u8]| lz4_flex::block::compress(raw).len();
        let places: Vec<usize> = (0..whole.min(120)).chain(whole.saturating_sub(60)..whole).collect();
        let (mut refused, mut all) = (0, 0);
        for at in places {
            for word in WORDS {
                let mut patched = raw.clone();
                let Some(place) = patched.get_mut(at..at + 4) else { continue };
                place.copy_from_slice(&word.to_le_bytes());
                if fits(&patched) > whole {
                    continue;
                }
                let mut hostile = image.clone();
                set_run(&mut hostile, slot, chosen, &patched, StoredAs::Lz4);
                all += 1;
                let what = format!("run of node {slot}: {word:x} at {at}");
                refused += usize::from(is_refused(&hostile, &what));
            }
        }
        std::println!("run of node {slot}: {refused} of {all} were refused");
        assert!(all > 50 && refused > all / 2);
    }
}

#[test]
fn a_run_that_claims_255_times_its_length_gets_no_memory_beyond_the_limits_of_a_node() {
    let image = sound();
    let limit = image.limits().contents_bytes as usize;
    for (slot, chosen, _) in some_runs(&image) {
        let bomb = std::vec![0; 2 * limit];
        let stored = lz4_flex::block::compress(&bomb);
        let mut hostile = image.clone();
        set_run(&mut hostile, slot, chosen, &bomb, StoredAs::Lz4);
        asked::largest();
        assert!(use_all(&hostile), "{} bytes that are {}", stored.len(), bomb.len());
        // One read of this log may be as long as the whole log.
        let (asked, limit) = (asked::largest(), limit.max(GEOMETRY.log_bytes as usize));
        assert!(asked <= limit && limit < bomb.len(), "{asked} bytes, of {limit}");
    }
}

#[test]
fn every_number_of_the_log() {
    let image = sound();
    for place in image.segments() {
        let what = format!("segment at {}", place.start);
        // The header, two records' heads and a few of the changes in them.
        let (refused, all) = try_all(&what, 400.min(place.len()), 4, &image, |image, patch| {
            image.patch_segment(&place, patch);
        });
        assert!(refused > 0 && all > 100);
    }
}

/// The error of opening an image with a changed log.
fn opened(image: &Image) -> String {
    match open(image.device()) {
        Err(error @ Error::Corrupt { what: "log segment", .. }) => format!("{error}"),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was opened"),
    }
}

#[test]
fn sequence_numbers_that_no_volume_reaches_are_refused_with_their_place() {
    let image = sound();
    let first = image.segments()[0].clone();
    let (first_msn, header_first, header_last) = (80, 40, 48);
    for msn in [1u64 << 63, u64::MAX - 1, u64::MAX] {
        let mut hostile = image.clone();
        hostile.patch_segment(&first, &|bytes| {
            bytes[header_first..header_first + 8].copy_from_slice(&msn.to_le_bytes());
            bytes[header_last..header_last + 8].copy_from_slice(&u64::MAX.to_le_bytes());
            bytes[first_msn..first_msn + 8].copy_from_slice(&msn.to_le_bytes());
        });
        assert!(opened(&hostile).contains("its records do not match its header"));
    }
    // More changes than the record says, and fewer.
    for changes in [1u32, 3] {
        let mut hostile = image.clone();
        hostile.patch_segment(&first, &|bytes| bytes[88..92].copy_from_slice(&changes.to_le_bytes()));
        opened(&hostile);
    }
}
