//! Names of dictionaries in a transaction: read and changed as pairs of the catalogue, so that they conflict
//! as pairs do.

use std::sync::Arc;

use super::{Changed, Renaming, Transaction};
use crate::catalogue::{self, Entry};
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::keys::{ENGINE_DICT, dict_cuts};
use crate::names::check_name;
use crate::options::DictOptions;
use crate::shared::DictState;
use crate::steps::Steps;
use crate::store::refused_catalogue;

impl Transaction {
    /// The entry of a name, which counts as read.
    fn entry(&self, name: &str) -> Result<Option<Entry>> {
        self.shared.refuse_if_closed()?;
        let found = self.engine.get(ENGINE_DICT, &catalogue::name_key(name));
        let found = found.map_err(|error| self.shared.error(error))?;
        let entry = found.map(|found| catalogue::entry_of(name, &found)).transpose();
        entry.map_err(|why| refused_catalogue(&self.shared.path, why))
    }

    /// The dictionary of a name, as of the transaction's beginning and with its own changes. The transaction
    /// depends on the name.
    ///
    /// # Errors
    /// [`Error::NoSuchDict`]; as [`get`](Transaction::get).
    pub fn dict(&self, name: &str) -> Result<Dict> {
        let entry = self.entry(name)?.ok_or_else(|| Error::NoSuchDict { name: name.into() })?;
        Ok(Dict { shared: self.shared.clone(), state: self.state_of(name, entry) })
    }

    /// The names of all dictionaries, in order. The transaction depends on all of them.
    ///
    /// # Errors
    /// As [`get`](Transaction::get).
    pub fn dicts(&self) -> Result<Vec<String>> {
        self.shared.refuse_if_closed()?;
        let entries = catalogue::entries(|lo, hi| Steps::Noted(self.cursor(lo, hi)));
        match entries {
            Ok(entries) => Ok(entries.into_iter().map(|(name, _)| name).collect()),
            Err(catalogue::Refusal::Engine(error)) => Err(self.shared.error(error)),
            Err(refusal) => Err(refused_catalogue(&self.shared.path, refusal)),
        }
    }

    /// The dictionary of an entry that the transaction has read.
    fn state_of(&self, name: &str, entry: Entry) -> Arc<DictState> {
        let own = self.renamings.iter().map(|(state, _)| state).find(|state| state.number == entry.number);
        if let Some(own) = own {
            return own.clone();
        }
        let catalogue = self.shared.catalogue.lock();
        let same_name = catalogue.dicts.get(name).filter(|state| state.number == entry.number);
        let found = same_name.or_else(|| catalogue.dicts.values().find(|state| state.number == entry.number));
        let dropped = || {
            let state = DictState::new(name, entry);
            state.set_dropped(true);
            Arc::new(state)
        };
        found.cloned().unwrap_or_else(dropped)
    }

    /// Makes a dictionary. The handle is good for this transaction, and for all once that has committed.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::{DictOptions, Isolation};
    ///
    /// let users = store.run(Isolation::Serializable, |transaction| {
    ///     let users = transaction.create("users", &DictOptions::new())?;
    ///     transaction.put(&users, "ada", "1815")?;
    ///     Ok(users)
    /// })?;
    /// assert!(users.contains("ada")? && store.dicts() == ["users"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::DictExists`], [`Error::BadName`], [`Error::UnknownMerge`]; as [`put`](Transaction::put).
    pub fn create(&mut self, name: &str, options: &DictOptions) -> Result<Dict> {
        check_name(name)?;
        self.refuse_if_read_only()?;
        self.shared.refuse_unknown_merge(name, options)?;
        if self.entry(name)?.is_some() {
            return Err(Error::DictExists { name: name.into() });
        }
        let number = self.shared.take_number()?;
        let entry = Entry::new(number, options);
        let put = self.engine.put(ENGINE_DICT, &catalogue::name_key(name), &entry.stored());
        put.map_err(|error| self.shared.error(error))?;
        let state = Arc::new(DictState::unmade(name, entry));
        self.renamings.push((state.clone(), Renaming::Made(name.into())));
        Ok(Dict { shared: self.shared.clone(), state })
    }

