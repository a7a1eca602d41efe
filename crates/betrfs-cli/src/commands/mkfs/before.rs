//! What a file or device holds before a volume is made on it.

use std::path::Path;
use std::process::{Command, Stdio};

use betree_platform::{BLOCK_BYTES, Device};
use betree_std::FileDevice;

use crate::failure::Failure;
use crate::place::itself;
use crate::tags::Tags;

/// Bytes examined for existing data.
const HEAD_BYTES: usize = 128 << 10;
/// Bytes cleared at both ends, where other file systems, partition tables and RAIDs have their marks.
const ENDS_BYTES: u64 = 1 << 20;
/// The first bytes of a volume.
const MAGIC: &[u8] = b"BetrFS";

/// Describes what is there, as the end of a sentence; `None` if nothing is. blkid(8) names what others have
/// made; without it, or where it knows nothing, data at the beginning counts as something.
pub fn of(device: &FileDevice) -> Result<Option<String>, Failure> {
    let shown = device.path().display();
    let head =
        device.head(HEAD_BYTES).map_err(|error| Failure::new(format!("cannot read {shown}: {error}")))?;
    if head.starts_with(MAGIC) {
        let tags =
            device.descriptor().map_err(Failure::from).and_then(|open| Tags::read(Path::new(&itself(&open))));
        let name = tags.map(|tags| named(&tags.label, &tags.uuid.to_string()));
        return Ok(Some(format!("is a BetrFS volume already{}", name.unwrap_or_default())));
    }
    if let Some(found) = of_others(device) {
        return Ok(Some(found));
    }
    Ok(head.iter().any(|byte| *byte != 0).then(|| "is not empty".to_owned()))
}

/// Describes what others than BetrFS have made there, as the end of a sentence, if blkid(8) is there and
/// knows it.
pub fn of_others(device: &FileDevice) -> Option<String> {
    let mut blkid = Command::new("blkid");
    // The open device itself, whatever its path leads to by now.
    blkid.args(["-p", "-o", "export", "/dev/stdin"]).stdin(Stdio::from(device.descriptor().ok()?));
    let output = blkid.stderr(Stdio::null()).output();
    let output = output.inspect_err(|error| tracing::info!("cannot ask blkid(8): {error}")).ok()?;
    described(&String::from_utf8_lossy(&output.stdout))
}

/// What the lines `NAME=value` of blkid(8) tell, with spaces and the like behind backslashes.
fn described(told: &str) -> Option<String> {
    let value = |name: &str| {
        let mut values = told.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        values.next().map(|value| value.replace('\\', ""))
    };
    let name = named(&value("LABEL").unwrap_or_default(), &value("UUID").unwrap_or_default());
    match (value("TYPE"), value("USAGE").as_deref(), value("PTTYPE")) {
        (Some(kind), Some("filesystem"), _) => Some(format!("has a file system of type {kind}{name}")),
        (Some(kind), ..) => Some(format!("is a {kind}{name}")),
        (None, _, Some(kind)) => Some(format!("has a partition table of type {kind}")),
        (None, _, None) => None,
    }
}

fn named(label: &str, uuid: &str) -> String {
    let parts = [("label ", label), ("UUID ", uuid)];
    let parts = parts.into_iter().filter(|(_, value)| !value.is_empty());
    let parts: Vec<String> = parts.map(|(what, value)| format!("{what}{value}")).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// Overwrites both ends with zeros: a mark that stays would make others take the volume for theirs.
pub fn clear_ends(device: &FileDevice) -> Result<(), Failure> {
    let block = BLOCK_BYTES as u64;
    let len = ENDS_BYTES.min(device.len() / block * block);
    let zeros = vec![0; usize::try_from(len)?];
    for offset in [0, device.len() / block * block - len] {
        device.write_at(offset, &zeros)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_blkid_tells_becomes_a_sentence() {
        let told = |lines: &[&str]| described(&lines.join("\n"));
        assert_eq!(
            told(&["DEVNAME=/dev/stdin", "LABEL=old\\ home", "UUID=1-2", "TYPE=ext4", "USAGE=filesystem"]),
            Some("has a file system of type ext4 (label old home, UUID 1-2)".to_owned())
        );
        assert_eq!(
            told(&["TYPE=LVM2_member", "USAGE=raid", "PTTYPE=dos"]),
            Some("is a LVM2_member".to_owned())
        );
        assert_eq!(told(&["PTUUID=77", "PTTYPE=gpt"]), Some("has a partition table of type gpt".to_owned()));
        assert_eq!((told(&[]), told(&["DEVNAME=/dev/sda", "nonsense"])), (None, None));
    }
}
