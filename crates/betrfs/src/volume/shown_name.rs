//! What the log calls an object.

use alloc::format;
use alloc::string::String;

use betree::Cut;

use crate::names::Place;
use crate::op::OpKind;
use crate::schema::{LINKS, key};
use crate::types::InodeId;
use crate::volume::Volume;

/// Number of entries in the list of names of linked files that are looked at for one of a file.
const LINKS_MAX: usize = 4096;

impl Volume {
    /// The path of an object, as messages show it; of a file with several names one of them, or its number if
    /// many other files have several. `None` for one that is not in memory. Nothing is said of what is still
    /// there: this is for objects that cannot be read.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// let file = volume.create(dir, b"file", &new_file)?.node;
    /// assert_eq!(volume.shown_name(file).as_deref(), Some("/dir/file"));
    /// volume.link(file, InodeId::ROOT, b"link")?;
    /// assert!(volume.shown_name(file).is_some_and(|name| name == "/dir/file" || name == "/link"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn shown_name(&self, node: InodeId) -> Option<String> {
        let op = self.query(OpKind::Internal);
        let (place, own) = {
            let _shared = self.namespace.shared();
            let inode = self.table.get(node)?;
            (inode.place(), inode.own_key())
        };
        match place {
            Place::Object { oid, .. } => {
                let mut links = op.scan(LINKS, (Cut::LOW, Cut::HIGH));
                for _ in 0..LINKS_MAX {
                    match links.next() {
                        Ok(Some((at, of))) if *of == oid.to_be_bytes() => return Some(key::describe(at)),
                        Ok(Some(_)) => {}
                        Ok(None) | Err(_) => break,
                    }
                }
                Some(format!("linked file {oid}"))
            }
            Place::Orphan { .. } => Some("a file without a name".into()),
            Place::Snapshots { of } => {
                let of = of.dir_path().ok()?;
                Some(key::describe(&key::entry(&of.bytes, crate::SNAPSHOTS_NAME)))
            }
            Place::Root | Place::Named { .. } | Place::Gone => own.ok().map(|own| key::describe(&own)),
        }
    }
}
