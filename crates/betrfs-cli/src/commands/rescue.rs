//! `betrfs rescue`: copies out all that can be read of a volume, whatever is broken.

mod copy;
mod inherited;
mod interrupt;
mod later;
mod list;
mod target;
mod unfinished;

use std::cell::RefCell;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use betree::{FindingCode, counted};
use betree_std::{FileDevice, Zstd};
use betrfs::Volume;
use betrfs::rescue::Rescue;
use serde::Serialize;
use serde_json::{Value, json};

use crate::commands::check::failed;
use crate::commands::debug::finding_json;
use crate::failure::{Failure, Kind, Outcome, warn};
use crate::format::{Format, print};
use crate::json_stream::JsonStream;
use crate::name::Name;
use crate::output::Output;
use crate::replay;
use copy::{Copy, Counts};
use interrupt::Interrupt;
use list::List;
use target::Target;

/// The budget of the node cache: the volume is read from its first key to its last.
const CACHE_BYTES: usize = 64 << 20;
/// How many damaged structures are told on standard error and in the document.
const DAMAGE_MAX: usize = 100;

/// Copy all that can be read of a volume to a directory, however damaged it is
#[derive(clap::Args)]
#[command(after_help = "\
The volume must not be mounted for changes, and is not changed. Without its newest superblock an older one is \
taken; lost places of nodes are looked for on the whole device; of a damaged log, what stands before the damage \
is replayed, in memory. Names, files, links, symbolic links, devices, permissions, times, extended attributes and snapshots \
are copied; owners too if root does it, flags of chattr(1) are not. Access control lists are those of the volume: none \
comes from the directory that is copied to.

Nothing is invented. What is missing is listed, one line for each part: the path, the part, and the reason, with \
tabs between them. The parts are `all` of an object, its `record` (attributes), `bytes FROM-TO` of a file (a hole \
is there instead), `attribute NAME`, `names up to PATH` for all from the path to that one, and `the volume's record`. \
A `name` is there and lacks something: its file has several names and misses parts, which are listed as those of \
`linked file NUMBER`, or it stands in for the names of such a file. A line that begins with `-` \
names a structure of which only an older state may be left. A file whose record is lost \
is copied by its data. Files with several names of which none is left are in `.betrfs-lost`, by number, or in \
`.betrfs-lost.1` and so on if the volume's root has that name. \
`--format json` prints the list within a document, which also has the damaged structures and the number of objects; \
`--list` writes its file nevertheless.

Ctrl-C ends it and says how much was copied. The next call with the same volume and directory replaces a copy that was \
not finished; it reads the volume again from its beginning.

Exit codes:
  0  all of it was copied
  1  it failed
  4  something is missing; all else was copied

Examples:
  betrfs rescue data.betrfs /mnt/disk/rescued
  betrfs rescue /dev/sdb1 rescued --list missing.txt
  betrfs rescue data.betrfs rescued --format json")]
