//! How many copies of interior nodes a volume has.

use betree_platform::sync::atomic::Ordering;

use super::Env;
use crate::error::{Error, Result};
use crate::format::superblock::features::Features;
use crate::format::superblock::{Superblock, node_copies};
use crate::settings::NodeCopies;

impl Env {
    /// How many copies of interior nodes the volume is to have.
    pub fn node_copies(&self) -> NodeCopies {
        match self.wants_node_copies.load(Ordering::Relaxed) {
            true => NodeCopies::Two,
            false => NodeCopies::One,
        }
    }

    /// Chooses how many copies of interior nodes above the parents of leaves the volume has from now on. A
    /// node gets its second copy, or loses it, when it is written the next time. The choice is durable when
    /// this returns; once two were chosen, programs that do not know it refuse the volume.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// use betree::NodeCopies;
    ///
    /// env.set_node_copies(NodeCopies::Two)?;
    /// assert_eq!(env.node_copies(), NodeCopies::Two);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`checkpoint`](Env::checkpoint); the choice stays as it was.
    pub fn set_node_copies(&self, copies: NodeCopies) -> Result<()> {
        let mut committed = self.checkpoint.lock();
        self.writable(&self.commit.lock())?;
        self.wants_node_copies.store(copies == NodeCopies::Two, Ordering::Relaxed);
        let done = self.checkpoint_as(false, &mut committed);
        let are_wanted = node_copies::of(&committed.superblock.tail) == NodeCopies::Two;
        self.wants_node_copies.store(are_wanted, Ordering::Relaxed);
        // Not before the superblock says that there may be such nodes.
        self.engine.store.copies.are_wanted.store(are_wanted, Ordering::Relaxed);
        done
    }

    /// Puts the choice into a superblock.
    pub(super) fn put_node_copies(&self, superblock: &mut Superblock) -> Result<()> {
        let copies = self.node_copies();
        if copies == node_copies::of(&superblock.tail) {
            return Ok(());
        }
        let full = Error::BadIdentity("values of later versions leave no room in the superblock");
        superblock.tail = node_copies::put(copies, &superblock.tail).ok_or(full)?;
        if copies == NodeCopies::Two {
            superblock.features.incompat |= Features::NODE_COPIES;
        }
        Ok(())
    }
}
