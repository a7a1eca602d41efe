//! Repeats a transaction until it commits.

use super::{Isolation, Outcome, Transaction};
use crate::error::{Error, Result};
use crate::store::Store;

/// How often a transaction is tried at once, before it takes turns with others that failed as often.
const TRIES_AT_ONCE: u32 = 8;

impl Store {
    /// Runs a transaction, again after each conflict, until it commits, and returns its result. After eight
    /// conflicts it takes turns with others that met as many: two of them cannot fail each other for ever.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::Isolation;
    ///
    /// let (users, by_year) = (store.dict("users")?, store.dict("by year")?);
    /// users.put("ada", "1816")?;
    /// by_year.put("1816/ada", "")?;
    /// store.run(Isolation::Serializable, |transaction| {
    ///     let old = transaction.get(&users, "ada")?.unwrap_or_default();
    ///     transaction.delete(&by_year, [&old[..], b"/ada"].concat())?;
    ///     transaction.put(&users, "ada", "1815")?;
    ///     transaction.put(&by_year, "1815/ada", "")
    /// })?;
    /// assert_eq!(by_year.first()?.map(|(key, _)| key), Some(b"1815/ada".to_vec().into()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The closure's, which drops the changes, and those of [`commit`](Transaction::commit).
    pub fn run<T>(
        &self,
        isolation: Isolation,
        mut body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let mut turn = None;
        let mut tries = 0;
        let result = loop {
            if tries == TRIES_AT_ONCE {
                turn = Some(self.shared.turn.lock());
            }
            tries += 1;
            let mut transaction = self.begin(isolation);
            let done =
                body(&mut transaction).and_then(|result| Ok((result, transaction.commit_unsettled()?)));
            match done {
                Ok((result, Outcome::Committed(_))) => break result,
                Ok((_, Outcome::Conflict(_))) | Err(Error::ViewEnded { .. }) => {}
                Err(error) => return Err(error),
            }
        };
        drop(turn);
        self.shared.settle()?;
        Ok(result)
    }
}
