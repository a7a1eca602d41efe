//! Keys of `data`: blocks, and large extended attributes.
//!
//! In `data`, an entry's own key is followed by 00 and a tag: a block number of eight bytes, the first of
//! them below 80, or ff and the name of a large extended attribute. The tag fe alone is the use of a
//! directory's quota; with more behind it, it is for later versions.

use alloc::vec::Vec;

use betree::Cut;

use super::{OBJECT, ROOT, SNAPSHOT, split_doubled, within};

const XATTR: u8 = 0xff;
/// The tag for the use of a quota and, in a later version, pairs beside a file.
const PAIRS: u8 = 0xfe;
/// The first byte of a block number is below this.
const BLOCKS_END: u8 = 0x80;

/// The key of a block of the file with this own key.
pub(crate) fn block(own: &[u8], number: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(own.len() + 9);
    key.extend_from_slice(own);
    key.push(0);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The prefix of the entry's own keys in `data`.
pub(crate) fn data(own: &[u8]) -> Vec<u8> {
    let mut prefix = Vec::with_capacity(own.len() + 1);
    prefix.extend_from_slice(own);
    prefix.push(0);
    prefix
}

/// The prefix of all blocks of a file: no block number up to [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX) begins
/// with another byte.
pub(crate) fn all_blocks(own: &[u8]) -> Vec<u8> {
    let mut prefix = block(own, 0);
    prefix.truncate(own.len() + 2);
    prefix
}

const _: () = assert!((crate::FILE_BYTES_MAX / 4096).leading_zeros() >= 8);

/// Bounds of the blocks of a file from a block on.
pub(crate) fn blocks_from(own: &[u8], first: u64) -> (Cut, Cut) {
    let mut end = own.to_vec();
    end.extend_from_slice(&[0, BLOCKS_END]);
    (Cut::before(block(own, first)), Cut::before(end))
}

/// Bounds of the blocks `[first, end)` of a file.
pub(crate) fn blocks(own: &[u8], first: u64, end: u64) -> (Cut, Cut) {
    (Cut::before(block(own, first)), Cut::before(block(own, end)))
}

/// Bounds of the blocks `[first, end)` of any file, in the bytes behind the prefix of [`data`].
pub(crate) fn block_numbers(first: u64, end: u64) -> (Cut, Cut) {
    (Cut::before(first.to_be_bytes()), Cut::before(end.to_be_bytes()))
}

/// The key of a large extended attribute.
pub(crate) fn xattr(own: &[u8], name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(own.len() + 2 + name.len());
    key.extend_from_slice(own);
    key.extend_from_slice(&[0, XATTR]);
    key.extend_from_slice(name);
    key
}

/// The key of the use of a directory's quota.
pub(crate) fn quota_use(own: &[u8]) -> Vec<u8> {
    let mut key = data(own);
    key.push(PAIRS);
    key
}

/// Bounds of the large extended attributes of an entry.
pub(crate) fn xattrs(own: &[u8]) -> (Cut, Cut) {
    within(xattr(own, b""))
}

/// The meaning of a key in `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataTag<'k> {
    /// A block by its number.
    Block(u64),
    /// A large extended attribute by its name.
    Xattr(&'k [u8]),
    /// The use of a quota.
    QuotaUse,
    /// A tag that only later versions know.
    Reserved(u8),
}

/// The own key and the tag in a key of `data`.
pub(crate) fn split_data(key: &[u8]) -> Option<(&[u8], DataTag<'_>)> {
    let own_len = match *key.first()? {
        0 | SNAPSHOT => {
            let (path, rest) = split_doubled(key)?;
            path.len() + 2 + rest.iter().position(|b| *b == 0).filter(|len| *len > 0)?
        }
        OBJECT => 9,
        ROOT => 1,
        _ => return None,
    };
    let own = key.get(..own_len)?;
    let tag = key.get(own_len..)?.strip_prefix(&[0])?;
    match *tag.first()? {
        XATTR => Some((own, DataTag::Xattr(tag.get(1..).filter(|name| !name.is_empty())?))),
        PAIRS if tag.len() == 1 => Some((own, DataTag::QuotaUse)),
        PAIRS => Some((own, DataTag::Reserved(PAIRS))),
        first if first < BLOCKS_END => Some((own, DataTag::Block(u64::from_be_bytes(tag.try_into().ok()?)))),
        _ => None,
    }
}

/// The number of the first block of a file behind a cut; `u64::MAX` if there is none.
pub(crate) fn first_block_behind(own: &[u8], cut: &Cut) -> u64 {
    let Some(number) = cut.bytes().strip_prefix(data(own).as_slice()) else { return u64::MAX };
    if number.first().is_some_and(|first| *first >= BLOCKS_END) || number.is_empty() && cut.is_after() {
        return u64::MAX;
    }
    let mut whole = if cut.is_after() { [0xff; 8] } else { [0; 8] };
    for (to, from) in whole.iter_mut().zip(number) {
        *to = *from;
    }
    // The cut is behind the key of a block, or inside it.
    let is_past = cut.is_after() || number.len() > 8;
    u64::from_be_bytes(whole).saturating_add(u64::from(is_past))
}
