//! `betrfs map`: where the bytes of a file lie.

use std::fs::File;
use std::path::{Path, PathBuf};

use betrfs_fuse::{CheckError, Line, MAP_BYTES_MAX, MapExtent, MountEntry};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use serde::Serialize;

use crate::commands::stats;
use crate::failure::{Failure, Outcome};
use crate::format::{Format, print, print_json};
use crate::path;
use crate::size;

/// Show where the bytes of a file lie: on the device, in memory, nowhere
#[derive(clap::Args)]
#[command(after_help = "\
Each line is a part of the file, in blocks of 4096 bytes, with the place of its newest bytes: in a basement of a leaf, \
in a message in the buffer of a node above, or in memory and the log alone (`memory`). Then come the first byte on the \
device and the length there, the length before compression, and the compression; a run has keys and neighbours of \
the part too. Further lines are for further places and runs: a block that was written in part lies in several, the older bytes first. `shared` means that copies or snapshots of the file, or of what \
lies beside it, lead there too. Headers of nodes are read, and messages that wait above leaves. Data that is in \
memory moves to the device at any time: `betrfs sync` has it written to the log, and an unmount to its place. Only root and the user \
who mounted the volume may ask.

Examples:
  betrfs map /mnt/disk.img
  betrfs map /mnt/disk.img --offset 1G --length 1M --format json")]
pub struct Arguments {
    /// A file on a mount
    file: PathBuf,
    /// Where in the file to begin, as in 1G
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::parse)]
    offset: u64,
    /// How much of the file to look at; else all of it
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive)]
    length: Option<u64>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What lies at a part of a file.
#[derive(Serialize)]
struct Part {
    offset_bytes: u64,
    length_bytes: u64,
    /// `device`, `memory` or `hole`.
    place: &'static str,
    /// Null for a hole.
    extent: Option<Lies>,
}

#[derive(Serialize)]
struct Lies {
    level: String,
    is_shared: bool,
    runs: Vec<betrfs_fuse::MapRun>,
}

#[derive(Serialize)]
struct Map {
    size_bytes: u64,
    parts: Vec<Part>,
}

impl Part {
    fn hole(from: u64, to: u64) -> Part {
        Part { offset_bytes: from, length_bytes: to - from, place: "hole", extent: None }
    }

    /// The part of an extent in `[from, to)`.
    fn of(extent: MapExtent, from: u64, to: u64) -> Part {
        let MapExtent { level, is_in_memory, is_shared, runs, .. } = extent;
        let place = if is_in_memory { "memory" } else { "device" };
        Part {
            offset_bytes: from,
            length_bytes: to - from,
            place,
            extent: Some(Lies { level, is_shared, runs }),
        }
    }

    fn lines(&self) -> Vec<String> {
        let front = format!("{:>14} {:>14}  {:<7}", self.offset_bytes, self.length_bytes, self.place);
        let Some(Lies { level, is_shared, runs }) = &self.extent else {
            return vec![front.trim_end().to_owned()];
        };
        let shared = if *is_shared { "shared" } else { "" };
        let places = runs.iter().flat_map(|run| run.device.iter().map(move |range| (run, range)));
        let mut lines: Vec<String> = places
            .map(|(run, range)| {
                let (raw, codec) = (run.raw_bytes, &run.codec);
                format!(
                    "{:>14} {:>10} {raw:>10} {codec:<5} {level} {shared}",
                    range.offset_bytes, range.length_bytes
                )
            })
            .collect();
        if lines.is_empty() {
            lines.push(format!("{:>42} {level} {shared}", ""));
        }
        for (index, line) in lines.iter_mut().enumerate() {
            let front = if index == 0 { front.as_str() } else { "" };
            *line = format!("{front:<38} {line}").trim_end().to_owned();
        }
        lines
    }
}

