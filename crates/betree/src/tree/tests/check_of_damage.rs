//! Volumes with damage at several places at once: the check reports each, and everything else can be read.

use alloc::collections::BTreeMap;

use betree_platform::BLOCK_BYTES;

use seeded::Rng;

use super::*;
use crate::check::Finding;
use crate::error::Error;
use crate::format::table::{Entries, StoredPage};
use crate::key::Cut;
use crate::tree::Unreadable;

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// The places on the device: each node's header and pieces, each page of the node table, and its directory.
struct Places {
    headers: Vec<u64>,
    basements: Vec<u64>,
    partitions: Vec<u64>,
    pages: Vec<u64>,
    /// The second copies of the pages.
    copies: Vec<u64>,
    directory: u64,
    directory_copy: u64,
}

fn places(device: &Arc<MemDevice>) -> Places {
    let env = open(device);
    env.close().unwrap();
    let tree = tree(&env);
    let mut found = Places {
        headers: Vec::new(),
        basements: Vec::new(),
        partitions: Vec::new(),
        pages: Vec::new(),
        copies: Vec::new(),
        directory: 0,
        directory_copy: 0,
    };
    let mut stack = Vec::from([tree.dict.state.read().root]);
    let mut seen = HashSet::new();
    while let Some(id) = stack.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = tree.node(id).unwrap();
        let place = tree.table.lock().place(id).unwrap();
        found.headers.push(place.extent.place(0));
        let kind = if node.height == 0 { &mut found.basements } else { &mut found.partitions };
        for piece in node.pieces() {
            let stored = piece.stored().unwrap();
            kind.extend(stored.runs.iter().map(|run| stored.extent.place(run.offset.into())));
        }
        stack.extend(node.references());
    }
    let table = tree.table.lock();
    let places_in = |directory: Entries<StoredPage>| -> Vec<u64> {
        directory.entries.iter().map(|page| page.start_block.get() * BLOCK_BYTES as u64).collect()
    };
    (found.pages, found.copies) = (places_in(table.directory()), places_in(table.directory_of_copies()));
    let committed = env.checkpoint.lock();
    found.directory = committed.directory.as_ref().unwrap().place(0);
    found.directory_copy = committed.directory_copy.as_ref().unwrap().place(0);
    found
}

/// Flips a bit at each of the places.
fn smash(device: &MemDevice, places: &[u64]) {
    places.iter().for_each(|at| device.flip(*at as usize * 8 + 3));
}

/// The findings of a check, and the volume, opened if it can be.
fn examine(device: &Arc<MemDevice>) -> (Env, Vec<Finding>) {
    let mut told = Vec::new();
    let options = || Options::new(8 << 20, Arc::new(Append));
    let before = device.bytes();
    let env = match Env::open(device.clone(), options()) {
        Ok(env) => env,
        Err(_) => {
            let device = MemDevice::holding(before.clone());
            let env = Env::open_damaged(device.clone(), options(), &mut |found| told.push(found)).unwrap();
            env.check(&mut |found| told.push(found), &mut |_, _| ()).unwrap();
            assert!(device.bytes() == before, "a volume that cannot be opened is not changed");
            return (env, told);
        }
    };
    env.check(&mut |found| told.push(found), &mut |_, _| ()).unwrap();
    (env, told)
}

fn sentences(told: &[Finding]) -> Vec<String> {
    told.iter().cloned().filter_map(Finding::into_problem).collect()
}

/// Scans everything and skips unreadable ranges. Returns the pairs found, and the ranges skipped.
fn scan_past(env: &Env) -> (Pairs, Vec<Unreadable>) {
    let (mut found, mut gaps) = (Pairs::new(), Vec::new());
    let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
    while let Some((key, value)) = cursor.next_past(&mut |gap| gaps.push(gap)) {
        found.insert(key.to_vec(), value.to_vec());
    }
    (found, gaps)
}

/// A scan returns the keys that point queries return, and skips those that they cannot read (except newer
/// messages above them); each of its errors is among the findings of the check.
fn assert_scan_agrees(env: &Env, told: &[Finding], keys: &[Vec<u8>], seed: &str) {
    let (found, gaps) = scan_past(env);
    let is_told = |error: &Error| told.iter().any(|found| found.hides.as_ref() == Some(error));
    for gap in &gaps {
        assert!(gap.lo < gap.hi && !gap.errors.is_empty(), "{seed}: {gap:?}");
        assert!(gap.errors.iter().all(is_told), "{seed}: {gap:?}: {told:?}");
    }
    for key in keys {
        let is_passed = gaps.iter().any(|gap| !gap.lo.is_above(key) && gap.hi.is_above(key));
        match env.get(D, key) {
            Ok(value) => assert!(is_passed || found.get(key) == value.as_ref(), "{seed}: key {key:?}"),
            Err(error) => assert!(is_passed && !found.contains_key(key), "{seed}: key {key:?}: {error}"),
        }
    }
}

