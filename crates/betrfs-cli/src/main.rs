//! The command `betrfs`: make, mount, check and watch volumes.
#![forbid(unsafe_code)]

mod bar;
mod commands;
mod errors;
mod failure;
mod format;
mod helper;
mod interruption;
mod json_stream;
mod log;
mod memory;
mod name;
mod opening;
mod output;
mod ownership;
mod path;
mod place;
mod plain_text;
mod progress;
#[cfg(test)]
mod random_input;
mod replay;
mod size;
mod span;
mod tags;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser, Subcommand};
use signal_hook::consts::SIGXFSZ;

use commands::{
    backup, check, clone, completions, debug, df, doctor, freeze, get, image, info, install_helpers, kv,
    label, list, manual, map, metadata_copies, mkfs, mount, probe, quota, recompress, rescue, resize,
    rm_tree, scrub, set, snapshot, stats, sync, thaw, top, tree, trim, umount, usage, uuid,
};
use helper::ExitCodes;
use log::Place;

/// Jemalloc, because the C library's allocator either maps every allocation of a basement's size anew, to be
/// cleared by the kernel, or keeps holes too small to use.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const AFTER_HELP: &str = "\
Exit codes:
  0  done, nothing wrong
  1  failed, or a problem was found; standard error says what and where
  2  the command line is wrong
  4  `betrfs rescue` could not copy everything

Called as mkfs.betrfs, fsck.betrfs, mount.betrfs, umount.betrfs, or with `fuse.` or `fuseblk.` before `betrfs`, \
it is `betrfs mkfs`, `check`, `mount` or `umount`. `check` and `scrub` end with the exit codes of fsck(8): 4 for a \
damaged volume, 8 if it failed, 16 for a wrong command line, 32 if it was interrupted; mount.betrfs and \
umount.betrfs with those of mount(8): 1 for a wrong command line or a lack of rights, 2 if the system is out of a resource, 8 if it \
was interrupted, 32 for any other failure.

Environment:
  BETRFS_LOG  levels of the log by target, beside the usual ones: betree=info shows checkpoints";

/// A file system in which every directory can be renamed, cloned or deleted in a bounded number of
/// I/Os, and is still read in order on the disk.
#[derive(Parser)]
#[command(name = "betrfs", bin_name = "betrfs", version, after_help = AFTER_HELP)]
struct Arguments {
    /// Log to standard error (twice: in detail)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Mkfs(mkfs::Arguments),
    Probe(probe::Arguments),
    Label(label::Arguments),
    Uuid(uuid::Arguments),
    MetadataCopies(metadata_copies::Arguments),
    Mount(mount::Arguments),
    Umount(umount::Arguments),
    Check(check::Arguments),
    Scrub(scrub::Arguments),
    Backup(backup::Arguments),
    Debug(debug::Arguments),
    Rescue(rescue::Arguments),
    Clone(clone::Arguments),
    RmTree(rm_tree::Arguments),
    Snapshot(snapshot::Arguments),
    Set(set::Arguments),
    Get(get::Arguments),
    Recompress(recompress::Arguments),
    Quota(quota::Arguments),
    List(list::Arguments),
    Info(info::Arguments),
    Stats(stats::Arguments),
    Top(top::Arguments),
    Df(df::Arguments),
    Map(map::Arguments),
    Image(image::Arguments),
    Trim(trim::Arguments),
    Resize(resize::Arguments),
    Doctor(doctor::Arguments),
    Sync(sync::Arguments),
    Freeze(freeze::Arguments),
    Thaw(thaw::Arguments),
    Usage(usage::Arguments),
    Tree(tree::Arguments),
    Kv(kv::Arguments),
    InstallHelpers(install_helpers::Arguments),
    Manual(manual::Arguments),
    Completions(completions::Arguments),
}

