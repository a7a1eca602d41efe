//! What cannot be unless this program is wrong: said aloud, and never defaulted away.
//!
//! Bytes of the disk, requests and memory that is short are no invariants: they have errors of their own. An
//! invariant speaks of what this code alone decides: a count of references, a piece that was read a line ago.
//! Where debug assertions are on (tests, the simulator) a failed one panics at its place. In release the call
//! returns [`Error::Internal`].

use crate::error::Error;

/// Returns [`Error::Internal`] from the function around it unless a condition holds.
macro_rules! invariant {
    ($holds:expr, $what:expr) => {
        if !$holds {
            return Err($crate::invariant::broken($what, concat!(file!(), ":", line!())));
        }
    };
}

/// The error of what cannot be, for `ok_or_else` and for arms of a `match`.
macro_rules! internal {
    ($what:expr) => {
        $crate::invariant::broken($what, concat!(file!(), ":", line!()))
    };
}

pub(crate) use {internal, invariant};

/// The error of a failed invariant at `place`.
///
/// # Panics
/// Where debug assertions are on.
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
    fn an_invariant_that_holds_says_nothing() {
        assert_eq!(halve(4), Ok(2));
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "a number is even"))]
    fn a_failed_invariant_is_heard() {
        let error = halve(3).unwrap_err();
        assert!(matches!(error, Error::Internal { what: "a number is even", .. }), "{error}");
    }
}