/// A volume with enough nodes for a node table of several pages; the keys of `k0` are under `c` too.
fn volume_with_clone() -> (Arc<MemDevice>, Vec<Vec<u8>>) {
    let device = formatted(&Geometry { node_bytes: 2048, basement_bytes: 512, ..GEOMETRY });
    let env = open(&device);
    for number in 0..KEYS {
        put(&env, &key(number * 769 % KEYS), &value(number));
    }
    let mut batch = Batch::new();
    batch.clone_range(D, b"k0", b"c");
    env.commit(&batch).unwrap();
    put(&env, b"c500", b"another");
    env.close().unwrap();
    let copies = (0..1000).map(|number| format!("c{number:03}").into_bytes());
    (device, (0..KEYS).map(key).chain(copies).collect())
}

#[test]
fn each_of_several_damaged_places_is_reported_once() {
    let device = volume();
    let at = places(&device);
    assert!(at.headers.len() > 20 && at.basements.len() > 100 && at.partitions.len() > 4);
    // The last headers are those of leaves: the walk goes on past them.
    let header = *at.headers.last().unwrap();
    let basements = [at.basements[0], at.basements[at.basements.len() / 2]];
    let smashed = [4096, header, basements[0], basements[1], at.partitions[2]];
    smash(&device, &smashed);
    let (env, told) = examine(&device);
    let sentences = sentences(&told);
    for place in smashed {
        let is_named = |sentence: &&String| sentence.contains(&format!(" byte {place} "));
        assert_eq!(sentences.iter().filter(is_named).count(), 1, "byte {place}: {sentences:?}");
    }
    assert_eq!(sentences.len(), smashed.len(), "{sentences:?}");
    assert_scan_agrees(&env, &told, &(0..KEYS).map(key).collect::<Vec<_>>(), "several");
    // Each place except the superblock hides a part of the keys.
    let (_, gaps) = scan_past(&env);
    let blamed: HashSet<String> =
        gaps.iter().flat_map(|gap| &gap.errors).map(|error| format!("{error}")).collect();
    assert_eq!(blamed.len(), 4, "{blamed:?}");
}

#[test]
fn a_volume_that_cannot_be_opened_is_checked_as_far_as_it_is_readable() {
    let (device, keys) = volume_with_clone();
    let at = places(&device);
    assert!(at.pages.len() > 1, "the table has {} pages", at.pages.len());
    for (smashed, least) in [
        (Vec::from([at.pages[1], at.copies[1], at.basements[1], at.partitions[0]]), 1),
        (Vec::from([at.headers[0], 8192]), 2),
        (Vec::from([at.directory, at.directory_copy, 0, 8192]), 3),
        (Vec::from([0, 4096, at.basements[1]]), 3),
    ] {
        let device = MemDevice::holding(device.bytes());
        smash(&device, &smashed);
        let (env, told) = examine(&device);
        let sentences = sentences(&told);
        let is_named = |place: &&u64| sentences.iter().any(|s| s.contains(&format!(" byte {place} ")));
        assert!(is_named(&&smashed[0]), "{smashed:?}: {sentences:?}");
        assert!(smashed.iter().filter(is_named).count() >= least, "{smashed:?}: {sentences:?}");
        assert!(!sentences.iter().any(|s| s.contains("references")), "{sentences:?}");
        assert_scan_agrees(&env, &told, &keys, &format!("{smashed:?}"));
        assert!(matches!(env.close(), Err(Error::ReadOnly { .. })));
    }
}

#[test]
fn a_scan_skips_unreadable_keys_and_no_others() {
    let (device, keys) = volume_with_clone();
    let at = places(&device);
    let all: Vec<u64> =
        [&at.headers, &at.basements, &at.partitions, &at.pages].into_iter().flatten().copied().collect();
    let mut rng = Rng::new(1);
    let mut below = |end: usize| rng.below(end);
    let mut unopened = 0;
    for round in 0..60 {
        let device = MemDevice::holding(device.bytes());
        let mut smashed: Vec<u64> = (0..1 + round % 6).map(|_| all[below(all.len())]).collect();
        if round % 4 == 0 {
            // Both copies.
            let page = below(at.pages.len());
            smashed.retain(|place| *place != at.pages[page]);
            smashed.extend([at.pages[page], at.copies[page]]);
        }
        smash(&device, &smashed);
        let (env, told) = examine(&device);
        unopened += usize::from(env.opened.is_damaged);
        assert!(!sentences(&told).is_empty(), "{smashed:?}");
        assert_scan_agrees(&env, &told, &keys, &format!("round {round}, {smashed:?}"));
    }
    assert!(unopened > 0 && unopened < 60, "{unopened} could not be opened");
}
