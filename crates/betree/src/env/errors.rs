//! The counts of errors: asked for, kept on the volume, begun anew.

use super::Env;
use super::closing::End;
use crate::engine::checkpoint::Committed;
use crate::error::Result;
use crate::format::superblock::table_copy::TableCopy;
use crate::format::superblock::{Superblock, error_record, slots};
use crate::health::{ErrorRecord, State};

impl Env {
    /// The errors that were counted since the volume was made, or since the counts were
    /// [reset](Env::reset_errors). They are kept on the volume: with the next checkpoint, at the latest when
    /// it is closed. A crash may take those since the last checkpoint away.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// assert!(env.errors().counts().iter().all(|(_, errors)| errors.count == 0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn errors(&self) -> ErrorRecord {
        self.engine.store.disk.health.errors()
    }

    /// Begins to count errors anew. It is durable when this returns.
    ///
    /// # Errors
    /// As [`checkpoint`](Env::checkpoint), and [`Error::ReadOnly`](crate::Error::ReadOnly) for a volume that
    /// takes no changes; the counts go on then.
    pub fn reset_errors(&self) -> Result<()> {
        self.refuse_if_forked()?;
        let mut committed = self.checkpoint.lock();
        self.writable_now()?;
        let health = &self.engine.store.disk.health;
        let before = health.reset_errors();
        let done = self.checkpoint_as(false, &mut committed);
        if done.is_err() {
            health.take_earlier_errors(before);
        }
        done
    }

    /// Brings the counts of errors to the volume, if it has others: by a
    /// checkpoint or, after a failure that has ended all changes, by a note in a copy of the superblock that
    /// is not needed (a write of one block and a sync, which may fail too). A platform calls it from time to
    /// time. Without errors nothing is written.
    ///
    /// # Errors
    /// Those of [`checkpoint`](Env::checkpoint), or the device's.
    pub fn keep_errors(&self) -> Result<()> {
        self.refuse_if_forked()?;
        let mut committed = self.checkpoint.lock();
        let errors = self.errors();
        let end = self.commit.lock().end;
        if self.opened.for_reading || end == End::Done || errors == committed.kept_errors {
            return Ok(());
        }
        match self.state() {
            State::ReadOnly(_) => self.note_errors(&mut committed, errors),
            // A close writes them itself.
            _ if end == End::Closing => Ok(()),
            _ => self.checkpoint_as(false, &mut committed),
        }
    }

    /// Keeps the counts in a superblock that names what the last one names. Its first copy takes the place of
    /// a generation that counts no more, and the second one stays as it is. The next opening completes it.
    fn note_errors(&self, committed: &mut Committed, errors: ErrorRecord) -> Result<()> {
        // A newer superblock may count by its first copy: then there is no room for another one.
        if !self.engine.store.disk.health.has_failed() || committed.is_half_stored {
            return Ok(());
        }
        let last = &committed.superblock;
        let generation = last.generation + 1;
        let mut tail = error_record::put(&errors, last.tail.clone());
        // Without room for it, the second copy of the node table is given up.
        let _is_named = TableCopy::put(TableCopy::of(last).as_ref(), generation, &mut tail);
        let noted = Superblock { generation, tail, ..last.clone() };
        slots::store_note(&self.engine.store.disk, &noted)?;
        committed.kept_errors = errors;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
