//! The body of a request: the part after its header.

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A request's body: the structure of its opcode, if it has one, then names or data.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// Both in one piece, as from /dev/fuse.
    Joined(&'a [u8]),
    /// In two pieces, as from io_uring; the place of the structure may be longer than it.
    Split {
        /// Begins with the structure.
        structure: &'a [u8],
        /// The rest.
        rest: &'a [u8],
    },
}

impl<'a> Body<'a> {
    /// The structure and the rest.
    ///
    /// # Errors
    /// [`Errno::INVAL`] if the body is shorter than the structure.
    pub fn split<T: FromBytes + Immutable + KnownLayout>(self) -> Result<(T, &'a [u8]), Errno> {
        let (structure, rest) = match self {
            Body::Joined(bytes) => T::read_from_prefix(bytes).map_err(|_| Errno::INVAL)?,
            Body::Split { structure, rest } => {
                (T::read_from_prefix(structure).map_err(|_| Errno::INVAL)?.0, rest)
            }
        };
        Ok((structure, rest))
    }

    /// All of a body without a structure.
    pub fn rest(self) -> &'a [u8] {
        match self {
            Body::Joined(rest) | Body::Split { rest, .. } => rest,
        }
    }
}

/// Splits off a leading name, which ends with a zero byte; returns it and the rest.
///
/// # Errors
/// [`Errno::INVAL`] if there is no zero byte.
pub fn name(bytes: &[u8]) -> Result<(&[u8], &[u8]), Errno> {
    let end = bytes.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
    let (name, rest) = bytes.split_at(end);
    Ok((name, rest.get(1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::MkdirIn;

    #[test]
    fn both_forms_have_the_same_parts() {
        let joined = [&7u32.to_ne_bytes()[..], &18u32.to_ne_bytes(), b"name\0"].concat();
        let mut structure = [0xee; 128];
        structure[..8].copy_from_slice(&joined[..8]);
        for body in [Body::Joined(&joined), Body::Split { structure: &structure, rest: b"name\0" }] {
            let (mkdir, rest) = body.split::<MkdirIn>().unwrap();
            assert_eq!((mkdir.mode, mkdir.umask), (7, 18));
            assert_eq!(name(rest).unwrap(), (&b"name"[..], &b""[..]));
        }
    }

    #[test]
    fn bodies_cut_short_are_refused() {
        assert_eq!(Body::Joined(&[0; 7]).split::<MkdirIn>().err(), Some(Errno::INVAL));
        assert_eq!(name(b"endless").err(), Some(Errno::INVAL));
        assert_eq!(name(b"").err(), Some(Errno::INVAL));
        assert_eq!(name(b"a\0b\0").unwrap(), (&b"a"[..], &b"b\0"[..]));
    }
}
