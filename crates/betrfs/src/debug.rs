//! What the keys and values of a closed volume mean, as [`betree::debug`] shows them: for developers, and for
//! whoever reports a bug.

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

/// A dictionary's name; `None` of one that no volume of this version has.
pub fn dict_name(dict: DictId) -> Option<&'static str> {
    DICT_NAMES.iter().find(|(known, _)| *known == dict).map(|(_, name)| *name)
}

/// The dictionary of a name.
pub fn dict_of_name(name: &str) -> Option<DictId> {
    DICT_NAMES.iter().find(|(_, known)| *known == name).map(|(dict, _)| *dict)
}

/// What a whole key stands for: a path, a block of a file; `None` if it is not formed so.
pub fn describe(at: &[u8]) -> Option<String> {
    key::described(at)
}

/// The key in `data` of a block of the file with this own key.
pub fn block_key(own: &[u8], number: u64) -> Vec<u8> {
    key::block(own, number)
}

/// What stands in `meta` for a component of a path.
#[derive(Clone, Debug)]
pub struct Component {
    /// The component; empty for the root.
    pub name: Vec<u8>,
    /// The own key: a name's, or of a linked file, which comes behind its name, the object's.
    pub key: Vec<u8>,
    /// What stands there.
    pub found: Found,
}

impl Component {
    /// Whether its key may be one of `meta`.
    pub fn has_own_key(&self) -> bool {
        !matches!(self.found, Found::Snapshots)
    }

    /// Whether there may be blocks of it in `data`: it is a file, or nobody knows what it is.
    pub fn may_have_blocks(&self) -> bool {
        match &self.found {
            Found::Record(fields) => fields.contains(&("type", record::type_name(FileType::Regular))),
            Found::Nothing | Found::Unreadable(_) => true,
            Found::Redirect(_) | Found::Snapshots => false,
        }
    }
}

/// What was found at a key.
#[derive(Clone, Debug)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A record, by the names of its fields.
    Record(Fields),
    /// The name of a linked file: which object it is.
    Redirect(Fields),
    /// It stands for the snapshots of a directory, and has no record. Its key begins those of the snapshots.
    Snapshots,
    /// It cannot be read.
    Unreadable(Error),
}

/// Resolves a path from the root, component by component, as the last checkpoint has it. Symbolic links are
/// not followed. A component whose record cannot be read is taken for a directory: keys are whole paths.
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

/// Appends what stands at a key, and the object that it leads to. Whether names may be below.
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
