//! The commits of an environment, and which of them must survive a crash.

use crate::model::{Edit, ModelEnv};

/// The contents of an environment at its last acknowledged sync, and the batches since.
#[derive(Clone, Debug)]
pub struct History {
    /// The state at the last acknowledged sync: a crash leaves at least this.
    synced: ModelEnv,
    unsynced: Vec<Vec<Edit>>,
    /// Whether the last of `unsynced` is not acknowledged: its commit has not returned, or it failed and may
    /// still have taken effect.
    last_is_open: bool,
    /// The state after every acknowledged batch.
    latest: ModelEnv,
}

impl History {
    /// The history of an environment that durably holds `state`.
    pub fn of(state: ModelEnv) -> History {
        History { synced: state.clone(), unsynced: Vec::new(), last_is_open: false, latest: state }
    }

    /// The contents that a reader should see.
    pub fn latest(&self) -> &ModelEnv {
        &self.latest
    }

    /// A batch without its clones, if the model is already large: clones of clones double without end.
    pub fn bounded(&self, changes: &[Edit]) -> Vec<Edit> {
        const KEYS_MAX: usize = 2000;
        const KEY_BYTES_MAX: usize = 200;
        let (keys, longest) = self.latest.size();
        let is_large = keys > KEYS_MAX || longest > KEY_BYTES_MAX;
        let is_kept = |change: &&Edit| !(is_large && matches!(change, Edit::Clone(..)));
        changes.iter().filter(is_kept).cloned().collect()
    }

    /// A batch is about to be committed. Until it is accepted or refused, a crash may leave it or not.
    pub fn attempt(&mut self, changes: &[Edit]) {
        self.unsynced.push(changes.to_vec());
        self.last_is_open = true;
    }

    /// The attempted batch took effect.
    pub fn accepted(&mut self) {
        if std::mem::take(&mut self.last_is_open)
            && let Some(last) = self.unsynced.last()
        {
            self.latest.commit(last);
        }
    }

    /// The attempted batch changed nothing.
    pub fn refused(&mut self) {
        if std::mem::take(&mut self.last_is_open) {
            self.unsynced.pop();
        }
    }

    /// Whether it is unknown if the last batch took effect.
    pub fn is_open(&self) -> bool {
        self.last_is_open
    }

    /// Everything acknowledged so far was made durable.
    pub fn synced(&mut self) {
        let open = if self.last_is_open { self.unsynced.pop() } else { None };
        self.unsynced.clear();
        self.unsynced.extend(open);
        self.synced.clone_from(&self.latest);
    }

    /// Checks the contents after a crash: everything synced, and a prefix of the unsynced batches, each
    /// whole. Returns the number of unsynced batches found.
    ///
    /// # Errors
    /// A sentence that compares it with the nearest states that would have been right.
    pub fn prefix_check(&self, recovered: &ModelEnv) -> Result<usize, String> {
        self.prefix_check_at(recovered, i64::MIN)
    }

    /// As [`prefix_check`](History::prefix_check), of what is seen at a time.
    ///
    /// # Errors
    /// As there.
    pub fn prefix_check_at(&self, recovered: &ModelEnv, time_ns: i64) -> Result<usize, String> {
        let mut state = self.synced.clone();
        let Some(mut difference) = recovered.difference(&state.seen_at(time_ns)) else { return Ok(0) };
        let at_sync = difference.clone();
        for (i, changes) in self.unsynced.iter().enumerate() {
            state.commit(changes);
            match recovered.difference(&state.seen_at(time_ns)) {
                None => return Ok(i + 1),
                Some(found) => difference = found,
            }
        }
        Err(format!(
            "no prefix of the {} unsynced batches: against the synced state: {at_sync}; with all of them: {difference}",
            self.unsynced.len()
        ))
    }
}

#[cfg(test)]
mod tests {
    use betree::DictId;

    use super::*;

    fn put(key: &str) -> Vec<Edit> {
        vec![
            Edit::Put(DictId(0), key.as_bytes().to_vec(), b"0".to_vec()),
            Edit::Put(DictId(1), key.as_bytes().to_vec(), b"1".to_vec()),
        ]
    }

    fn state(keys: &[&str]) -> ModelEnv {
        let mut state = ModelEnv::new(2);
        keys.iter().for_each(|key| state.commit(&put(key)));
        state
    }

    fn history() -> History {
        let mut history = History::of(ModelEnv::new(2));
        for key in ["a", "b", "c"] {
            history.attempt(&put(key));
            history.accepted();
            if key == "a" {
                history.synced();
            }
        }
        history
    }

    #[test]
    fn exactly_the_prefixes_from_the_sync_on_are_right() {
        let history = history();
        assert_eq!(history.latest(), &state(&["a", "b", "c"]));
        assert_eq!(history.prefix_check(&state(&["a"])), Ok(0));
        assert_eq!(history.prefix_check(&state(&["a", "b"])), Ok(1));
        assert_eq!(history.prefix_check(&state(&["a", "b", "c"])), Ok(2));
        assert!(history.prefix_check(&state(&[])).is_err(), "the synced batch is lost");
        assert!(history.prefix_check(&state(&["a", "c"])).is_err(), "a batch in the middle is lost");
        let mut half = state(&["a", "b"]);
        half.commit(&put("c")[..1]);
        assert!(history.prefix_check(&half).is_err(), "a batch is there by half");
    }

    #[test]
    fn an_open_batch_may_be_there_and_a_refused_one_may_not() {
        let mut history = history();
        history.attempt(&put("d"));
        assert_eq!(history.prefix_check(&state(&["a", "b", "c", "d"])), Ok(3));
        history.refused();
        assert!(!history.is_open());
        assert!(history.prefix_check(&state(&["a", "b", "c", "d"])).is_err());
        history.attempt(&put("d"));
        history.synced();
        assert_eq!(history.prefix_check(&state(&["a", "b", "c"])), Ok(0));
        assert_eq!(history.prefix_check(&state(&["a", "b", "c", "d"])), Ok(1));
    }
}
