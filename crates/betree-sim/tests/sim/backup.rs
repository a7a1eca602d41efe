//! Backups: whatever is committed, flushed, checkpointed and freed between their pieces, a complete one is a
//! volume with the contents of its beginning.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use betree::{Batch, Cut, DictId, Env, Error, Geometry};
use betree_platform::Device;
use betree_sim::harness::{effort, seeds, setting, try_history};
use betree_sim::{MemDevice, Mix, Rng, Runner, Setup, format_env, history_of_seed, open_env, problems};

const D: DictId = DictId(0);
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
    seeks: false,
};

#[test]
fn backups_have_the_contents_of_their_beginning() {
    let complete = AtomicUsize::new(0);
    let steps_max = setting("BETRFS_STEPS", 200) as usize;
    // Each complete backup is opened, read and checked.
    let histories = effort(75);
    for seed in seeds(histories) {
        let (setup, steps) = history_of_seed(seed, steps_max, Mix::BACKUPS);
        let replay = format!("BETRFS_SEED={seed} cargo test -p betree-sim --test sim backup::");
        let tried = try_history(&replay, &setup, &steps, |steps| {
            let device = Arc::new(MemDevice::new(setup.volume_bytes).which_seeks(setup.seeks));
            let told = |failure: betree_sim::Failure| failure.to_string();
            let mut runner = Runner::format(device, setup).map_err(told)?;
            runner.run(steps).map_err(|(step, failure)| format!("step {step}: {failure}"))?;
            complete.fetch_add(runner.backups(), Ordering::Relaxed);
            runner.end_views().map_err(told)?;
            runner.drain().map_err(told)?;
            // It accounts for each block: nothing that a backup held is left.
            runner.check().map_err(told)
        });
        if let Err(report) = tried {
            panic!("seed {seed}: {report}");
        }
    }
    let complete = complete.into_inner() as u64;
    assert!(complete >= seeds(histories).count() as u64, "{complete} backups were complete");
}

fn new_env() -> (Arc<MemDevice>, Arc<Env>) {
    let device = Arc::new(MemDevice::new(SETUP.volume_bytes).which_seeks(SETUP.seeks));
    let as_device: Arc<dyn Device> = device.clone();
    format_env(&as_device, &SETUP).unwrap();
    let env = Arc::new(open_env(&as_device, &SETUP).unwrap());
    (device, env)
}

/// Puts a value of random bytes, and does what is due.
fn put(env: &Env, number: u32, seed: u64) -> Result<(), Error> {
    let mut rng = Rng::new(seed << 32 | u64::from(number));
    let value: Vec<u8> = (0..125).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    let mut batch = Batch::new();
    batch.put(D, &number.to_be_bytes(), &value);
    env.throttle(batch.bytes())?;
    env.commit(&batch)?;
    while env.run_due_work()? {}
    Ok(())
}

#[test]
fn a_backup_makes_one_checkpoint_and_reads_each_block_in_use_once() {
    let (device, env) = new_env();
    (0..1000).for_each(|number| put(&env, number, 1).unwrap());
    env.checkpoint().unwrap();
    env.checkpoint().unwrap();
    put(&env, 7, 2).unwrap();
    let before = env.stats().checkpoints;
    let mut backup = env.backup().unwrap();
    assert_eq!(env.stats().checkpoints, before + 1);
    let counts = device.counts();
    let (mut offsets, mut bytes) = (Vec::new(), 0);
    while let Some((offset, piece)) = backup.next_piece().unwrap() {
        offsets.push(offset);
        bytes += piece.len() as u64;
    }
    let cost = device.counts().since(&counts);
    assert_eq!(bytes, backup.bytes());
    assert_eq!((cost.read_bytes, cost.write_bytes, cost.syncs), (bytes - 4 * 4096, 0, 0));
    // Ascending, but for the superblocks at the end.
    assert_eq!(offsets.pop(), Some(0));
    assert!(offsets.is_sorted() && !offsets.contains(&0));
    let used = env.space().used_bytes;
    assert!(bytes <= used + used / 50 + (64 << 10), "{bytes} bytes were read of {used} in use");
    assert_eq!(env.stats().checkpoints, before + 1);
}

/// Without the backup, the volume takes the same changes.
#[test]
fn a_backup_ends_where_its_space_is_needed_and_refuses_nobody() {
    let (_device, env) = new_env();
    let puts = 3000;
    (0..puts).for_each(|number| put(&env, number, 1).unwrap());
    let mut backup = env.backup().unwrap();
    assert!(backup.next_piece().unwrap().is_some());
    // More than is free.
    assert!(env.space().free_bytes < u64::from(puts) * 1000 * 3 / 2);
    for number in (0..puts).chain(0..puts) {
        put(&env, number, 2).unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    let mut ended = Ok(());
    while ended.is_ok() {
        ended = backup.next_piece().map(|piece| assert!(piece.is_some(), "the backup is complete"));
    }
    assert_eq!(ended, Err(Error::ViewEnded));
    drop(backup);
    // Nothing of it is left.
    let mut batch = Batch::new();
    batch.delete_range(D, &Cut::LOW, &Cut::HIGH);
    env.commit(&batch).unwrap();
    while env.run_due_work().unwrap() {}
    let problems = problems(&env).unwrap();
    assert_eq!(problems, [""; 0]);
}
