//! A listing that goes on over several steps, while names come and go.

use std::collections::BTreeSet;

use crate::perform::Listed;

/// After a pause this long, names of a listing may leave memory.
const IDLE_NS: i64 = 600_000_000_000;

/// A listing under way.
#[derive(Default)]
pub struct Listing {
    cookie: u64,
    has_begun: bool,
    /// The names that were there all the time and have not been listed.
    due: BTreeSet<Vec<u8>>,
    /// The names that were listed and have been there since.
    listed: BTreeSet<Vec<u8>>,
    /// The time, and that of its last step.
    now_ns: i64,
    last_ns: i64,
}

impl Listing {
    /// Where it goes on.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Notes the entries of the directory before its next step.
    pub fn entries_are(&mut self, entries: &BTreeSet<Vec<u8>>) {
        if !self.has_begun {
            (self.has_begun, self.due) = (true, entries.clone());
        }
        self.due.retain(|name| entries.contains(name));
        self.listed.retain(|name| entries.contains(name));
    }

    /// Notes the time. After a pause in which names may have left memory they may be listed again.
    pub fn time_is(&mut self, now_ns: i64) {
        self.now_ns = now_ns;
        if now_ns.saturating_sub(self.last_ns) >= IDLE_NS {
            self.listed.clear();
        }
    }

    /// Notes that all names went and came, for other objects: they may be listed again or left out.
    pub fn were_replaced(&mut self) {
        self.listed.clear();
        self.due.clear();
    }

    /// Takes the entries that a step has listed; none is the end.
    ///
    /// # Errors
    /// An entry came twice, is not there, or is missing at the end.
    pub fn take(&mut self, entries: &BTreeSet<Vec<u8>>, some: &[Listed]) -> Result<(), String> {
        self.last_ns = self.now_ns;
        for entry in some {
            let name = entry.name.escape_ascii();
            if entry.cookie <= self.cookie {
                return Err(format!(
                    "the cookie {} of {name} does not come after {}",
                    entry.cookie, self.cookie
                ));
            }
            if !entries.contains(&entry.name) {
                return Err(format!("the listing has {name}, which is not there"));
            }
            if !self.listed.insert(entry.name.clone()) {
                return Err(format!("the listing has {name} twice"));
            }
            self.due.remove(&entry.name);
            self.cookie = entry.cookie;
        }
        if some.is_empty() {
            if let Some(name) = self.due.first() {
                return Err(format!("the listing is over, and has left {} out", name.escape_ascii()));
            }
            *self = Listing { now_ns: self.now_ns, ..Listing::default() };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use betrfs::FileType;

    use super::*;

    fn entry(name: &str, cookie: u64) -> Listed {
        let file_type = FileType::Regular;
        Listed { name: name.into(), cookie, ino: 7, file_type, attr: None }
    }

    fn names(all: &[&str]) -> BTreeSet<Vec<u8>> {
        all.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    #[test]
    fn what_was_there_all_the_time_is_listed_once() {
        let mut listing = Listing::default();
        listing.entries_are(&names(&["a", "b", "c"]));
        assert_eq!(listing.take(&names(&["a", "b", "c"]), &[entry("a", 3)]), Ok(()));
        // b goes, d comes: neither need be listed.
        listing.entries_are(&names(&["a", "c"]));
        listing.entries_are(&names(&["a", "c", "d"]));
        let all = names(&["a", "c", "d"]);
        assert!(listing.take(&all, &[entry("a", 6)]).is_err(), "a is there since it was listed");
        assert!(listing.take(&all, &[]).is_err(), "c is missing");
        assert!(listing.take(&all, &[entry("c", 3)]).is_err(), "a cookie goes back");
        assert!(listing.take(&all, &[entry("b", 9)]).is_err(), "b is gone");
        assert_eq!(listing.take(&all, &[entry("c", 7)]), Ok(()));
        assert_eq!((listing.take(&all, &[]), listing.cookie()), (Ok(()), 0));
        // All go and come.
        listing.entries_are(&all);
        assert_eq!(listing.take(&all, &[entry("a", 3)]), Ok(()));
        listing.were_replaced();
        assert_eq!(listing.take(&all, &[entry("a", 8)]), Ok(()));
        assert_eq!(listing.take(&all, &[]), Ok(()));
    }

    #[test]
    fn after_a_long_pause_a_name_may_come_twice() {
        let mut listing = Listing::default();
        listing.entries_are(&names(&["a", "b"]));
        listing.time_is(IDLE_NS);
        assert_eq!(listing.take(&names(&["a", "b"]), &[entry("a", 1)]), Ok(()));
        listing.time_is(2 * IDLE_NS - 1);
        assert!(listing.take(&names(&["a", "b"]), &[entry("a", 2)]).is_err());
        listing.time_is(3 * IDLE_NS - 1);
        assert_eq!(listing.take(&names(&["a", "b"]), &[entry("a", 3)]), Ok(()));
    }
}
