//! The names of dictionaries: made, opened, renamed, dropped, listed and cloned.

use std::sync::Arc;

use betree::Batch;

use crate::catalogue::{self, Entry};
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::freeing::delete_range;
use crate::keys::{ENGINE_DICT, NAME_BYTES_MAX, dict_cuts};
use crate::options::DictOptions;
use crate::shared::DictState;
use crate::store::Store;

pub(crate) fn check_name(name: &str) -> Result<()> {
    match name.len() {
        1..=NAME_BYTES_MAX => Ok(()),
        _ => Err(Error::BadName { name: name.into(), why: "a name has between 1 and 255 bytes" }),
    }
}

impl Store {
    /// The dictionary of a name; one without a merge is made if there is none.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// store.dict("users")?.put("ada", "1815")?;
    /// assert!(store.dict("users")?.contains("ada")?);
    /// assert_eq!(store.dicts(), ["users"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::BadName`], and those of a commit.
    pub fn dict(&self, name: &str) -> Result<Dict> {
        match self.open_dict(name) {
            Err(Error::NoSuchDict { .. }) => {}
            opened => return opened,
        }
        match self.create(name, &DictOptions::new()) {
            // Another thread was faster.
            Err(Error::DictExists { .. }) => self.open_dict(name),
            created => created,
        }
    }

    /// The dictionary of a name, which has what the options say; it is made if there is none.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("store");
    /// use betree_store::{DictOptions, Error, Store};
    ///
    /// let replace = |_: Option<&[u8]>, delta: &[u8]| Some(delta.to_vec());
    /// let store = Store::options().merge("replace", replace).open(&path)?;
    /// let with_merge = DictOptions::new().merge("replace");
    /// store.dict_with("last", &with_merge)?.upsert("seen", "today")?;
    /// // One that is there has the merge that it was made with.
    /// store.dict("plain")?;
    /// let other = store.dict_with("plain", &with_merge);
    /// assert!(matches!(other, Err(Error::OtherMerge { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::OtherMerge`] if there is one with another merge, [`Error::NoExpiry`] if its values do not
    /// expire and are to, [`Error::UnknownMerge`], [`Error::BadName`], and those of a commit.
    pub fn dict_with(&self, name: &str, options: &DictOptions) -> Result<Dict> {
        let opened = match self.open_dict(name) {
            Err(Error::NoSuchDict { .. }) => match self.create(name, options) {
                Err(Error::DictExists { .. }) => self.open_dict(name)?,
                created => return created,
            },
            opened => opened?,
        };
        let bound = opened.state.merge.clone();
        if bound != options.merge {
            return Err(Error::OtherMerge { dict: name.into(), bound, asked: options.merge.clone() });
        }
        if options.is_expiring && !opened.is_expiring() {
            return Err(Error::NoExpiry { dict: name.into() });
        }
        Ok(opened)
    }

    /// The dictionary of a name.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::Error;
    ///
    /// assert!(matches!(store.open_dict("nobody made this"), Err(Error::NoSuchDict { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchDict`].
    pub fn open_dict(&self, name: &str) -> Result<Dict> {
        self.shared.refuse_if_closed()?;
        let found = self.shared.catalogue.lock().dicts.get(name).cloned();
        match found {
            Some(state) => Ok(Dict { shared: self.shared.clone(), state }),
            None => Err(Error::NoSuchDict { name: name.into() }),
        }
    }

    /// Makes a dictionary.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::{DictOptions, Error};
    ///
    /// store.create("users", &DictOptions::new())?;
    /// let again = store.create("users", &DictOptions::new());
    /// assert!(matches!(again, Err(Error::DictExists { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::DictExists`], [`Error::BadName`], [`Error::UnknownMerge`], and those of a commit.
    pub fn create(&self, name: &str, options: &DictOptions) -> Result<Dict> {
        self.shared.refuse_unknown_merge(name, options)?;
        self.add(name, None, |number| Entry::new(number, options))
    }

