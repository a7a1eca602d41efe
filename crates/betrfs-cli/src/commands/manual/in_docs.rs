//! The manual in docs/manual.md, to which documents link: what `--help` tells, and betrfs(5).

use std::fmt::Write;
use std::path::Path;

use clap::CommandFactory;

use super::{page_name, volume};
use crate::commands::mount::options::DESCRIBED;

/// Columns of the help in the document.
const COLUMNS: usize = 100;
/// Columns of paragraphs.
const DOCUMENT_COLUMNS: usize = 118;
/// The variable with which the test writes the document instead of comparing it.
const WRITE: &str = "BETRFS_WRITE_MANUAL";

const BEGIN: &str = "\
# Manual

What `betrfs COMMAND --help` tells, for each command, and the page [betrfs(5)](#betrfs5) about volumes. A package, or
`betrfs manual DIR`, installs the same as manual pages (`man betrfs-mount`). A test holds this text to the program's.
";

fn document() -> String {
    let mut program = crate::Arguments::command().term_width(COLUMNS).disable_help_subcommand(true);
    program.build();
    let mut text = BEGIN.to_owned();
    add(&program, &mut text);
    text.push_str("\n## betrfs(5)\n");
    add_volume(&mut text);
    text
}

/// Adds the help of a command and those of its commands.
fn add(command: &clap::Command, text: &mut String) {
    let help = command.clone().term_width(COLUMNS).render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    write!(text, "\n## {}\n\n```text\n{}\n```\n", page_name(command), lines.join("\n").trim_end()).unwrap();
    command.get_subcommands().filter(|command| !command.is_hide_set()).for_each(|command| add(command, text));
}

/// Adds what betrfs(5) tells, but for its description.
fn add_volume(text: &mut String) {
    text.push_str("\n### Mount options\n\n");
    for (option, meaning) in DESCRIBED {
        writeln!(text, "{}", wrapped(&format!("- `{option}`: {meaning}"))).unwrap();
    }
    write!(text, "\n### Lines of fstab(5)\n\n```text\n{}\n```\n", volume::LINES.join("\n")).unwrap();
    for (heading, paragraphs) in [("JSON documents", volume::JSON), ("Promises", volume::PROMISES)] {
        write!(text, "\n### {heading}\n").unwrap();
        for paragraph in paragraphs {
            write!(text, "\n{}\n", wrapped(paragraph)).unwrap();
        }
    }
    text.push_str("\n### Limits\n\n");
    for (what, limit) in volume::limits() {
        writeln!(text, "- {what}: {limit}").unwrap();
    }
}

/// A paragraph in lines of documents.
fn wrapped(paragraph: &str) -> String {
    let indent = if paragraph.starts_with("- ") { "\n  " } else { "\n" };
    let (mut lines, mut columns) = (String::new(), 0);
    for word in paragraph.split(' ') {
        let more = word.chars().count() + 1;
        if columns > 0 && columns + more > DOCUMENT_COLUMNS {
            lines.push_str(indent);
            columns = indent.len() - 1;
        } else if columns > 0 {
            lines.push(' ');
        }
        lines.push_str(word);
        columns += more;
    }
    lines
}

#[test]
fn the_manual_in_the_documents_is_what_help_tells() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual.md");
    let text = document();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap();
    let differs = there.lines().zip(text.lines()).find(|(there, told)| there != told);
    assert!(there == text, "docs/manual.md is not what --help tells ({WRITE}=1 writes it): {differs:?}");
}

/// Each command in the tables of administration.md is a link to its part of the manual.
#[test]
fn the_tables_of_administration_link_to_the_manual() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let administration = std::fs::read_to_string(docs.join("administration.md")).unwrap();
    let (_, table) = administration.split_once("## Commands").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let manual = document();
    let mut links = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let ours = row.replace("\\|", "/").trim_end_matches(" |").rsplit(" | ").next().unwrap().to_owned();
        let targets: Vec<&str> = ours.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
        assert!(!targets.is_empty(), "no link: {row}");
        for target in targets {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let is_there = match file {
                // As headings become anchors: small, without brackets.
                "manual.md" => manual
                    .lines()
                    .filter_map(|line| line.strip_prefix("## "))
                    .any(|heading| heading.to_lowercase().replace(['(', ')'], "") == anchor),
                _ => docs.join(file).exists(),
            };
            assert!(is_there, "{target}: {row}");
            links += 1;
        }
    }
    assert!(links > 40, "{links} links");
}
