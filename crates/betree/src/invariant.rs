//! Invariants: conditions that fail only if this program is wrong. A failure is reported, never covered up by
//! a default value.
//!
//! Bad bytes on the disk, bad requests and lack of memory break no invariants: they have errors of their own.
//! An invariant is about this code alone: a count of references, a piece that was read a line ago. With debug
//! assertions (in tests and the simulator) a failed one panics at its place. In release the call returns
//! [`Error::Internal`].

use crate::error::Error;

/// Returns [`Error::Internal`] from the function around it unless a condition holds.
macro_rules! invariant {
    ($holds:expr, $what:expr) => {
        if !$holds {
            return Err($crate::invariant::broken($what, concat!(file!(), ":", line!())));
        }
    };
}

/// The error of a failed invariant, for `ok_or_else` and for arms of a `match`.
macro_rules! internal {
    ($what:expr) => {
        $crate::invariant::broken($what, concat!(file!(), ":", line!()))
    };
}

pub(crate) use {internal, invariant};

/// The error of a failed invariant at `place`.
///
/// # Panics
/// With debug assertions.
#[cold]
#[allow(clippy::panic)] // The simulator stops at the cause; a release build returns the error.
pub(crate) fn broken(what: &'static str, place: &'static str) -> Error {
    if cfg!(debug_assertions) {
        panic!("{}", Error::Internal { what, place });
    }
    Error::Internal { what, place }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;

    fn halve(number: u32) -> Result<u32> {
        invariant!(number.is_multiple_of(2), "a number is even");
        Ok(number / 2)
    }

    #[test]
    fn an_invariant_that_holds_is_no_error() {
        assert_eq!(halve(4), Ok(2));
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "a number is even"))]
    fn a_failed_invariant_is_reported() {
        let error = halve(3).unwrap_err();
        assert!(matches!(error, Error::Internal { what: "a number is even", .. }), "{error}");
    }
}