    /// Gives a dictionary another name. Handles of it stay good.
    ///
    /// # Errors
    /// [`Error::NoSuchDict`], [`Error::DictExists`] for the new name, [`Error::BadName`]; as
    /// [`put`](Transaction::put).
    pub fn rename_dict(&mut self, from: &str, to: &str) -> Result<()> {
        check_name(to)?;
        self.refuse_if_read_only()?;
        let entry = self.entry(from)?.ok_or_else(|| Error::NoSuchDict { name: from.into() })?;
        if self.entry(to)?.is_some() {
            return Err(Error::DictExists { name: to.into() });
        }
        let bytes = entry.stored();
        self.change_all(|engine| {
            engine.put(ENGINE_DICT, &catalogue::name_key(to), &bytes)?;
            engine.delete(ENGINE_DICT, &catalogue::name_key(from))
        })?;
        let state = self.state_of(from, entry);
        self.renamings.push((state, Renaming::Renamed { from: from.into(), to: to.into() }));
        Ok(())
    }

    /// Makes a dictionary that holds what another one holds, as the transaction sees it, with its merge. The
    /// cost does not depend on how much that is. The source must be unchanged when the transaction commits,
    /// with snapshot isolation too.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::Isolation;
    ///
    /// let users = store.dict("users")?;
    /// users.put("ada", "1815")?;
    /// store.run(Isolation::Snapshot, |transaction| {
    ///     let before = transaction.clone_dict("users", "users of last year")?;
    ///     transaction.put(&before, "backed up", "yes")?;
    ///     transaction.delete(&users, "ada")
    /// })?;
    /// assert!(users.is_empty()? && store.open_dict("users of last year")?.contains("ada")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchDict`], [`Error::DictExists`] for the new name, [`Error::BadName`],
    /// [`Error::TooManyClones`]; as [`put`](Transaction::put).
    pub fn clone_dict(&mut self, from: &str, to: &str) -> Result<Dict> {
        check_name(to)?;
        self.refuse_if_read_only()?;
        let entry = self.entry(from)?.ok_or_else(|| Error::NoSuchDict { name: from.into() })?;
        if self.entry(to)?.is_some() {
            return Err(Error::DictExists { name: to.into() });
        }
        let source = self.state_of(from, entry.clone());
        let with_parts = entry.has_parts || source.has_parts();
        let number = self.shared.take_number()?;
        let copy = Entry { number, has_parts: with_parts, ..entry };
        let unused = self.unused_parts(&source);
        self.change_all(|engine| {
            unused.iter().try_for_each(|(lo, hi)| engine.delete_range(ENGINE_DICT, lo, hi))?;
            engine.put(ENGINE_DICT, &catalogue::name_key(to), &copy.stored())?;
            engine.clone_range(ENGINE_DICT, &source.number.to_be_bytes(), &number.to_be_bytes())
        })?;
        let state = Arc::new(DictState::unmade(to, copy));
        self.changes.extend([source, state.clone()].map(|state| (state, Changed::Cloned { with_parts })));
        self.renamings.push((state.clone(), Renaming::Made(to.into())));
        Ok(Dict { shared: self.shared.clone(), state })
    }

    /// Removes a dictionary with all that it holds, at a cost that does not depend on that.
    ///
    /// # Errors
    /// [`Error::NoSuchDict`]; as [`put`](Transaction::put).
    pub fn drop_dict(&mut self, name: &str) -> Result<()> {
        self.refuse_if_read_only()?;
        let entry = self.entry(name)?.ok_or_else(|| Error::NoSuchDict { name: name.into() })?;
        let (lo, hi) = dict_cuts(entry.number);
        self.change_all(|engine| {
            engine.delete_range(ENGINE_DICT, &lo, &hi)?;
            engine.delete(ENGINE_DICT, &catalogue::name_key(name))
        })?;
        let state = self.state_of(name, entry);
        self.renamings.push((state, Renaming::Dropped(name.into())));
        Ok(())
    }

    /// Makes several changes in the engine, or none.
    pub(super) fn change_all(
        &mut self,
        change: impl FnOnce(&mut betree::Transaction) -> betree::Result<()>,
    ) -> Result<()> {
        let before = self.engine.savepoint();
        let changed = change(&mut self.engine);
        if changed.is_err() {
            self.engine.roll_back(before);
        }
        changed.map_err(|error| self.shared.error(error))
    }
}
