//! Transactions that several handles share: for programs that can neither lend nor move them, such as those
//! in other languages.

use std::ops::RangeBounds;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::{Outcome, Transaction};
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::owned::OwnedIter;

/// A [`Transaction`] that its clones share. Calls of several threads follow one another. After the commit all
/// fail with [`Error::TransactionEnded`].
#[derive(Clone, Debug)]
pub struct SharedTransaction {
    transaction: Arc<Mutex<Option<Transaction>>>,
}

impl From<Transaction> for SharedTransaction {
    fn from(transaction: Transaction) -> SharedTransaction {
        SharedTransaction { transaction: Arc::new(Mutex::new(Some(transaction))) }
    }
}

impl SharedTransaction {
    /// Calls a method of the transaction.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::{Error, Isolation, Outcome, SharedTransaction};
    ///
    /// let fruit = store.dict("fruit")?;
    /// let own = SharedTransaction::from(store.begin(Isolation::Snapshot));
    /// own.with(|own| own.put(&fruit, "apple", "red"))?;
    /// let mut pairs = own.owned_prefix(&fruit, "a");
    /// assert!(pairs.next().transpose()?.is_some());
    /// assert!(matches!(own.commit()?, Outcome::Committed(_)));
    /// assert!(matches!(own.commit(), Err(Error::TransactionEnded)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TransactionEnded`]; those of the call.
    pub fn with<T>(&self, call: impl FnOnce(&mut Transaction) -> Result<T>) -> Result<T> {
        call(self.lock().as_mut().ok_or(Error::TransactionEnded)?)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Transaction>> {
        self.transaction.lock()
    }

    /// As [`Transaction::commit`]. The transaction has ended then, whatever becomes of it.
    ///
    /// # Errors
    /// [`Error::TransactionEnded`]; as [`Transaction::commit`].
    pub fn commit(&self) -> Result<Outcome> {
        let transaction = self.lock().take();
        transaction.ok_or(Error::TransactionEnded)?.commit()
    }

    /// Ends it, and drops its changes. Does nothing if it has ended.
    pub fn end(&self) {
        let transaction = self.lock().take();
        drop(transaction);
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.lock().is_none()
    }

    /// As [`Transaction::range`], with an iterator that keeps the transaction and the dictionary. It reads
    /// some pairs at a time, which count as read; it meets changes of the transaction behind those, and fails
    /// once the transaction has ended.
    pub fn owned_range<K: AsRef<[u8]>>(&self, dict: &Dict, range: impl RangeBounds<K>) -> OwnedIter {
        OwnedIter::new((self.clone(), dict.clone()), &Keys::of(&range))
    }

    /// As [`Transaction::prefix`], with an iterator such as [`owned_range`](SharedTransaction::owned_range).
    pub fn owned_prefix(&self, dict: &Dict, prefix: impl AsRef<[u8]>) -> OwnedIter {
        OwnedIter::new((self.clone(), dict.clone()), &Keys::Prefix(prefix.as_ref().to_vec()))
    }
}
