//! `betrfs manual`: the manual pages, made of what `--help` shows.

mod help;
#[cfg(test)]
mod in_docs;
mod volume;

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use rustix::fs::{Mode, OFlags};

use crate::failure::{Failure, Outcome};
use crate::format::print;
use crate::helper::{self, ExitCodes};
use crate::place::Place;

/// The section of pages about commands for the administration of a system.
const COMMANDS: &str = "8";
/// The section of pages about file formats.
const FORMATS: &str = "5";
const TITLE: &str = "BetrFS";

/// Write the manual pages into a directory
#[derive(clap::Args)]
#[command(after_help = "\
Each command has a page, `betrfs-mkfs(8)` for instance, and so have the names that `betrfs install-helpers` makes \
links for. betrfs(5) is about volumes, mount options and limits. A package installs the pages; without one, put \
them where man(1) looks for them.

Examples:
  betrfs manual ./pages && man ./pages/man8/betrfs-mount.8
  betrfs manual /usr/local/share/man")]
pub struct Arguments {
    /// The directory; `man5` and `man8` are made in it
    dir: PathBuf,
}

/// Runs the command; `program` is the definition of the whole command line.
pub fn run(arguments: &Arguments, program: clap::Command) -> Outcome {
    let mut pages = pages(program)?;
    let aliases = helper::HELPERS.into_iter().filter_map(|name| {
        let target = helper::command_line([name.into()]).into_iter().nth(1)?.into_string().ok()?;
        let text = format!(".so man{COMMANDS}/betrfs-{target}.{COMMANDS}\n").into_bytes();
        Some(Page { name: name.to_owned(), section: COMMANDS, text })
    });
    pages.extend(aliases);
    let dir = &arguments.dir;
    let failed = |error| Failure::new(format!("cannot write to {}: {error}", dir.display()));
    fs::create_dir_all(dir).map_err(failed)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::open(dir, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    for page in &pages {
        page.write_below(open.as_fd(), dir)?;
    }
    print(format_args!("{}: {} manual pages", arguments.dir.display(), pages.len()))
}

/// A manual page, as troff(1) reads it.
struct Page {
    name: String,
    section: &'static str,
    text: Vec<u8>,
}

impl Page {
    /// Writes it below a directory that is open, and is shown by its path.
    fn write_below(&self, open: BorrowedFd<'_>, dir: &Path) -> Outcome {
        let failed = |what: &Path, error| Failure::new(format!("cannot write {}: {error}", what.display()));
        let section = format!("man{}", self.section);
        let dir = dir.join(&section);
        let open = Place::within(open, section).and_then(|place| place.open_or_make_dir());
        let open = open.map_err(|error| failed(&dir, error))?;
        let name = format!("{}.{}", self.name, self.section);
        let written = Place::within(open.as_fd(), &name).and_then(|place| place.write_whole(&self.text));
        written.map_err(|error| failed(&dir.join(name), error))
    }
}

/// All pages but those of other names.
fn pages(program: clap::Command) -> Result<Vec<Page>, Failure> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    add_pages(&program, &mut pages)?;
    pages.push(Page {
        name: "betrfs".into(),
        section: FORMATS,
        text: titled("betrfs", FORMATS, &volume::page())?,
    });
    Ok(pages)
}

/// Adds the page of a command and those of its commands.
fn add_pages(command: &clap::Command, pages: &mut Vec<Page>) -> Outcome {
    let shown: Vec<_> = command.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    let page = command_page(command, &shown, pages)?;
    pages.push(page);
    shown.into_iter().try_for_each(|command| add_pages(command, pages))
}

/// The page's name of a command: `betrfs-kv-load`.
fn page_name(command: &clap::Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

/// The page of a command; `above` has those of the commands that it belongs to.
fn command_page(
    command: &clap::Command,
    commands: &[&clap::Command],
    above: &[Page],
) -> Result<Page, Failure> {
    let name = page_name(command);
    let man = Man::new(command.clone()).section(COMMANDS);
    let mut text = Vec::new();
    man.render_name_section(&mut text)?;
    let usage = command.clone().render_usage().to_string();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]).text([bold(usage.trim_start_matches("Usage: "))]);
    text.extend(roff.to_roff().into_bytes());
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    let mut roff = Roff::new();
    if !commands.is_empty() {
        roff.control("SH", ["COMMANDS"]);
        for command in commands {
            roff.control("TP", []);
            roff.text([bold(page_name(command)), roman(format!("({COMMANDS})"))]);
            roff.text([roman(command.get_about().map(ToString::to_string).unwrap_or_default())]);
        }
    }
    let after = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    let after = after.unwrap_or_default();
    help::sections(&after, &mut roff);
    if commands.is_empty() && !after.contains(help::EXIT_CODES) {
        exit_status(&name, &mut roff);
    }
    roff.control("SH", ["SEE ALSO"]);
    let mut others = vec![bold("betrfs"), roman(format!("({FORMATS})"))];
    for other in parents(&name).filter(|parent| above.iter().any(|page| page.name == *parent)) {
        others.extend([roman(", "), bold(other), roman(format!("({COMMANDS})"))]);
    }
    roff.text(others);
    text.extend(roff.to_roff().into_bytes());
    let text = titled(&name, COMMANDS, &text)?;
    Ok(Page { name, section: COMMANDS, text })
}

