//! Which names there can be.

use crate::error::{Error, Result};
use crate::schema::key;
use crate::types::SNAPSHOTS_NAME;

/// Whether a name can be one.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        [] => Err(Error::NotFound),
        b"." | b".." => Err(Error::Invalid("the name is . or ..")),
        _ if name.len() > key::NAME_BYTES_MAX => Err(Error::NameTooLong),
        SNAPSHOTS_NAME => Err(Error::Busy),
        _ if name.contains(&0) || name.contains(&b'/') => {
            Err(Error::Invalid("the name holds a 0 byte or a /"))
        }
        _ => Ok(()),
    }
}

/// Whether a name can be looked up: also that under which snapshots are found.
pub(crate) fn check_looked_up(name: &[u8]) -> Result<()> {
    if name == SNAPSHOTS_NAME { Ok(()) } else { check_name(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_posix_allows_but_the_way_in_to_snapshots() {
        for name in [&b"a"[..], b"...", b" ", b"\xff", &[b'n'; 255], b".betrfs-snapshots2"] {
            assert_eq!(check_name(name), Ok(()), "{name:?}");
        }
        assert_eq!(check_name(b""), Err(Error::NotFound));
        assert_eq!(check_name(&[b'n'; 256]), Err(Error::NameTooLong));
        for name in [&b"."[..], b"..", b"a/b", b"a\0b"] {
            assert!(matches!(check_name(name), Err(Error::Invalid(_))), "{name:?}");
        }
        assert_eq!((check_name(SNAPSHOTS_NAME), check_looked_up(SNAPSHOTS_NAME)), (Err(Error::Busy), Ok(())));
        assert_eq!(check_looked_up(b""), Err(Error::NotFound));
    }
}
