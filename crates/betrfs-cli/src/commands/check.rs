//! `betrfs check`: walks everything on a volume.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use betrfs::{OpenOptions, Volume};
use betrfs_fuse::is_damage;
use betrfs_host::{FileDevice, StdHome};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::format::{Format, print, print_json};

/// Check a volume: read all of it and verify it
#[derive(clap::Args)]
#[command(after_help = "\
The volume must not be mounted. Changes that were in its log are replayed first, as a mount would.
Every problem is one line on standard output, with its place; the exit code is then 1.

Example:
  betrfs check data.betrfs")]
pub struct Arguments {
    /// The volume's file or block device
    volume: PathBuf,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Report<'a> {
    volume: Cow<'a, str>,
    clean: bool,
    problems: &'a [String],
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let path = &arguments.volume;
    let shown = path.display();
    let failed = |error: betrfs::Error| {
        let sentence = format!("{shown}: {error}");
        if is_damage(&error) { Failure::damage(sentence) } else { Failure::new(sentence) }
    };
    let device = FileDevice::open(path)?;
    let volume =
        Volume::open(Arc::new(device), OpenOptions::new(Arc::new(StdHome::new()))).map_err(failed)?;
    let problems = walk(&volume).map_err(failed)?;
    volume.close().map_err(failed)?;
    let clean = problems.is_empty();
    match arguments.format {
        Format::Text if clean => print(format_args!("{shown}: no problem found"))?,
        Format::Text => problems.iter().try_for_each(|problem| print(format_args!("{shown}: {problem}")))?,
        Format::Json => print_json(&Report { volume: path.to_string_lossy(), clean, problems: &problems })?,
    }
    if clean {
        return Ok(());
    }
    Err(Failure::damage(format!(
        "{shown} is damaged ({} found): copy what can be read from a mount of it to a new volume",
        problems.len()
    )))
}

fn walk(volume: &Volume) -> betrfs::Result<Vec<String>> {
    // Drawn on standard error, and only if that is a terminal.
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("checking [{wide_bar}] {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    let mut problems = Vec::new();
    let walked = volume.check(&mut |problem| problems.push(problem), &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    walked.map(|()| problems)
}
