//! Repeats a transaction until it commits.

use alloc::sync::Arc;

use super::{Isolation, Outcome, Transaction};
use crate::env::Env;
use crate::error::{Error, Result};

/// How often a transaction is tried at once, before it takes turns with others that failed as often.
const TRIES_AT_ONCE: u32 = 8;

impl Env {
    /// Runs a transaction, again after each conflict, until it commits, and returns its result. After eight
    /// conflicts it takes turns with others that met as many: two of them cannot fail each other for ever.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let env = std::sync::Arc::new(env);
    /// use betree::{DictId, Isolation};
    ///
    /// let visits = env.run(Isolation::Serializable, |transaction| {
    ///     let visits = transaction.get(DictId(0), b"visits")?.map_or(0, |value| value[0]) + 1;
    ///     transaction.put(DictId(0), b"visits", &[visits])?;
    ///     Ok(visits)
    /// })?;
    /// assert_eq!(visits, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The closure's, which drops the changes, and those of [`commit`](Transaction::commit).
    pub fn run<T>(
        self: &Arc<Self>,
        isolation: Isolation,
        mut body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let mut turn = None;
        let mut tries = 0;
        loop {
            if tries == TRIES_AT_ONCE {
                turn = Some(self.turn.lock());
            }
            tries += 1;
            let mut transaction = self.begin(isolation);
            let done = body(&mut transaction).and_then(|result| Ok((result, transaction.commit()?)));
            match done {
                Ok((result, Outcome::Committed(_))) => {
                    drop(turn);
                    return Ok(result);
                }
                Ok((_, Outcome::Conflict(_))) | Err(Error::ViewEnded) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
