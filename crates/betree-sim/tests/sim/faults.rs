//! Law: a failing device is an error, never a panic and never wrong data; once it is healthy again,
//! everything synced before is there. A full volume refuses puts and allows deletes, and the room they free
//! can be used.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use betree::{Batch, Cut, DictId, Env, Error, Geometry, State};
use betree_platform::{Device, DeviceOp};
use betree_sim::harness::{effort, guarded, seeds};
use betree_sim::{
    EIO, ENOSPC, Edit, Failure, Fault, MemDevice, Mix, ModelEnv, Rng, Runner, Setup, SimDisk, Step, batch_of,
    format_env, history_of_seed, open_env, problems,
};

const MIX: Mix = Mix { get: 10, walk: 10, reopen: 2, ..Mix::CRASHES };

/// Runs the steps on a device with a coming fault, and checks the volume that it leaves. Returns whether the
/// fault struck.
fn run(setup: Setup, steps: &[Step], fault: Fault) -> Result<bool, String> {
    let device = Arc::new(MemDevice::new(setup.volume_bytes).which_seeks(setup.seeks));
    let mut runner =
        Runner::format(Arc::clone(&device) as Arc<dyn Device>, setup).map_err(|e| format!("format: {e}"))?;
    device.set_fault(Some(fault));
    let has_struck = || device.counts().failed > 0;
    for (i, step) in steps.iter().enumerate() {
        match runner.step(step) {
            Ok(()) => {}
            Err(Failure::Engine(_)) if has_struck() => {}
            Err(failure) => return Err(format!("step {i}: {failure}")),
        }
        let is_over = runner.history().is_open() || runner.env().is_err();
        if is_over {
            break;
        }
    }
    let has_struck = has_struck();
    device.set_fault(None);
    if let Ok(env) = runner.env()
        && has_struck
        && matches!(fault.op, Some(DeviceOp::Write | DeviceOp::Sync))
    {
        must_refuse_changes(env)?;
    }
    let history = runner.into_history();
    let healthy = Arc::new(device.copy());
    let runner = Runner::open(healthy, setup, &history).map_err(|e| format!("on a healthy device: {e}"))?;
    runner.check().map_err(|e| format!("on a healthy device: {e}"))?;
    Ok(has_struck)
}

/// After a failed write or sync the contents of the device are unknown, so no further change may be promised.
fn must_refuse_changes(env: &Env) -> Result<(), String> {
    let mut batch = Batch::new();
    batch.put(DictId(0), b"after the failure", b"");
    if env.commit(&batch).is_ok() && env.sync().is_ok() {
        return Err("a change was accepted and synced after a failed write or sync".into());
    }
    Ok(())
}

#[test]
fn a_failure_at_any_device_call_is_an_error_and_loses_nothing_synced() {
    let mut struck = 0;
    for seed in seeds(effort(4)) {
        let (setup, steps) = history_of_seed(seed, 40, MIX);
        for (op, errno, lasting) in [
            (None, EIO, false),
            (None, EIO, true),
            (Some(DeviceOp::Write), EIO, false),
            (Some(DeviceOp::Sync), EIO, false),
        ] {
            for at_call in 1.. {
                let fault = Fault { at_call, op, errno, lasting };
                let mut has_struck = false;
                let tried = guarded(&format!("seed {seed}, {fault:?}"), || {
                    has_struck = run(setup, &steps, fault)?;
                    Ok(())
                });
                if let Err(what) = tried {
                    panic!(
                        "seed {seed}, {fault:?}: {what}\n  replay: BETRFS_SEED={seed} cargo test -p betree-sim --test sim faults::"
                    );
                }
                if !has_struck {
                    break;
                }
                struck += 1;
            }
        }
    }
    assert!(struck > 100, "only {struck} faults struck: the histories hardly use the device");
}

