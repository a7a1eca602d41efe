//! What histories reached, counted.

use std::collections::BTreeMap;
use std::fmt;

/// Counts by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached(BTreeMap<String, u64>);

impl Reached {
    /// Counts one.
    pub fn note(&mut self, what: &str) {
        self.add(what, 1);
    }

    /// Counts several.
    pub fn add(&mut self, what: &str, count: u64) {
        match self.0.get_mut(what) {
            Some(number) => *number += count,
            None => drop(self.0.insert(what.to_owned(), count)),
        }
    }

    /// A count.
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// Adds all counts of others.
    pub fn join(&mut self, others: &Reached) {
        others.0.iter().for_each(|(what, count)| self.add(what, *count));
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, count)| writeln!(f, "  {what:<44} {count:>12}"))
    }
}
