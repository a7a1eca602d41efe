//! The second copy of an extent: as many blocks elsewhere, which hold the same bytes and go with it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::atomic::Ordering;

use super::{BlockRange, Extent, Space};
use crate::error::{Error, Result};

impl Extent {
    /// The extent with these blocks as its second copy. Without them, if they are not as many or if it has
    /// other holders already.
    pub(crate) fn with_copy(mut self: Arc<Extent>, copy: Arc<Extent>) -> Arc<Extent> {
        if copy.len_blocks() == self.len_blocks()
            && let Some(own) = Arc::get_mut(&mut self)
            && own.copy.is_none()
        {
            // In an entry that has both, all parts of the copy are further ones.
            own.space.further_parts.fetch_add(1, Ordering::Relaxed);
            own.copy = Some(copy);
        }
        self
    }

    /// The extent without its second copy, whose blocks are free then. As it is, if it has other holders.
    pub(crate) fn without_copy(mut self: Arc<Extent>) -> Arc<Extent> {
        if let Some(own) = Arc::get_mut(&mut self)
            && own.copy.take().is_some()
        {
            own.space.further_parts.fetch_sub(1, Ordering::Relaxed);
        }
        self
    }

    /// Its second copy, if it has one.
    pub(crate) fn copy(&self) -> Option<&Arc<Extent>> {
        self.copy.as_ref()
    }

    /// Its parts, and behind them those of its second copy.
    pub(crate) fn all_parts(&self) -> impl Iterator<Item = &BlockRange> {
        self.parts().iter().chain(self.copy.iter().flat_map(|copy| copy.parts()))
    }

    /// The blocks of all parts, those of its second copy included.
    pub(crate) fn all_blocks(&self) -> u64 {
        self.all_parts().map(|part| part.len_blocks).sum()
    }

    /// Notes that a block of one of its two copies is bad: its node is to be written anew, with none of these
    /// blocks.
    pub(crate) fn note_bad(&self) {
        self.is_bad.store(true, Ordering::Relaxed);
    }

    /// Takes back [`note_bad`](Extent::note_bad), for a node that cannot be written anew.
    pub(crate) fn forget_bad(&self) {
        self.is_bad.store(false, Ordering::Relaxed);
    }

    /// Whether a block of one of its two copies was found to be bad.
    pub(crate) fn is_bad(&self) -> bool {
        self.is_bad.load(Ordering::Relaxed)
    }
}

impl Space {
    /// Claims the extent of a node and its second copy, if the node table names one, while a volume is
    /// opened. Returns the extent with the copy, or without a copy that cannot be claimed and why.
    ///
    /// # Errors
    /// As [`claim`](Space::claim), of the extent alone.
    pub(crate) fn claim_both(
        self: &Arc<Space>,
        parts: Vec<BlockRange>,
        copy: Option<Vec<BlockRange>>,
    ) -> Result<(Arc<Extent>, Option<Error>)> {
        let extent = self.claim(parts)?;
        match copy.map(|parts| self.claim(parts)) {
            None => Ok((extent, None)),
            Some(Ok(copy)) => Ok((extent.with_copy(copy), None)),
            Some(Err(error)) => Ok((extent, Some(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_freed_with_its_extent_and_its_parts_count_as_further_ones() {
        let space = Space::new(0, 100);
        let both = |blocks| {
            let extent = space.allocate(blocks, 1).unwrap();
            extent.with_copy(space.allocate_last(blocks, 1, &[]).unwrap())
        };
        let (first, second) = (both(10), both(5));
        assert_eq!((space.free_blocks(), space.further_parts()), (70, 2));
        assert_eq!((first.len_blocks(), first.all_blocks()), (10, 20));
        let parts: Vec<_> = first.all_parts().map(|part| part.start_block).collect();
        assert_eq!(parts, [0, 90]);
        let second = second.without_copy();
        assert_eq!((space.free_blocks(), space.further_parts()), (75, 1));
        drop((first, second));
        assert_eq!((space.free_blocks(), space.further_parts()), (100, 0));
    }

    #[test]
    fn blocks_of_another_length_are_no_copy() {
        let space = Space::new(0, 100);
        let extent = space.allocate(3, 1).unwrap().with_copy(space.allocate(2, 1).unwrap());
        assert!(extent.copy().is_none());
        assert_eq!(space.free_blocks(), 97);
    }
}
