//! The lives of a volume: how its program and its power end, and how it is opened again.

use std::sync::Arc;

use betree_platform::Device;
use betrfs::{Error, InodeId, Volume};

use crate::compare::{Inos, difference, take_atimes, take_late_ctimes};
use crate::failure::{Failure, wrong};
use crate::model::Lag;
use crate::other_syncs;
use crate::past::{Oldest, Past};
use crate::step::Crash;
use crate::tree::{Unread, read_volume};
use crate::world::{World, client_of};

impl World {
    /// Closes the volume and opens it again.
    pub(crate) fn reopen(&mut self) -> Result<(), Failure> {
        let Some(client) = &mut self.client else { return wrong("no volume is open") };
        let closed = client.leave().and_then(|()| client.close());
        match closed {
            Ok(()) => self.past.is_durable(),
            Err(failed) if self.excuses(&failed) && !self.disk.disk().is_cut() => return self.kill(),
            Err(failed) => return Err(failed.into()),
        }
        self.client = None;
        self.open_again()
    }

    /// Ends the program and opens the volume again. What was written to the disk is there, unless the disk
    /// has failed.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        if let Some(client) = self.client.take() {
            client.volume().env().abandon();
        }
        if self.disk.has_struck() {
            self.disk = Arc::new(self.disk.crash(self.platform.pass(0) as u64));
        }
        self.open_again()
    }

    /// Prepares a cut of the power. One that is still to come comes now.
    pub(crate) fn arm(&mut self, crash: &Crash) -> Result<(), Failure> {
        self.power_off()?;
        match crash.sync_after {
            Some(batch) => other_syncs::set(batch, &self.disk),
            None => self.disk.disk().cut_power_at(crash.call),
        }
        self.coming = Some(crash.clone());
        Ok(())
    }

    /// Cuts the power if a cut is still to come, and recovers.
    ///
    /// # Errors
    /// A promise does not hold.
    pub fn power_off(&mut self) -> Result<(), Failure> {
        if self.coming.is_some() && !self.is_over { self.recover() } else { Ok(()) }
    }

    /// Opens the volume after a crash, with crashes of the recovery if there are to be any.
    pub(crate) fn recover(&mut self) -> Result<(), Failure> {
        other_syncs::clear();
        if let Some(client) = self.client.take() {
            client.volume().env().abandon();
        }
        let Some(crash) = self.coming.take() else { return wrong("the power was cut by nobody") };
        self.disk = Arc::new(self.disk.crash(crash.seed));
        self.reached.note("recovery");
        for (call, seed) in crash.recoveries {
            self.disk.disk().cut_power_at(call);
            match self.open() {
                Ok(volume) => volume.env().abandon(),
                Err(_) if self.disk.disk().is_cut() || self.is_damaged => {}
                Err(error) => return wrong(format!("recovery fails: {error}")),
            }
            if self.disk.disk().is_cut() {
                self.reached.note("crash in a recovery");
            }
            self.disk = Arc::new(self.disk.crash(seed));
        }
        self.open_again()
    }

    fn open(&self) -> Result<Volume, Error> {
        self.setup.open(Arc::clone(&self.disk) as Arc<dyn Device>, &self.platform)
    }

    /// Opens the volume after its program has ended, finds the state that it holds, and goes on with that.
    pub(crate) fn open_again(&mut self) -> Result<(), Failure> {
        self.listings.clear();
        if self.is_damaged {
            self.is_over = true;
            return self.examine_damaged();
        }
        if self.may_lack_copies {
            // An opening that could not read a copy of the node table may have written over it. The next one
            // makes it anew, and tells of it as long as it lasts.
            if let Ok(volume) = self.open() {
                volume.env().abandon();
            }
        }
        let opened = self.open();
        self.may_lack_copies = self.disk.has_struck() || self.may_lack_copies && self.disk.disk().is_cut();
        if self.disk.has_struck() && !self.disk.disk().is_cut() {
            self.reached.note("fault while opening");
            match opened {
                // What it says later of a superblock that could not be read is past.
                Ok(volume) => volume.env().abandon(),
                Err(error) if self.is_of_fault(&error) => {}
                Err(error) => return wrong(format!("opening with a fault: {error}")),
            }
            self.disk = Arc::new(self.disk.crash(self.platform.pass(0) as u64));
            return self.open_again();
        }
        let volume = match opened {
            Ok(volume) => volume,
            Err(error) if self.disk.disk().is_cut() => return Err(error.into()),
            Err(error) => return wrong(format!("the volume cannot be opened: {error}")),
        };
        let replayed = volume.env().replayed_batches();
        self.client = Some(client_of(volume, self.by, &self.platform, self.seed));
        // A disk that is to fail does so later: what it holds must be seen first.
        let fault = self.disk.put_off();
        // Before anything is in memory.
        let by_number = self.find_by_numbers()?;
        let (found, unread) = match read_volume(self.volume()?) {
            Ok(read) => read,
            Err((_, error)) if self.disk.disk().is_cut() => return Err(error.into()),
            Err(error) => return Err(unreadable(error)),
        };
        match unread.into_iter().next() {
            Some((_, error)) if self.disk.disk().is_cut() => return Err(error.into()),
            Some(error) => return Err(unreadable(error)),
            None => {}
        }
        if let Some(first) = self.remade_from.take() {
            self.inos.forget_from(first);
        }
        let (number, mut state) = self
            .past
            .recovered(&found, Oldest::Durable, &mut self.inos)
            .map_err(|what| Failure::Wrong(format!("after opening: {what}")))?;
        self.reached.add("batches replayed", replayed);
        self.reached.note(if number == 0 { "found the durable state" } else { "found a later state" });
        if number + 1 < self.past.possible() {
            self.reached.note("lost undurable states");
        }
        state.let_go();
        take_atimes(&mut state, &found);
        take_late_ctimes(&mut state, &found);
        state.note_lag(Lag::None);
        if self.rules.reads_count {
            state.all_read(self.platform.pass(0));
        }
        // Objects that are gone have numbers no longer: a crash may have taken the record that reserved them.
        self.inos = Inos::default();
        if let Some(what) = difference(&state, &found, &mut self.inos) {
            return wrong(format!("after opening: {what}"));
        }
        if let Some(ino) = by_number.iter().find(|(ino, is_found)| self.inos.has(*ino) != *is_found) {
            return wrong(format!("after opening: (number, whether an object has it) is wrong: {ino:?}"));
        }
        let found_by_number = by_number.iter().filter(|(_, is_found)| *is_found).count();
        self.reached.add("objects found by number", found_by_number as u64);
        self.reached.add("numbers of objects that are gone", (by_number.len() - found_by_number) as u64);
        self.past = Past::of(state);
        let checked = self.check_if_sound();
        fault.into_iter().for_each(|fault| self.disk.set(fault));
        checked
    }

    /// Whether an object is found by each inode number that was seen before.
    fn find_by_numbers(&mut self) -> Result<Vec<(u64, bool)>, Failure> {
        let volume = self.volume()?;
        let numbers = self.inos.numbers();
        let mut found = Vec::with_capacity(numbers.len());
        for ino in numbers {
            match volume.find_inode(InodeId(ino)) {
                Ok(entry) if (entry.node, entry.attr.ino) == (InodeId(ino), ino) => {
                    volume.forget(entry.node, 1);
                    found.push((ino, true));
                }
                Ok(entry) => return wrong(format!("the search for the number {ino} finds {entry:?}")),
                Err(Error::Stale) => found.push((ino, false)),
                Err(error) if self.disk.disk().is_cut() => return Err(error.into()),
                Err(error) => return wrong(format!("the search for the number {ino} fails: {error}")),
            }
        }
        Ok(found)
    }
}

fn unreadable((path, error): Unread) -> Failure {
    Failure::Wrong(format!("after opening: {path} cannot be read: {error}"))
}
