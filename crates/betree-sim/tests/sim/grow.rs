//! Volumes that grow while they are used: contents stay, room comes at once, and a crash at any call leaves
//! the old size or the new one.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use betree::{Batch, Cut, DictId, Env, Error, Geometry, Growth, State};
use betree_platform::{Device, DeviceOp};
use betree_sim::harness::{effort, seeds, setting, try_history};
use betree_sim::{
    CrashHistory, EIO, ENOSPC, Fault, MemDevice, Mix, OnSync, Rng, Runner, SMALL_NODES, Setup, SimDisk, Step,
    format_env, history_of_seed, open_env, problems,
};

const D: DictId = DictId(0);
const SETUP: Setup = Setup {
    geometry: Geometry { log_bytes: 128 << 10, ..SMALL_NODES },
    cache_bytes: 64 << 10,
    volume_bytes: 1 << 20,
    seeks: false,
};

fn value(number: u32) -> Vec<u8> {
    seeded::bytes(u64::from(number), 0, 1000)
}

fn put(env: &Env, number: u32) -> betree::Result<()> {
    let mut batch = Batch::new();
    batch.put(D, &number.to_be_bytes(), &value(number));
    env.throttle(batch.bytes())?;
    env.commit(&batch)?;
    while env.run_due_work()? {}
    Ok(())
}

/// Puts one value after the other until there is no room; returns the first number without.
fn fill(env: &Env, from: u32) -> u32 {
    let refused = (from..).find_map(|number| Some((number, put(env, number).err()?))).unwrap();
    assert_eq!(refused.1, Error::NoSpace);
    refused.0
}

fn check(env: &Env, numbers: std::ops::Range<u32>) {
    for number in numbers {
        assert!(env.get(D, &number.to_be_bytes()).unwrap() == Some(value(number)), "{number}");
    }
    assert_eq!(problems(env).unwrap(), [""; 0]);
}

#[test]
fn a_full_volume_takes_more_at_once_when_it_has_grown() {
    let memory = Arc::new(MemDevice::new(SETUP.volume_bytes).which_seeks(false));
    let device: Arc<dyn Device> = memory.clone();
    format_env(&device, &SETUP).unwrap();
    let env = open_env(&device, &SETUP).unwrap();
    let first = fill(&env, 0);
    let before = env.space();
    // Seven bytes are no block.
    assert_eq!(env.grow(Growth::To((2 << 20) + 7)).unwrap(), 2 << 20);
    let after = env.space();
    assert_eq!((env.volume_bytes(), memory.len()), (2 << 20, 2 << 20));
    assert_eq!(after.total_bytes, before.total_bytes + (1 << 20));
    assert!(after.free_bytes > before.free_bytes + (3 << 18), "{before:?}, {after:?}");
    let second = fill(&env, first);
    assert!(second > first + 400, "{first} values, and {} more", second - first);
    check(&env, 0..second);
    env.close().unwrap();
    let env = open_env(&device, &SETUP).unwrap();
    assert_eq!((env.volume_bytes(), env.space().total_bytes), (2 << 20, after.total_bytes));
    check(&env, 0..second);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let memory = Arc::new(MemDevice::new(SETUP.volume_bytes).which_seeks(false));
    let device: Arc<dyn Device> = memory.clone();
    format_env(&device, &SETUP).unwrap();
    let env = open_env(&device, &SETUP).unwrap();
    (0..100).for_each(|number| put(&env, number).unwrap());
    env.checkpoint().unwrap();
    let (before, counts) = (env.space(), memory.counts());
    let (has, less) = (SETUP.volume_bytes, SETUP.volume_bytes - 4096);
    assert_eq!(env.grow(Growth::To(less)), Err(Error::CannotShrink { bytes: less, volume_bytes: has }));
    assert!(matches!(env.grow(Growth::By(u64::MAX)), Err(Error::TooLarge { .. })));
    // What it has already is nothing to do.
    for size in [Growth::To(has), Growth::To(has + 4095), Growth::By(0), Growth::ToDevice] {
        assert_eq!(env.grow(size), Ok(has));
    }
    for errno in [ENOSPC, EIO] {
        let fault = Fault { at_call: 1, op: Some(DeviceOp::Grow), errno, lasting: false };
        memory.set_fault(Some(fault));
        let refused = env.grow(Growth::By(1 << 20)).unwrap_err();
        assert_eq!(matches!(refused, Error::DeviceFull(_)), errno == ENOSPC, "{refused}");
        assert_eq!(env.state(), State::Writable, "no write has failed");
    }
    assert_eq!((env.space(), env.volume_bytes(), memory.len()), (before, has, has));
    assert_eq!(memory.counts().since(&counts).writes, 0);
    // A device that has grown by itself.
    memory.grow(3 << 20).unwrap();
    assert_eq!(env.grow(Growth::ToDevice), Ok(3 << 20));
    check(&env, 0..100);
}

