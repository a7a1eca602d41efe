//! The meaning of keys and values of a closed volume, for [`betree::debug`]: for developers and for bug
//! reports.

mod record;

use alloc::string::String;
use alloc::vec::Vec;

use betree::DictId;
use betree::debug::Inspector;

use crate::error::Error;
use crate::schema::{self, Stored, key};
use crate::types::{FileType, SNAPSHOTS_NAME};

pub use record::{Field, Fields};

/// The dictionary of records.
pub const META: DictId = schema::META;
/// The dictionary of blocks.
pub const DATA: DictId = schema::DATA;

/// The names of the dictionaries, in their order.
const DICT_NAMES: [(DictId, &str); schema::DICTS as usize] =
    [(schema::META, "meta"), (schema::DATA, "data"), (schema::LINKS, "links"), (schema::USER, "user")];

/// A dictionary's name; `None` if volumes of this version have no such dictionary.
pub fn dict_name(dict: DictId) -> Option<&'static str> {
    DICT_NAMES.iter().find(|(known, _)| *known == dict).map(|(_, name)| *name)
}

/// The dictionary of a name.
pub fn dict_of_name(name: &str) -> Option<DictId> {
    DICT_NAMES.iter().find(|(_, known)| *known == name).map(|(dict, _)| *dict)
}

/// The path of a key, or the block of a file; `None` if no key of a dictionary has this form.
pub fn describe(at: &[u8]) -> Option<String> {
    key::described(at)
}

/// The key in `data` of a block of the file with this own key.
pub fn block_key(own: &[u8], number: u64) -> Vec<u8> {
    key::block(own, number)
}

/// A component of a path in `meta`.
#[derive(Clone, Debug)]
pub struct Component {
    /// The component; empty for the root.
    pub name: Vec<u8>,
    /// Its own key. A linked file has two components: its name's, then its object's.
    pub key: Vec<u8>,
    /// The value of the key.
    pub found: Found,
}

impl Component {
    /// Whether its key can be in `meta`.
    pub fn has_own_key(&self) -> bool {
        !matches!(self.found, Found::Snapshots)
    }

    /// Whether it may have blocks in `data`: it is a file, or its type is not known.
    pub fn may_have_blocks(&self) -> bool {
        match &self.found {
            Found::Record(fields) => fields.contains(&("type", record::type_name(FileType::Regular))),
            Found::Nothing | Found::Unreadable(_) => true,
            Found::Redirect(_) | Found::Snapshots => false,
        }
    }
}

/// The value of a component's key.
#[derive(Clone, Debug)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A record, field by field.
    Record(Fields),
    /// The name of a linked file, with its object.
    Redirect(Fields),
    /// The snapshots of a directory, which have no record of their own. The component's key is the prefix of
    /// theirs.
    Snapshots,
    /// It cannot be read.
    Unreadable(Error),
}

/// Resolves a path from the root, component by component, in the last checkpoint. Symbolic links are not
/// followed. A component with an unreadable record is taken for a directory: keys are whole paths.
pub fn resolve(volume: &Inspector, path: &[u8]) -> Vec<Component> {
    let mut all = Vec::new();
    let mut dir: Vec<u8> = Vec::new();
    let mut goes_on = push_record(volume, &mut all, b"", &key::ROOT_KEY);
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if !goes_on {
            break;
        }
        if name == SNAPSHOTS_NAME {
            dir = key::snapshots_path(&dir);
            let (name, key) = (name.to_vec(), key::entry(&dir, b""));
            all.push(Component { name, key, found: Found::Snapshots });
            continue;
        }
        goes_on = push_record(volume, &mut all, name, &key::entry(&dir, name));
        dir = key::child_path(&dir, name);
    }
    all
}

/// Appends the component of a key, and of its object. Returns whether names may be below.
fn push_record(volume: &Inspector, all: &mut Vec<Component>, name: &[u8], at: &[u8]) -> bool {
    let (found, object, goes_on) = match stored(volume, at) {
        Ok(None) => (Found::Nothing, None, false),
        Ok(Some(Stored::Inode(record))) => {
            let is_dir = record.file_type == FileType::Directory;
            (Found::Record(record::of_inode(&record)), None, is_dir)
        }
        Ok(Some(Stored::Redirect(redirect))) => {
            (Found::Redirect(record::of_redirect(&redirect)), Some(redirect.oid), false)
        }
        Err(error) => (Found::Unreadable(error), None, true),
    };
    all.push(Component { name: name.to_vec(), key: at.to_vec(), found });
    if let Some(oid) = object {
        let at = key::object(oid);
        let found = match stored(volume, &at) {
            Ok(None) => Found::Nothing,
            Ok(Some(Stored::Inode(record))) => Found::Record(record::of_inode(&record)),
            Ok(Some(Stored::Redirect(redirect))) => Found::Redirect(record::of_redirect(&redirect)),
            Err(error) => Found::Unreadable(error),
        };
        all.push(Component { name: name.to_vec(), key: at, found });
    }
    goes_on
}

fn stored(volume: &Inspector, at: &[u8]) -> Result<Option<Stored>, Error> {
    volume.get(META, at)?.map(|bytes| Stored::decode(at, &bytes)).transpose()
}
