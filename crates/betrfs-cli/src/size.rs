//! Sizes on the command line and on the screen.

const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

/// Parses `4096`, `256M`, `8G`, `1GiB`: powers of 1024.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is not a size: write a number of bytes, or one with K, M, G or T, as in 8G");
    let upper = text.trim().to_ascii_uppercase();
    let short = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    let with_unit = UNITS.iter().find_map(|(unit, shift)| Some((short.strip_suffix(*unit)?, *shift)));
    let (digits, shift) = with_unit.unwrap_or((short, 0));
    let digits = digits.trim();
    // Not a sign, which the parser of numbers takes.
    let count: u64 = match digits.as_bytes().first() {
        Some(b'0'..=b'9') => digits.parse().map_err(|_| wrong())?,
        _ => return Err(wrong()),
    };
    count.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is larger than any volume can be"))
}

/// As [`parse`]; refuses 0.
pub fn parse_positive(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Err("it has to be more than 0".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Formats a size for people: `4.0 KiB`, `256.0 MiB`.
pub fn show(bytes: u64) -> String {
    match UNITS.iter().rev().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => format!("{:.1} {unit}iB", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("256M", 256 << 20),
            ("8G", 8 << 30),
            ("8GiB", 8 << 30),
            ("1tb", 1 << 40),
            (" 12 M ", 12 << 20),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_wrong_size_is_refused_with_an_example() {
        for text in
            ["", "G", "8X", "-1", "+1", "+ 1G", "1.5G", "8GG", "0x10", "99999999999999999999", "20000000T"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("lots").unwrap_err().contains("8G"));
        assert!(parse_positive("0").is_err());
        assert_eq!(parse_positive("1"), Ok(1));
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_fits() {
        assert_eq!(show(0), "0 B");
        assert_eq!(show(1023), "1023 B");
        assert_eq!(show(8 << 30), "8.0 GiB");
        assert_eq!(show(1536 << 10), "1.5 MiB");
    }
}
