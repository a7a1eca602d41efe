//! The fields of records, with names.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::schema::{Flags, Record, Redirect, XattrValue};
use crate::types::FileType;

/// Fields by name, in the order of the record.
pub type Fields = Vec<(&'static str, Field)>;

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A number.
    Number(u64),
    /// A time in nanoseconds since 1970.
    Time(i64),
    /// A text.
    Text(String),
    /// Several texts.
    Texts(Vec<String>),
}

pub(super) fn type_name(file_type: FileType) -> Field {
    let name = match file_type {
        FileType::Regular => "regular",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::CharDevice => "char-device",
        FileType::BlockDevice => "block-device",
        FileType::Socket => "socket",
    };
    Field::Text(name.to_string())
}

pub(super) fn of_redirect(redirect: &Redirect) -> Fields {
    alloc::vec![
        ("type", type_name(redirect.file_type)),
        ("object_id", Field::Number(redirect.oid)),
        ("inode_number", Field::Number(redirect.ino)),
    ]
}

pub(super) fn of_inode(record: &Record) -> Fields {
    let rare = record.rare();
    let number = |number: u32| Field::Number(number.into());
    let flags = [
        (record.is_sparse(), "sparse"),
        (record.flags.has(Flags::LARGE_XATTRS), "large-xattrs"),
        (record.flags.has(Flags::READ_ONLY), "read-only"),
    ];
    let flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| (*name).to_string());
    let mut all: Fields = alloc::vec![
        ("type", type_name(record.file_type)),
        ("mode", Field::Text(format!("{:04o}", record.perm))),
        ("uid", number(record.uid)),
        ("gid", number(record.gid)),
        ("links", number(record.nlink)),
        ("size_bytes", Field::Number(record.size)),
        ("id", Field::Number(record.id)),
        ("atime_ns", Field::Time(record.atime_ns)),
        ("mtime_ns", Field::Time(record.mtime_ns)),
        ("ctime_ns", Field::Time(record.ctime_ns)),
        ("crtime_ns", Field::Time(record.crtime_ns)),
        ("flags", Field::Texts(flags.collect())),
    ];
    match record.file_type {
        FileType::Directory => all.extend([
            ("salt", Field::Number(record.salt)),
            ("entries", Field::Number(record.entries)),
            ("subdirs", Field::Number(record.subdirs)),
            ("snapshots", number(record.snapshots)),
        ]),
        FileType::Symlink => all.push(("target", Field::Text(record.target.escape_ascii().to_string()))),
        FileType::CharDevice | FileType::BlockDevice => all.push(("device", number(record.rdev))),
        FileType::Regular | FileType::Fifo | FileType::Socket => {}
    }
    if let Some(extents) = record.extents() {
        let spans = extents.spans().map(|(first, blocks)| format!("{first}+{blocks}"));
        all.push(("extents", Field::Texts(spans.collect())));
    }
    if !record.xattrs.is_empty() {
        let names = record.xattrs.iter().map(|xattr| {
            let place = match xattr.value {
                XattrValue::Inline(_) => "",
                XattrValue::Stored(_) => " in data",
            };
            format!("{}: {} bytes{place}", xattr.name.escape_ascii(), xattr.value.len())
        });
        all.push(("xattrs", Field::Texts(names.collect())));
    }
    let rare_numbers =
        [("generation", rare.generation), ("inode_flags", rare.flags.bits()), ("project", rare.project)];
    let used = rare_numbers.into_iter().filter(|(_, value)| *value != 0);
    all.extend(used.map(|(name, value)| (name, number(value))));
    let tags: Vec<String> =
        rare.tail.iter().map(|(tag, value)| format!("{tag}: {} bytes", value.len())).collect();
    if !tags.is_empty() {
        all.push(("tags", Field::Texts(tags)));
    }
    all
}
