//! `betrfs uuid`: shows or changes a volume's UUID.

use std::path::PathBuf;

use betree_platform::Platform;
use betree_std::StdPlatform;
use betrfs::{Identity, Uuid, UuidError};
use betrfs_fuse::{Order, Status};
use serde::Serialize;

use crate::commands::{change, stats};
use crate::failure::Outcome;
use crate::format::{Format, print, print_json};
use crate::tags::{self, Tags};

/// Show or change the UUID of a volume, mounted or not
#[derive(clap::Args)]
#[command(after_help = "\
A copy of a volume, block by block, has its UUID too: give one of them another before both are named by it. The new UUID \
is durable when the command returns, which prints it. Only root and the user who mounted the volume may change that of a \
mounted volume. The links of udev(7) to a mounted device change with its next event.

Examples:
  betrfs uuid /dev/sdb1            prints the UUID
  betrfs uuid copy.betrfs random   gives a copy a UUID of its own")]
pub struct Arguments {
    /// The volume's file or block device, UUID=... or LABEL=..., or the directory it is mounted on
    volume: PathBuf,
    /// The new UUID, or `random` (`generate`)
    #[arg(value_parser = parse)]
    uuid: Option<Uuid>,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Shown {
    uuid: String,
}

/// Parses the UUID that a volume is to get: one of zeros names none for udev(7) and mount(8).
pub fn parse(text: &str) -> Result<Uuid, String> {
    let uuid = match text {
        "random" | "generate" => random(),
        _ => text.parse().map_err(|error: UuidError| error.to_string())?,
    };
    match uuid.into_bytes() {
        [0, rest @ ..] if rest == [0; 15] => {
            Err("a UUID of zeros names no volume: `random` makes one".into())
        }
        _ => Ok(uuid),
    }
}

fn random() -> Uuid {
    let platform = StdPlatform::new();
    let bytes = u128::from(platform.random_u64()) << 64 | u128::from(platform.random_u64());
    Identity::new([0; 16], bytes.to_le_bytes()).uuid
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let volume = tags::resolved(&arguments.volume)?;
    let mount = change::mount_of(&volume);
    let uuid = match (arguments.uuid, &mount) {
        (None, Some(mount)) => Status::ask(mount).map_err(|why| stats::unheard(&mount.path, &why))?.uuid,
        (None, None) => Tags::read(&volume)?.uuid.to_string(),
        (Some(uuid), mount) => {
            match mount {
                Some(mount) => change::by_server(mount, &Order::Uuid(uuid.into_bytes())).map(drop)?,
                None => change::closed(&volume, |env| env.set_uuid(uuid))?,
            }
            uuid.to_string()
        }
    };
    match arguments.format {
        Format::Text => print(uuid),
        Format::Json => print_json(&Shown { uuid }),
    }
}
