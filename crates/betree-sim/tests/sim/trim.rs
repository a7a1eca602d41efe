//! Trims: all free space is discarded and nothing else, whatever others do meanwhile, and a crash at any call
//! loses nothing that was synced.
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use betree::{Batch, Cut, DictId, Env, Geometry};
use betree_platform::{BLOCK_BYTES, Device};
use betree_sim::{MemDevice, Rng, Setup, SimDisk, format_env, open_env, problems};

const D: DictId = DictId(0);
/// The device seeks, so that the environment does not discard by itself.
const SETUP: Setup = Setup {
    geometry: Geometry {
        node_bytes: 16 << 10,
        basement_bytes: 4 << 10,
        fanout_max: 8,
        log_bytes: 1 << 20,
        dicts: 1,
    },
    cache_bytes: 512 << 10,
    volume_bytes: 8 << 20,
    seeks: true,
};

fn new_env(device: &Arc<dyn Device>) -> Arc<Env> {
    format_env(device, &SETUP).unwrap();
    Arc::new(open_env(device, &SETUP).unwrap())
}

fn value(number: u32, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed << 32 | u64::from(number));
    (0..125).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

fn put(env: &Env, number: u32, seed: u64) -> betree::Result<()> {
    let mut batch = Batch::new();
    batch.put(D, &number.to_be_bytes(), &value(number, seed));
    env.throttle(batch.bytes())?;
    env.commit(&batch)?;
    while env.run_due_work()? {}
    Ok(())
}

fn check(env: &Env) {
    assert_eq!(problems(env).unwrap(), [""; 0]);
}

fn delete(env: &Env, from: u32, to: u32) {
    let mut batch = Batch::new();
    batch.delete_range(D, &Cut::before(from.to_be_bytes()), &Cut::before(to.to_be_bytes()));
    env.commit(&batch).unwrap();
}

