//! The text behind a command's options as sections of a page.

use clap_mangen::roff::{Inline, Roff, bold, roman};

/// The line that begins a help's own list of exit codes.
pub(super) const EXIT_CODES: &str = "Exit codes:\n";
/// Lines that are wider than this are no verse: a list of names, each with its meaning.
const COLUMNS_MAX: usize = 110;

/// Adds the sections of a help text. A line that ends with a colon before lines with an indent begins a
/// section of its name, whose lines stay as they are; all else is paragraphs.
pub(super) fn sections(text: &str, roff: &mut Roff) {
    let lines: Vec<&str> = text.lines().collect();
    let mut is_in_notes = false;
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        let block = lines.iter().skip(at).take_while(|line| line.starts_with("  ")).count();
        if line.trim().is_empty() {
            continue;
        }
        match line.strip_suffix(':').filter(|_| block > 0) {
            Some(name) => {
                let name = name.to_uppercase();
                roff.control("SH", [if name == "EXIT CODES" { "EXIT STATUS" } else { name.as_str() }]);
                is_in_notes = false;
                let block_lines = lines.get(at..at + block).unwrap_or_default();
                match block_lines.iter().any(|line| line.chars().count() > COLUMNS_MAX) {
                    true => definitions(block_lines, roff),
                    false => verbatim(block_lines, roff),
                }
                at += block;
            }
            None => {
                if !is_in_notes {
                    roff.control("SH", ["NOTES"]);
                    is_in_notes = true;
                }
                roff.control("PP", []);
                roff.text(marked(line));
            }
        }
    }
}

/// Adds lines as they are, less their indent.
pub(super) fn verbatim(lines: &[&str], roff: &mut Roff) {
    roff.control("PP", []).control("nf", []);
    for line in lines {
        roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
    }
    roff.control("fi", []);
}

/// Adds lines that begin with a name, and have its meaning behind two spaces or more.
fn definitions(lines: &[&str], roff: &mut Roff) {
    for line in lines {
        let line = line.trim_start();
        let (name, meaning) = line.split_once("  ").unwrap_or((line, ""));
        roff.control("TP", []).text([bold(name)]).text(marked(meaning.trim_start()));
    }
}

/// A text in which what stands between backticks is bold.
pub(super) fn marked(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(nth, part)| if nth % 2 == 1 { bold(part) } else { roman(part) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_stay_as_they_are_and_names_are_bold() {
        let mut roff = Roff::new();
        sections(
            "Returns when `it` answers.\n\nExamples:\n  betrfs a    one\n\n  betrfs b\nThen: more",
            &mut roff,
        );
        let text = roff.to_roff();
        let parts = [".SH NOTES", "\\fBit\\fR", ".SH EXAMPLES", ".nf", "betrfs a    one", ".fi", ".SH NOTES"];
        let mut rest = text.as_str();
        for part in parts {
            let at = rest.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
            rest = &rest[at + part.len()..];
        }
        assert!(rest.contains("Then: more"), "{text}");
    }

    #[test]
    fn long_meanings_of_names_are_paragraphs() {
        let mut roff = Roff::new();
        let meaning = "long ".repeat(40);
        sections(&format!("Values:\n  a    short\n  b    {meaning}"), &mut roff);
        let text = roff.to_roff();
        assert!(text.contains(".TP\n\\fBa\\fR\nshort") && text.contains(".TP\n\\fBb\\fR\nlong"), "{text}");
    }
}
