//! `betrfs resize`: makes a volume larger.

use std::path::PathBuf;

use betrfs_fuse::{NewSize, Order};
use serde::Serialize;

use crate::commands::change;
use crate::failure::Outcome;
use crate::format::{Format, print, print_json};
use crate::size;
use crate::tags;

/// Make a volume larger, mounted or not
#[derive(clap::Args)]
#[command(after_help = "\
The new size is durable when the command returns, and df(1) shows it; users of a mounted volume go on meanwhile. A \
volume's file grows, and takes space only as it fills. A volume on a block device grows up to the size that the \
device has by now. A volume never shrinks, and its nodes and its log keep the sizes with which they were made. Only \
root and the user who mounted the volume may change that of a mounted volume.

Examples:
  betrfs resize /mnt 16G
  betrfs resize data.betrfs +512M
  betrfs resize /dev/sdb1 max       all of a device that has become larger")]
pub struct Arguments {
    /// The volume's file or block device, UUID=... or LABEL=..., or the directory it is mounted on
    volume: PathBuf,
    /// The new size, as in 8G; +SIZE for so much more; `max` for all that the device or the file has
    #[arg(value_parser = parse, allow_hyphen_values = true)]
    size: NewSize,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Resized {
    size_bytes: u64,
}

/// Parses a new size.
fn parse(text: &str) -> Result<NewSize, String> {
    if text.starts_with('-') {
        return Err("a volume cannot shrink".to_owned());
    }
    match text.strip_prefix('+') {
        Some(more) => size::parse_positive(more).map(NewSize::By),
        None if text == "max" => Ok(NewSize::Max),
        None => size::parse_positive(text).map(NewSize::To),
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let volume = tags::resolved(&arguments.volume)?;
    let size_bytes = match change::mount_of(&volume) {
        Some(mount) => change::by_server(&mount, &Order::Resize(arguments.size))?,
        None => change::closed(&volume, |env| env.grow(arguments.size.into()))?,
    };
    match arguments.format {
        Format::Text => {
            let told = size::show(size_bytes);
            print(format_args!("{}: a volume of {told} ({size_bytes} bytes)", arguments.volume.display()))
        }
        Format::Json => print_json(&Resized { size_bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_new_or_more_or_all() {
        for (text, size) in [
            ("8G", NewSize::To(8 << 30)),
            ("4096", NewSize::To(4096)),
            ("+64M", NewSize::By(64 << 20)),
            ("max", NewSize::Max),
        ] {
            assert_eq!(parse(text), Ok(size), "{text}");
        }
        for text in ["", "0", "+0", "+", "++1", "+-1", "most", "-1G", "+max"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("-1G").unwrap_err().contains("cannot shrink"));
    }
}
