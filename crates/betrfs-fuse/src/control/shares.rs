//! A bounded list in which users have items. What one user adds too much of takes no room from another: the
//! oldest item of the user who has most goes.

use std::collections::{HashMap, VecDeque};

/// See the module.
pub(crate) struct Shares<T> {
    items_max: usize,
    /// The oldest first, each with its user.
    items: VecDeque<(u32, T)>,
}

impl<T> Shares<T> {
    /// An empty list for this number of items.
    pub fn new(items_max: usize) -> Shares<T> {
        Shares { items_max, items: VecDeque::new() }
    }

    /// Adds an item of a user; returns the one that had to go for it, which may be this one.
    pub fn push(&mut self, user: u32, item: T) -> Option<T> {
        self.items.push_back((user, item));
        if self.items.len() <= self.items_max {
            return None;
        }
        let mut counts: HashMap<u32, usize> = HashMap::new();
        self.items.iter().for_each(|(user, _)| *counts.entry(*user).or_default() += 1);
        let most = counts.values().copied().max();
        let has_most = |user: &u32| counts.get(user).copied() == most;
        let oldest = self.items.iter().position(|(user, _)| has_most(user))?;
        self.items.remove(oldest).map(|(_, item)| item)
    }

    /// All items, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().rev().map(|(_, item)| item)
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut().rev().map(|(_, item)| item)
    }

    /// Removes the items for which `stays` is false.
    pub fn retain(&mut self, stays: impl Fn(&T) -> bool) {
        self.items.retain(|(_, item)| stays(item));
    }

    /// Removes all items; returns them, the oldest first.
    pub fn take(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.items).into_iter().map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_adds_much_loses_only_own_items() {
        let mut shares = Shares::new(8);
        assert_eq!((0..2).filter_map(|item| shares.push(0, item)).count(), 0);
        let gone: Vec<i32> = (10..100).filter_map(|item| shares.push(7, item)).collect();
        assert_eq!(gone, (10..94).collect::<Vec<_>>());
        assert_eq!(shares.iter().copied().collect::<Vec<_>>(), [99, 98, 97, 96, 95, 94, 1, 0]);
        assert_eq!(shares.push(8, 100), Some(94));
        shares.retain(|item| *item < 2);
        assert_eq!(shares.take().collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn of_equal_shares_the_oldest_goes() {
        let mut shares = Shares::new(2);
        assert_eq!([shares.push(1, 'a'), shares.push(2, 'b'), shares.push(3, 'c')], [None, None, Some('a')]);
    }
}