#[test]
fn a_device_of_a_given_size_bounds_its_volume() {
    /// A device that never grows.
    struct Fixed(MemDevice);
    impl Device for Fixed {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), betree_platform::DeviceError> {
            self.0.read_at(offset, buf)
        }
        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), betree_platform::DeviceError> {
            self.0.write_at(offset, buf)
        }
        fn sync(&self) -> Result<(), betree_platform::DeviceError> {
            self.0.sync()
        }
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn seeks(&self) -> bool {
            false
        }
        fn discard(&self, offset: u64, len: u64) -> Result<(), betree_platform::DeviceError> {
            self.0.discard(offset, len)
        }
    }
    let device: Arc<dyn Device> = Arc::new(Fixed(MemDevice::new(SETUP.volume_bytes)));
    format_env(&device, &SETUP).unwrap();
    let env = open_env(&device, &SETUP).unwrap();
    let (bytes, device_bytes) = (SETUP.volume_bytes + 4096, SETUP.volume_bytes);
    assert_eq!(env.grow(Growth::By(4096)), Err(Error::DeviceTooSmall { bytes, device_bytes }));
    assert_eq!(env.volume_bytes(), device_bytes);
}

/// A change that a log holds must fit when it is replayed on the size that the superblock has.
#[test]
fn no_room_is_given_away_before_the_new_size_is_durable() {
    let device = Arc::new(OnSync::new(MemDevice::new(SETUP.volume_bytes).which_seeks(false)));
    let as_device: Arc<dyn Device> = device.clone();
    format_env(&as_device, &SETUP).unwrap();
    let env = Arc::new(open_env(&as_device, &SETUP).unwrap());
    let before = env.space().total_bytes;
    let seen: Arc<OnceLock<[u64; 2]>> = Arc::default();
    device.at_next({
        let (env, seen, device) = (Arc::clone(&env), Arc::clone(&seen), Arc::downgrade(&device));
        move || {
            let device_bytes = device.upgrade().unwrap().len();
            seen.set([env.space().total_bytes, device_bytes]).unwrap();
        }
    });
    env.grow(Growth::By(1 << 20)).unwrap();
    assert_eq!(seen.get(), Some(&[before, SETUP.volume_bytes + (1 << 20)]));
    assert_eq!(env.space().total_bytes, before + (1 << 20));
}

/// What a volume grows by in a life.
const MORE_BYTES: u64 = 512 << 10;

/// Fills a volume, lets it grow and fills it again, with a power cut at call `n` behind the first filling;
/// returns the disk, and how many values were durable.
fn life(n: Option<u64>) -> (Arc<SimDisk>, u32) {
    let disk = Arc::new(SimDisk::new(SETUP.volume_bytes).which_seeks(false));
    let device: Arc<dyn Device> = disk.clone();
    format_env(&device, &SETUP).unwrap();
    let env = open_env(&device, &SETUP).unwrap();
    let first = fill(&env, 0);
    env.sync().unwrap();
    if let Some(n) = n {
        disk.cut_power_at(n);
    }
    let mut durable = first;
    let mut go_on = || -> betree::Result<()> {
        env.grow(Growth::By(MORE_BYTES))?;
        for some in 0..3 {
            (0..20).try_for_each(|number| put(&env, first + some * 20 + number))?;
            env.sync()?;
            durable = first + (some + 1) * 20;
        }
        Ok(())
    };
    let gone_on = go_on();
    // A discard that fails is no error.
    assert!(n.is_some() || gone_on.is_ok(), "{gone_on:?}");
    assert_eq!(disk.is_cut(), n.is_some());
    env.abandon();
    (disk, durable)
}

