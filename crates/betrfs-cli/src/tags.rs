//! The tags of volumes: label and UUID, by which mount(8) and /etc/fstab name them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betree::ErrorRecord;
use betree::debug::{Superblock, superblocks};
use betree_std::FileDevice;
use betrfs::Uuid;

use crate::failure::Failure;

/// The links to block devices by their tags, made by udev(7).
const LINKS: &str = "/dev/disk";
/// The kernel's list of block devices.
const PARTITIONS: &str = "/proc/partitions";

/// What a superblock tells of its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tags {
    /// The label; empty if there is none.
    pub label: String,
    /// The UUID.
    pub uuid: Uuid,
    /// The size of the volume in bytes.
    pub volume_bytes: u64,
    /// Whether it was closed, and nobody has opened it for changes since.
    pub closed: bool,
    /// When it was made, in nanoseconds since 1970-01-01 00:00 UTC; 0 if unknown.
    pub made_ns: i64,
    /// The program that made it, with its version.
    pub made_by: String,
    /// The size up to which it grows by itself, in bytes, if it does.
    pub grow_to_bytes: Option<u64>,
    /// The number of copies that its interior nodes above the parents of leaves are to have.
    pub metadata_copies: u32,
    /// The errors that are counted on it.
    pub errors: ErrorRecord,
}

impl Tags {
    /// Reads the tags of the volume in a file or on a block device, also while it is mounted: four blocks.
    ///
    /// # Errors
    /// It is not a volume, or cannot be read.
    pub fn read(path: &Path) -> Result<Tags, Failure> {
        Tags::of_device(Arc::new(FileDevice::open_to_look(path)?))
    }

    /// As [`read`](Tags::read), of an open file or block device.
    ///
    /// # Errors
    /// As `read`.
    pub fn of_device(device: Arc<FileDevice>) -> Result<Tags, Failure> {
        let shown = device.path().display().to_string();
        let found = superblocks(device, &mut |_| ()).and_then(|found| found.current);
        let found = found.map_err(|error| Failure::new(format!("{shown}: {error}")))?;
        let (errors, metadata_copies) = (found.errors(), found.node_copies().count());
        let grow_to_bytes =
            Some(found.growth_limit_bytes()).filter(|limit| *limit > 0 && *limit >= found.volume_bytes);
        let Superblock { identity, volume_bytes, clean, .. } = found;
        let betree::Identity { label, uuid, made_ns, made_by, .. } = identity;
        Ok(Tags {
            label,
            uuid,
            volume_bytes,
            closed: clean,
            made_ns,
            made_by,
            grow_to_bytes,
            metadata_copies,
            errors,
        })
    }
}

/// A tag that names a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tag {
    Uuid(Uuid),
    Label(String),
}

impl Tag {
    /// The tag of `UUID=...` or `LABEL=...`; `None` for any other text, which is a path.
    fn of(text: &str) -> Result<Option<Tag>, Failure> {
        if let Some(label) = text.strip_prefix("LABEL=") {
            return Ok(Some(Tag::Label(label.to_owned())));
        }
        let Some(uuid) = text.strip_prefix("UUID=") else { return Ok(None) };
        let uuid = uuid.parse().map_err(|error| Failure::new(format!("{text}: {error}")))?;
        Ok(Some(Tag::Uuid(uuid)))
    }

    fn is_of(&self, tags: &Tags) -> bool {
        match self {
            Tag::Uuid(uuid) => *uuid == tags.uuid,
            Tag::Label(label) => *label == tags.label && !label.is_empty(),
        }
    }

    /// Its link below [`LINKS`].
    fn link(&self) -> PathBuf {
        let (by, name) = match self {
            Tag::Uuid(uuid) => ("by-uuid", uuid.to_string()),
            Tag::Label(label) => ("by-label", encoded(label)),
        };
        Path::new(LINKS).join(by).join(name)
    }
}

/// The path of a volume given by its path or as `UUID=...` or `LABEL=...`: that of udev's link, else of the
/// block device that has the tag, as libblkid finds it.
///
/// # Errors
/// There is no such device, or more than one.
pub fn resolved(volume: &Path) -> Result<PathBuf, Failure> {
    let Some(tag) = volume.to_str().map(Tag::of).transpose()?.flatten() else { return Ok(volume.to_owned()) };
    let given = volume.display();
    if let Ok(device) = tag.link().canonicalize() {
        return Ok(device);
    }
    let all = block_devices().map_err(|error| Failure::new(format!("cannot read {PARTITIONS}: {error}")))?;
    let found: Vec<PathBuf> =
        all.into_iter().filter(|path| Tags::read(path).is_ok_and(|tags| tag.is_of(&tags))).collect();
    match found.as_slice() {
        [device] => Ok(device.clone()),
        [] => Err(Failure::new(format!(
            "no block device that can be read has a BetrFS volume with {given}; a volume in a file is named by its path"
        ))),
        several => {
            let names: Vec<_> = several.iter().map(|path| path.display().to_string()).collect();
            Err(Failure::new(format!("{given} is on {}: name the device", names.join(" and on "))))
        }
    }
}

/// The paths of all block devices with a size.
fn block_devices() -> io::Result<Vec<PathBuf>> {
    let told = std::fs::read_to_string(PARTITIONS)?;
    // Two lines of headings; then major, minor, blocks and name.
    let names = told.lines().skip(2).filter_map(|line| line.split_whitespace().nth(3));
    Ok(names.map(|name| Path::new("/dev").join(name)).collect())
}

/// Whether a character stands in names of udev's links as it is.
fn is_plain(c: char) -> bool {
    !c.is_ascii() || c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c)
}

/// A tag as a part of udev's links, as blkid_encode_string() of libblkid makes it.
pub fn encoded(text: &str) -> String {
    text.chars()
        .map(|c| if is_plain(c) { c.to_string() } else { format!("\\x{:02x}", u32::from(c)) })
        .collect()
}

/// A tag as a value of one word: libblkid's blkid_safe_string() leaves quotes and the like as they are, which
/// udev would not take from a program.
pub fn safe(text: &str) -> String {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    words.join("_").chars().map(|c| if is_plain(c) || "/$%?,".contains(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_told_from_paths() {
        let uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        assert_eq!(Tag::of("/dev/sda1").unwrap(), None);
        assert_eq!(Tag::of("./UUID=x").unwrap(), None);
        assert_eq!(Tag::of("LABEL=a b").unwrap(), Some(Tag::Label("a b".into())));
        let tag = Tag::of(&format!("UUID={}", uuid.to_uppercase())).unwrap().unwrap();
        assert_eq!(tag.link(), Path::new("/dev/disk/by-uuid").join(uuid));
        assert!(Tag::of("UUID=x").is_err());
        assert_eq!(resolved(Path::new("v/UUID=x")).unwrap(), Path::new("v/UUID=x"));
    }

    /// The links as `blkid -p -o udev` has them for ext4 file systems with these labels.
    #[test]
    fn names_of_links_are_those_of_libblkid() {
        for (label, link, value) in [
            ("photos", "photos", "photos"),
            ("my disk", "my\\x20disk", "my_disk"),
            ("  a\\b/c  ", "\\x20\\x20a\\x5cb\\x2fc\\x20\\x20", "a_b/c"),
            ("Bücher", "Bücher", "Bücher"),
            ("$x;'y", "\\x24x\\x3b\\x27y", "$x__y"),
        ] {
            assert_eq!((encoded(label).as_str(), safe(label).as_str()), (link, value));
        }
    }
}