/// A file that is mapped.
struct Mapped<'a> {
    path: &'a Path,
    open: File,
    token: u64,
    mount: MountEntry,
    size_bytes: u64,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let Arguments { file, offset, length, format } = arguments;
    let mapped = open(file)?;
    let end = length.map_or(u64::MAX, |length| offset.saturating_add(length)).min(mapped.size_bytes);
    if *format == Format::Json {
        let mut parts = Vec::new();
        mapped.each_part(*offset, end, &mut |part| {
            parts.push(part);
            Ok(())
        })?;
        return print_json(&Map { size_bytes: mapped.size_bytes, parts });
    }
    let places = format!("{:>14} {:>10} {:>10} codec", "on the device", "stored", "raw");
    print(format_args!("{:>14} {:>14}  {:<7} {places}", "offset", "length", "place"))?;
    mapped.each_part(*offset, end, &mut |part| part.lines().iter().try_for_each(print))
}

fn open(file: &Path) -> Result<Mapped<'_>, Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::new(format!("cannot map {}: {why}", file.display()));
    stats::approach(file)?;
    let (open, token) = betrfs_fuse::map_token(file).map_err(|error| {
        match error.raw_os_error().map(betrfs_fuse::Errno::from_raw_os_error) {
            Some(betrfs_fuse::Errno::NOTTY) => failed(&"it is on no BetrFS mount"),
            Some(betrfs_fuse::Errno::NODEV | betrfs_fuse::Errno::ISDIR) => failed(&"it is no file"),
            Some(betrfs_fuse::Errno::LOOP) => failed(&path::LOOPS),
            Some(betrfs_fuse::Errno::PERM) => failed(&"only root and the user who mounted the volume may"),
            _ => failed(&error),
        }
    })?;
    let mount = MountEntry::of(&open).map_err(|error| failed(&error))?;
    let size_bytes = open.metadata().map_err(|error| failed(&error))?.len();
    Ok(Mapped { path: file, open, token, mount, size_bytes })
}

impl Mapped<'_> {
    fn failed(&self, why: &dyn std::fmt::Display) -> Failure {
        Failure::new(format!("cannot map {}: {why}", self.path.display()))
    }

    /// Calls `each` with the parts of `[from, end)` in order; what has no data is a hole.
    fn each_part(&self, mut from: u64, end: u64, each: &mut dyn FnMut(Part) -> Outcome) -> Outcome {
        while from < end {
            let data = self.seek(SeekFrom::Data(from))?.map_or(end, |data| data.min(end));
            if data > from {
                each(Part::hole(from, data))?;
            }
            let hole = if data < end {
                self.seek(SeekFrom::Hole(data))?.map_or(end, |hole| hole.min(end))
            } else {
                end
            };
            from = data;
            while from < hole {
                let to = hole.min(from.saturating_add(MAP_BYTES_MAX));
                self.each_extent(from, to, each)?;
                from = to;
            }
        }
        Ok(())
    }

    fn each_extent(&self, mut from: u64, to: u64, each: &mut dyn FnMut(Part) -> Outcome) -> Outcome {
        let dir = &self.mount.path;
        let line = Line::open(&self.mount).map_err(|why| stats::unheard(dir, &why))?;
        let extents = line.map(&self.mount, self.token, (from, to - from)).map_err(|error| match error {
            CheckError::Unheard(why) => stats::unheard(dir, &why),
            why => self.failed(&why.to_string()),
        })?;
        for extent in extents {
            let (start, stop) =
                (extent.offset_bytes, extent.offset_bytes.saturating_add(extent.length_bytes));
            let (start, stop) = (start.max(from), stop.min(to));
            if start >= stop {
                continue;
            }
            if start > from {
                each(Part::hole(from, start))?;
            }
            each(Part::of(extent, start, stop))?;
            from = stop;
        }
        if from < to { each(Part::hole(from, to)) } else { Ok(()) }
    }

    /// The next place of data or of a hole; `None` if there is none.
    fn seek(&self, to: SeekFrom) -> Result<Option<u64>, Failure> {
        match rustix::fs::seek(&self.open, to) {
            Ok(place) => Ok(Some(place)),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(self.failed(&errno)),
        }
    }
}
