//! `betrfs recompress`: writes what is stored anew, compressed as its directories want it now.

mod walk;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use betrfs::Recompress;
use betrfs_fuse::MountEntry;
use indicatif::ProgressBar;
use serde::Serialize;
use signal_hook::consts::SIGINT;

use crate::bar::{self, LateBar};
use crate::commands::stats;
use crate::failure::{Failure, Kind, Outcome, warn};
use crate::format::{Format, print, print_json};
use crate::size;
use walk::{Top, Totals, Walk, cannot};

/// Write stored files anew, compressed as `betrfs set` has it for their directories
#[derive(clap::Args)]
#[command(after_help = "\
`betrfs set DIR compression=...` counts for what is written from then on; this command does the rest: it writes the \
data of files, and of all files below directories, anew where it is not compressed as wanted. Names, times and \
contents stay as they are, and others may use the files meanwhile. What is as wanted already is passed over without \
reading it, so that a second call has nothing to do, but for a few blocks beside files that want something else; one \
that was interrupted (Ctrl-C) goes on where it was. Holes stay holes. A file with several names has the compression \
that it had when it got the second. Immutable files are passed over, and so are snapshots, which cannot be changed.

What snapshots or clones share would take room a second time, so it stays as it is, unless --shared is given. Data \
written while snapshots of a directory exist may be shared with its neighbors too: the unit is a node of the tree.

The sizes before and after are those of the files as stored. The room of what was replaced comes back as the new \
data moves down the tree. Only a file's owner and root may; other files are told, and the exit code is 1.

Examples:
  betrfs set /mnt/archive compression=zstd:9
  betrfs recompress -n /mnt/archive     how much would be written
  betrfs recompress /mnt/archive
  betrfs recompress --shared /mnt/archive/big.img --format json")]
pub struct Arguments {
    /// Files and directories on a mount
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Also what snapshots or clones share, which takes room a second time
    #[arg(long)]
    shared: bool,
    /// Write nothing, and tell how much would be written
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The result for programs.
#[derive(Serialize)]
struct Document {
    /// Files looked at.
    files: u64,
    /// Bytes of files that were to be written anew.
    to_write_bytes: u64,
    /// Bytes of files that were written anew.
    written_bytes: u64,
    /// Bytes of files that stay as they are because snapshots or clones share them.
    left_shared_bytes: u64,
    /// What the files took as stored.
    stored_before_bytes: u64,
    /// What they take now; null if nothing was to be written, or it was not brought to an end.
    stored_after_bytes: Option<u64>,
    immutable_files: u64,
    /// Files and directories that were passed over for other reasons, which standard error tells.
    failed: u64,
    interrupted: bool,
}

/// Whether what is passed over is told: once is enough.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Telling {
    Each,
    None,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let Arguments { paths, shared, dry_run, format } = arguments;
    let is_interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, Arc::clone(&is_interrupted))?;
    let tops = paths.iter().map(|path| on_mount(path.as_path())).collect::<Result<Vec<_>, _>>()?;
    let walk = |what, warn: Option<&dyn Fn(&str)>, progress: &mut dyn FnMut(&Totals)| {
        Walk::new(what, warn, &is_interrupted, progress).through(&tops)
    };
    let count = |telling| {
        let bar = RefCell::new(LateBar::new(COUNTING));
        let warn = |why: &str| bar.borrow().above(|| warn(why));
        let warn: Option<&dyn Fn(&str)> = if telling == Telling::Each { Some(&warn) } else { None };
        walk(Recompress::Count, warn, &mut |totals| bar.borrow_mut().tell(totals.files, u64::MAX))
    };
    let counted = count(Telling::Each)?;
    let what = if *shared { Recompress::OwnAndShared } else { Recompress::Own };
    let to_write_bytes = counted.left_to_write(what);
    let mut document = Document {
        files: counted.files,
        to_write_bytes,
        written_bytes: 0,
        left_shared_bytes: if *shared { 0 } else { counted.shared_bytes },
        stored_before_bytes: counted.stored_bytes,
        stored_after_bytes: None,
        immutable_files: counted.immutable_files,
        failed: counted.failed,
        interrupted: false,
    };
    let writes = to_write_bytes > 0 && !dry_run && !is_interrupted.load(Ordering::Relaxed);
    if writes {
        if *shared && counted.shared_bytes > 0 {
            let bytes = size::show(counted.shared_bytes);
            warn(&format!("{bytes} are shared with snapshots or clones, and take room a second time"));
        }
        for _ in 0..PASSES_MAX {
            let bar = bar::styled(ProgressBar::new(to_write_bytes), BAR);
            let before = document.written_bytes;
            let mut show = |totals: &Totals| bar.set_position(before + totals.written_bytes);
            let written = walk(what, None, &mut show);
            bar.finish_and_clear();
            let written = written?;
            document.written_bytes += written.written_bytes;
            document.failed = document.failed.max(written.failed);
            if is_interrupted.load(Ordering::Relaxed) {
                break;
            }
            checkpoint(&tops);
            let after = count(Telling::None)?;
            // A count that was interrupted has not seen all.
            if is_interrupted.load(Ordering::Relaxed) {
                break;
            }
            document.stored_after_bytes = Some(after.stored_bytes);
            if written.written_bytes == 0 || after.left_to_write(what) == 0 {
                break;
            }
        }
    }
    document.interrupted = is_interrupted.load(Ordering::Relaxed);
    match format {
        Format::Json => print_json(&document)?,
        Format::Text => print_text(&document, *dry_run)?,
    }
    match document {
        Document { interrupted: true, .. } => {
            let why = "interrupted: what was done stays, and the next call goes on";
            Err(Failure::of(Kind::Interrupted, why))
        }
        Document { failed: 0, .. } => Ok(()),
        Document { failed, .. } => {
            Err(Failure::new(format!("{failed} files or directories were passed over")))
        }
    }
}

