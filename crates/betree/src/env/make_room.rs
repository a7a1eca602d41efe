//! Makes room on the device where a claim finds too little: by a checkpoint, then by carrying out what was
//! deleted.

use betree_platform::sync::MutexGuard;
use betree_platform::sync::atomic::Ordering;
use hashbrown::HashSet;

use super::Env;
use super::commit::Committer;
use crate::engine::admission::Claim;
use crate::error::{Error, Result};

impl Env {
    /// The writers' lock, at a moment at which there is room for a claim: whoever else found it has taken his
    /// by then.
    pub(super) fn lock_with_room(&self, claim: &Claim) -> Result<MutexGuard<'_, Committer>> {
        loop {
            let commit = self.commit.lock();
            if self.engine.room().fits(claim, 0) {
                return Ok(commit);
            }
            drop(commit);
            self.make_room(claim)?;
            if claim.is_taken_always {
                return Ok(self.commit.lock());
            }
        }
    }

    /// Makes room for a claim, as far as that can be had without changing anything.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is none even so, and what a [`checkpoint`](Env::checkpoint) runs into.
    pub(super) fn make_room(&self, claim: &Claim) -> Result<()> {
        // What the last checkpoint alone names can be had by another.
        self.checkpoint()?;
        if self.engine.room().fits(claim, 0) {
            return Ok(());
        }
        self.give_space_back()?;
        if claim.is_taken_always || self.engine.room().fits(claim, 0) { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Sets so many bytes of room aside for batches that [draw](crate::Batch::draw) on it: no other is given
    /// it. It is forgotten when the environment is closed.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is not so much, and what a [`checkpoint`](Env::checkpoint) runs into.
    pub fn set_aside(&self, bytes: u64) -> Result<()> {
        let beside_bytes = self.engine.room().reserve_bytes();
        let claim = Claim { needed_bytes: bytes, beside_bytes, drawn_bytes: 0, is_taken_always: false };
        let commit = self.lock_with_room(&claim)?;
        self.writable(&commit)?;
        self.engine.admission.set_aside(bytes);
        Ok(())
    }

    /// Gives back so many bytes of what was [set aside](Env::set_aside) and not drawn on.
    pub fn put_back(&self, bytes: u64) {
        self.engine.admission.put_back(bytes);
    }

    /// What was deleted and not yet carried out gives its space back before this returns, if it is
    /// much beside what is free: then [`space`](Env::space) tells the truth about it.
    ///
    /// # Errors
    /// As [`checkpoint`](Env::checkpoint).
    pub fn reclaim(&self) -> Result<()> {
        if self.opened.for_reading {
            return Ok(());
        }
        // Whoever is at it has taken note of what was pending, and may not have carried it out yet.
        drop(self.reclaiming.lock());
        let room = self.engine.room();
        if room.wants_deletes_back() || room.expects_much() {
            self.give_space_back()?;
        }
        Ok(())
    }

    /// Deletes take effect in the leaves, step by step, each made durable so that the next has
    /// room. `false` if there was nothing new.
    pub(super) fn give_space_back(&self) -> Result<bool> {
        // Whoever comes while another is at it has what it gained when the turn is his.
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