fn main() -> ExitCode {
    let line = helper::command_line(std::env::args_os());
    let codes = ExitCodes::of_line(&line);
    let arguments = match Arguments::try_parse_from(line) {
        Ok(arguments) => arguments,
        // A request for help is an error here too.
        Err(told) => {
            let _ = told.print();
            return if told.use_stderr() { ExitCode::from(codes.usage) } else { ExitCode::SUCCESS };
        }
    };
    let place =
        if let Command::Mount(command) = &arguments.command { command.log_place() } else { Place::Command };
    log::start(arguments.verbose, place);
    let codes = match &arguments.command {
        Command::Check(_) | Command::Scrub(_) => ExitCodes::CHECK,
        _ => codes,
    };
    // What is written past a limit on the size of files is an error of the write, not the end of the program.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    let outcome = match &arguments.command {
        Command::Mkfs(command) => mkfs::run(command),
        Command::Probe(command) => probe::run(command),
        Command::Label(command) => label::run(command),
        Command::Uuid(command) => uuid::run(command),
        Command::MetadataCopies(command) => metadata_copies::run(command),
        Command::Mount(command) => mount::run(command, arguments.verbose),
        Command::Umount(command) => umount::run(command),
        Command::Check(command) => check::run(command),
        Command::Scrub(command) => scrub::run(command),
        Command::Backup(command) => backup::run(command),
        Command::Debug(command) => debug::run(command),
        Command::Rescue(command) => rescue::run(command),
        Command::Clone(command) => clone::run(command),
        Command::RmTree(command) => rm_tree::run(command),
        Command::Snapshot(command) => snapshot::run(command),
        Command::Set(command) => set::run(command),
        Command::Get(command) => get::run(command),
        Command::Recompress(command) => recompress::run(command),
        Command::Quota(command) => quota::run(command),
        Command::List(command) => list::run(command),
        Command::Info(command) => info::run(command),
        Command::Stats(command) => stats::run(command),
        Command::Top(command) => top::run(command),
        Command::Df(command) => df::run(command),
        Command::Map(command) => map::run(command),
        Command::Image(command) => image::run(command),
        Command::Trim(command) => trim::run(command),
        Command::Resize(command) => resize::run(command),
        Command::Doctor(command) => doctor::run(command),
        Command::Sync(command) => sync::run(command),
        Command::Freeze(command) => freeze::run(command),
        Command::Thaw(command) => thaw::run(command),
        Command::Usage(command) => usage::run(command),
        Command::Tree(command) => tree::run(command),
        Command::Kv(command) => kv::run(command),
        Command::InstallHelpers(command) => install_helpers::run(command),
        Command::Manual(command) => manual::run(command, Arguments::command()),
        Command::Completions(command) => completions::run(command, &Arguments::command()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // If standard error is closed, the exit code remains.
            failure::say(&failure.to_string());
            ExitCode::from(codes.of_kind(failure.kind()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    /// The names of all commands below one that take `--format json`, as they are typed.
    fn with_json(command: &clap::Command, names: &str, found: &mut Vec<String>) {
        let prints = |command: &clap::Command| {
            let format = command.get_arguments().find(|argument| argument.get_id() == "format");
            format.is_some_and(|format| {
                format.get_possible_values().iter().any(|value| value.matches("json", false))
            })
        };
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let names = format!("{names} {}", below.get_name());
            with_json(below, &names, found);
            if prints(below) && below.get_subcommands().next().is_none() {
                found.push(names);
            }
        }
    }

    /// A command that prints JSON has a schema under its own name, with the version of the documents.
    #[test]
    fn every_command_with_json_has_a_schema() {
        let mut command = Arguments::command();
        // Global options come to the commands below.
        command.build();
        let mut found = Vec::new();
        with_json(&command, "betrfs", &mut found);
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
        for names in &found {
            let file = names.replacen("betrfs ", "", 1).replace(' ', "-") + ".json";
            let schema = std::fs::read(folder.join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            let schema: serde_json::Value = serde_json::from_slice(&schema).unwrap();
            assert_eq!(schema["title"], format!("{names} --format json"));
            assert_eq!(schema["properties"]["schema_version"]["const"], format::SCHEMA_VERSION, "{file}");
            assert!(schema["required"].as_array().unwrap().contains(&"schema_version".into()), "{file}");
        }
        assert!(found.len() > 30, "{found:?}");
    }

    /// The terminal's width breaks lines; only lists and examples, which are indented, have lines of their
    /// own.
    #[test]
    fn help_has_no_line_breaks_of_its_own() {
        use clap::CommandFactory;
        let all = Arguments::command();
        let helps = all.get_subcommands().chain([&all]).filter_map(|command| command.get_after_help());
        let is_listed = |line: &str| line.is_empty() || line.starts_with("  ");
        let mut seen = 0;
        for help in helps.map(ToString::to_string) {
            seen += 1;
            for (line, next) in help.lines().zip(help.lines().skip(1)) {
                assert!(is_listed(line) || is_listed(next), "{line}\n{next}");
            }
        }
        assert!(seen > 8, "{seen} have any");
    }
}
