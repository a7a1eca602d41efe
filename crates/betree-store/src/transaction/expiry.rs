//! Values that expire in a transaction.

use std::time::{Duration, SystemTime};

use super::{Changed, Transaction};
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::expiring::{self, TimeNs, expiry_of};
use crate::keys::{self, ENGINE_DICT};
use crate::parts;
use crate::value::stored_until;

impl Transaction {
    /// Sets the value of a key until a time: see [`Dict::put_until`]. The transaction itself goes by the time
    /// of its beginning: what has not expired then, it sees to its end, and its upserts find.
    ///
    /// # Errors
    /// [`Error::NoExpiry`]; as [`put`](Transaction::put).
    pub fn put_until(
        &mut self,
        dict: &Dict,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires: SystemTime,
    ) -> Result<()> {
        self.put_lasting(dict, key.as_ref(), value.as_ref(), Some(expiring::ns_of(expires)))
    }

    /// As [`put_until`](Transaction::put_until), for some time from the transaction's beginning on.
    ///
    /// # Errors
    /// As [`put_until`](Transaction::put_until).
    pub fn put_for(
        &mut self,
        dict: &Dict,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        lives: Duration,
    ) -> Result<()> {
        let expires_ns = expiring::later(self.now_ns(), lives);
        self.put_lasting(dict, key.as_ref(), value.as_ref(), Some(expires_ns))
    }

    /// When the value of a key expires, as the transaction sees it; `None` if it never does, or there is
    /// none.
    ///
    /// # Errors
    /// As [`get`](Transaction::get).
    pub fn expires_at(&self, dict: &Dict, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        Ok(expiry_of(self.read(dict, key.as_ref())?))
    }

    /// The time by which values have expired for it: that of its beginning.
    pub(super) fn now_ns(&self) -> TimeNs {
        // A store has a clock.
        self.engine.view().time_ns().unwrap_or(TimeNs::MIN)
    }

    pub(super) fn put_lasting(
        &mut self,
        dict: &Dict,
        key: &[u8],
        value: &[u8],
        expires_ns: Option<TimeNs>,
    ) -> Result<()> {
        if dict.check_put(key, value)? {
            let limit_bytes = parts::whole_bytes_max(&self.shared);
            let (dict, key) = (dict.name(), key.to_vec().into());
            return Err(Error::ValueTooLarge { dict, key, bytes: value.len(), limit_bytes });
        }
        dict.check_expiry(expires_ns)?;
        let pair_key = keys::pair_key(dict.state.number, key);
        let stored = stored_until(value, expires_ns, dict.state.deltas());
        self.change(dict, Changed::Put(key.to_vec()), |engine| engine.put(ENGINE_DICT, &pair_key, &stored))?;
        self.expiring.extend(expires_ns.map(|at_ns| (dict.state.clone(), at_ns)));
        Ok(())
    }
}
