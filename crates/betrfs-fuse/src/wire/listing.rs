//! The reply to READDIR and READDIRPLUS.

use zerocopy::IntoBytes;

use super::{Dirent, EntryOut};

/// Entries begin at multiples of this.
const ALIGNMENT: usize = 8;

/// Entries of a listing in a reply's buffer.
pub struct Listing<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl<'a> Listing<'a> {
    /// An empty listing in the buffer `room`.
    pub fn new(room: &'a mut [u8]) -> Listing<'a> {
        Listing { room, len: 0 }
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// Adds an entry, in READDIRPLUS with the reply to its lookup. Returns `false` if it does not fit.
    #[must_use]
    pub fn add(&mut self, entry: Option<&EntryOut>, dirent: Dirent, name: &[u8]) -> bool {
        let entry = entry.map_or(&[][..], IntoBytes::as_bytes);
        let Ok(name_len) = u32::try_from(name.len()) else { return false };
        let dirent = Dirent { name_len, ..dirent };
        let bytes = entry.len() + size_of::<Dirent>() + name.len();
        let padded = bytes.next_multiple_of(ALIGNMENT);
        let Some(room) = self.room.get_mut(self.len..self.len + padded) else { return false };
        let zeros = [0; ALIGNMENT];
        let padding = zeros.get(..padded - bytes).unwrap_or_default();
        let mut at = room;
        for part in [entry, dirent.as_bytes(), name, padding] {
            let (here, rest) = at.split_at_mut(part.len());
            here.copy_from_slice(part);
            at = rest;
        }
        self.len += padded;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_never_cut() {
        let mut room = [0xff; 24 + 8 + 24 + 8 + 31];
        let mut listing = Listing::new(&mut room);
        let dirent = |ino| Dirent { ino, cookie: ino + 2, name_len: 0, kind: 4 };
        assert!(listing.add(None, dirent(5), b"abc"));
        assert!(listing.add(None, dirent(6), b"12345678"));
        assert!(!listing.add(None, dirent(7), b"longer"));
        assert!(!listing.add(Some(&EntryOut::default()), dirent(7), b"x"));
        assert_eq!(listing.bytes(), 64);
        assert_eq!(room[..8], 5u64.to_ne_bytes());
        assert_eq!(room[16..20], 3u32.to_ne_bytes());
        assert_eq!(room[24..32], *b"abc\0\0\0\0\0");
        assert_eq!(room[56..64], *b"12345678");
        assert_eq!(room[64], 0xff);
    }
}
