//! Removes what has expired in ranges that nobody changes: leaves that are written anew drop it by
//! themselves.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Env, Isolation, Outcome};
use crate::error::{Error, Result};
use crate::key::Cut;
use crate::settings::DictId;
use crate::upsert::Upsert;

/// How often a step is tried where others change the same keys: what is changed is not forgotten.
const TRIES_MAX: usize = 3;

/// A step of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Where the next step begins; `None` if this one came to the end.
    pub next: Option<Cut>,
    /// The number of pairs that it removed.
    pub removed: u64,
    /// The earliest time at which something expires that it has left, in nanoseconds since 1970-01-01 00:00
    /// UTC; `None` if nothing does.
    pub earliest_ns: Option<i64>,
}

impl Env {
    /// Takes a step of a sweep over `[lo, hi)`: reads pairs in order until keys and values have `bytes_max`
    /// bytes, and removes those that have expired, in one transaction. Where others change what it would
    /// remove, it removes nothing after a few tries. Without a clock it does nothing.
    ///
    /// # Errors
    /// [`Error::ViewEnded`] where space is short; those of reading and of [`commit`](Env::commit).
    pub fn remove_expired(
        self: &Arc<Self>,
        dict: DictId,
        lo: &Cut,
        hi: &Cut,
        bytes_max: usize,
    ) -> Result<Swept> {
        self.refuse_if_forked()?;
        let mut next = None;
        for _ in 0..TRIES_MAX {
            let mut transaction = self.begin(Isolation::Snapshot);
            let Some(time_ns) = transaction.view().time_ns() else { break };
            let (mut expired, mut bytes) = (Vec::new(), 0);
            let mut expired_bytes = 0;
            next = None;
            let mut earliest_ns: Option<i64> = None;
            let mut cursor = transaction.view().cursor_with_expired(dict, lo.clone(), hi.clone());
            while let Some((key, value)) = cursor.next()? {
                let pair_bytes = key.len() + value.len();
                match self.engine.store.upsert.expires_at_ns(value) {
                    Some(at_ns) if at_ns <= time_ns => {
                        expired.push(key.to_vec());
                        expired_bytes += pair_bytes;
                    }
                    Some(at_ns) => earliest_ns = Some(earliest_ns.map_or(at_ns, |now| now.min(at_ns))),
                    None => {}
                }
                bytes += pair_bytes;
                if bytes >= bytes_max {
                    next = Some(Cut::just_after(key));
                    break;
                }
            }
            drop(cursor);
            let mut removed = 0;
            for key in &expired {
                match transaction.delete(dict, key) {
                    Ok(()) => removed += 1,
                    Err(Error::TooLarge { .. }) if removed > 0 => {
                        next = Some(Cut::before(key.as_slice()));
                        break;
                    }
                    // It stays, hidden: no transaction of this cache has room for its key.
                    Err(Error::TooLarge { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            transaction.mark_freeing(expired_bytes as u64);
            if let Outcome::Committed(_) = transaction.commit()? {
                return Ok(Swept { next, removed, earliest_ns });
            }
        }
        // What has expired is there still.
        Ok(Swept { next, removed: 0, earliest_ns: self.now_ns() })
    }
}

#[cfg(test)]
mod tests;
