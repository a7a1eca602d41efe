//! The ids of nodes.

/// The id of a node in the node table. A slot is reused with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    /// Its place in the node table.
    pub slot: u32,
    /// The number of the slot's use.
    pub generation: u32,
}

impl core::fmt::Display for NodeId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}
