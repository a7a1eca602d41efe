//! Law: a flipped bit on the medium is reported with its place, or does no harm; it is never a panic, an
//! endless loop, or wrong data without an error.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use betree::Geometry;
use betree_platform::{BLOCK_BYTES, Device};
use betree_sim::harness::{guarded, seeds};
use betree_sim::{Failure, Generator, History, MemDevice, Mix, ModelEnv, Rng, Runner, Setup, Step, open_env};

const SECTOR_BYTES: usize = 512;
/// Nodes of one or two blocks.
const TINY: Setup = Setup {
    geometry: Geometry {
        node_bytes: 2048,
        basement_bytes: 512,
        fanout_max: 6,
        log_bytes: 64 << 10,
        dicts: 2,
    },
    cache_bytes: 64 << 10,
    volume_bytes: 4 << 20,
    seeks: true,
};
/// Nodes of many blocks, of which unchanged ones are kept: extents in several parts, partitions in several
/// runs.
const IN_PARTS: Setup = Setup {
    geometry: Geometry { node_bytes: 16 << 10, basement_bytes: 2048, log_bytes: 256 << 10, ..TINY.geometry },
    volume_bytes: 8 << 20,
    seeks: false,
    ..TINY
};
const MIX: Mix = Mix {
    commit: 80,
    get: 0,
    walk: 0,
    ingest: 0,
    compact: 0,
    sync: 5,
    checkpoint: 2,
    views: 0,
    transactions: 0,
    backup: 0,
    freeze: 0,
    pump: 20,
    check: 0,
    reopen: 0,
    abandon: 0,
    expiry: 0,
    grow: 0,
};

/// A volume with some hundred keys, and its history.
fn volume(setup: Setup, seed: u64, is_closed: bool) -> (MemDevice, History) {
    let device = Arc::new(MemDevice::new(setup.volume_bytes).which_seeks(setup.seeks));
    let told = |e: Failure| -> ! { panic!("seed {seed}: {e}") };
    let mut runner =
        Runner::format(Arc::clone(&device) as Arc<dyn Device>, setup).unwrap_or_else(|e| told(e));
    let mut history = History::of(ModelEnv::new(setup.geometry.dicts));
    let mut generator = Generator::new(Rng::new(seed), setup.geometry.dicts, MIX);
    if !setup.seeks {
        generator = generator.of_long_values();
    }
    let mut steps = generator.steps(250);
    steps.push(Step::Sync);
    for step in &steps {
        match step {
            Step::Commit(changes) => {
                history.attempt(changes);
                history.accepted();
            }
            // A sync into the log does not count: rot may take the log's end away.
            Step::Checkpoint => history.synced(),
            _ => {}
        }
        runner.step(step).unwrap_or_else(|e| told(e));
    }
    let kept_bytes = runner.env().unwrap_or_else(|e| told(e)).stats().kept_bytes;
    assert!(setup.seeks || kept_bytes > 100 << 10, "{kept_bytes} bytes of nodes stayed where they were");
    if is_closed {
        runner.env().and_then(|env| Ok(env.close()?)).unwrap_or_else(|e| told(e));
        history.synced();
    }
    drop(runner);
    (device.copy(), history)
}

/// Opens, reads and checks a rotten volume; returns whether the rot was reported.
fn examine(setup: Setup, device: MemDevice, history: &History) -> Result<bool, String> {
    let device: Arc<dyn Device> = Arc::new(device);
    let Ok(env) = open_env(&device, &setup) else { return Ok(true) };
    let mut met = None;
    match ModelEnv::read(&env, setup.geometry.dicts) {
        Ok(found) => {
            history.prefix_check(&found).map_err(|e| format!("wrong data without a word: {e}"))?;
        }
        Err(Failure::Engine(error)) => met = Some(error),
        Err(Failure::Wrong(what)) => return Err(what),
    }
    let mut problems = Vec::new();
    let checked = env.check(
        &mut |found| {
            if found.is_problem {
                problems.push((found.what, found.hides));
            }
        },
        &mut |_, _| (),
    );
    // A check must report every error that a reader met, with its place.
    if let (Ok(()), Some(error)) = (&checked, &met) {
        let is_told = |(what, hides): &(String, Option<betree::Error>)| {
            hides.as_ref() == Some(error) && what.contains(|c: char| c.is_ascii_digit())
        };
        if !problems.iter().any(is_told) {
            return Err(format!("a reader met `{error}`, which the check does not tell: {problems:?}"));
        }
    }
    Ok(met.is_some() || !problems.is_empty() || checked.is_err())
}

/// The places in a block for flipped bits: in each sector any byte, perhaps an unused one, and some used
/// ones.
fn offsets(device: &MemDevice, block: u64, used_per_sector: usize, rng: &mut Rng) -> Vec<u64> {
    let mut contents = [0; BLOCK_BYTES];
    device.read_at(block, &mut contents).unwrap();
    let mut offsets = Vec::new();
    for (i, sector) in contents.chunks(SECTOR_BYTES).enumerate() {
        let used: Vec<usize> = (0..sector.len()).filter(|at| sector[*at] != 0).collect();
        let chosen = used.len().min(used_per_sector);
        let mut places: Vec<usize> = (0..chosen).map(|_| *rng.pick(&used)).collect();
        places.push(rng.below(SECTOR_BYTES));
        offsets.extend(places.into_iter().map(|at| block + (i * SECTOR_BYTES + at) as u64));
    }
    offsets
}

/// Flips bits in each sector of each block ever written, one at a time. Returns the number of reported flips
/// and the number of all flips.
fn rot_everywhere(setup: Setup, seed: u64, is_closed: bool) -> (usize, usize) {
    let (device, history) = volume(setup, seed, is_closed);
    assert_eq!(examine(setup, device.copy(), &history), Ok(false), "seed {seed}: a sound volume is sound");
    // Tiny nodes have few blocks, so more bytes of each are flipped.
    let used_per_sector = if setup.seeks { 6 } else { 1 };
    let mut rng = Rng::new(seed);
    let (mut reported, mut flips) = (0, 0);
    for block in device.written_blocks() {
        for offset in offsets(&device, block, used_per_sector, &mut rng) {
            let bit = rng.below(8) as u8;
            let rotten = device.copy();
            rotten.rot(offset, bit);
            let place = format!("seed {seed}, closed {is_closed}, bit {bit} of byte {offset}");
            let examined = guarded(&place, || {
                reported += usize::from(examine(setup, rotten, &history)?);
                Ok(())
            });
            flips += 1;
            if let Err(what) = examined {
                panic!("{place}: {what}");
            }
        }
    }
    (reported, flips)
}

fn all_is_reported_or_harmless(setup: Setup, is_closed: bool) {
    for seed in seeds(1) {
        let (reported, flips) = rot_everywhere(setup, seed, is_closed);
        println!("{reported} of {flips} flips were reported");
        // Most blocks ever written are old; only flips in blocks in use can be noticed.
        assert!(reported > flips / 100, "{reported} of {flips} flips were reported");
    }
}

#[test]
fn a_flipped_bit_in_a_closed_volume_is_reported_or_harmless() {
    all_is_reported_or_harmless(TINY, true);
}

#[test]
fn a_flipped_bit_in_a_volume_that_was_not_closed_leaves_a_prefix_or_is_reported() {
    all_is_reported_or_harmless(TINY, false);
}

#[test]
fn a_flipped_bit_among_blocks_that_nodes_kept_is_reported_or_harmless() {
    all_is_reported_or_harmless(IN_PARTS, true);
    all_is_reported_or_harmless(IN_PARTS, false);
}
