//! `betrfs df`: the room on a volume, and what takes it.

use std::path::{Path, PathBuf};

use betrfs_fuse::{Content, Layout};
use serde::Serialize;

use crate::commands::{change, layout, metadata_copies, stats};
use crate::failure::{Failure, Outcome};
use crate::format::{Format, print, print_json};
use crate::size;
use crate::tags;

/// Show the room on a volume: data, metadata, log, what is shared, kept and free, and the compression
#[derive(clap::Args)]
#[command(after_help = "\
`data` is contents of files as stored, `metadata` names and attributes with the node table and its second copy, `held` \
earlier versions that the last checkpoint, readers and backups still need, `pending` what changes in memory will take, \
at its full size, and what fallocate keeps. `reserve` is kept for deletes and checkpoints, and for the keys of what `available` has room for; `available` is what a \
writer can get on the volume as large as it is: one made with `--grow-to` grows up to that size, which df(1) counts as \
its own. All of these with superblocks and log are the size of the volume. `shared` is the part of data and metadata to which several \
ways lead: clones, snapshots, and in nodes at the borders of copies what is beside them. The compression is that of \
the leaves; of more than 256, of each nth. `copies` is the number of copies of interior nodes (`betrfs metadata-copies`). Headers of interior nodes and of these leaves are read. `betrfs usage` tells of one \
directory. Only root and the user who mounted the volume may ask for a mounted one; df(1) is for all.

Examples:
  betrfs df /mnt
  betrfs df data.betrfs      a volume that is mounted nowhere; it is only read")]