/// Runs the steps on a device without room from a write on, until the first step fails for it; then makes
/// room and goes on. Returns whether a write found no room.
fn run_on_a_full_disk(setup: Setup, steps: &[Step], at_call: u64) -> Result<bool, String> {
    let device = Arc::new(MemDevice::new(setup.volume_bytes).which_seeks(setup.seeks));
    let mut runner =
        Runner::format(Arc::clone(&device) as Arc<dyn Device>, setup).map_err(|e| format!("format: {e}"))?;
    device.set_fault(Some(Fault { at_call, op: Some(DeviceOp::Write), errno: ENOSPC, lasting: true }));
    for (i, step) in steps.iter().enumerate() {
        let told = match runner.step(step) {
            Ok(()) => continue,
            Err(Failure::Engine(error)) if device.counts().failed > 0 => error,
            Err(failure) => return Err(format!("step {i}: {failure}")),
        };
        device.set_fault(None);
        match runner.env().map(|env| env.state()) {
            Ok(State::DeviceFull(_)) if matches!(told, Error::DeviceFull(_)) => {}
            // How much of a superblock was written is unknown.
            Ok(State::ReadOnly(_)) => return Ok(true),
            state => return Err(format!("step {i}: {told}, and the state is {state:?}")),
        }
    }
    let struck = device.counts().failed > 0;
    device.set_fault(None);
    let whole = |runner: &mut Runner| {
        runner.step(&Step::Sync)?;
        runner.drain()?;
        runner.step(&Step::Checkpoint)?;
        runner.compare_all()?;
        runner.check()?;
        runner.step(&Step::Reopen)?;
        runner.compare_all()
    };
    // There may have been no room although no step failed.
    whole(&mut runner).map_err(|e| format!("once there is room: {e}"))?;
    Ok(struck)
}

#[test]
fn a_full_disk_below_the_volume_loses_nothing_and_goes_on_once_there_is_room() {
    let mut struck = 0;
    for seed in seeds(effort(4)) {
        let (setup, steps) = history_of_seed(seed, 40, Mix { reopen: 0, abandon: 0, ..MIX });
        for at_call in 1.. {
            let mut has_struck = false;
            let tried = guarded(&format!("seed {seed}, full from write {at_call} on"), || {
                has_struck = run_on_a_full_disk(setup, &steps, at_call)?;
                Ok(())
            });
            if let Err(what) = tried {
                panic!("seed {seed}, full from write {at_call} on: {what}");
            }
            if !has_struck {
                break;
            }
            struck += 1;
        }
    }
    assert!(struck > 50, "only {struck} writes found no room: the histories hardly write");
}

/// Runs the steps on a disk whose `n`-th sync fails and loses a part of the writes, and checks the disk after
/// a crash. Returns whether the sync failed.
fn run_with_lossy_sync(setup: Setup, steps: &[Step], n: u64) -> Result<bool, String> {
    let disk = Arc::new(SimDisk::new(setup.volume_bytes).which_seeks(setup.seeks));
    let mut runner =
        Runner::format(Arc::clone(&disk) as Arc<dyn Device>, setup).map_err(|e| format!("format: {e}"))?;
    disk.fail_sync_at(n);
    match runner.run(steps) {
        Err((_, Failure::Engine(_))) if disk.has_failed() => {}
        Err((i, failure)) => return Err(format!("step {i}: {failure}")),
        Ok(()) if disk.has_failed() => return Err("a sync failed, and no step did".into()),
        Ok(()) => return Ok(false),
    }
    if let Ok(env) = runner.env() {
        must_refuse_changes(env)?;
    }
    let history = runner.into_history();
    let found = Arc::new(disk.crash(n));
    let runner = Runner::open(found, setup, &history).map_err(|e| format!("after the crash: {e}"))?;
    runner.check().map_err(|e| format!("after the crash: {e}"))?;
    Ok(true)
}

#[test]
fn a_failed_sync_that_loses_its_writes_loses_nothing_older() {
    let mut failed = 0;
    for seed in seeds(effort(4)) {
        let (setup, steps) = history_of_seed(seed, 40, MIX);
        for n in 1.. {
            let mut has_failed = false;
            let tried = guarded(&format!("seed {seed}, sync {n}"), || {
                has_failed = run_with_lossy_sync(setup, &steps, n)?;
                Ok(())
            });
            if let Err(what) = tried {
                panic!("seed {seed}, sync {n}: {what}");
            }
            if !has_failed {
                break;
            }
            failed += 1;
        }
    }
    assert!(failed > 50, "only {failed} syncs failed: the histories hardly sync");
}

