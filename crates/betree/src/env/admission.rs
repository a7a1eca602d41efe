//! What may be taken of the room on the device.
//!
//! Everything accepted must fit beside what is there, with a reserve. Deletes are taken always, for they give
//! space back; what takes the place of about as much may use half of the reserve until that is carried out;
//! all else leaves the reserve alone, and what was set aside for others.

use betree_platform::sync::MutexGuard;
use betree_platform::sync::atomic::Ordering;
use hashbrown::HashSet;

use super::{Committer, Env};
use crate::batch::Batch;
use crate::error::{Error, Result};

/// What a change costs in buffers beyond what its batch counts, in bytes.
const CHANGE_OVERHEAD_BYTES: u64 = 64;

/// What is asked of the room on the device.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    /// What it may take, in bytes.
    needed_bytes: u64,
    /// What is to stay free beside, in bytes.
    beside_bytes: u64,
    /// What of the room that was set aside is its own, in bytes.
    drawn_bytes: u64,
    /// Whether it is taken in any case, once all has been done to make room.
    is_taken_always: bool,
}

impl Env {
    /// What a batch asks for.
    pub(super) fn claim_of(&self, batch: &Batch) -> Claim {
        let needed_bytes = match batch.puts_bytes() {
            0 => 0,
            puts_bytes => puts_bytes + batch.len() as u64 * CHANGE_OVERHEAD_BYTES,
        };
        let drawn_bytes = batch.drawn_bytes();
        let has_clones = batch.clones() > 0;
        let adds = needed_bytes > 0 || has_clones && !batch.frees();
        let reserve_bytes = self.engine.reserve_bytes();
        let may_use_reserve = !adds || batch.replaces() || drawn_bytes > 0;
        let beside_bytes = if may_use_reserve { reserve_bytes / 2 } else { reserve_bytes };
        // Clones are looked at again, with what they come to.
        Claim { needed_bytes, beside_bytes, drawn_bytes, is_taken_always: needed_bytes == 0 && !has_clones }
    }

    /// Whether there is room for a claim, and for so many bytes more that it makes the next checkpoint write.
    pub(super) fn has_room_for(&self, claim: &Claim, more_owed_bytes: u64) -> bool {
        let engine = &self.engine;
        let of_others = self.set_aside_bytes.load(Ordering::Relaxed).saturating_sub(claim.drawn_bytes);
        let wanted = [claim.needed_bytes, claim.beside_bytes, of_others, more_owed_bytes];
        let wanted = wanted.into_iter().fold(0, u64::saturating_add);
        engine.is_far_from_full(wanted) || engine.free_bytes() >= engine.owed_bytes().saturating_add(wanted)
    }

    /// The writers' lock, at a moment at which there is room for a claim: whoever else found it has taken his by then.
    pub(super) fn lock_with_room(&self, claim: &Claim) -> Result<MutexGuard<'_, Committer>> {
        loop {
            let commit = self.commit.lock();
            if self.has_room_for(claim, 0) {
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
        if self.has_room_for(claim, 0) {
            return Ok(());
        }
        self.give_space_back()?;
        if claim.is_taken_always || self.has_room_for(claim, 0) { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// A batch was taken: what it drew on is in memory now, and owed.
    pub(super) fn draw(&self, claim: &Claim) {
        self.put_back(claim.drawn_bytes);
    }

    /// Sets so many bytes of room aside for batches that [draw](Batch::draw) on it: no other is given it. It is forgotten
    /// when the environment is closed.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is not so much, and what a [`checkpoint`](Env::checkpoint) runs into.
    pub fn set_aside(&self, bytes: u64) -> Result<()> {
        let beside_bytes = self.engine.reserve_bytes();
        let claim = Claim { needed_bytes: bytes, beside_bytes, drawn_bytes: 0, is_taken_always: false };
        let commit = self.lock_with_room(&claim)?;
        self.writable(&commit)?;
        self.set_aside_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back so many bytes of what was [set aside](Env::set_aside) and not drawn on.
    pub fn put_back(&self, bytes: u64) {
        let less = |set_aside: u64| Some(set_aside.saturating_sub(bytes));
        // It never refuses.
        let _ = self.set_aside_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
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
        if self.engine.wants_deletes_back() || self.engine.expects_much() {
            self.give_space_back()?;
        }
        Ok(())
    }

    /// Deletes take effect in the leaves, step by step, each made durable so that the next has
    /// room. `false` if there was nothing new.
    pub(super) fn give_space_back(&self) -> Result<bool> {
        // Whoever comes while another is at it has what it gained when the turn is his.
        let _turn = self.reclaiming.lock();
        if !self.engine.has_news_to_drain() {
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