pub struct Arguments {
    /// The volume's file or block device
    volume: PathBuf,
    /// The directory to copy to: an empty one, one that is made, or that of an unfinished copy of this volume
    directory: PathBuf,
    /// Write the list of what is missing to this new file instead of standard output
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Whether what stands in for a damaged structure may be older than what is lost, so that changes are missing
/// without a trace.
fn may_hide_names(code: FindingCode) -> bool {
    matches!(
        code,
        FindingCode::OldCheckpoint | FindingCode::NodesByHeader | FindingCode::BadLog | FindingCode::BadNode
    )
}

/// What is known at the end, for programs.
#[derive(Default, Serialize)]
struct Report {
    #[serde(flatten)]
    counts: Counts,
    /// The first structures that are damaged.
    damage: Vec<Value>,
    damage_more: u64,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let mut report = Report::default();
    if arguments.format == Format::Text {
        return rescue(arguments, None, &mut report);
    }
    let mut document = JsonStream::begin();
    document.fields(&Name::new("volume", &arguments.volume));
    document.fields(&Name::new("directory", &arguments.directory));
    document.list("missing");
    let document = Rc::new(RefCell::new(document));
    let outcome = rescue(arguments, Some(&document), &mut report);
    let mut document = document.borrow_mut();
    document.end_list();
    document.fields(&report);
    // What is missing is told already.
    let failure = outcome.as_ref().err().filter(|failure| failure.kind() != Kind::Missing);
    document.field("error", &json!(failure.map(ToString::to_string)));
    document.end()?;
    outcome
}

fn rescue(arguments: &Arguments, document: Option<&Rc<RefCell<JsonStream>>>, report: &mut Report) -> Outcome {
    let device = betrfs_fuse::open_device_for_reading(&arguments.volume)?;
    let Some(path) = &arguments.list else {
        let lines = document.is_none().then(|| Box::new(io::stdout().lock()) as Box<dyn Write>);
        return copy_out(arguments, device, lines, document, report, &mut false);
    };
    let output = Output::begin(path)?;
    let lines = BufWriter::new(output.file.try_clone()?);
    let mut copies = false;
    let outcome = copy_out(arguments, device, Some(Box::new(lines)), document, report, &mut copies);
    // The same command is to work the next time.
    let is_interrupted = outcome.as_ref().is_err_and(|failure| failure.kind() == Kind::Interrupted);
    if !copies || is_interrupted {
        output.unmake();
    }
    outcome
}

/// Copies, with the list in `lines` and `document`. `copies` is set once volume and directory are open.
fn copy_out(
    arguments: &Arguments,
    device: FileDevice,
    lines: Option<Box<dyn Write>>,
    document: Option<&Rc<RefCell<JsonStream>>>,
    report: &mut Report,
    copies: &mut bool,
) -> Outcome {
    let shown = arguments.volume.display().to_string();
    let place = arguments.list.as_ref().map(|path| path.display().to_string());
    let place = place.unwrap_or_else(|| String::from("standard output"));
    let mut list = List::new(lines, document.cloned(), place);
    let interrupt = Interrupt::watch(&shown)?;
    let mut unlisted = None;
    let mut tell = |found: betree::Finding| {
        if report.damage.len() < DAMAGE_MAX {
            warn(&format!("{shown}: {found}"));
            report.damage.push(finding_json(&found));
        } else {
            report.damage_more = report.damage_more.saturating_add(1);
        }
        if may_hide_names(found.code) {
            unlisted = unlisted.take().or(list.add_structure(&found.place.to_string(), &found.what).err());
        }
    };
    let mut options = Volume::engine_options(CACHE_BYTES);
    options.zstd = Some(Arc::new(Zstd::default()));
    options.replay_progress = replay::on_terminal();
    let rescue =
        Rescue::open(Arc::new(device), options, &mut tell).map_err(|error| failed(&shown, &error))?;
    if let Some(error) = unlisted {
        return Err(error.into());
    }
    if report.damage_more > 0 {
        let more = counted(report.damage_more, "damaged structure", "damaged structures");
        warn(&format!("{shown}: and {more} more"));
    }
    let target = Target::open(&arguments.directory, &arguments.volume)?;
    *copies = true;
    interrupt.begin_copy();
    let mut copy = Copy::new(target, list, interrupt)?;
    let copied = rescue.copy(&mut copy).map_err(|error| failed(&shown, &error));
    let into = arguments.directory.display();
    let (counts, finished) = copy.finish(copied.as_ref().is_ok_and(ControlFlow::is_continue), &into);
    let Counts { objects, missing, owners_left, flags_left } = counts;
    report.counts = counts;
    copied.map(drop)?;
    finished?;
    if owners_left > 0 {
        warn("the owners were not kept: only root can set them");
    }
    if flags_left > 0 {
        warn(&format!("the flags (chattr) of {} were not set", counted(flags_left, "object", "objects")));
    }
    let was = if objects == 1 { "was" } else { "were" };
    let done = format!("{} of {shown} {was} copied to {into}", counted(objects, "object", "objects"));
    if missing > 0 {
        let missing = counted(missing, "part is", "parts are");
        return Err(Failure::of(Kind::Missing, format!("{done}; {missing} missing, as listed")));
    }
    match document {
        None if arguments.list.is_some() => print(format_args!("{done}; nothing is missing")),
        _ => Ok(()),
    }
}
