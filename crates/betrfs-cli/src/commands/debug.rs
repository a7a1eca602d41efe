//! `betrfs debug`: shows a closed volume, structure by structure.

mod key;
mod log;
mod map;
mod node;
mod nodes;
mod page;
mod superblock;
mod words;

use std::path::PathBuf;
use std::sync::Arc;

use betree::debug::{Inspector, Superblock, superblocks};
use betree_std::{FileDevice, Zstd};
use betrfs::Volume;

use crate::failure::{Failure, Outcome};
use crate::format::Format;
pub use page::finding_json;
use page::{Found, Page};

/// The budget of the node cache: nodes are read one at a time.
const CACHE_BYTES: usize = 32 << 20;

/// Show the structures of a closed volume: for developers and bug reports
#[derive(clap::Args)]
#[command(after_help = "\
The volume must not be mounted for changes. Nothing is written to it, and its log is not replayed: `super`, \
`nodes`, `node`, `key` and `map` show the last checkpoint, `log` the changes after it. All readable parts of a \
damaged volume are shown. Each unreadable part is a line with its place and the reason, as by `betrfs check`, and the \
exit code is then 1. Keys are those of their node, which may lack the common beginning of its keys: they are \
printed as paths if they have that form, else as bytes with escapes. docs/debug.md explains the output.

Examples:
  betrfs debug super data.betrfs
  betrfs debug log data.betrfs --records
  betrfs debug nodes data.betrfs --dict meta
  betrfs debug node data.betrfs 7.2 --messages
  betrfs debug key data.betrfs /home/ada/letter
  betrfs debug map data.betrfs --format json")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// How to print it
    #[arg(long, value_enum, default_value_t, global = true)]
    format: Format,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Show the copies of the superblock, and the fields of the current one
    Super {
        /// The volume's file or block device
        volume: PathBuf,
    },
    /// Show the segments of the log, and the end of the replay with its reason
    Log {
        /// The volume's file or block device
        volume: PathBuf,
        /// Show each record with its changes
        #[arg(long)]
        records: bool,
    },
    /// List the nodes, one a line
    Nodes {
        /// The volume's file or block device
        volume: PathBuf,
        /// Only those of a dictionary: meta, data, links or user
        #[arg(long, value_name = "NAME", value_parser = words::parse_dict)]
        dict: Option<betree::DictId>,
    },
    /// Show a node: header, edges or basements, runs
    Node {
        /// The volume's file or block device
        volume: PathBuf,
        /// The node, as `nodes` lists it (7.2), or its slot alone (7)
        #[arg(value_parser = words::parse_node)]
        id: words::NodeName,
        /// Show the pairs and messages of each run
        #[arg(long)]
        messages: bool,
    },
    /// Show the keys of a path, and the way to each through the tree
    Key {
        /// The volume's file or block device
        volume: PathBuf,
        /// The path on the volume, from its root
        path: PathBuf,
        /// The block of 4096 bytes whose key in `data` is shown
        #[arg(long, default_value_t = 0)]
        block: u64,
    },
    /// Show the owners of the device's bytes
    Map {
        /// The volume's file or block device
        volume: PathBuf,
    },
}

impl Action {
    fn volume(&self) -> &PathBuf {
        let (Action::Super { volume }
        | Action::Log { volume, .. }
        | Action::Nodes { volume, .. }
        | Action::Node { volume, .. }
        | Action::Key { volume, .. }
        | Action::Map { volume }) = self;
        volume
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let volume = arguments.action.volume();
    let shown = volume.display().to_string();
    let found = Found::default();
    let mut page = Page::new(arguments.format, volume);
    let done = betrfs_fuse::open_device_for_reading(volume)
        .map_err(Failure::from)
        .and_then(|device| show(&arguments.action, &Arc::new(device), &mut page, &found, &shown));
    page.finish(&shown, found, done.err())
}

fn show(action: &Action, device: &Arc<FileDevice>, page: &mut Page, found: &Found, shown: &str) -> Outcome {
    let open = || -> Result<Inspector, Failure> {
        let mut options = Volume::engine_options(CACHE_BYTES);
        options.zstd = Some(Arc::new(Zstd::default()));
        Inspector::open(device.clone(), options, &mut found.tell()).map_err(|error| failed(shown, error))
    };
    match action {
        Action::Super { .. } => superblock::show(device, page, found, shown),
        Action::Log { records, .. } => {
            log::show(device, &current(device, found, shown)?, *records, page, found);
            Ok(())
        }
        Action::Nodes { dict, .. } => {
            nodes::show(&open()?, *dict, page, found);
            Ok(())
        }
        Action::Node { id, messages, .. } => node::show(&open()?, *id, *messages, page, found),
        Action::Key { path, block, .. } => {
            key::show(&open()?, path, *block, page, found);
            Ok(())
        }
        Action::Map { .. } => {
            map::show(&open()?, page);
            Ok(())
        }
    }
}

/// The current superblock.
fn current(device: &Arc<FileDevice>, found: &Found, shown: &str) -> Result<Superblock, Failure> {
    let all = superblocks(device.clone(), &mut found.tell()).map_err(|error| failed(shown, error))?;
    all.current.map_err(|error| failed(shown, error))
}

fn failed(shown: &str, error: betree::Error) -> Failure {
    crate::commands::check::failed(shown, &error.into())
}
