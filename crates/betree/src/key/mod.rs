//! Keys, bounds of key ranges, and the translation of both across an edge.

mod cut;
mod translation;

pub use cut::Cut;
pub use translation::Translation;
pub(crate) use translation::shared_len;

/// The byte that ends a component of a key. Splits fall behind one where they can, and edges strip whole
/// components.
pub(crate) const SEPARATOR: u8 = 0;

/// The longest key in bytes.
pub const KEY_BYTES_MAX: usize = 1 << 16;