#[test]
fn a_crash_at_any_call_leaves_the_old_size_or_the_new_one() {
    let before = {
        let disk = Arc::new(SimDisk::new(SETUP.volume_bytes).which_seeks(false));
        let device: Arc<dyn Device> = disk.clone();
        format_env(&device, &SETUP).unwrap();
        let env = open_env(&device, &SETUP).unwrap();
        fill(&env, 0);
        env.sync().unwrap();
        disk.changing_calls()
    };
    let calls = life(None).0.changing_calls() - before;
    let (mut old, mut new) = (0, 0);
    for n in 1..=calls {
        let (disk, durable) = life(Some(n));
        let device: Arc<dyn Device> = Arc::new(disk.crash(n));
        let env = open_env(&device, &SETUP).unwrap();
        check(&env, 0..durable);
        match env.volume_bytes().checked_sub(SETUP.volume_bytes) {
            Some(0) => old += 1,
            Some(MORE_BYTES) => new += 1,
            more => panic!("call {n}: {more:?} bytes more"),
        }
        // It can grow again, and be used.
        let bytes = SETUP.volume_bytes + 2 * MORE_BYTES;
        assert_eq!(env.grow(Growth::To(bytes)), Ok(bytes));
        put(&env, 0).unwrap();
        env.close().unwrap();
    }
    assert!(old > 1 && new > 20, "{calls} calls: {old} times the old size, {new} times the new one");
}

/// What a volume may grow to by itself.
const LIMIT_BYTES: u64 = 6 << 20;

#[test]
fn a_volume_with_a_limit_grows_by_itself_and_ends_no_view_for_want_of_room() {
    let memory = Arc::new(MemDevice::new(SETUP.volume_bytes).which_seeks(false));
    let device: Arc<dyn Device> = memory.clone();
    format_env(&device, &SETUP).unwrap();
    let env = Arc::new(open_env(&device, &SETUP).unwrap());
    env.set_growth_limit(LIMIT_BYTES).unwrap();
    let first = 200;
    (0..first).for_each(|number| put(&env, number).unwrap());
    assert_eq!((env.volume_bytes(), memory.len()), (SETUP.volume_bytes, SETUP.volume_bytes));
    assert_eq!(env.space().growth_bytes, LIMIT_BYTES - SETUP.volume_bytes);
    let view = env.view();
    // It outlives all that comes as long as the volume can grow.
    let mut last = first;
    while env.volume_bytes() < LIMIT_BYTES {
        put(&env, last).unwrap();
        last += 1;
    }
    assert!(view.get(D, &(first - 1).to_be_bytes()).unwrap() == Some(value(first - 1)));
    assert_eq!(view.get(D, &first.to_be_bytes()).unwrap(), None);
    drop(view);
    let last = fill(&env, last);
    assert!(last > 2000, "{last} values");
    assert_eq!((env.volume_bytes(), memory.len(), env.space().growth_bytes), (LIMIT_BYTES, LIMIT_BYTES, 0));
    check(&env, 0..last);
    env.close().unwrap();
    let env = open_env(&device, &SETUP).unwrap();
    assert_eq!((env.volume_bytes(), env.growth_limit_bytes()), (LIMIT_BYTES, LIMIT_BYTES));
    check(&env, 0..last);
    assert!(matches!(env.set_growth_limit(u64::MAX), Err(Error::TooLarge { .. })));
    assert_eq!(env.growth_limit_bytes(), LIMIT_BYTES);
}

#[test]
fn a_device_that_refuses_growth_loses_nothing() {
    let memory = Arc::new(MemDevice::new(SETUP.volume_bytes).which_seeks(false));
    let device: Arc<dyn Device> = memory.clone();
    format_env(&device, &SETUP).unwrap();
    let env = open_env(&device, &SETUP).unwrap();
    env.set_growth_limit(LIMIT_BYTES).unwrap();
    let refusal = Fault { at_call: 1, op: Some(DeviceOp::Grow), errno: ENOSPC, lasting: true };
    memory.set_fault(Some(refusal));
    let first = fill(&env, 0);
    assert_eq!((env.volume_bytes(), memory.len()), (SETUP.volume_bytes, SETUP.volume_bytes));
    assert!(env.stats().failed_work > 0, "it was tried");
    check(&env, 0..first);
    memory.set_fault(None);
    put(&env, first).unwrap();
    assert!(env.volume_bytes() > SETUP.volume_bytes);
    check(&env, 0..first + 1);
}

#[test]
fn what_deletes_give_back_comes_before_growth() {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(SETUP.volume_bytes).which_seeks(false));
    format_env(&device, &SETUP).unwrap();
    let env = open_env(&device, &SETUP).unwrap();
    env.set_growth_limit(LIMIT_BYTES).unwrap();
    for round in 0..6 {
        (0..250).for_each(|number| put(&env, round * 250 + number).unwrap());
        let mut batch = Batch::new();
        batch.delete_range(D, &Cut::LOW, &Cut::HIGH);
        env.commit(&batch).unwrap();
    }
    assert_eq!(env.volume_bytes(), SETUP.volume_bytes);
    assert_eq!(problems(&env).unwrap(), [""; 0]);
}

