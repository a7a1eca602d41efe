//! A way to damage the sample of the repairs for each kind of problem of the file system.

use betree::Batch;

use crate::repair::*;

pub type Change = fn(&Pairs, &mut Batch);

/// A way to damage the sample.
pub struct Case {
    pub code: &'static str,
    pub change: Change,
    /// The keys at which the repaired volume differs from the sound one.
    pub differs: &'static [&'static str],
}

pub const CASES: &[Case] = &[
    Case {
        code: "wrong-entry-counts",
        change: |pairs, batch| set(pairs, batch, META, DIR, ENTRIES_AT, &77u64.to_le_bytes()),
        differs: &[],
    },
    Case {
        code: "wrong-snapshot-count",
        change: |pairs, batch| set(pairs, batch, META, HELD, SNAPSHOTS_AT, &0u32.to_le_bytes()),
        differs: &[],
    },
    Case {
        code: "wrong-link-count",
        change: |pairs, batch| {
            set(pairs, batch, META, &object(pairs), LINKS_AT, &7u32.to_le_bytes());
            set(pairs, batch, META, FILE, LINKS_AT, &3u32.to_le_bytes());
        },
        differs: &[],
    },
    Case {
        code: "nameless-file",
        change: |_, batch| {
            for name in [NAME, OTHER_NAME] {
                batch.delete(META, name);
                batch.delete(LINKS, name);
            }
        },
        differs: &[
            "0 \\x00\\x00a",
            "0 \\x00\\x00d",
            "0 \\x00\\x00lost+found",
            "0 \\x00d\\x00\\x00b",
            "0 \\x00lost+found\\x00\\x00#1",
            "0 \\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01",
            "0 \\x05",
            "0 \\x05\\x01",
            "2 \\x00\\x00a",
            "2 \\x00d\\x00\\x00b",
            "2 \\x00lost+found\\x00\\x00#1",
        ],
    },
    Case {
        code: "lost-file",
        change: |pairs, batch| {
            batch.delete(META, &object(pairs));
            batch.delete(DATA, &block(&object(pairs), 0));
        },
        differs: &[
            "0 \\x00\\x00a",
            "0 \\x00\\x00d",
            "0 \\x00d\\x00\\x00b",
            "0 \\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01",
            "0 \\x05",
            "1 \\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00",
            "2 \\x00\\x00a",
            "2 \\x00d\\x00\\x00b",
        ],
    },
    Case {
        code: "wrong-redirect",
        change: |pairs, batch| set(pairs, batch, META, NAME, INO_AT, &999u64.to_le_bytes()),
        differs: &[],
    },
    Case { code: "name-not-listed", change: |_, batch| batch.delete(LINKS, NAME), differs: &[] },
    Case {
        code: "wrongly-listed",
        change: |_, batch| batch.put(LINKS, DIR, &1u64.to_be_bytes()),
        differs: &[],
    },
    Case {
        code: "wrong-size",
        change: |pairs, batch| set(pairs, batch, META, SYMLINK, SIZE_AT, &99u64.to_le_bytes()),
        differs: &[],
    },
    Case {
        code: "bytes-behind-end",
        change: |_, batch| batch.put(DATA, &block(FILE, 2), &[3; 4000]),
        differs: &["1 \\x00d\\x00\\x00f\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02"],
    },
    Case { code: "lost-block", change: |_, batch| batch.delete(DATA, &block(FILE, 1)), differs: &[] },
    Case {
        code: "wrong-blocks",
        change: |_, batch| batch.put(DATA, &block(SPARSE, 3), &[4; 4096]),
        differs: &["0 \\x00\\x00sparse", "1 \\x00\\x00sparse\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x03"],
    },
    Case {
        code: "lost-attribute",
        change: |_, batch| batch.delete(DATA, &[FILE, b"\0\xffuser.x"].concat()),
        differs: &["0 \\x00d\\x00\\x00f", "1 \\x00d\\x00\\x00f\\x00\\xffuser.x"],
    },
    Case {
        code: "attribute-flag",
        change: |pairs, batch| set(pairs, batch, META, FILE, FLAGS_AT, &0u32.to_le_bytes()),
        differs: &[],
    },
    Case {
        code: "bad-access-control-list",
        change: |pairs, batch| {
            // The tag of the last entry of the last attribute, which is the default list.
            let mut record = pairs[&key(META, FOR_1)].clone();
            let at = record.len() - 8;
            record[at] = 0x40;
            batch.put(META, FOR_1, &record);
            let at = [FOR_50, b"\0\xffsystem.posix_acl_access"].concat();
            set(pairs, batch, DATA, &at, 0, &3u32.to_le_bytes());
        },
        differs: &[
            "0 \\x00\\x00for 1",
            "0 \\x00\\x00for 50",
            "1 \\x00\\x00for 50\\x00\\xffsystem.posix_acl_access",
        ],
    },
    Case {
        code: "wrong-access-control-list",
        change: |pairs, batch| {
            for dir in [FOR_1, FOR_50] {
                set(pairs, batch, META, dir, MODE_AT, &0o040_711u32.to_le_bytes());
            }
        },
        differs: &[
            "0 \\x00\\x00for 1",
            "0 \\x00\\x00for 50",
            "1 \\x00\\x00for 50\\x00\\xffsystem.posix_acl_access",
        ],
    },
    Case {
        code: "wrong-quota-use",
        change: |pairs, batch| set(pairs, batch, DATA, b"\0\0limited\0\xfe", 0, &[99]),
        differs: &[],
    },
    Case {
        code: "wrong-quota-use",
        change: |_, batch| batch.delete(DATA, b"\0\0limited\0\xfe"),
        differs: &[],
    },
    Case {
        code: "ownerless-data",
        change: |_, batch| {
            batch.put(DATA, b"\0\0nobody\0\xffuser.y", b"value");
            batch.put(DATA, b"\0\0d\0\xfe", &[0; 16]);
            // A block of what is no file.
            batch.put(DATA, &block(b"\0\0d", 0), b"data");
        },
        differs: &[],
    },
    Case {
        code: "lost-record",
        change: |_, batch| {
            batch.put(DATA, &block(b"\0\0found", 0), &[7; 4096]);
            batch.put(DATA, &block(b"\0\0found", 2), b"the end");
        },
        differs: &[
            "0 \\x00\\x00found",
            "0 \\x05",
            "0 \\x05\\x01",
            "1 \\x00\\x00found\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00",
            "1 \\x00\\x00found\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02",
        ],
    },
    Case {
        code: "bad-record",
        change: |_, batch| batch.put(META, SYMLINK, b"\x01\x01 cut short"),
        differs: &["0 \\x00\\x00d", "0 \\x00d\\x00\\x00s"],
    },
    Case { code: "bad-key", change: |_, batch| batch.put(META, b"\x01short", b"x"), differs: &[] },
    // A detached tree of which no marker tells.
    Case {
        code: "bad-key",
        change: |_, batch| {
            batch.put(META, b"\x04\0\0\0\0\0\0\0\x09\0\0f", b"x");
            batch.put(DATA, b"\x04\0\0\0\0\0\0\0\x09\0\0f\0\0", b"x");
            batch.put(LINKS, b"\x04\0\0\0\0\0\0\0\x09\0\0f", &1u64.to_be_bytes());
        },
        differs: &[],
    },
    Case { code: "no-root", change: |_, batch| batch.delete(META, ROOT_KEY), differs: &["0 \\x05"] },
    Case {
        code: "no-volume-record",
        change: |_, batch| batch.put(META, VOLUME_KEY, b"too short"),
        differs: &["0 \\x05\\x01"],
    },
    Case {
        code: "no-volume-record",
        change: |_, batch| batch.delete(META, VOLUME_KEY),
        differs: &["0 \\x05\\x01"],
    },
    Case {
        code: "number-not-given",
        change: |pairs, batch| set(pairs, batch, META, VOLUME_KEY, OIDS_AT, &1u64.to_le_bytes()),
        differs: &[],
    },
    Case {
        code: "no-directory",
        change: |_, batch| batch.delete(META, DIR),
        differs: &["0 \\x00\\x00d", "0 \\x05\\x01"],
    },
    Case { code: "later-version", change: |_, batch| batch.put(META, b"\x06later", b"x"), differs: &[] },
    Case { code: "later-dictionary", change: |_, batch| batch.put(USER, b"key", b"x"), differs: &[] },
];

/// The codes that no image can have, with the reason.
pub const WITHOUT_AN_IMAGE: &[(&str, &str)] = &[
    ("lost-name", "known damage: see `lost_links`"),
    ("memory-does-not-fit", "it is about tables in memory"),
    ("not-read", "a device that fails while it is read"),
];
