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
    /// node gets its second copy, or loses it, when it is written the next time
    /// ([`renew_node_copies`](Env::renew_node_copies) does that). The choice is durable when this returns;
    /// once two were chosen, programs that do not know it refuse the volume.
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
        self.refuse_if_forked()?;
        let mut committed = self.checkpoint.lock();
        self.writable_now()?;
        self.wants_node_copies.store(copies == NodeCopies::Two, Ordering::Relaxed);
        let done = self.checkpoint_as(false, &mut committed);
        let are_wanted = node_copies::of(&committed.superblock.tail) == NodeCopies::Two;
        self.wants_node_copies.store(are_wanted, Ordering::Relaxed);
        // Not before the superblock says that there may be such nodes.
        self.engine.store.copies.are_wanted.store(are_wanted, Ordering::Relaxed);
        done
    }

    /// Writes some of the nodes anew that have not as many copies as were chosen, while others go on, and
    /// returns how many are left then: call it until that is 0, or does not become less. A node is left
    /// while there is no room for its copy beside the reserve, or if it cannot be read.
    ///
    /// A call reads and writes up to a sixth of the cache, or one node, and makes a checkpoint. So it may be
    /// broken off between two calls; the next one goes on.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// use betree::NodeCopies;
    ///
    /// env.set_node_copies(NodeCopies::Two)?;
    /// let mut left = env.renew_node_copies()?;
    /// loop {
    ///     let now = env.renew_node_copies()?;
    ///     if now >= left {
    ///         break;
    ///     }
    ///     left = now;
    /// }
    /// assert_eq!(left, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`checkpoint`](Env::checkpoint), and of reads that are no damage.
    pub fn renew_node_copies(&self) -> Result<u64> {
        self.writable_now()?;
        self.engine.renew_other_copies(self.node_copies())?;
        self.checkpoint_if_open()?;
        Ok(self.engine.table.lock().with_other_copies(self.node_copies()).len() as u64)
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
