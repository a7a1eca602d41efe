//! Failing disks: which errors they excuse, and what must hold nevertheless.
//!
//! A call that fails on the disk is an error of the operation, which then has changed nothing; reads go on
//! and are right. After a failed write or sync the volume takes no changes until it is opened anew; if the
//! disk was full, it goes on once there is room. Where stored data are lost, what can be read is right, and
//! what cannot is an error that a check finds too.

use std::sync::Arc;

use betree::State as EnvState;
use betree_platform::Device;
use betrfs::Error;
use betrfs_fuse::Errno;

use crate::client::Failed;
use crate::drive::Fault;
use crate::failure::{Failure, wrong};
use crate::op::{Data, Op};
use crate::past::Oldest;
use crate::setup::SUPERBLOCKS_BYTES;
use crate::tree::read_volume;
use crate::world::World;

impl World {
    /// Makes the disk fail. Of those that damage a block, each second ends the program too, so that the block
    /// is read before it is written again.
    pub(crate) fn fault(&mut self, fault: Fault) -> Result<(), Failure> {
        if matches!(fault, Fault::BadBlock { .. } | Fault::Rot { .. })
            && let Ok(volume) = self.volume()
        {
            // Most blocks that were written lately are in use then. It may fail like any other step.
            let _ = volume.env().checkpoint();
        }
        self.is_damaged |= fault.damages();
        self.disk.set(fault);
        match fault {
            Fault::BadBlock { seed } | Fault::Rot { seed } if seed.is_multiple_of(2) => self.kill(),
            _ => Ok(()),
        }
    }

    /// Whether a failure of the disk excuses an error.
    pub(crate) fn is_of_fault(&self, error: &Error) -> bool {
        let is_struck = self.disk.has_struck() || self.is_damaged;
        match error {
            Error::Engine(_) | Error::ReadOnly { .. } | Error::NoSpace => is_struck,
            // A closed file without a name that could not be deleted holds its quota on.
            Error::QuotaExceeded => is_struck,
            Error::Damaged { .. } => self.is_damaged,
            _ => false,
        }
    }

    /// As [`is_of_fault`](World::is_of_fault), for an error as the client sees it.
    pub(crate) fn excuses(&self, failed: &Failed) -> bool {
        match failed {
            Failed::Library(error) => self.is_of_fault(error),
            Failed::Request(errno) => self.is_errno_of_fault(*errno),
            Failed::Wrong(_) => false,
        }
    }

    /// Likewise, for the failure of a step.
    pub(crate) fn is_excused(&self, failure: &Failure) -> bool {
        match failure {
            Failure::Library(error) => self.is_of_fault(error),
            Failure::Request(errno) => self.is_errno_of_fault(*errno),
            Failure::Wrong(_) => false,
        }
    }

    fn is_errno_of_fault(&self, errno: Errno) -> bool {
        let is_struck = self.disk.has_struck() || self.is_damaged;
        is_struck && matches!(errno, Errno::IO | Errno::NOSPC | Errno::ROFS | Errno::DQUOT)
    }

    /// Takes a write into the model that stopped early for a failure of the disk.
    pub(crate) fn stopped_early(&mut self, op: &Op, count: u64, now_ns: i64) -> Result<(), Failure> {
        let mut shorter = op.clone();
        match &mut shorter {
            Op::Write { data, .. } | Op::Append { data, .. } => *data = Data { len: count as usize, ..*data },
            Op::CopyRange { len, .. } => *len = count,
            _ => return wrong("it wrote, and should not"),
        }
        let mut next = self.past.latest().clone();
        match next.apply(&shorter, now_ns, &self.rules) {
            Ok(done) if done.written == count => {
                self.past.add(done.between, next);
                self.reached.note("stopped early");
                Ok(())
            }
            _ => wrong(format!("it stopped after {count} bytes, which is between pieces")),
        }
    }

    /// Checks a volume whose disk has not failed.
    pub(crate) fn check_if_sound(&mut self) -> Result<(), Failure> {
        let checked = self.check();
        if self.disk.has_struck() || self.is_damaged { Ok(()) } else { checked }
    }

    /// The disk is sound again, and has room.
    pub(crate) fn heal(&mut self) -> Result<(), Failure> {
        let sync_has_failed = self.disk.disk().has_failed();
        let has_struck = self.disk.has_struck();
        self.disk.heal();
        if self.is_damaged {
            return self.kill();
        }
        match self.volume()?.env().state() {
            EnvState::ReadOnly(_) if has_struck => {
                self.reached.note("opened anew after a failure");
                if let Some(client) = self.client.take() {
                    client.volume().env().abandon();
                }
                self.disk = Arc::new(self.disk.crash(self.platform.pass(0) as u64));
                self.open_again()
            }
            EnvState::ReadOnly(trouble) => wrong(format!("no changes are taken any more: {}", trouble.why)),
            _ if sync_has_failed => wrong("a sync has failed, and changes are still taken"),
            state => {
                if matches!(state, EnvState::DeviceFull(_)) {
                    self.reached.note("went on once there was room");
                }
                self.volume()?.sync()?;
                let _ = self.volume()?.finish_removals();
                self.past.is_durable();
                self.past.removals_have_ended();
                Ok(())
            }
        }
    }

    /// Opens a volume that may have lost stored data: whatever can be read is right.
    pub(crate) fn examine_damaged(&mut self) -> Result<(), Failure> {
        self.disk.heal();
        let device = Arc::clone(&self.disk) as Arc<dyn Device>;
        let volume = match self.setup.open(device, &self.platform) {
            Ok(volume) => volume,
            Err(error) if self.is_of_fault(&error) => {
                self.reached.note("damage: not opened");
                return Ok(());
            }
            Err(error) => return wrong(format!("a damaged volume cannot be opened: {error}")),
        };
        if self.rules.reads_count {
            // If the power is cut meanwhile, the next examination meets the times of this one.
            self.past.all_read(self.platform.pass(0));
        }
        let (found, unread) = match read_volume(&volume) {
            Ok(read) => read,
            Err((_, error)) if self.is_of_fault(&error) => return Ok(()),
            Err((path, error)) => return wrong(format!("{path} of a damaged volume: {error}")),
        };
        if let Some((path, error)) = unread.iter().find(|(_, error)| !self.is_of_fault(error)) {
            return wrong(format!("{path} of a damaged volume: {error}"));
        }
        // The end of the log that was lost cannot be told from the end of the log.
        let log = SUPERBLOCKS_BYTES..self.setup.first_extent();
        let is_in_log = self.disk.damaged_at().iter().any(|at| log.contains(at));
        let oldest = if is_in_log { Oldest::Any } else { Oldest::Durable };
        let state = self.past.recovered(&found, oldest, &mut self.inos);
        state.map_err(|what| Failure::Wrong(format!("a damaged volume: {what}")))?;
        self.reached.note(if unread.is_empty() {
            "damage: nothing lost"
        } else {
            "damage: unreadable parts"
        });
        let report = volume.check(&mut |_, _| ());
        volume.env().abandon();
        match report {
            Ok(report) if report.problems.is_empty() && !unread.is_empty() => {
                wrong(format!("a check finds nothing, and {} cannot be read: {}", unread[0].0, unread[0].1))
            }
            Err(error) if !self.is_of_fault(&error) => wrong(format!("a check of a damaged volume: {error}")),
            _ => Ok(()),
        }
    }
}
