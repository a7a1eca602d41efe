//! Makes room on the device for a claim: by a checkpoint, by carrying out deletes, by growth.

use betree_platform::sync::MutexGuard;
use betree_platform::sync::atomic::Ordering;
use hashbrown::HashSet;

use super::Env;
use super::commit::Committer;
use crate::engine::admission::Claim;
use crate::error::{Error, Result};

impl Env {
    /// The writers' lock, held from a moment at which there is room for the claim: claims that other threads
    /// found room for have been taken by then. No freeze lasts then; the caller holds no other lock.
    pub(super) fn lock_with_room(&self, claim: &Claim) -> Result<MutexGuard<'_, Committer>> {
        loop {
            let commit = self.lock_thawed();
            if self.engine.room().fits(claim, 0) {
                return Ok(commit);
            }
            drop(commit);
            let made = self.make_room(claim);
            if claim.is_taken_always && made.as_ref().err().is_none_or(Error::is_want_of_space) {
                return Ok(self.lock_thawed());
            }
            made?;
        }
    }

    /// Makes room for a claim as far as possible without changing the contents.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is still none, and those of [`checkpoint`](Env::checkpoint).
    pub(super) fn make_room(&self, claim: &Claim) -> Result<()> {
        // The next checkpoint frees the extents that only the last one names.
        self.checkpoint()?;
        if self.engine.room().fits(claim, 0) {
            return Ok(());
        }
        self.give_space_back()?;
        while !self.engine.room().fits(claim, 0) && self.grow_a_step()? {}
        // Views come after everything that needs no reader's consent.
        while !self.engine.room().fits(claim, 0) && self.engine.end_oldest_view() {
            self.checkpoint()?;
        }
        if claim.is_taken_always || self.engine.room().fits(claim, 0) { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Sets `bytes` of room aside for batches that [draw](crate::Batch::draw) on it; other batches cannot use
    /// it. Closing the environment forgets it.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is too little, and those of [`checkpoint`](Env::checkpoint).
    pub fn set_aside(&self, bytes: u64) -> Result<()> {
        let beside_bytes = self.engine.room().reserve_bytes();
        let claim = Claim { needed_bytes: bytes, beside_bytes, drawn_bytes: 0, is_taken_always: false };
        let commit = self.lock_with_room(&claim)?;
        self.writable(&commit)?;
        self.engine.admission.set_aside(bytes);
        Ok(())
    }

    /// Gives back `bytes` that were [set aside](Env::set_aside) and not drawn on.
    pub fn put_back(&self, bytes: u64) {
        self.engine.admission.put_back(bytes);
    }

    /// Carries out pending deletes if they free much compared with the free space, so that
    /// [`space`](Env::space) is right about it.
    ///
    /// # Errors
    /// As [`checkpoint`](Env::checkpoint).
    pub fn reclaim(&self) -> Result<()> {
        if self.opened.for_reading || self.is_frozen() {
            return Ok(());
        }
        // Another thread may have taken note of the pending deletes and not have carried them out yet.
        drop(self.reclaiming.lock());
        let room = self.engine.room();
        if room.wants_deletes_back() || room.expects_much() {
            self.give_space_back()?;
        }
        Ok(())
    }

    /// Carries deletes out in the leaves, step by step, each made durable so that the next has room. `false`
    /// if there was nothing new.
    pub(super) fn give_space_back(&self) -> Result<bool> {
        // A thread that waits here has the other's gain when its turn comes.
        let _turn = self.reclaiming.lock();
        let commits = self.engine.counters.commits.load(Ordering::Relaxed);
        if !self.engine.admission.has_news_to_drain(commits) {
            return Ok(false);
        }
        let mut emptied = HashSet::new();
        loop {
            let more = self.engine.drain(&mut emptied)?;
            while self.engine.free_one()? {}
            self.checkpoint()?;
            if !more {
                return Ok(true);
            }
        }
    }
}
