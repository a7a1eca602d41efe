//! Freezes beside the model: a copy of the device that is taken meanwhile is a volume with all that was
//! committed before, and the device holds still.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use betree::{DictId, Env, Error};
use betree_platform::{BLOCK_BYTES, Device};

use super::{Runner, is_refusal, open_env};
use crate::compare::compare_value;
use crate::failure::{Failure, wrong};
use crate::mem_device::MemDevice;
use crate::model::{Edit, ModelEnv, batch_of};

/// How long a commit is given to go past a freeze: one that waits has not ended then.
const PASSES_WITHIN: Duration = Duration::from_millis(1);

impl Runner {
    /// Freezes the volume, reads keys between pieces of a copy of the device, and has another thread commit
    /// a batch and sync it meanwhile, which must wait for the end.
    pub(super) fn freeze(&mut self, gets: &[(DictId, Vec<u8>)], changes: &[Edit]) -> Result<(), Failure> {
        let env = Arc::clone(self.env()?);
        let changes = self.history.bounded(changes);
        let batch = batch_of(&changes);
        env.throttle(batch.bytes())?;
        let seen = self.seen().into_owned();
        let (frozen, committed) = thread::scope(|scope| {
            let mut commit = None;
            let frozen = env.freeze(|| {
                let (ended, has_ended) = mpsc::channel();
                let (env, batch) = (&env, &batch);
                commit = Some(scope.spawn(move || {
                    let committed = env.commit(batch).and_then(|()| env.sync());
                    // Nobody may listen any more.
                    let _ = ended.send(());
                    committed
                }));
                let mut copy = Copy::begun(&*self.device, gets.len() + 1);
                let may_pass = has_ended.recv_timeout(PASSES_WITHIN);
                for (dict, key) in gets {
                    copy.take_piece()?;
                    let expected = seen.dict(*dict).get(key);
                    compare_value(*dict, key, env.get(*dict, key)?, expected).map_err(Failure::Wrong)?;
                }
                copy.take_rest()?;
                // A batch of nothing has nothing to wait with.
                if may_pass.is_ok() && !batch.is_empty() {
                    return wrong("a commit went past a freeze".into());
                }
                Ok(copy.bytes)
            });
            (frozen, commit.map(|commit| commit.join()))
        });
        let bytes = match frozen? {
            Some(copied) => copied?,
            None => return wrong("a freeze was refused".into()),
        };
        self.history.synced();
        self.compare_copy(bytes)?;
        self.history.attempt(&changes);
        match committed {
            Some(Ok(Ok(()))) => {
                self.history.accepted();
                self.others_have_committed();
                self.history.synced();
                Ok(())
            }
            Some(Ok(Err(error))) => {
                if is_refusal(&error) {
                    self.history.refused();
                }
                Err(error.into())
            }
            _ => wrong("a commit beside a freeze panicked".into()),
        }
    }

    fn compare_copy(&self, bytes: Vec<u8>) -> Result<(), Failure> {
        let device: Arc<dyn Device> = Arc::new(MemDevice::new(bytes.len() as u64));
        device.write_at(0, &bytes).map_err(Error::from)?;
        let env = Arc::new(open_env(&device, &self.setup)?);
        if env.replayed_batches() > 0 {
            return wrong(format!("{} batches replayed of a copy", env.replayed_batches()));
        }
        let found = ModelEnv::read(&env, self.setup.geometry.dicts)?;
        if let Some(difference) = found.difference(self.history.latest()) {
            return wrong(format!("in a copy of a frozen volume: {difference}"));
        }
        check(&env)
    }
}

fn check(env: &Arc<Env>) -> Result<(), Failure> {
    let mut problems = Vec::new();
    env.check(&mut |found| problems.extend(found.into_problem()), &mut |_, _| ())?;
    match problems.is_empty() {
        true => Ok(()),
        false => wrong(format!("in a copy of a frozen volume: {}", problems.join("; "))),
    }
}

/// A copy of a device, which is taken piece by piece.
struct Copy<'d> {
    device: &'d dyn Device,
    bytes: Vec<u8>,
    piece_bytes: usize,
    /// How much was copied.
    at: usize,
}

impl<'d> Copy<'d> {
    /// One of about so many pieces.
    fn begun(device: &'d dyn Device, pieces: usize) -> Copy<'d> {
        let bytes = vec![0; device.len() as usize];
        let piece_bytes = bytes.len().div_ceil(pieces).next_multiple_of(BLOCK_BYTES);
        Copy { device, bytes, piece_bytes, at: 0 }
    }

    fn take_piece(&mut self) -> Result<(), Failure> {
        let end = self.bytes.len().min(self.at + self.piece_bytes);
        self.device.read_at(self.at as u64, &mut self.bytes[self.at..end]).map_err(Error::from)?;
        self.at = end;
        Ok(())
    }

    /// Takes what is left, and looks whether the rest is still as it was copied.
    fn take_rest(&mut self) -> Result<(), Failure> {
        let copied = self.at;
        while self.at < self.bytes.len() {
            self.take_piece()?;
        }
        let mut now = vec![0; copied];
        self.device.read_at(0, &mut now).map_err(Error::from)?;
        if now == self.bytes[..copied] { Ok(()) } else { wrong("a frozen device has changed".into()) }
    }
}
