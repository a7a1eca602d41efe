//! Sizes on the command line and on the screen.

const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

/// Parses `4096`, `256M`, `1.5G`, `1GiB`: powers of 1024. A fraction is rounded down to whole bytes.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!("`{text}` is not a size: write a number of bytes, or one with K, M, G or T, as in 8G or 1.5G")
    };
    let upper = text.trim().to_ascii_uppercase();
    let short = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    let with_unit = UNITS.iter().find_map(|(unit, shift)| Some((short.strip_suffix(*unit)?, *shift)));
    let (digits, shift) = with_unit.unwrap_or((short, 0));
    let (whole, fraction) = match digits.trim().split_once('.') {
        // There is no fraction of a byte.
        Some((whole, fraction)) if shift > 0 => (whole, number(fraction).ok_or_else(wrong)?),
        Some(_) => return Err(wrong()),
        None => (digits.trim(), (0, 0)),
    };
    let (count, _) = number(whole).ok_or_else(wrong)?;
    let (part, part_digits) = fraction;
    let parts = 10_u128.checked_pow(part_digits).ok_or_else(wrong)?;
    let bytes = (u128::from(count) << shift) + (u128::from(part) << shift) / parts;
    u64::try_from(bytes).map_err(|_| format!("`{text}` is larger than any volume can be"))
}

/// A number of digits alone, without a sign, and how many there are.
fn number(digits: &str) -> Option<(u64, u32)> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count = digits.parse().ok().filter(|_| is_number)?;
    Some((count, u32::try_from(digits.len()).ok()?))
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
            ("1.5G", 3 << 29),
            ("0.5k", 512),
            ("2.50 MiB", 5 << 19),
            ("0.1K", 102),
            ("15.999999999999999999T", (16 << 40) - 1),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_wrong_size_is_refused_with_an_example() {
        for text in
            ["", "G", "8X", "-1", "+1", "+ 1G", "1.5", "1.G", ".5G", "1.+5G", "1.5.5G", "1,5G", "8GG", "0x10"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["99999999999999999999", "20000000T", "16777216.0T", "1.9999999999999999999999999G"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&format!("1.{}G", "0".repeat(100))).is_err());
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
