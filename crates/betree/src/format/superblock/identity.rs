//! The identity of a volume, and the upsert functions of its dictionaries.

use alloc::string::String;

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::upsert::Upsert;

/// The longest label in bytes.
pub const LABEL_BYTES_MAX: usize = 255;
/// The longest name of the version that made a volume, in bytes.
pub(crate) const MADE_BY_BYTES_MAX: usize = 31;
/// The longest name of an upsert function in bytes.
pub(crate) const UPSERT_NAME_BYTES_MAX: usize = 27;

/// The identity of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The id in its log and its nodes: random, and never changed.
    pub volume_id: [u8; 16],
    /// The system's name for it (RFC 9562).
    pub uuid: Uuid,
    /// The owner's name for it: see [`check_label`](Identity::check_label).
    pub label: String,
    /// When it was made, in nanoseconds since 1970-01-01 00:00 UTC; 0 if unknown.
    pub made_ns: i64,
    /// The program that made it, with its version, in at most 31 bytes.
    pub made_by: String,
}

impl Identity {
    /// The identity of a new volume without a label, from 16 random bytes each for id and UUID.
    pub fn new(volume_id: [u8; 16], uuid: [u8; 16]) -> Identity {
        Identity {
            volume_id,
            uuid: uuid::Builder::from_random_bytes(uuid).into_uuid(),
            label: String::new(),
            made_ns: 0,
            made_by: concat!("betree ", env!("CARGO_PKG_VERSION")).into(),
        }
    }

    /// Refuses a text that cannot be a label: more than 255 bytes, or control characters.
    ///
    /// # Errors
    /// [`Error::BadIdentity`].
    pub fn check_label(label: &str) -> Result<()> {
        if label.len() > LABEL_BYTES_MAX {
            return Err(Error::BadIdentity("a label has at most 255 bytes"));
        }
        if label.chars().any(char::is_control) {
            return Err(Error::BadIdentity("a label has no control characters"));
        }
        Ok(())
    }

    /// Refuses an identity that cannot be stored.
    ///
    /// # Errors
    /// [`Error::BadIdentity`].
    pub(crate) fn validate(&self) -> Result<()> {
        if self.made_by.len() > MADE_BY_BYTES_MAX {
            return Err(Error::BadIdentity("the program that makes a volume has a name of at most 31 bytes"));
        }
        Identity::check_label(&self.label)
    }
}

/// For volumes of tests and embedders: id and UUID from the same bytes.
impl From<[u8; 16]> for Identity {
    fn from(volume_id: [u8; 16]) -> Identity {
        Identity::new(volume_id, volume_id)
    }
}

/// The upsert function of a dictionary. Without a name, none was used yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpsertId {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: u32,
}

impl UpsertId {
    /// The id of a function.
    ///
    /// # Errors
    /// [`Error::BadIdentity`] for a name that cannot be stored.
    pub(crate) fn of(upsert: &dyn Upsert) -> Result<UpsertId> {
        let name = String::from(upsert.name());
        if name.is_empty() || name.len() > UPSERT_NAME_BYTES_MAX {
            return Err(Error::BadIdentity("the name of an upsert function has between 1 and 27 bytes"));
        }
        Ok(UpsertId { name, version: upsert.version() })
    }
}

impl core::fmt::Display for UpsertId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "`{}` version {}", self.name, self.version)
    }
}
