//! `betrfs label`: shows or changes a volume's label.

use std::path::PathBuf;

use betrfs::Identity;
use betrfs_fuse::{Order, Status};
use serde::Serialize;

use crate::commands::{change, stats};
use crate::failure::Outcome;
use crate::format::{Format, print, print_json};
use crate::tags::{self, Tags};

/// Show or change the label of a volume, mounted or not
#[derive(clap::Args)]
#[command(after_help = "\
The new label is durable when the command returns. Only root and the user who mounted the volume may change that of a \
mounted volume. The links of udev(7) to a mounted device change with its next event.

Examples:
  betrfs label /dev/sdb1            prints the label
  betrfs label /dev/sdb1 photos
  betrfs label /photos \"\"           takes the label of the volume mounted there away")]
pub struct Arguments {
    /// The volume's file or block device, UUID=... or LABEL=..., or the directory it is mounted on
    volume: PathBuf,
    /// The new label: at most 255 bytes of text; empty for none
    #[arg(value_parser = parse)]
    label: Option<String>,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Shown<'a> {
    label: &'a str,
}

/// Parses a label.
pub fn parse(label: &str) -> Result<String, String> {
    Identity::check_label(label).map(|()| label.to_owned()).map_err(|error| error.to_string())
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let volume = tags::resolved(&arguments.volume)?;
    let mount = change::mount_of(&volume);
    let Some(label) = &arguments.label else {
        let label = match &mount {
            Some(mount) => Status::ask(mount).map_err(|why| stats::unheard(&mount.path, &why))?.label,
            None => Tags::read(&volume)?.label,
        };
        return match arguments.format {
            Format::Text => print(label),
            Format::Json => print_json(&Shown { label: &label }),
        };
    };
    match &mount {
        Some(mount) => change::by_server(mount, &Order::Label(label.clone())).map(drop),
        None => change::closed(&volume, |env| env.set_label(label)),
    }
}
