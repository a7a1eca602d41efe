//! Values that expire: puts with a time, and what there is to ask and to do about it.

use std::time::{Duration, SystemTime};

use betree::Batch;

use crate::batch::WriteBatch;
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::expiring::{self, TimeNs, expiry_of};
use crate::keys::{self, ENGINE_DICT, Keys};
use crate::sweep;
use crate::value::stored_until;
use crate::view::ViewDict;

impl Dict {
    /// Whether it was made for values that expire.
    pub fn is_expiring(&self) -> bool {
        self.state.is_expiring
    }

    /// Sets the value of a key until a time, from which on nobody sees it: no read, and no upsert, which then
    /// finds no value. Until then upserts leave it its time; a plain [`put`](Dict::put) has none. Nothing is
    /// read for it. A time that has passed removes the key. Times end in the year 2262.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use std::time::{Duration, SystemTime};
    ///
    /// use betree_store::DictOptions;
    ///
    /// let sessions = store.dict_with("sessions", &DictOptions::new().expiring())?;
    /// let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    /// sessions.put_until("ada", "token", tomorrow)?;
    /// assert_eq!(sessions.expires_at("ada")?, Some(tomorrow));
    /// sessions.put_until("alan", "token", SystemTime::now())?;
    /// assert!(sessions.contains("ada")? && !sessions.contains("alan")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoExpiry`] if the dictionary was made [without](crate::DictOptions::expiring); as
    /// [`put`](Dict::put).
    pub fn put_until(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires: SystemTime,
    ) -> Result<()> {
        self.put_lasting(key.as_ref(), value.as_ref(), Some(expiring::ns_of(expires)))
    }

    /// As [`put_until`](Dict::put_until), for some time from now on.
    ///
    /// # Errors
    /// As [`put_until`](Dict::put_until).
    pub fn put_for(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, lives: Duration) -> Result<()> {
        let expires_ns = expiring::later(self.shared.now_ns(), lives);
        self.put_lasting(key.as_ref(), value.as_ref(), Some(expires_ns))
    }

    pub(crate) fn put_lasting(&self, key: &[u8], value: &[u8], expires_ns: Option<TimeNs>) -> Result<()> {
        let is_large = self.check_put(key, value)?;
        self.check_expiry(expires_ns)?;
        let put = |batch: &mut Batch| {
            let stored = stored_until(value, expires_ns, self.state.deltas());
            batch.put(ENGINE_DICT, &keys::pair_key(self.state.number, key), &stored);
        };
        if !is_large && self.change_whole(put)? {
            expires_ns.inspect(|at_ns| self.state.note_expiry(*at_ns));
            return Ok(());
        }
        let mut batch = WriteBatch::new(self.shared.clone());
        batch.put_lasting(self, key, value, expires_ns)?;
        batch.commit()
    }

    /// Refuses a time where the dictionary has none.
    pub(crate) fn check_expiry(&self, expires_ns: Option<TimeNs>) -> Result<()> {
        match expires_ns {
            Some(_) if !self.state.is_expiring => Err(Error::NoExpiry { dict: self.name() }),
            _ => Ok(()),
        }
    }

    /// When the value of a key expires; `None` if it never does, or there is none.
    ///
    /// # Errors
    /// As [`get`](Dict::get).
    pub fn expires_at(&self, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        self.shared.refuse_if_closed()?;
        let found = self.shared.env.get(ENGINE_DICT, &keys::pair_key(self.state.number, key.as_ref()));
        self.state.refuse_if_dropped()?;
        Ok(expiry_of(found.map_err(|error| self.shared.error(error))?))
    }

    /// Removes what has expired, in steps, and returns how many pairs that were. Nobody sees them before
    /// either: this is for whom needs their space now. The store's own thread does the same, of one
    /// dictionary at a time and of no more than 1 MiB of pairs a second; where leaves of the tree are written
    /// anyway, what has expired is dropped sooner. All pairs of the dictionary are read for it.
    ///
    /// # Errors
    /// [`Error::ViewEnded`] where space is short; as [`delete`](Dict::delete). Some may be removed.
    pub fn remove_expired(&self) -> Result<u64> {
        self.shared.refuse_if_closed()?;
        self.shared.refuse_if_read_only()?;
        let all = Keys::Prefix(Vec::new());
        let mut removed = [0, 0];
        let cuts = [all.pairs(self.state.number), all.parts(self.state.number)];
        for ((lo, hi), removed) in cuts.into_iter().zip(&mut removed) {
            let mut from = Some(lo);
            while let Some(lo) = from {
                self.state.refuse_if_dropped()?;
                let swept = self.shared.env.remove_expired(ENGINE_DICT, &lo, &hi, sweep::STEP_BYTES);
                let swept = swept.map_err(|error| self.shared.error(error))?;
                *removed += swept.removed;
                from = swept.next;
            }
        }
        let [pairs, _parts] = removed;
        Ok(pairs)
    }
}

impl ViewDict {
    /// When the value that a key had expires; `None` if it never does, or there was none. What has not
    /// expired when the view begins, it sees for ever.
    ///
    /// # Errors
    /// As [`get`](ViewDict::get).
    pub fn expires_at(&self, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        let shared = self.shared();
        shared.refuse_if_closed()?;
        let found = self.engine().get(ENGINE_DICT, &keys::pair_key(self.number, key.as_ref()));
        Ok(expiry_of(found.map_err(|error| shared.error(error))?))
    }
}

impl WriteBatch {
    /// Sets the value of a key until a time: see [`Dict::put_until`].
    ///
    /// # Errors
    /// [`Error::NoExpiry`]; as [`put`](WriteBatch::put).
    pub fn put_until(
        &mut self,
        dict: &Dict,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires: SystemTime,
    ) -> Result<()> {
        self.put_lasting(dict, key.as_ref(), value.as_ref(), Some(expiring::ns_of(expires)))
    }

    /// As [`put_until`](WriteBatch::put_until), for some time from this call on.
    ///
    /// # Errors
    /// As [`put_until`](WriteBatch::put_until).
    pub fn put_for(
        &mut self,
        dict: &Dict,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        lives: Duration,
    ) -> Result<()> {
        let expires_ns = expiring::later(dict.shared.now_ns(), lives);
        self.put_lasting(dict, key.as_ref(), value.as_ref(), Some(expires_ns))
    }
}
