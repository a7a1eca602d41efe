//! Blocks of files, and the upserts that change them.
//!
//! A block has up to [`BLOCK_BYTES`] bytes; the rest reads as zeros. The three changes need no query: WRITE
//! fills with zeros up to its offset and creates the block if it is absent; CUT only shortens; ZERO stays
//! within the stored length. CUT and ZERO do not create a block. ADD is for the use of a quota, which stands
//! beside the blocks: it adds a difference to an amount that is there.

use alloc::vec::Vec;

use betree::Upsert;

use crate::schema::Amount;

/// The unit of file data.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// [`BLOCK_BYTES`], for offsets in files.
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

const WRITE: u8 = 1;
const CUT: u8 = 2;
const ZERO: u8 = 3;
const ADD: u8 = 4;

/// The change that puts `bytes` at `offset` in a block.
pub(crate) fn write(offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut delta = Vec::with_capacity(3 + bytes.len());
    delta.push(WRITE);
    delta.extend_from_slice(&small(offset));
    delta.extend_from_slice(bytes);
    delta
}

/// The change that shortens a block to `len` bytes.
pub(crate) fn cut(len: usize) -> Vec<u8> {
    let [a, b] = small(len);
    alloc::vec![CUT, a, b]
}

/// The change that zeroes `len` bytes from `offset` on.
pub(crate) fn zero(offset: usize, len: usize) -> Vec<u8> {
    let ([a, b], [c, d]) = (small(offset), small(len));
    alloc::vec![ZERO, a, b, c, d]
}

/// The change that adds to the use of a quota.
pub(crate) fn add(more: Amount) -> Vec<u8> {
    let mut delta = alloc::vec![ADD];
    delta.extend_from_slice(&more.encode());
    delta
}

/// A number of up to [`BLOCK_BYTES`].
fn small(number: usize) -> [u8; 2] {
    debug_assert!(number <= BLOCK_BYTES);
    (number as u16).to_le_bytes()
}

/// Applies the changes as [`changed`].
pub(crate) struct BlockUpsert;

impl Upsert for BlockUpsert {
    fn name(&self) -> &str {
        "block"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        changed(old, delta)
    }
}

/// Applies a change to a block. An unknown one leaves the block as it was.
fn changed(old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
    match *delta {
        [WRITE, a, b, ref bytes @ ..] => {
            let offset = usize::from(u16::from_le_bytes([a, b]));
            let end = offset + bytes.len();
            if end > BLOCK_BYTES {
                return old.map(<[u8]>::to_vec);
            }
            let old = old.unwrap_or(&[]);
            let mut block = Vec::with_capacity(end.max(old.len()));
            block.extend_from_slice(old.get(..offset).unwrap_or(old));
            block.resize(offset, 0);
            block.extend_from_slice(bytes);
            block.extend_from_slice(old.get(end..).unwrap_or(&[]));
            Some(block)
        }
        [CUT, a, b] => {
            let len = usize::from(u16::from_le_bytes([a, b]));
            old.map(|old| old.get(..len).unwrap_or(old).to_vec())
        }
        [ZERO, a, b, c, d] => {
            let offset = usize::from(u16::from_le_bytes([a, b]));
            let len = usize::from(u16::from_le_bytes([c, d]));
            old.map(|old| {
                let mut block = old.to_vec();
                block.iter_mut().skip(offset).take(len).for_each(|byte| *byte = 0);
                block
            })
        }
        [ADD, ref more @ ..] => match (old.and_then(Amount::decode), Amount::decode(more)) {
            (Some(amount), Some(more)) => Some((amount + more).encode()),
            _ => old.map(<[u8]>::to_vec),
        },
        _ => old.map(<[u8]>::to_vec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A block as a vector of bytes; `None` if it is absent.
    type Model = Option<Vec<u8>>;

    #[derive(Clone, Debug)]
    enum Change {
        Write(usize, Vec<u8>),
        Cut(usize),
        Zero(usize, usize),
        Junk(Vec<u8>),
    }

    fn change() -> impl Strategy<Value = Change> {
        let within = 0..=BLOCK_BYTES;
        prop_oneof![
            (within.clone(), proptest::collection::vec(any::<u8>(), 0..64)).prop_map(|(offset, bytes)| {
                let offset = offset.min(BLOCK_BYTES - bytes.len());
                Change::Write(offset, bytes)
            }),
            within.clone().prop_map(Change::Cut),
            (within.clone(), within).prop_map(|(offset, len)| Change::Zero(offset, len)),
            proptest::collection::vec(5u8.., 0..8).prop_map(Change::Junk),
        ]
    }

    fn apply(model: &mut Model, change: &Change) -> Vec<u8> {
        match change {
            Change::Write(offset, bytes) => {
                let block = model.get_or_insert_default();
                for at in block.len()..*offset {
                    assert_eq!(block.len(), at);
                    block.push(0);
                }
                for (at, byte) in bytes.iter().enumerate().map(|(i, byte)| (offset + i, *byte)) {
                    if at < block.len() {
                        block[at] = byte;
                    } else {
                        block.push(byte);
                    }
                }
                write(*offset, bytes)
            }
            Change::Cut(len) => {
                if let Some(block) = model {
                    block.truncate(*len);
                }
                cut(*len)
            }
            Change::Zero(offset, len) => {
                if let Some(block) = model {
                    for at in *offset..(offset + len).min(block.len()) {
                        block[at] = 0;
                    }
                }
                zero(*offset, *len)
            }
            Change::Junk(bytes) => bytes.clone(),
        }
    }

    #[test]
    fn differences_add_up_in_any_order_and_make_no_use() {
        let [one, other] = [(5, 1), (-7, 2)].map(|(bytes, objects)| Amount { bytes, objects });
        let both = |first, then| changed(changed(Some(&[0; 16]), &add(first)).as_deref(), &add(then));
        assert_eq!(both(one, other), Some(Amount { bytes: -2, objects: 3 }.encode()));
        assert_eq!(both(one, other), both(other, one));
        assert_eq!(changed(None, &add(one)), None);
        assert_eq!(changed(Some(b"block"), &add(one)).as_deref(), Some(&b"block"[..]));
    }

    proptest! {
        #[test]
        fn changes_do_what_an_array_of_bytes_does(changes in proptest::collection::vec(change(), 0..20)) {
            let mut model: Model = None;
            let mut block: Option<Vec<u8>> = None;
            for change in &changes {
                let delta = apply(&mut model, change);
                block = changed(block.as_deref(), &delta);
                prop_assert_eq!(&block, &model, "after {:?}", change);
            }
        }

        #[test]
        fn any_delta_keeps_a_block_within_its_size(
            old in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..BLOCK_BYTES)),
            delta in proptest::collection::vec(any::<u8>(), 0..5000),
        ) {
            let new = changed(old.as_deref(), &delta);
            prop_assert!(new.is_none_or(|block| block.len() <= BLOCK_BYTES));
        }
    }
}
