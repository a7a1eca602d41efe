//! The list of names of linked files where it was lost. All that it says is in the names too, so a repair
//! makes it anew: known damage there would keep every operation that reads the list from any directory.
//!
//! Names that were lost too are not listed any more: no way leads to them, and what removes their directory
//! takes none of them from its file, whose count a repair makes that of the names that are left.

use alloc::format;
use alloc::vec::Vec;

use super::code::Code;
use super::gaps::Gap;
use super::{Check, EVERYTHING};
use crate::schema::{LINKS, META, Stored, key};

impl Check<'_> {
    /// Finds known damage in the list, and begins to make it anew there: `relist` has the names. Called when
    /// the detached trees are known, before the names are looked at.
    pub(super) fn lost_links(&mut self) {
        let mut pairs = self.op.scan(LINKS, EVERYTHING);
        let mut gaps = Vec::new();
        while self.may_go_on() && pairs.next_past(&mut |gap| gaps.push(gap)).is_some() {}
        let mut lost = Vec::new();
        for gap in gaps {
            if gap.errors.iter().all(betree::Error::is_known_damage) {
                lost.push((gap.lo.clone(), gap.hi.clone()));
            }
            self.pass(LINKS, gap);
        }
        if lost.is_empty() {
            return;
        }
        let why = "a part of the list of names of linked files was lost, which a repair with -y makes anew";
        self.misfits(Code::NotListed, format!("{why} ({} ranges of keys)", lost.len()));
        if self.mend_lost_links(&lost) {
            for (lo, hi) in lost {
                self.relisting.add(LINKS, &lo, Gap { hi, losses: Vec::new() });
            }
        }
        let trees: Vec<u64> = self.detached.keys().copied().collect();
        trees.into_iter().for_each(|number| self.relist_detached(number));
    }

    /// Lists the names in a detached tree that the list has lost. Some may count no more: the next look mends
    /// that, and the end of the tree takes them all.
    fn relist_detached(&mut self, number: u64) {
        let (tree, objects) = (key::detached(number), key::within(key::detached_objects(number)));
        for range in [(tree.0, objects.0), (objects.1, tree.1)] {
            let mut pairs = self.op.scan(META, range);
            while let Some((at, bytes)) = self.next(META, &mut pairs) {
                if self.gaps.at(LINKS, at).is_some()
                    && let Ok(Stored::Redirect(redirect)) = Stored::decode(at, bytes)
                {
                    self.relist(at, redirect.oid);
                }
            }
        }
    }
}
