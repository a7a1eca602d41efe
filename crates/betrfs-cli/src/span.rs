//! Spans of time on the screen.

const UNITS: [(&str, u64); 3] = [("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1000)];

/// Formats nanoseconds for people: `850 ns`, `8.6 µs`, `1.2 s`.
pub fn show(ns: u64) -> String {
    match UNITS.iter().find(|(_, unit_ns)| ns >= *unit_ns) {
        Some((unit, unit_ns)) => format!("{:.1} {unit}", ns as f64 / *unit_ns as f64),
        None => format!("{ns} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_shown_in_the_largest_unit_that_fits() {
        assert_eq!(show(0), "0 ns");
        assert_eq!(show(999), "999 ns");
        assert_eq!(show(8_600), "8.6 µs");
        assert_eq!(show(2_500_000), "2.5 ms");
        assert_eq!(show(90_000_000_000), "90.0 s");
    }
}
