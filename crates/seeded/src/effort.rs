//! How much the tests with many histories try.

use std::env;

/// Returns the number of histories, crashes or inputs to try where the gate tries `gate`: `BETRFS_EFFORT` is
/// `quick` (a sixth), `gate` (the default), `long` (ten times as many), or the number itself.
///
/// # Panics
/// If the variable has another value.
pub fn effort(gate: u64) -> u64 {
    scaled(gate, env::var("BETRFS_EFFORT").ok())
}

/// Whether `BETRFS_EFFORT` is `long`.
pub fn is_long() -> bool {
    env::var("BETRFS_EFFORT").is_ok_and(|effort| effort == "long")
}

#[expect(clippy::panic, reason = "a misspelt variable must not pass for the default")]
fn scaled(gate: u64, effort: Option<String>) -> u64 {
    match effort.as_deref() {
        None | Some("gate") => gate,
        Some("quick") => gate.div_ceil(6),
        Some("long") => gate * 10,
        Some(number) => number.parse().unwrap_or_else(|_| {
            panic!("BETRFS_EFFORT is `{number}`; it can be `quick`, `gate`, `long` or a number")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effort_scales_the_number_of_the_gate_or_replaces_it() {
        let with = |effort: &str| scaled(300, Some(effort.into()));
        assert_eq!((scaled(300, None), with("gate"), with("quick"), with("long")), (300, 300, 50, 3000));
        assert_eq!((with("7"), scaled(1, Some("quick".into()))), (7, 1));
    }

    #[test]
    #[should_panic(expected = "BETRFS_EFFORT is `lnog`")]
    fn a_misspelt_effort_is_an_error() {
        scaled(300, Some("lnog".into()));
    }
}