/// Small files that lie in a piece with others may be passed over as long as most of it is as wanted, and not
/// be when it has come to its leaf: so there are more passes, for these few.
const PASSES_MAX: u32 = 3;

/// The template of the progress bar.
const BAR: &str =
    "recompressing [{wide_bar}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";

/// The template of the bar of files that are looked at: how many there are is not known before.
const COUNTING: &str = "looking at files: {pos} {per_sec}";

/// A file or directory on a mount, found without symbolic links.
fn on_mount(path: &Path) -> Result<Top, Failure> {
    stats::approach(path)?;
    let top = path.canonicalize().and_then(Top::new).map_err(|error| cannot(path, &error))?;
    if !MountEntry::of(top.at()).is_ok_and(|mount| mount.is_betrfs()) {
        return Err(cannot(path, &"it is on no BetrFS mount"));
    }
    let kind = top.at().metadata().map_err(|error| cannot(path, &error))?;
    if !kind.is_file() && !kind.is_dir() {
        return Err(cannot(path, &"it is neither a file nor a directory"));
    }
    Ok(top)
}

/// Has what was written come to the device, where its size is known. Where that is refused, as for a
/// directory of somebody else's, what is in memory counts in full.
fn checkpoint(tops: &[Top]) {
    for top in tops {
        if let Err(error) = top.open().and_then(|open| betrfs_fuse::checkpoint(&open)) {
            tracing::info!("what is in memory stays there, and counts in full: {error}");
        }
    }
}

fn print_text(document: &Document, dry_run: bool) -> Outcome {
    let line = |name: &str, bytes| print(format_args!("{name:<14} {:>12}", size::show(bytes)));
    print(format_args!("{:<14} {:>12}", "files", document.files))?;
    if dry_run {
        line("to write", document.to_write_bytes)?;
    } else {
        line("written", document.written_bytes)?;
    }
    if document.left_shared_bytes > 0 {
        let bytes = size::show(document.left_shared_bytes);
        print(format_args!("{:<14} {bytes:>12}  (--shared writes it too)", "left, shared"))?;
    }
    line("stored before", document.stored_before_bytes)?;
    if let Some(bytes) = document.stored_after_bytes {
        line("stored after", bytes)?;
    }
    Ok(())
}
