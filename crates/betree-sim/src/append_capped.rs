//! The upsert of all histories.

use betree::Upsert;

use crate::expiry::{has_expired, left_of, time_and_rest, timed};

/// It appends the delta, keeps the last [`CAP_BYTES`](AppendCapped::CAP_BYTES), and removes the key if the
/// delta is empty: a wrong order or a repetition shows. Values may begin with the time at which they expire.
/// Of two deltas that one could replace, it combines two thirds, so that histories have both.
pub struct AppendCapped;

impl AppendCapped {
    /// The largest size of a value.
    pub const CAP_BYTES: usize = 64;

    /// A delta with a time finds no value that has expired by then, and lets a value keep its own time.
    pub(crate) fn applied(old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        let Some((made_ns, delta)) = time_and_rest(delta) else { return AppendCapped::appended(old, delta) };
        let old = old.filter(|old| !has_expired(old, made_ns));
        match old.and_then(time_and_rest) {
            None => AppendCapped::appended(old, delta),
            Some((time_ns, old)) => Some(timed(time_ns, &AppendCapped::appended(Some(old), delta)?)),
        }
    }

    fn appended(old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        if delta.is_empty() {
            return None;
        }
        let mut value = old.unwrap_or_default().to_vec();
        value.extend_from_slice(delta);
        let excess = value.len().saturating_sub(Self::CAP_BYTES);
        value.drain(..excess);
        Some(value)
    }

    /// The delta with the effect of two, if there is one. Of two that were made at different times, one may
    /// find a value and the other not.
    fn combined(older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        match (time_and_rest(older), time_and_rest(newer)) {
            // A short one must not get what makes it look as if it had a time.
            (None, None) => AppendCapped::joined(older, newer).filter(|both| time_and_rest(both).is_none()),
            (Some((older_ns, older)), Some((newer_ns, newer))) if older_ns == newer_ns => {
                Some(timed(newer_ns, &AppendCapped::joined(older, newer)?))
            }
            _ => None,
        }
    }

    /// The delta of two without their times; `None` if the older one removes the key, or both are more than a
    /// value holds.
    fn joined(older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        if newer.is_empty() {
            return Some(Vec::new());
        }
        let is_one = !older.is_empty() && older.len() + newer.len() <= Self::CAP_BYTES;
        is_one.then(|| [older, newer].concat())
    }
}

impl Upsert for AppendCapped {
    fn name(&self) -> &str {
        "append capped"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        AppendCapped::applied(old, delta)
    }

    fn expires_at_ns(&self, value: &[u8]) -> Option<i64> {
        time_and_rest(value).map(|(time_ns, _)| time_ns)
    }

    fn left_of_expired(&self, value: &[u8]) -> Option<Vec<u8>> {
        left_of(value)
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let sum: u32 = older.iter().chain(newer).map(|byte| u32::from(*byte)).sum();
        AppendCapped::combined(older, newer).filter(|_| !sum.is_multiple_of(3))
    }
}

#[cfg(test)]
mod tests {
    use seeded::Rng;

    use super::*;
    use crate::expiry::timed_alone;

    #[test]
    fn the_last_of_what_was_appended_is_kept() {
        let long = vec![b'l'; AppendCapped::CAP_BYTES];
        let value = AppendCapped::applied(Some(&long), b"end").unwrap();
        assert_eq!(value.len(), AppendCapped::CAP_BYTES);
        assert!(value.ends_with(b"lend"));
        assert_eq!(AppendCapped::applied(None, b"x"), Some(b"x".to_vec()));
        assert_eq!(AppendCapped::applied(Some(b"x"), b""), None);
    }

    /// A delta as histories make them: rarely one that removes the key, and with few times.
    fn delta(rng: &mut Rng, is_timed: bool) -> Vec<u8> {
        let len = if rng.percent(15) { 0 } else { rng.between(1, 50) };
        let rest: Vec<u8> = (0..len).map(|_| b'a' + rng.below(26) as u8).collect();
        if is_timed { timed(rng.below(3) as i64, &rest) } else { rest }
    }

    fn value(rng: &mut Rng) -> Option<Vec<u8>> {
        let rest = delta(rng, false);
        match rng.below(4) {
            0 => None,
            1 => Some(timed(rng.below(4) as i64, &rest)),
            2 => Some(timed_alone(rng.below(4) as i64, &rest)),
            _ => Some(rest),
        }
    }

    /// The law that lets the engine replace two deltas: `apply(apply(v, a), b) == apply(v, combine(a, b))`.
    #[test]
    fn a_combined_delta_has_the_effect_of_both() {
        let (mut combined, mut kept) = (0, 0);
        for seed in 0..20_000 {
            let mut rng = Rng::new(seed);
            // Deltas of one dictionary have all a time or none.
            let is_timed = rng.percent(50);
            let (older, newer) = (delta(&mut rng, is_timed), delta(&mut rng, is_timed));
            let Some(both) = AppendCapped.combine(&older, &newer) else {
                kept += 1;
                continue;
            };
            combined += 1;
            for _ in 0..8 {
                let old = value(&mut rng);
                let after_older = AppendCapped::applied(old.as_deref(), &older);
                let one_by_one = AppendCapped::applied(after_older.as_deref(), &newer);
                let at_once = AppendCapped::applied(old.as_deref(), &both);
                assert_eq!(one_by_one, at_once, "seed {seed}: {old:?}, {older:?}, {newer:?}");
            }
        }
        assert!(combined > 4000 && kept > 4000, "{combined} combined, {kept} kept");
    }

    #[test]
    fn what_no_delta_replaces_stays_two() {
        let combined = AppendCapped::combined;
        assert_eq!(combined(b"a", b"b"), Some(b"ab".to_vec()));
        assert_eq!(combined(b"", b"b"), None, "the value is removed before b comes");
        assert_eq!(combined(b"a", b""), Some(Vec::new()));
        assert_eq!(combined(&timed(1, b"a"), &timed(2, b"b")), None, "a value may expire at 2");
        assert_eq!(combined(&timed(1, b"a"), &timed(1, b"b")), Some(timed(1, b"ab")));
        assert_eq!(combined(b"a", &timed(1, b"b")), None);
        let (head, tail) = (&timed(7, b"")[..6], &timed(7, b"")[6..]);
        assert_eq!(combined(head, tail), None, "both together look as if they had a time");
        assert_eq!(combined(&[b'a'; 40], &[b'b'; 25]), None);
    }
}
