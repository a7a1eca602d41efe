//! The page betrfs(5): what a volume is, mount options, promises, limits.

use clap_mangen::roff::{Roff, bold, roman};

use super::help::{marked, verbatim};
use crate::commands::mount::options::DESCRIBED;

/// Lines for /etc/fstab.
pub(super) const LINES: &[&str] = &[
    "  /srv/data.betrfs  /data  betrfs  noauto,user                 0 0",
    "  /dev/sdb1         /data  betrfs  defaults,noatime,nofail     0 2",
    "  LABEL=photos      /data  betrfs  nofail,discard              0 2",
];

pub(super) const JSON: &[&str] = &[
    "Commands that print data print one JSON document with `--format json`. Its `schema_version` grows when a field \
     changes its meaning or goes; fields may be added.",
    "A name or a path that is not UTF-8 has the replacement character U+FFFD in its field, and then a field of the \
     same name with `_hex` behind it has all its bytes in hexadecimal: `path_hex` beside `path`. Beside a list of \
     names stands one of the same length, with null for those that are UTF-8.",
];

pub(super) const PROMISES: &[&str] = &[
    "What was fsynced is there after a crash, with the names that lead to it. Of all else a prefix is there, in the \
     order in which it was done over all files, each operation whole; a write(2) of up to 1 MiB that crosses no \
     multiple of 1 MiB is one operation. Without any fsync, at most the last five seconds are lost.",
    "A rename over another file leaves the old file or the new one, never an empty one. Clones and snapshots are \
     there as a whole or not at all.",
    "What rots on the disk is an error (EIO) of those who read it, never wrong contents; `betrfs check` names the \
     files. After a failed write or sync of the disk changes are refused (EROFS) until the next mount.",
    "On a full volume a call gets ENOSPC and has done nothing; removals and renames work.",
];

/// The page, without its title line.
pub(super) fn page() -> Vec<u8> {
    let mut roff = Roff::new();
    roff.control("SH", ["NAME"])
        .text([roman("betrfs - volumes, mount options, promises and limits of BetrFS")]);
    section(
        "DESCRIPTION",
        &[
            "A volume is a file or a block device; a file takes space as it fills. `betrfs mkfs` makes one, and \
             `betrfs mount` mounts it by a server of its own, a process that ends with the unmount.",
            "A directory is a value: to rename, clone, snapshot or remove it (`betrfs clone`, `betrfs snapshot`, \
             `betrfs rm-tree`) costs the same whatever it holds. Snapshots of a directory stand in its \
             `.betrfs-snapshots`, which no listing shows.",
        ],
        &mut roff,
    );
    roff.control("SH", ["MOUNT OPTIONS"]);
    roff.text(marked(
        "Of mount(8), of /etc/fstab, and of `betrfs mount -o`, separated by commas. The last one counts.",
    ));
    for (option, meaning) in DESCRIBED {
        roff.control("TP", []).text([bold(*option)]);
        roff.text(marked(meaning));
    }
    roff.control("SH", ["FSTAB"]);
    roff.text(marked(
        "The type is `betrfs`, with the links that `betrfs install-helpers` or a package makes. The last field may be \
         2: fsck(8) then has the volume checked by `betrfs check` at the start of the system.",
    ));
    verbatim(LINES, &mut roff);
    section("JSON", JSON, &mut roff);
    section("PROMISES", PROMISES, &mut roff);
    roff.control("SH", ["LIMITS"]);
    for (what, limit) in limits() {
        roff.control("TP", []).text([roman(what)]);
        roff.text([roman(limit)]);
    }
    section(
        "FILES",
        &[
            "`/dev/fuse`, by which the kernel's requests come, unless they come by io_uring. `/etc/filesystems`, to \
             which `betrfs install-helpers` adds the type.",
        ],
        &mut roff,
    );
    section("SEE ALSO", &["`betrfs`(8), `mount`(8), `fstab`(5), `fuse`(4)"], &mut roff);
    roff.to_roff().into_bytes()
}

fn section(name: &str, paragraphs: &[&str], roff: &mut Roff) {
    roff.control("SH", [name]);
    for paragraph in paragraphs {
        roff.control("PP", []).text(marked(paragraph));
    }
}

pub(super) fn limits() -> [(&'static str, String); 4] {
    [
        ("Name of a file", format!("{} bytes", betrfs::NAME_BYTES_MAX)),
        ("Path below the root of the volume, in its stored form", format!("{} bytes", betree::KEY_BYTES_MAX)),
        ("Size of a file", format!("{} EiB", betrfs::FILE_BYTES_MAX >> 60)),
        ("Label", format!("{} bytes", betree::LABEL_BYTES_MAX)),
    ]
}
