//! `betrfs probe`: whether a device holds a volume, and its tags.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

use crate::failure::Outcome;
use crate::format::{Format, print, print_json};
use crate::size;
use crate::tags::{Tags, encoded, safe};

/// The type of the file system, for blkid(8), lsblk(8) and fstab(5).
const TYPE: &str = "betrfs";

/// Show label, UUID, version and size of the volume in a file or on a block device
#[derive(clap::Args)]
#[command(after_help = "\
Reads the superblocks alone, without a lock: the volume may be mounted. It ends with 1 if there is no volume. \
With --udev it prints the variables that blkid(8) gives to udev(7) for other file systems; the rule of \
`betrfs install-helpers` uses them for the links in /dev/disk/by-uuid and by-label, which mount(8), lsblk(8) and \
/etc/fstab know.

Examples:
  betrfs probe /dev/sdb1
  betrfs probe data.betrfs --format json")]
pub struct Arguments {
    /// The volume's file or block device
    volume: PathBuf,
    /// Print variables for a rule of udev(7)
    #[arg(long, conflicts_with = "format")]
    udev: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Probed<'a> {
    #[serde(rename = "type")]
    fs_type: &'static str,
    format_version: u32,
    label: &'a str,
    uuid: String,
    size_bytes: u64,
    closed: bool,
    made_ns: i64,
    made_by: &'a str,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let tags = Tags::read(&arguments.volume)?;
    let Tags { label, uuid, volume_bytes, closed, made_ns, made_by, .. } = &tags;
    let version = betree::FORMAT_VERSION;
    if arguments.udev {
        return print(variables(&tags).trim_end());
    }
    if arguments.format == Format::Json {
        return print_json(&Probed {
            fs_type: TYPE,
            format_version: version,
            label,
            uuid: uuid.to_string(),
            size_bytes: *volume_bytes,
            closed: *closed,
            made_ns: *made_ns,
            made_by,
        });
    }
    let state = if *closed { "closed" } else { "in use, or not closed: a mount replays its log" };
    print(format_args!("type     {TYPE}, format {version}"))?;
    print(format_args!("label    {label}"))?;
    print(format_args!("uuid     {uuid}"))?;
    print(format_args!("size     {}", size::show(*volume_bytes)))?;
    print(format_args!("made     {}by {made_by}", day(*made_ns)))?;
    print(format_args!("state    {state}"))
}

fn day(made_ns: i64) -> String {
    let made = Timestamp::from_nanosecond(i128::from(made_ns)).ok().filter(|_| made_ns != 0);
    made.map_or_else(String::new, |made| format!("{} ", made.strftime("%F %H:%M UTC")))
}

/// The variables that udev's own probe sets for the file systems of libblkid.
fn variables(tags: &Tags) -> String {
    let Tags { label, uuid, volume_bytes, .. } = tags;
    let mut lines = format!(
        "ID_FS_TYPE={TYPE}\nID_FS_USAGE=filesystem\nID_FS_VERSION={}\nID_FS_SIZE={volume_bytes}\nID_FS_UUID={uuid}\n\
         ID_FS_UUID_ENC={uuid}\n",
        betree::FORMAT_VERSION
    );
    if !label.is_empty() {
        lines += &format!("ID_FS_LABEL={}\nID_FS_LABEL_ENC={}\n", safe(label), encoded(label));
    }
    lines
}
