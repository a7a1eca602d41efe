//! Transactions below the environment: their private changes, what these depend on, and the recent changes of
//! others. `env/transaction.rs` runs them.

mod footprint;
mod private;
mod recent;

pub(crate) use footprint::{Footprint, Newer};
pub(crate) use private::{Layer, Overlay};
pub(crate) use recent::{Recent, Since};
