//! Repeats a transaction until it commits.

use super::{Isolation, Outcome, SharedTransaction, Transaction};
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
        self.repeat(|| {
            let mut transaction = self.begin(isolation);
            let done = body(&mut transaction);
            self.ended(Some(transaction), done)
        })
    }

    /// As [`run`](Store::run), with a transaction that the closure may share, and with errors of the caller's
    /// own type. One that the closure has ended is not committed again.
    ///
    /// # Errors
    /// As [`run`](Store::run).
    pub fn run_shared<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        mut body: impl FnMut(&SharedTransaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.repeat(|| {
            let shared = SharedTransaction::from(self.begin(isolation));
            let done = body(&shared);
            let transaction = shared.lock().take();
            self.ended(transaction, done)
        })
    }

    /// Tries until there is a result, and then waits as the durability says.
    fn repeat<T, E: From<Error>>(
        &self,
        mut attempt: impl FnMut() -> std::result::Result<Option<T>, E>,
    ) -> std::result::Result<T, E> {
        let mut turn = None;
        let mut tries = 0;
        let result = loop {
            if tries == TRIES_AT_ONCE {
                turn = Some(self.shared.turn.lock());
            }
            tries += 1;
            if let Some(result) = attempt()? {
                break result;
            }
        };
        drop(turn);
        self.shared.settle()?;
        Ok(result)
    }

    /// Ends a transaction whose body is done. `None` if it is to be tried again.
    fn ended<T, E: From<Error>>(
        &self,
        transaction: Option<Transaction>,
        done: std::result::Result<T, E>,
    ) -> std::result::Result<Option<T>, E> {
        let Some(transaction) = transaction else { return done.map(Some) };
        match done {
            // The body may have failed because its moment is gone.
            Err(_) if transaction.has_lost_its_view() => Ok(None),
            Err(error) => Err(error),
            Ok(result) => match transaction.commit_unsettled() {
                Ok(Outcome::Committed(_)) => Ok(Some(result)),
                Ok(Outcome::Conflict(_)) | Err(Error::ViewEnded { .. }) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }
}
