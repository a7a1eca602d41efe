//! Names of files in text: they may have line breaks, and what a terminal obeys.

use std::borrow::Cow;

/// A sentence with names of files, on one line: a name may have line breaks, and what a terminal obeys.
pub fn on_one_line(sentence: &str) -> String {
    escaped(sentence, |_| false)
}

/// Lines with names of files, without what a terminal obeys.
pub fn in_lines(text: &str) -> String {
    escaped(text, |c| ['\n', '\t'].contains(&c))
}

/// A JSON document with an escape for each control character. Serializers escape those of ASCII up to U+001F;
/// terminals obey U+007F to U+009F too. Outside of strings there are none.
pub fn json_escaped(document: &str) -> Cow<'_, str> {
    let is_left = |c: char| ('\u{7f}'..='\u{9f}').contains(&c);
    if !document.contains(is_left) {
        return Cow::Borrowed(document);
    }
    let mut escaped = String::with_capacity(document.len() + 16);
    for c in document.chars() {
        if is_left(c) { escaped.push_str(&format!("\\u{:04x}", u32::from(c))) } else { escaped.push(c) }
    }
    Cow::Owned(escaped)
}

/// With an escape for each control character but those that are to stay.
fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && !stays(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_no_control_characters_and_means_the_same() {
        for name in ["plain", "a\u{1b}[2J\u{7f}\u{9b}2J\u{80}\u{9f}\u{a0}ü\n\u{0}"] {
            let document = serde_json::to_string(&[name]).unwrap();
            let escaped = json_escaped(&document);
            assert!(!escaped.chars().any(char::is_control), "{escaped}");
            assert_eq!(serde_json::from_str::<Vec<String>>(&escaped).unwrap(), [name]);
        }
    }

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        let text = "a\u{1b}[2J\tb\r\n\u{7f}ü\u{9b}";
        assert_eq!(in_lines(text), "a\\u{1b}[2J\tb\\r\n\\u{7f}ü\\u{9b}");
        assert_eq!(on_one_line(text), "a\\u{1b}[2J\\tb\\r\\n\\u{7f}ü\\u{9b}");
    }
}
