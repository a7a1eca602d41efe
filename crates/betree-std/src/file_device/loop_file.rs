//! The file that a loop device shows.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::{OFlags, major, minor};

/// The file of which a loop device shows the whole: the volume in it is the same by either name. `None` for
/// anything else, for a device that shows a part, and for a file that has no name here that this process may
/// read.
pub(super) fn whole_file_of(device: &File) -> Option<File> {
    let found = device.metadata().ok()?;
    if !found.file_type().is_block_device() {
        return None;
    }
    let shown = PathBuf::from(format!("/sys/dev/block/{}:{}/loop", major(found.rdev()), minor(found.rdev())));
    let word =
        |name: &str| Some(fs::read_to_string(shown.join(name)).ok()?.trim_end_matches('\n').to_owned());
    if word("offset")? != "0" || word("sizelimit")? != "0" {
        return None;
    }
    let mut options = OpenOptions::new();
    // Whatever has the name by now: nothing but a file is used.
    options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    let file = options.open(word("backing_file")?).ok()?;
    file.metadata().is_ok_and(|found| found.is_file()).then_some(file)
}