/// The names that a command's name begins with, among them those of the commands that it belongs to: of
/// `betrfs-kv-load`, `betrfs` and `betrfs-kv`.
fn parents(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('-').map(|(at, _)| &name[..at])
}

/// The exit codes of a command that tells no others in its help.
fn exit_status(name: &str, roff: &mut Roff) {
    let command = name.split('-').nth(1).unwrap_or_default();
    let codes = ExitCodes::of_line(&["betrfs".into(), command.into()]);
    if codes == ExitCodes::CHECK {
        return;
    }
    roff.control("SH", ["EXIT STATUS"]);
    let rows = [
        (0, "Done, nothing wrong."),
        (codes.failed, "It failed, or a problem was found; standard error says what and where."),
        (codes.usage, "The command line is wrong."),
    ];
    for (code, meaning) in rows {
        roff.control("TP", []);
        roff.text([bold(code.to_string())]);
        roff.text([roman(meaning)]);
    }
}

/// A page with its title line, without which man(1) does not format it.
fn titled(name: &str, section: &str, body: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut roff = Roff::new();
    let source = concat!("betrfs ", env!("CARGO_PKG_VERSION"));
    roff.control("TH", [name, section, "", source, TITLE]);
    let mut text = roff.to_roff().into_bytes();
    text.extend(body);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn text(name: &str, section: &str) -> String {
        let pages = pages(crate::Arguments::command()).unwrap();
        let page = pages.iter().find(|page| page.name == name && page.section == section);
        String::from_utf8(page.unwrap_or_else(|| panic!("{name}({section})")).text.clone()).unwrap()
    }

    #[test]
    fn each_command_has_a_page_with_what_its_help_tells() {
        let load = text("betrfs-kv-load", "8");
        assert!(load.starts_with(".ie") || load.contains(".TH betrfs-kv-load 8"), "{load}");
        for part in [".SH SYNOPSIS", "The form of the pairs", ".SH \"EXIT STATUS\"", "betrfs-kv"] {
            assert!(load.contains(part), "{part}: {load}");
        }
        let mount = text("betrfs-mount", "8");
        for part in [".SH EXAMPLES", "--create 8G", "mount of a server"] {
            assert!(mount.replace("\\-", "-").contains(part), "{part}: {mount}");
        }
        assert!(!mount.contains("volume_is_open") && !mount.contains("name_space"), "hidden options");
        assert!(text("betrfs", "8").contains(".SH ENVIRONMENT"));
    }

    #[test]
    fn each_page_tells_exit_codes_once_and_refers_to_pages_that_exist() {
        let pages = pages(crate::Arguments::command()).unwrap();
        let own = |name: &str| pages.iter().any(|page| page.name == name);
        for page in &pages {
            let text = String::from_utf8(page.text.clone()).unwrap().replace("\\-", "-");
            assert!(text.matches(".SH \"EXIT STATUS\"").count() <= 1, "{}", page.name);
            let (_, others) = text.split_once(".SH \"SEE ALSO\"").unwrap();
            let names = others.split("\\fB").skip(1).filter_map(|rest| rest.split_once("\\fR"));
            for (other, _) in names.filter(|(name, _)| name.starts_with("betrfs")) {
                assert!(own(other), "{} refers to {other}", page.name);
            }
        }
        let rescue = text("betrfs-rescue", "8");
        assert!(rescue.contains("something is missing"), "{rescue}");
    }

    #[test]
    fn the_page_of_volumes_tells_of_each_mount_option() {
        let page = text("betrfs", "5").replace("\\-", "-");
        for (option, meaning) in crate::commands::mount::options::DESCRIBED {
            assert!(page.contains(option) && page.contains(meaning.split('`').next().unwrap()), "{option}");
        }
    }
}
