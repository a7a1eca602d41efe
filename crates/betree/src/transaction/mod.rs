//! Transactions below the environment: their private changes, what these depend on, and the recent changes of
//! others. `env/transaction.rs` runs them.

mod clones;
mod footprint;
mod private;
mod recent;
mod stretches;

pub(crate) use clones::{OwnClone, SourceStays, batch_of};
pub(crate) use footprint::{Footprint, Newer};
pub(crate) use private::{Layer, Overlay, SavepointId};
pub(crate) use recent::{Recent, Since};
pub(crate) use stretches::{Leads, Stretch, Stretches};
