//! Makes room on the device for a claim: by a checkpoint, by carrying out deletes, by growth.

use betree_platform::sync::MutexGuard;
use betree_platform::sync::atomic::Ordering;

use super::Env;
use super::commit::Committer;
use crate::engine::admission::Claim;
use crate::error::{Error, Result};
use crate::tree::Drain;

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
            let made = match self.engine.room().back(claim, 0) {
                Ok(true) => continue,
                Ok(false) | Err(Error::DeviceFull(_)) => self.make_room(claim),
                Err(error) => Err(error),
            };
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
        let fits = || self.engine.room().fits(claim, 0);
        // The next checkpoint frees the extents that only the last one names.
        self.checkpoint()?;
        self.give_space_back(&fits)?;
        let room = || self.engine.room();
        let mut may_grow = true;
        while !room().fits_or_is_backed(claim, 0) {
            if may_grow && !room().fits_volume(claim, 0) {
                may_grow = self.grow_a_step(|| room().fits_volume(claim, 0))?;
            } else if self.engine.end_oldest_view() {
                // Views come after everything that needs no reader's consent.
                self.checkpoint()?;
            } else if claim.is_taken_always {
                break;
            } else if !room().back(claim, 0)? && !room().fits(claim, 0) {
                return Err(Error::NoSpace);
            }
        }
        Ok(())
    }

    /// Sets `bytes` of room aside for batches that [draw](crate::Batch::draw) on it; other batches cannot use
    /// it. Closing the environment forgets it.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is too little, and those of [`checkpoint`](Env::checkpoint).
    pub fn set_aside(&self, bytes: u64) -> Result<()> {
        self.refuse_if_forked()?;
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

    /// The number of deletes since the last ones were carried out in the leaves, where the space is. How much
    /// they free is not known: who can estimate it tells [`expect_freed`](Env::expect_freed).
    pub fn pending_deletes(&self) -> u64 {
        self.engine.admission.pending_deletes()
    }

    /// Says that pending deletes free about this many bytes, in addition to what is known of them.
    pub fn expect_freed(&self, bytes: u64) {
        self.engine.admission.expect_space(bytes);
    }

    /// Carries out pending deletes if they free much compared with the free space, so that
    /// [`space`](Env::space) is right about it.
    ///
    /// # Errors
    /// As [`checkpoint`](Env::checkpoint).
    pub fn reclaim(&self) -> Result<()> {
        self.refuse_if_forked()?;
        if self.opened.for_reading || self.is_frozen() {
            return Ok(());
        }
        // A drain under way has taken note of the pending deletes and not carried them out yet.
        let is_under_way = self.reclaiming.lock().is_some();
        let room = self.engine.room();
        if is_under_way || room.wants_deletes_back() || room.expects_much() {
            self.give_space_back(&|| false)?;
        }
        Ok(())
    }

    /// Carries deletes out in the leaves until enough came back, or all that was pending at the call is
    /// carried out.
    pub(crate) fn give_space_back(&self, is_enough: &dyn Fn() -> bool) -> Result<()> {
        let mut has_begun = false;
        while !is_enough() {
            // A thread that waits here has the other's gain when its turn comes.
            let mut draining = self.reclaiming.lock();
            if is_enough() {
                break;
            }
            if draining.is_none() {
                if has_begun || !self.begin_to_give_back(&mut draining) {
                    break;
                }
                has_begun = true;
            }
            self.give_back_a_step(&mut draining)?;
        }
        Ok(())
    }

    /// Carries a few of the pending deletes out, if little is free; for background work. `false` if there was
    /// nothing to do, or another thread does it.
    pub(crate) fn give_back_in_background(&self) -> Result<bool> {
        let Some(mut draining) = self.reclaiming.try_lock() else { return Ok(false) };
        let goes_on = draining.is_some()
            || self.engine.room().wants_deletes_back() && self.begin_to_give_back(&mut draining);
        if goes_on {
            self.give_back_a_step(&mut draining)?;
        }
        Ok(goes_on)
    }

    /// Begins a drain. `false` if nothing is new since the last one.
    fn begin_to_give_back(&self, draining: &mut Option<Drain>) -> bool {
        let commits = self.engine.counters.commits.load(Ordering::Relaxed);
        let has_news = self.engine.admission.has_news_to_drain(commits);
        *draining = has_news.then(Drain::default);
        has_news
    }

    /// A step of a drain, made durable so that the next has room. An error ends the drain.
    fn give_back_a_step(&self, draining: &mut Option<Drain>) -> Result<()> {
        let Some(mut drain) = draining.take() else { return Ok(()) };
        let has_more = self.engine.drain(&mut drain)?;
        while self.engine.free_one()? {}
        self.checkpoint()?;
        if has_more {
            *draining = Some(drain);
        }
        Ok(())
    }
}