    /// Adds a dictionary, and makes it what another one is.
    fn add(&self, name: &str, from: Option<&DictState>, entry: impl FnOnce(u32) -> Entry) -> Result<Dict> {
        check_name(name)?;
        let mut catalogue = self.shared.catalogue.lock();
        if catalogue.dicts.contains_key(name) {
            return Err(Error::DictExists { name: name.into() });
        }
        let number = catalogue.next;
        let next = number.checked_add(1).ok_or(Error::TooManyDicts)?;
        // No value is half stored while it is cloned.
        let with_others = from.map(|from| from.changing.read());
        from.map_or(Ok(()), DictState::refuse_if_dropped)?;
        let entry = entry(number);
        let mut batch = Batch::new();
        catalogue::put_entry(&mut batch, name, &entry);
        catalogue::put_next(&mut batch, next);
        if let Some(from) = from {
            batch.clone_range(ENGINE_DICT, &from.number.to_be_bytes(), &number.to_be_bytes());
        }
        self.shared.commit(&batch)?;
        drop(with_others);
        let state = Arc::new(DictState::new(name, entry));
        catalogue.next = next;
        catalogue.dicts.insert(name.into(), state.clone());
        drop(catalogue);
        self.shared.settle()?;
        Ok(Dict { shared: self.shared.clone(), state })
    }

    /// The names of all dictionaries, in order.
    pub fn dicts(&self) -> Vec<String> {
        self.shared.catalogue.lock().dicts.keys().cloned().collect()
    }

    /// Gives a dictionary another name. Handles of it stay good.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// let users = store.dict("users")?;
    /// users.put("ada", "1815")?;
    /// store.rename_dict("users", "people")?;
    /// assert!(users.contains("ada")? && store.open_dict("people")?.contains("ada")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchDict`], [`Error::DictExists`] for the new name, [`Error::BadName`], and those of a
    /// commit.
    pub fn rename_dict(&self, from: &str, to: &str) -> Result<()> {
        check_name(to)?;
        let mut catalogue = self.shared.catalogue.lock();
        let state = catalogue.dicts.get(from).cloned();
        let state = state.ok_or_else(|| Error::NoSuchDict { name: from.into() })?;
        if catalogue.dicts.contains_key(to) {
            return Err(Error::DictExists { name: to.into() });
        }
        let alone = state.changing.write();
        let mut batch = Batch::new();
        catalogue::delete_entry(&mut batch, from);
        catalogue::put_entry(&mut batch, to, &state.entry());
        batch.mark_replacing();
        self.shared.commit(&batch)?;
        state.set_name(to);
        drop(alone);
        catalogue.dicts.remove(from);
        catalogue.dicts.insert(to.into(), state);
        drop(catalogue);
        self.shared.settle()
    }

    /// Removes a dictionary with all that it holds, at a cost that does not depend on that. Its handles and
    /// their iterators fail with [`Error::DictDropped`] from then on; a dictionary that gets the same name
    /// later is another one.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::Error;
    ///
    /// let users = store.dict("users")?;
    /// users.put("ada", "1815")?;
    /// store.drop_dict("users")?;
    /// assert!(matches!(users.get("ada"), Err(Error::DictDropped { .. })));
    /// assert!(store.dict("users")?.is_empty()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchDict`], and those of a commit.
    pub fn drop_dict(&self, name: &str) -> Result<()> {
        let mut catalogue = self.shared.catalogue.lock();
        let state = catalogue.dicts.get(name).cloned();
        let state = state.ok_or_else(|| Error::NoSuchDict { name: name.into() })?;
        let alone = state.changing.write();
        let mut batch = Batch::new();
        delete_range(&mut batch, dict_cuts(state.number));
        catalogue::delete_entry(&mut batch, name);
        // Before it is done, so that a reader who meets it in part asks afterwards, and is told.
        state.set_dropped(true);
        if let Err(error) = self.shared.commit(&batch) {
            state.set_dropped(false);
            return Err(error);
        }
        drop(alone);
        catalogue.dicts.remove(name);
        drop(catalogue);
        self.shared.settle()
    }

    /// Makes a dictionary that holds what another one holds at this moment, with its merge. The cost does not
    /// depend on how much that is, and each can be changed without a change of the other.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// let users = store.dict("users")?;
    /// users.put("ada", "1815")?;
    /// let trial = store.clone_dict("users", "trial")?;
    /// trial.clear()?;
    /// assert!(users.contains("ada")? && trial.is_empty()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchDict`], [`Error::DictExists`] for the new name, [`Error::BadName`], and those of a
    /// commit.
    pub fn clone_dict(&self, from: &str, to: &str) -> Result<Dict> {
        let Dict { state, .. } = self.open_dict(from)?;
        self.add(to, Some(&state), |number| Entry { number, ..state.entry() })
    }
}
