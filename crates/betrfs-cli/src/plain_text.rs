//! Names of files in text for a terminal: they may have line breaks, and what a terminal obeys.

/// A sentence with names of files, on one line: a name may have line breaks, and what a terminal obeys.
pub fn on_one_line(sentence: &str) -> String {
    escaped(sentence, |_| false)
}

/// Lines with names of files, without what a terminal obeys.
pub fn in_lines(text: &str) -> String {
    escaped(text, |c| ['\n', '\t'].contains(&c))
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
    fn what_a_terminal_obeys_is_escaped() {
        let text = "a\u{1b}[2J\tb\r\n\u{7f}ü\u{9b}";
        assert_eq!(in_lines(text), "a\\u{1b}[2J\tb\\r\n\\u{7f}ü\\u{9b}");
        assert_eq!(on_one_line(text), "a\\u{1b}[2J\\tb\\r\\n\\u{7f}ü\\u{9b}");
    }
}
