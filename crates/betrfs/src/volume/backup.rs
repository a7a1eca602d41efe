//! A copy of the whole volume while it is used.

use betree::Backup;

use crate::error::Result;
use crate::volume::Volume;

impl Volume {
    /// Begins a backup of this moment, with a checkpoint: what was changed before is in it, and nothing that
    /// is changed later. An operation of several batches that is under way is in it as after a crash, and the
    /// copy's first opening finishes or undoes it.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// volume.create_with(InodeId::ROOT, b"file", &new_file, b"text")?;
    /// let mut backup = volume.backup()?;
    /// let mut copy = vec![0; backup.volume_bytes() as usize];
    /// while let Some((offset, bytes)) = backup.next_piece()? {
    ///     let offset = offset as usize;
    ///     copy[offset..offset + bytes.len()].copy_from_slice(bytes);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Env::backup`](betree::Env::backup).
    pub fn backup(&self) -> Result<Backup> {
        self.put_access_times();
        Ok(self.env.backup()?)
    }
}
