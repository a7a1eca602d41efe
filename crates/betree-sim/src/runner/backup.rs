//! Backups beside the model: a complete one is a volume with the contents of its beginning.

use std::sync::Arc;

use betree::{Backup, Env, Error};
use betree_platform::Device;

use super::{Runner, open_env};
use crate::failure::{Failure, wrong};
use crate::mem_device::MemDevice;
use crate::model::ModelEnv;

/// The contents of a copy's blocks that no piece covers.
const RUBBISH: u8 = 0xa5;

/// A backup that is not complete.
pub(super) struct BackupUnderWay {
    backup: Backup,
    copy: Vec<u8>,
    /// The bytes of the pieces so far.
    read_bytes: u64,
    /// The contents at its beginning.
    then: ModelEnv,
}

impl Runner {
    /// The number of backups that were complete, and right.
    pub fn backups(&self) -> usize {
        self.backups
    }

    /// Reads pieces of a backup, and compares it with the model once it is complete.
    pub(super) fn back_up(&mut self, pieces: usize) -> Result<(), Failure> {
        let env: Arc<Env> = self.env()?.clone();
        let mut at = match self.backup.take() {
            Some(at) => at,
            None => {
                let backup = env.backup()?;
                self.history.synced();
                let copy = vec![RUBBISH; backup.volume_bytes() as usize];
                BackupUnderWay { backup, copy, read_bytes: 0, then: self.history.latest().clone() }
            }
        };
        for _ in 0..pieces {
            match at.backup.next_piece() {
                Ok(Some((offset, bytes))) => {
                    let to = at.copy.get_mut(offset as usize..offset as usize + bytes.len());
                    to.ok_or_else(|| Failure::Wrong(format!("a piece at {offset}")))?.copy_from_slice(bytes);
                    at.read_bytes += bytes.len() as u64;
                }
                Ok(None) => {
                    self.backups += 1;
                    return self.compare_backup(&at);
                }
                // Space was short.
                Err(Error::ViewEnded) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.backup = Some(at);
        Ok(())
    }

    fn compare_backup(&self, at: &BackupUnderWay) -> Result<(), Failure> {
        if at.read_bytes != at.backup.bytes() {
            return wrong(format!("{} bytes of a backup of {}", at.read_bytes, at.backup.bytes()));
        }
        let device: Arc<dyn Device> = Arc::new(MemDevice::new(at.copy.len() as u64));
        device.write_at(0, &at.copy).map_err(Error::from)?;
        let env = Arc::new(open_env(&device, &self.setup)?);
        let found = ModelEnv::read(&env, self.setup.geometry.dicts)?;
        if let Some(difference) = found.difference(&at.then) {
            return wrong(format!("in a backup: {difference}"));
        }
        let mut problems = Vec::new();
        env.check(&mut |found| problems.extend(found.into_problem()), &mut |_, _| ())?;
        if problems.is_empty() { Ok(()) } else { wrong(format!("in a backup: {}", problems.join("; "))) }
    }
}