#[test]
fn a_crash_at_any_call_of_a_volume_that_grows_by_itself_loses_nothing_durable() {
    let life = |n: Option<u64>| {
        let disk = Arc::new(SimDisk::new(SETUP.volume_bytes).which_seeks(false));
        let device: Arc<dyn Device> = disk.clone();
        format_env(&device, &SETUP).unwrap();
        let env = open_env(&device, &SETUP).unwrap();
        env.set_growth_limit(SETUP.volume_bytes + MORE_BYTES).unwrap();
        let first = (0..).find(|number| {
            put(&env, *number).unwrap();
            env.space().free_bytes < 96 << 10
        });
        let first = first.unwrap() + 1;
        env.sync().unwrap();
        let before = disk.changing_calls();
        if let Some(n) = n {
            disk.cut_power_at(n);
        }
        let mut durable = first;
        // Without an error in the end, if the power stays.
        let gone_on = (0..6).try_for_each(|some| {
            (0..20).try_for_each(|number| put(&env, first + some * 20 + number))?;
            env.sync()?;
            durable = first + (some + 1) * 20;
            Ok::<_, Error>(())
        });
        assert!(n.is_some() || gone_on.is_ok(), "{gone_on:?}");
        let calls = disk.changing_calls() - before;
        env.abandon();
        (disk, durable, calls)
    };
    let calls = life(None).2;
    let (mut old, mut new) = (0, 0);
    for n in (1..=calls).step_by(2) {
        let (disk, durable, _) = life(Some(n));
        let device: Arc<dyn Device> = Arc::new(disk.crash(n));
        let env = open_env(&device, &SETUP).unwrap();
        check(&env, 0..durable);
        match env.volume_bytes().checked_sub(SETUP.volume_bytes) {
            Some(0) => old += 1,
            Some(MORE_BYTES) => new += 1,
            more => panic!("call {n}: {more:?} bytes more"),
        }
    }
    assert!(old > 2 && new > 20, "{calls} calls: {old} times the old size, {new} times the new one");
}

#[test]
fn random_histories_with_growth_agree_with_the_model() {
    let growths = AtomicUsize::new(0);
    let steps_max = setting("BETRFS_STEPS", 200) as usize;
    let histories = effort(30);
    for seed in seeds(histories) {
        let (setup, steps) = history_of_seed(seed, steps_max, Mix::GROWTH);
        let replay = format!("BETRFS_SEED={seed} cargo test -p betree-sim --test sim grow::");
        let tried = try_history(&replay, &setup, &steps, |steps| {
            let device = Arc::new(MemDevice::new(setup.volume_bytes).which_seeks(setup.seeks));
            let told = |failure: betree_sim::Failure| failure.to_string();
            let mut runner = Runner::format(device, setup).map_err(told)?;
            runner.run(steps).map_err(|(step, failure)| format!("step {step}: {failure}"))?;
            let grown = steps.iter().filter(|step| matches!(step, Step::Grow(_))).count();
            growths.fetch_add(grown, Ordering::Relaxed);
            runner.drain().map_err(told)?;
            runner.step(&Step::Reopen).map_err(told)?;
            runner.compare_all().map_err(told)?;
            runner.check().map_err(told)
        });
        if let Err(report) = tried {
            panic!("seed {seed}: {report}");
        }
    }
    assert!(growths.into_inner() as u64 >= seeds(histories).count() as u64);
}

#[test]
fn crashes_of_random_histories_with_growth_keep_all_promises() {
    let crashes = effort(100);
    let met = AtomicU64::new(0);
    for seed in seeds(crashes / 4) {
        let (setup, mut before) = history_of_seed(seed, 52, Mix::GROWTH_CRASHES);
        let after = before.split_off(40);
        let history = CrashHistory { seed, setup, before, after };
        let calls = history.calls().unwrap();
        let mut rng = Rng::new(seed);
        for _ in 0..calls.min(4) {
            let n = rng.between(1, calls as usize) as u64;
            if let Err(what) = history.crash_at(n) {
                panic!("BETRFS_SEED={seed}, a crash at call {n}: {what}");
            }
            met.fetch_add(1, Ordering::Relaxed);
        }
    }
    assert!(met.into_inner() > 0);
}