const SMALL: Setup = Setup {
    geometry: Geometry {
        node_bytes: 16 << 10,
        basement_bytes: 4 << 10,
        fanout_max: 8,
        log_bytes: 256 << 10,
        dicts: 1,
    },
    cache_bytes: 256 << 10,
    volume_bytes: 4 << 20,
    seeks: true,
};
const D: DictId = DictId(0);

/// A volume that is filled again and again, beside its model.
struct Full {
    env: Env,
    model: ModelEnv,
    rng: Rng,
    number: u32,
}

impl Full {
    fn commit(&mut self, batch: &Batch, model: &[Edit]) -> Result<(), Error> {
        self.env.throttle(batch.bytes())?;
        self.env.commit(batch)?;
        self.model.commit(model);
        Ok(())
    }

    fn put(&mut self) -> Result<usize, Error> {
        let key = self.number.to_be_bytes().to_vec();
        let value: Vec<u8> = (0..self.rng.between(100, 4000)).map(|_| self.rng.next_u64() as u8).collect();
        let change = Edit::Put(D, key, value.clone());
        self.commit(&batch_of(std::slice::from_ref(&change)), &[change])?;
        self.number += 1;
        Ok(value.len())
    }

    /// Puts until the volume is full; returns the number of bytes put.
    fn fill(&mut self) -> usize {
        let mut bytes = 0;
        while bytes as u64 <= SMALL.volume_bytes {
            match self.put() {
                Ok(len) => bytes += len,
                Err(Error::NoSpace) => return bytes,
                Err(error) => panic!("a full volume says NoSpace, not: {error}"),
            }
        }
        panic!("{bytes} bytes were accepted, more than the disk has")
    }

    fn delete(&mut self, changes: &[Edit]) {
        let deleted = self.commit(&batch_of(changes), changes);
        assert_eq!(deleted, Ok(()), "deleting works on a full volume");
    }

    fn held_bytes(&self) -> u64 {
        self.model.dict(D).iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }

    /// Does the background work and checks everything.
    fn settle(&self) {
        for _ in 0..100_000 {
            if !self.env.run_due_work().unwrap() {
                break;
            }
        }
        self.env.checkpoint().unwrap();
        self.env.checkpoint().unwrap();
        let problems = problems(&self.env).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        let found = ModelEnv::read(&self.env, 1).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(found.difference(&self.model), None);
    }
}

#[test]
fn a_full_volume_refuses_puts_takes_deletes_and_can_be_filled_again() {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(SMALL.volume_bytes));
    format_env(&device, &SMALL).unwrap();
    let env = open_env(&device, &SMALL).unwrap();
    let mut full = Full { env, model: ModelEnv::new(1), rng: Rng::new(1), number: 0 };
    let free_when_empty = full.env.space().free_bytes;
    let mut deleted = None;
    for round in 0..4 {
        let took = full.fill() as u64;
        match deleted {
            None => {
                assert!(took > free_when_empty / 2, "took {took} of {free_when_empty} bytes said to be free");
            }
            Some(deleted) => {
                assert!(took > deleted / 2, "round {round}: {took} bytes fit where {deleted} were deleted");
            }
        }
        full.settle();
        let (held, free) = (full.held_bytes(), full.env.space().free_bytes);

        // Every second key one by one, and half of the range at once.
        let keys: Vec<Vec<u8>> = full.model.dict(D).keys().cloned().collect();
        for key in keys.iter().step_by(2) {
            full.delete(&[Edit::Delete(D, key.clone())]);
        }
        let middle = keys[keys.len() / 2].clone();
        full.delete(&[Edit::DeleteRange(D, Cut::LOW, Cut::before(middle))]);
        full.settle();
        let (gone, gained) = (held - full.held_bytes(), full.env.space().free_bytes - free);
        assert!(gained > gone / 2, "round {round}: {gained} bytes more are free, {gone} were deleted");
        deleted = Some(gone);
    }
    full.env.close().unwrap();
    drop(full.env);
    full.env = open_env(&device, &SMALL).unwrap();
    full.settle();
    full.fill();
    full.delete(&[Edit::DeleteRange(D, Cut::LOW, Cut::HIGH)]);
    full.settle();
    // The node table keeps the pages that it needed when the volume was full.
    let free_at_last = full.env.space().free_bytes;
    assert!(free_at_last > free_when_empty / 100 * 99, "{free_at_last} of {free_when_empty} bytes");
}
