//! Upserts that came to the tree before all superblocks were lost.

use std::sync::Arc;

use betree::{Batch, DictId, Env, Error, Options};
use betree_platform::{BLOCK_BYTES, Device};
use seeded::Rng;

use crate::append_capped::AppendCapped;
use crate::failure::{Failure, wrong};
use crate::mem_device::MemDevice;
use crate::model::show;
use crate::runner::{format_env, open_env};
use crate::step::{SMALL_NODES, Setup};

const D: DictId = DictId(0);
const KEY: &[u8] = b"\x80counter";
const SETUP: Setup =
    Setup { geometry: SMALL_NODES, cache_bytes: 1 << 20, volume_bytes: 16 << 20, seeks: false };
/// The blocks with superblocks, from the first on.
const SUPERBLOCKS: usize = 4;

/// Law: the newest messages in the nodes say how far the log had come to the tree. A key that is upserted,
/// with a checkpoint behind it, has the same value where a repair makes the superblocks anew, and replays
/// what is left of the log.
///
/// # Errors
/// The engine's, or the value differs.
pub fn lost_superblocks_history(seed: u64) -> Result<(), Failure> {
    let mut rng = Rng::new(seed);
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(SETUP.volume_bytes).which_seeks(SETUP.seeks));
    format_env(&device, &SETUP)?;
    let env = open_env(&device, &SETUP)?;
    let commit = |fill: &mut dyn FnMut(&mut Batch)| -> Result<(), Failure> {
        let mut batch = Batch::new();
        fill(&mut batch);
        env.throttle(batch.bytes())?;
        env.commit(&batch)?;
        Ok(())
    };
    // A tree with a root above others, where upserts wait.
    for _ in 0..400 {
        let key = rng.next_u64().to_be_bytes();
        commit(&mut |batch| batch.put(D, &key, &[7; 100]))?;
        while env.run_due_work()? {}
    }
    env.checkpoint()?;
    let mut value = None;
    for number in 0..rng.between(2, 8) {
        let delta = format!("{},", number + rng.below(90)).into_bytes();
        commit(&mut |batch| batch.upsert(D, KEY, &delta))?;
        // Otherwise the checkpoint drops its record before it comes to the log.
        env.sync()?;
        value = AppendCapped::applied(value.as_deref(), &delta);
        if rng.percent(30) {
            env.checkpoint()?;
        }
    }
    env.checkpoint()?;
    env.abandon();
    drop(env);
    for block in 0..SUPERBLOCKS {
        let offset = (block * BLOCK_BYTES) as u64;
        device.write_at(offset, &[0; BLOCK_BYTES]).map_err(Error::from)?;
    }
    let options = Options::new(SETUP.cache_bytes, Arc::new(AppendCapped));
    let env = Env::open_for_repair(device, options, &mut |_| ())?;
    let found = env.get(D, KEY)?;
    if found != value {
        let [found, value] = [found, value].map(|value| show(&value.unwrap_or_default()));
        return wrong(format!("without superblocks the value is {found} in place of {value}"));
    }
    Ok(())
}
