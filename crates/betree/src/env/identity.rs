//! The volume's identity and geometry, and the changes of its label and UUID.

use super::Env;
use crate::error::Result;
use crate::format::superblock::Identity;
use crate::settings::Geometry;
use uuid::Uuid;

impl Env {
    /// The volume's identity.
    pub fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }

    /// The parameters with which the volume was made.
    pub fn geometry(&self) -> Geometry {
        self.engine.geometry
    }

    /// Gives the volume another label. It is durable when this returns.
    ///
    /// # Errors
    /// [`Error::BadIdentity`](crate::Error::BadIdentity) for a label that no volume can have, and those of
    /// [`checkpoint`](Env::checkpoint); the label stays as it was.
    pub fn set_label(&self, label: &str) -> Result<()> {
        Identity::check_label(label)?;
        self.change_identity(|identity| identity.label = label.into())
    }

    /// Gives the volume another UUID. It is durable when this returns.
    ///
    /// # Errors
    /// Those of [`checkpoint`](Env::checkpoint); the UUID stays as it was.
    pub fn set_uuid(&self, uuid: Uuid) -> Result<()> {
        self.change_identity(|identity| identity.uuid = uuid)
    }

    fn change_identity(&self, change: impl FnOnce(&mut Identity)) -> Result<()> {
        self.refuse_if_forked()?;
        let mut committed = self.checkpoint.lock();
        self.writable_now()?;
        change(&mut self.identity.lock());
        let done = self.checkpoint_as(false, &mut committed);
        if done.is_err() {
            self.identity.lock().clone_from(&committed.superblock.identity);
        }
        done
    }
}
