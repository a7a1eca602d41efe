//! Files that commands write, named on the command line: what is there already keeps its contents, and a
//! volume is never written to.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags, major, minor};

use crate::failure::Failure;
use crate::place::{Place, itself};

/// How many devices stand one above the other at most, as far as is looked.
const DEVICES_MAX: usize = 16;

/// A file that a command has begun to write.
pub struct Output {
    pub file: File,
    /// Its name, if this command made it.
    made: Option<Place>,
}

impl Output {
    /// Makes a file. Terminals, pipes and the like can be written too, as nothing in them can be lost; all
    /// else that has the name is refused, for whoever mistypes names a volume, or a device that has one.
    ///
    /// # Errors
    /// The system's own, or something has that name.
    pub fn begin(path: &Path) -> Result<Output, Failure> {
        let failed = |error| Failure::new(format!("cannot write {}: {error}", path.display()));
        let place = Place::of(path).map_err(failed)?;
        match place.make(Mode::from_raw_mode(0o666)) {
            Ok(file) => Ok(Output { file, made: Some(place) }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let exists =
                    || Failure::new(format!("{} exists already: choose another name", path.display()));
                // Links are followed in directories of the system's, where /dev/stdout is one.
                let found = match ["/dev", "/proc"].iter().any(|dir| path.starts_with(dir)) {
                    true => rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                        .map(File::from)
                        .map_err(|errno| failed(errno.into()))?,
                    false => place.find().map_err(failed)?,
                };
                // Before it is opened, for that alone has an effect on some devices.
                if !found.metadata().is_ok_and(|found| keeps_nothing(&found)) {
                    return Err(exists());
                }
                let flags = OFlags::NOCTTY.bits().cast_signed();
                let file = File::options().write(true).custom_flags(flags).open(itself(&found));
                Ok(Output { file: file.map_err(failed)?, made: None })
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Removes a file that was made in vain, so that the next try can make it.
    pub fn unmake(&self) {
        if let Some(place) = &self.made {
            place.remove(&self.file);
        }
    }
}

fn keeps_nothing(found: &fs::Metadata) -> bool {
    let kind = found.file_type();
    kind.is_char_device() || kind.is_fifo()
}

/// Whether bytes written to a regular file come into a volume: it is the volume's file, or one that lies
/// below its block device, however many devices are in between.
pub fn is_below(file: &fs::Metadata, volume: &Path) -> bool {
    let Ok(found) = fs::metadata(volume) else { return false };
    if !found.file_type().is_block_device() {
        return is_same(file, &found);
    }
    let itself = format!("/sys/dev/block/{}:{}", major(found.rdev()), minor(found.rdev()));
    fs::canonicalize(itself).is_ok_and(|device| is_below_device(file, &device, DEVICES_MAX))
}

/// The same for a device as the kernel shows it. What cannot be looked at is taken for something else.
fn is_below_device(file: &fs::Metadata, device: &Path, devices_max: usize) -> bool {
    let Some(devices_max) = devices_max.checked_sub(1) else { return false };
    // Of a loop device, also if it shows a part: the log grows into that.
    if let Ok(backing) = fs::read_to_string(device.join("loop/backing_file"))
        && fs::metadata(backing.trim_end_matches('\n')).is_ok_and(|backing| is_same(file, &backing))
    {
        return true;
    }
    let whole = device.join("partition").exists().then(|| device.parent()).flatten();
    let parts = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let below = whole.map(Path::to_owned).into_iter().chain(parts.map(|part| part.path()));
    below
        .filter_map(|device| fs::canonicalize(device).ok())
        .any(|device| is_below_device(file, &device, devices_max))
}

fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_below_itself_by_each_of_its_names_and_below_no_other() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        for name in ["volume", "other"] {
            fs::write(at(name), name).unwrap();
        }
        fs::hard_link(at("volume"), at("hard")).unwrap();
        std::os::unix::fs::symlink("volume", at("soft")).unwrap();
        let volume = fs::metadata(at("volume")).unwrap();
        for name in ["volume", "hard", "soft"] {
            assert!(is_below(&volume, &at(name)), "{name}");
        }
        assert!(!is_below(&volume, &at("other")) && !is_below(&volume, &at("none")));
    }
}
