//! The text behind a command's options as sections of a page.

use clap_mangen::roff::{Inline, Roff, bold, roman};

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
                verbatim(&lines[at..at + block], roff);
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
}