#[test]
fn a_trim_ends_where_its_caller_has_enough_and_tells_how_far_it_is() {
    let memory = Arc::new(MemDevice::new(SETUP.volume_bytes).which_seeks(true));
    let device: Arc<dyn Device> = memory.clone();
    let env = new_env(&device);
    for number in 0..1000 {
        put(&env, number, 1).unwrap();
        if number % 100 == 0 {
            env.checkpoint().unwrap();
        }
    }
    delete(&env, 100, 300);
    let mut heard = Vec::new();
    let told_bytes = env.trim_while(&mut |done, all| {
        heard.push((done, all));
        if heard.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let told_bytes = told_bytes.unwrap();
    assert_eq!(memory.counts().discards, 1);
    assert_eq!(heard, [(0, heard[0].1), (told_bytes, heard[0].1)]);
    assert!(told_bytes > 0 && told_bytes < heard[0].1, "{heard:?}");
    assert!(env.trim().unwrap() > told_bytes);
    check(&env);
    env.close().unwrap();
}

#[test]
fn a_trim_of_a_part_discards_what_is_free_there() {
    let memory = Arc::new(MemDevice::new(SETUP.volume_bytes).which_seeks(true));
    let device: Arc<dyn Device> = memory.clone();
    let env = new_env(&device);
    (0..1000).for_each(|number| put(&env, number, 1).unwrap());
    env.checkpoint().unwrap();
    delete(&env, 0, 900);
    env.checkpoint().unwrap();
    let (volume_bytes, block) = (SETUP.volume_bytes, BLOCK_BYTES as u64);
    let all = env.trim().unwrap();
    let trim = |start: u64, end: u64, bytes_min: u64| env.trim_range(start..end, bytes_min).unwrap();
    assert_eq!(trim(0, volume_bytes, 0), all);
    assert_eq!(trim(0, u64::MAX, 0), all);
    let mut sum = 0;
    for part in 0..8 {
        let (start, end) = (volume_bytes / 8 * part, volume_bytes / 8 * (part + 1));
        let told_bytes = trim(start, end, 0);
        assert!(told_bytes <= end - start);
        sum += told_bytes;
    }
    assert_eq!(sum, all, "the parts are the whole");
    // Free, and before the superblocks at the end.
    let end = volume_bytes - 16 * block;
    let start = end - 16 * block;
    assert_eq!(trim(start, end, 0), 16 * block);
    assert_eq!(trim(start + 1, end - 1, 0), 14 * block, "whole blocks alone");
    assert_eq!((trim(start, start, 0), trim(start, start + block - 1, 0)), (0, 0));
    assert_eq!((trim(start, end, 17 * block), trim(start, end, 16 * block)), (0, 16 * block));
    assert_eq!(trim(volume_bytes, u64::MAX, 0), 0);
    check(&env);
    env.close().unwrap();
}

#[test]
fn a_trim_discards_what_is_free_and_keeps_the_rest() {
    let memory = Arc::new(MemDevice::new(SETUP.volume_bytes).which_seeks(true));
    let device: Arc<dyn Device> = memory.clone();
    let env = new_env(&device);
    (0..1000).for_each(|number| put(&env, number, 1).unwrap());
    env.checkpoint().unwrap();
    assert_eq!(memory.counts().discards, 0);
    delete(&env, 0, 900);
    let told_bytes = env.trim().unwrap();
    let space = env.space();
    // The log and the superblocks stay; a block that a checkpoint wrote meanwhile may be free and told.
    let kept = memory.written_blocks().len() as u64 * BLOCK_BYTES as u64;
    let others = SETUP.geometry.log_bytes + 4 * BLOCK_BYTES as u64;
    assert!(kept <= space.used_bytes + others, "{kept} bytes are kept for {space:?}");
    assert!(space.used_bytes < 400 << 10, "what was deleted is not free: {space:?}");
    assert_eq!(told_bytes, space.total_bytes - space.used_bytes);
    // Ranges of at most 64 MiB, and each once.
    assert!(memory.counts().discards < 64, "{:?}", memory.counts());
    for number in 0..1000u32 {
        let expected = (number >= 900).then(|| value(number, 1));
        assert!(env.get(D, &number.to_be_bytes()).unwrap() == expected, "{number}");
    }
    env.close().unwrap();
    let env = open_env(&device, &SETUP).unwrap();
    assert!(env.get(D, &950u32.to_be_bytes()).unwrap() == Some(value(950, 1)));
    check(&env);
}

#[test]
fn writers_lose_nothing_to_a_trim_beside_them() {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(SETUP.volume_bytes).which_seeks(true));
    let env = new_env(&device);
    let trims = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let begun = Instant::now();
            for round in 0..20 {
                // The machine may leave the other thread without a turn for long.
                while round == 19 && trims.load(Ordering::Relaxed) < 2 {
                    assert!(begun.elapsed() < Duration::from_secs(60), "no trims beside it");
                    std::thread::yield_now();
                }
                (0..200).for_each(|number| put(&env, number, round).unwrap());
                env.checkpoint().unwrap();
            }
        });
        while !writer.is_finished() {
            env.trim().unwrap();
            trims.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(trims.into_inner() > 1);
    env.close().unwrap();
    let env = open_env(&device, &SETUP).unwrap();
    for number in 0..200u32 {
        assert!(env.get(D, &number.to_be_bytes()).unwrap() == Some(value(number, 19)), "{number}");
    }
    check(&env);
}

/// Puts, syncs and trims, with a power cut at call `n`; returns the disk, and how many rounds were durable.
fn life(n: Option<u64>) -> (Arc<SimDisk>, u64) {
    let disk = Arc::new(SimDisk::new(SETUP.volume_bytes).which_seeks(true));
    let device: Arc<dyn Device> = disk.clone();
    let env = new_env(&device);
    if let Some(n) = n {
        disk.cut_power_at(disk.changing_calls() + n);
    }
    let mut durable = 0;
    for round in 1..5 {
        let done = (0..60).try_for_each(|number| put(&env, number, round)).and_then(|()| env.sync());
        if done.is_err() {
            break;
        }
        durable = round;
        if env.trim().is_err() {
            break;
        }
    }
    env.abandon();
    (disk, durable)
}

#[test]
fn a_crash_of_a_trim_at_any_call_loses_nothing() {
    let begin = {
        let disk = Arc::new(SimDisk::new(SETUP.volume_bytes).which_seeks(true));
        let device: Arc<dyn Device> = disk.clone();
        drop(format_env(&device, &SETUP));
        disk.changing_calls()
    };
    let calls = life(None).0.changing_calls() - begin;
    assert!((40..2000).contains(&calls), "{calls} calls");
    for n in 1..calls {
        let (disk, durable) = life(Some(n));
        let device: Arc<dyn Device> = Arc::new(disk.crash(n));
        let env = open_env(&device, &SETUP).unwrap();
        for number in (0..60u32).filter(|_| durable > 0) {
            let found = env.get(D, &number.to_be_bytes()).unwrap();
            let whole = [durable, durable + 1].iter().any(|round| found == Some(value(number, *round)));
            assert!(whole, "a cut at call {n}: {number}, durable in round {durable}");
        }
        check(&env);
    }
}
