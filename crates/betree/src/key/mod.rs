//! Keys, bounds of key ranges, and the translation of both across an edge.

mod cut;
mod translation;

pub use cut::Cut;
pub(crate) use translation::{Translation, shared_len};
