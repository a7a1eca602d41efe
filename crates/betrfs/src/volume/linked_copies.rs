//! Copies of files with several names for a clone, one by one: as long as they are few, ahead of the clone
//! and under markers (`clone.rs`).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use betree::Batch;

use crate::contents::{copy_data, delete_data};
use crate::error::{Error, Result};
use crate::op::Op;
use crate::planted::{self, Bug};
use crate::schema::{Flags, LINKS, META, Marker, Record, Stored, damaged, key};
use crate::volume::Volume;
use crate::volume::attributes::with_atime;
use crate::volume::clone::Ahead;
use crate::volume::lost_files::{is_lost_for_good, type_of_name};

/// Number of linked files copied in one batch, at most.
const OBJECTS_MAX: usize = 64;

/// A linked file on its way into a copy.
pub(super) struct LinkedCopy {
    pub oid: u64,
    pub marker: u64,
    pub record: Record,
    /// The file itself if its record is lost, which the copy's is then too.
    pub lost: Option<u64>,
    /// The keys of its names inside the copy.
    pub names: Vec<Vec<u8>>,
}

impl Volume {
    /// Copies each file that has several names and at least one of them below a directory.
    ///
    /// # Errors
    /// [`Error::Busy`] if the copy is to be made ahead.
    pub(super) fn copy_linked(
        &self,
        op: &Op<'_>,
        from_path: &[u8],
        to_path: &[u8],
        flags: Flags,
        ahead: Ahead<'_>,
    ) -> Result<Vec<LinkedCopy>> {
        let mut names: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        let mut seen = 0;
        let mut links = op.scan(LINKS, key::subtree(from_path));
        while let Some((at, oid)) = links.next()? {
            seen += 1;
            if let Ahead::IfMany(are_many) = ahead
                && seen > self.links_alone_max
            {
                are_many.set(true);
                return Err(Error::Busy);
            }
            let oid =
                oid.try_into().map(u64::from_be_bytes).map_err(|_| damaged(at, "it is no object id"))?;
            if self.is_lost_name(op, at)? {
                continue;
            }
            let rest = at.get(from_path.len()..).unwrap_or_default();
            names.entry(oid).or_default().push([to_path, rest].concat());
        }
        let mut copies = Vec::with_capacity(names.len());
        if let Err(error) = self.copy_objects(op, names, (from_path, to_path), flags, &mut copies) {
            self.discard(op, &copies);
            return Err(error);
        }
        Ok(copies)
    }

    /// Copies linked files with their names in the copy, in batches within the log's limit.
    fn copy_objects(
        &self,
        op: &Op<'_>,
        names: BTreeMap<u64, Vec<Vec<u8>>>,
        (from_path, to_path): (&[u8], &[u8]),
        flags: Flags,
        copies: &mut Vec<LinkedCopy>,
    ) -> Result<()> {
        let (mut batch, mut files) = (Batch::new(), 0);
        for (oid, names) in names {
            op.visit(1);
            let from = key::object(oid);
            let (mut record, lost) = match self.object_record(op, oid) {
                Ok(record) => (record, None),
                Err(error) if is_lost_for_good(&error) => {
                    let rest = names.first().and_then(|name| name.get(to_path.len()..)).unwrap_or_default();
                    let file_type = type_of_name(op, &[from_path, rest].concat())?;
                    (Record::new(file_type, 0, 0, 0), Some(oid))
                }
                Err(error) => return Err(error),
            };
            let (oid, marker) = (self.numbers.oid(op)?, self.numbers.oid(op)?);
            let to = key::object(oid);
            record.id = self.numbers.id(op)?;
            record.flags.clear(Flags::READ_ONLY);
            if !planted::is(Bug::LinkedFilesOfSnapshotsWritable) {
                record.flags.set(flags);
            }
            record.nlink = u32::try_from(names.len()).map_err(|_| Error::TooManyLinks)?;
            batch.put(META, &key::marker(marker), &Marker::Unlinked { base: to.clone() }.encode());
            if lost.is_none() {
                copy_data(op, &mut batch, &record, &from, &to)?;
            }
            copies.push(LinkedCopy { oid, marker, record, lost, names });
            files += 1;
            if files == OBJECTS_MAX || batch.bytes() as u64 >= self.piece_bytes {
                // So many are not made a second time.
                op.commit(&batch)?;
                (batch, files) = (Batch::new(), 0);
            }
        }
        op.commit_aside(&batch)
    }

    pub(super) fn object_record(&self, op: &Op<'_>, oid: u64) -> Result<Record> {
        if let Some(inode) = self.table.object(oid).filter(|inode| !inode.is_lost) {
            return Ok(with_atime(&inode, &inode.state.read()));
        }
        stored_object(op, oid)
    }

    /// Deletes copies that got no name.
    pub(super) fn discard(&self, op: &Op<'_>, copies: &[LinkedCopy]) {
        let mut batch = Batch::new();
        for copy in copies {
            delete_data(&mut batch, &key::object(copy.oid), &copy.record);
            batch.delete(META, &key::marker(copy.marker));
        }
        // Copies left by a failure are deleted when the volume is opened next.
        let _ = op.commit_aside(&batch);
    }
}

/// The record of a linked file as the operation reads it.
pub(super) fn stored_object(op: &Op<'_>, oid: u64) -> Result<Record> {
    let own = key::object(oid);
    let bytes = op.get(META, &own)?.ok_or_else(|| damaged(&own, "its record is lost"))?;
    match Stored::decode(&own, &bytes)? {
        Stored::Inode(record) => Ok(record),
        Stored::Redirect(_) => Err(damaged(&own, "it is not the record of a file")),
    }
}
