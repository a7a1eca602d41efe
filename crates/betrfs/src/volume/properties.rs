//! Properties of directories.
//!
//! A property is a value of a directory's own record, and counts for the directory and everything below it,
//! but for what has one of its own or is below a directory that has one. So to set one costs one record. What
//! is inherited belongs to the place, and what is its own to the directory: a directory that is renamed
//! inherits what is above its new name. A copy is the exception: it has what its source had. What its place
//! does not give it, it gets as its own. A snapshot inherits what its directory inherits.

use betree::{Batch, PairCompression};

use crate::error::{Error, Result};
use crate::names::Inode;
use crate::op::OpKind;
use crate::planted::{self, Bug};
use crate::properties::{DataCompression, OwnProperties, Properties, PropertyChange, SetProperties};
use crate::rules::refuse_if_protected;
use crate::schema::Record;
use crate::types::InodeId;
use crate::volume::Volume;
use crate::volume::attributes::with_atime;

/// The error of a record whose tail is full.
const NO_ROOM: Error = Error::Invalid("its record has no room for another property");

impl Volume {
    /// The properties that count for an object, with the places that they are from.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn properties(&self, node: InodeId) -> Result<Properties> {
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let state = inode.state.read();
        Ok(inode.properties(&state.record))
    }

    /// Changes the properties of a directory, for `setter` alone if that is its owner, or for everyone if it
    /// is `None`. They count for everything below from then on; what is stored stays as it is. One record is
    /// written, whatever the directory holds.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::{InodeId, PropertyChange, PropertySource, SetProperties};
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// let file = volume.create_with(dir, b"file", &new_file, b"text")?.node;
    /// let set = SetProperties { noatime: PropertyChange::Set(true), ..SetProperties::default() };
    /// volume.set_properties(dir, &set, None)?;
    /// assert!(!volume.note_access(file)?);
    /// let found = volume.properties(file)?.noatime;
    /// assert_eq!((found.value, found.source), (true, PropertySource::Inherited { levels: 1 }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::NotPermitted`] if the directory is not `setter`'s;
    /// [`Error::Protected`] by its flags; [`Error::InSnapshot`]; [`Error::NotSupported`] for zstd if the
    /// volume was opened without a codec for it.
    pub fn set_properties(&self, node: InodeId, set: &SetProperties, setter: Option<u32>) -> Result<()> {
        let wants_zstd = matches!(set.compression, PropertyChange::Set(DataCompression::Zstd(_)));
        if wants_zstd && !self.env.has_zstd() {
            return Err(Error::NotSupported);
        }
        let op = self.update(OpKind::SetAttr, 0)?;
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let mut state = inode.state.write();
        state.dir()?;
        if setter.is_some_and(|owner| owner != state.record.uid) {
            return Err(Error::NotPermitted);
        }
        refuse_if_protected(&state.record)?;
        let own = set.of(state.record.properties());
        let mut record = with_atime(&inode, &state);
        if !record.set_properties(own) {
            return Err(NO_ROOM);
        }
        if own.compression.is_some_and(|compression| compression.asked() != PairCompression::Usual) {
            // The first time a checkpoint: here, and not in somebody's first write.
            self.env.let_pairs_ask()?;
        }
        record.ctime_ns = self.platform.now_ns();
        let mut batch = Batch::new();
        batch.mark_replacing();
        self.commit_record(&op, batch, &inode, &mut state, record)?;
        inode.set_own_properties(own);
        Ok(())
    }

    /// The compression that what is written to the file with this record asks for.
    pub(super) fn asked_by(inode: &Inode, record: &Record) -> PairCompression {
        asked(inode.effective_properties(record))
    }

    /// Gives the record of a copy, or of what leaves its directory, those of the properties `had` that its
    /// new place does not give it: a place where `there` counts.
    pub(super) fn keep_properties(
        record: &mut Record,
        had: OwnProperties,
        there: OwnProperties,
    ) -> Result<()> {
        if planted::is(Bug::PropertiesOfCloneLost) {
            return Ok(());
        }
        let kept = record.properties().kept(had, there);
        if record.set_properties(kept) { Ok(()) } else { Err(NO_ROOM) }
    }
}

/// The compression that data asks for where these properties count.
pub(super) fn asked(properties: OwnProperties) -> PairCompression {
    properties.compression.map_or(PairCompression::Usual, DataCompression::asked)
}
