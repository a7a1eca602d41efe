//! Which volume it is, and what its dictionaries need to be understood.

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

/// Which volume it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What its log and its nodes carry: random, and never changed.
    pub volume_id: [u8; 16],
    /// What the system calls it by (RFC 9562).
    pub uuid: Uuid,
    /// What its owner calls it: see [`check_label`](Identity::check_label).
    pub label: String,
    /// When it was made: nanoseconds since 1970-01-01 00:00 UTC; 0 where nobody knows.
    pub made_ns: i64,
    /// The program that made it, with its version, in at most 31 bytes.
    pub made_by: String,
}

impl Identity {
    /// That of a new volume without a label, from 16 random bytes for each of its two names.
    pub fn new(volume_id: [u8; 16], uuid: [u8; 16]) -> Identity {
        Identity {
            volume_id,
            uuid: uuid::Builder::from_random_bytes(uuid).into_uuid(),
            label: String::new(),
            made_ns: 0,
            made_by: concat!("betree ", env!("CARGO_PKG_VERSION")).into(),
        }
    }

    /// Whether a text can be a label: at most 255 bytes, none of them of a control character.
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

    /// Whether all of it can be stored.
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

/// Of volumes that only tests and embedders know: the two names are one.
impl From<[u8; 16]> for Identity {
    fn from(volume_id: [u8; 16]) -> Identity {
        Identity::new(volume_id, volume_id)
    }
}

/// Which upsert function a dictionary's upserts are for. Without a name: none has been used yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpsertId {
    pub name: String,
    pub version: u32,
}

impl UpsertId {
    /// That of a function.
    ///
    /// # Errors
    /// [`Error::BadIdentity`] for a name that cannot be stored.
    pub fn of(upsert: &dyn Upsert) -> Result<UpsertId> {
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