pub struct Arguments {
    /// The directory on which the volume is mounted, the volume's file or block device, UUID=... or LABEL=...
    volume: PathBuf,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The bytes of a volume. Superblocks, log, data, metadata, held, pending, reserve and available are all of
/// it.
#[derive(Serialize)]
struct Df {
    /// All but superblocks and log.
    total_bytes: u64,
    /// Data, metadata, held and pending.
    used_bytes: u64,
    reserve_bytes: u64,
    available_bytes: u64,
    log_bytes: u64,
    volume_bytes: u64,
    /// Null for a volume that does not grow by itself.
    grow_to_bytes: Option<u64>,
    /// The number of copies that interior nodes above the parents of leaves are to have; null for the mount
    /// of a server of an earlier version.
    metadata_copies: Option<u32>,
    superblock_bytes: u64,
    data_bytes: u64,
    metadata_bytes: u64,
    held_bytes: u64,
    pending_bytes: u64,
    /// The part of data and metadata that clones and snapshots share.
    shared_bytes: u64,
    /// The part of metadata that is the node table with its second copy.
    node_table_bytes: u64,
    compression: Compression,
    /// Nodes whose headers cannot be read: what is below them is held.
    unreadable_nodes: u64,
}

#[derive(Serialize)]
struct Compression {
    /// Before compression, of the leaves that were looked at.
    raw_bytes: u64,
    /// As stored.
    stored_bytes: u64,
    leaves_read: u64,
    leaves: u64,
}

impl Df {
    fn of(layout: &Layout) -> Df {
        let sums = layout.sums();
        let sum = |is_meant: &dyn Fn(&Content) -> bool| -> u64 {
            sums.iter().filter(|(content, _)| is_meant(content)).map(|(_, bytes)| bytes).sum()
        };
        let is = |wanted: Content| sum(&|content| *content == wanted);
        let node_table_bytes = is(Content::Table) + is(Content::TableCopy);
        let data_bytes = sum(&|content| matches!(content, Content::Data { .. }));
        let metadata_bytes = node_table_bytes + sum(&|content| matches!(content, Content::Metadata { .. }));
        let (log_bytes, superblock_bytes) = (is(Content::Log), is(Content::Superblocks));
        let (held_bytes, free_bytes) = (is(Content::Held), is(Content::Free));
        let volume_bytes = sums.values().sum::<u64>();
        // Of a moment later, when less may be free: so that all adds up, what is told is bounded.
        let room = layout.room;
        let unused_bytes = room.unused_bytes.min(free_bytes);
        let available_bytes = room.available_bytes.min(unused_bytes);
        let pending_bytes = free_bytes - unused_bytes;
        let shared_bytes = sum(&|content| match content {
            Content::Data { is_shared, .. } | Content::Metadata { is_shared, .. } => *is_shared,
            _ => false,
        });
        let Layout { raw_bytes, stored_bytes, leaves_read, leaves, unreadable_nodes, .. } = *layout;
        Df {
            total_bytes: volume_bytes.saturating_sub(log_bytes + superblock_bytes),
            used_bytes: data_bytes + metadata_bytes + held_bytes + pending_bytes,
            reserve_bytes: unused_bytes - available_bytes,
            available_bytes,
            log_bytes,
            volume_bytes,
            grow_to_bytes: room.grow_to_bytes,
            metadata_copies: layout.metadata_copies,
            superblock_bytes,
            data_bytes,
            metadata_bytes,
            held_bytes,
            pending_bytes,
            shared_bytes,
            node_table_bytes,
            compression: Compression { raw_bytes, stored_bytes, leaves_read, leaves },
            unreadable_nodes,
        }
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let volume = tags::resolved(&arguments.volume)?;
    let df = Df::of(&layout_of(&volume)?);
    match arguments.format {
        Format::Text => print_text(&df),
        Format::Json => print_json(&df),
    }
}

fn layout_of(volume: &Path) -> Result<Layout, Failure> {
    let Some(mount) = change::mount_of(volume) else {
        // A directory is no volume.
        return if volume.is_dir() {
            Err(stats::not_mounted(volume))
        } else {
            layout::with_closed(volume, |opened| layout::of_volume(opened, 1))
        };
    };
    stats::approach(&mount.path)?;
    // It has pending deletes carried out, so that their space counts as free, as for df(1).
    if let Err(errno) = rustix::fs::statvfs(&mount.path) {
        tracing::debug!("{} may count what was deleted: {errno}", mount.path.display());
    }
    layout::of_mount(&mount, 1)
}

fn print_text(df: &Df) -> Outcome {
    let lines = [
        ("volume", Some(df.volume_bytes)),
        ("  grows to", df.grow_to_bytes),
        ("superblocks", Some(df.superblock_bytes)),
        ("log", Some(df.log_bytes)),
        ("used", Some(df.used_bytes)),
        ("  data", Some(df.data_bytes)),
        ("  metadata", Some(df.metadata_bytes)),
        ("  held", Some(df.held_bytes)),
        ("  pending", Some(df.pending_bytes)),
        ("reserve", Some(df.reserve_bytes)),
        ("available", Some(df.available_bytes)),
        ("shared", Some(df.shared_bytes)),
    ];
    for (what, bytes) in lines.into_iter().filter_map(|(what, bytes)| Some((what, bytes?))) {
        print(format_args!("{what:<12}{:>12}", size::show(bytes)))?;
    }
    print(format_args!("{:<12}{:>12}", "copies", metadata_copies::shown(df.metadata_copies)))?;
    let Compression { raw_bytes, stored_bytes, leaves_read, leaves } = df.compression;
    if stored_bytes > 0 {
        let ratio = raw_bytes as f64 / stored_bytes as f64;
        let of_all = if leaves_read < leaves {
            format!(", by {leaves_read} of {leaves} leaves")
        } else {
            String::new()
        };
        let (raw, stored) = (size::show(raw_bytes), size::show(stored_bytes));
        print(format_args!("compression {ratio:>12.2}  ({raw} in {stored}{of_all})"))?;
    }
    match df.unreadable_nodes {
        0 => Ok(()),
        nodes => print(format_args!("{nodes} nodes cannot be read: what is below them counts as held")),
    }
}
