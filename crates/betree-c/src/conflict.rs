//! What is known of a conflict, as one buffer.

use std::ptr::{null, null_mut};

use crate::args::Out;
use crate::results::{Slice, allocate};
use crate::status::{Failure, Status};

/// The change of another that a transaction may not pass over.
#[repr(C)]
pub struct Conflict {
    /// The name of the dictionary.
    pub dict: Slice,
    /// The key, or the place where the changed range begins. Its data is NULL if the dictionary itself was
    /// made, renamed or dropped.
    pub key: Slice,
    /// The number of the other change, or of one behind it.
    pub by: u64,
}

/// A place for a conflict, if the caller has one.
pub struct OutConflict(Option<Out<*mut Conflict>>);

impl OutConflict {
    /// # Safety
    /// As [`Out::new`], and it may be NULL.
    pub unsafe fn new(place: *mut *mut Conflict) -> OutConflict {
        // SAFETY: the caller's promise.
        OutConflict(unsafe { Out::new(place, null_mut(), "the place for the conflict") }.ok())
    }

    /// Sets it, and returns it as a failure.
    pub fn set(&self, conflict: &betree_store::Conflict) -> Result<Failure, Failure> {
        let name = &conflict.dict;
        if let Some(out) = &self.0 {
            out.set(copied(name, conflict.key.as_deref(), conflict.by)?);
        }
        let what = match &conflict.key {
            Some(key) => format!("the key \"{}\" of the dictionary {name:?}", key.escape_ascii()),
            None => format!("the dictionary {name:?}"),
        };
        Ok(Failure::new(Status::BetreeConflict, format!("another change of {what} came first")))
    }
}

/// One buffer with the conflict, and then name and key, each with a zero behind.
fn copied(name: &str, key: Option<&[u8]>, by: u64) -> Result<*mut Conflict, Failure> {
    let head = size_of::<Conflict>();
    let buffer = allocate(head + name.len() + 1 + key.map_or(0, |key| key.len() + 1))?;
    // SAFETY: the buffer is new, aligned for anything, and as long as all that is written.
    unsafe {
        let copy = |bytes: &[u8], at: usize| {
            let data = buffer.add(at);
            data.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            data.add(bytes.len()).write(0);
            Slice { data: data.cast(), len: bytes.len() }
        };
        let dict = copy(name.as_bytes(), head);
        let key = key.map_or(Slice { data: null(), len: 0 }, |key| copy(key, head + name.len() + 1));
        let conflict: *mut Conflict = buffer.cast();
        conflict.write(Conflict { dict, key, by });
        Ok(conflict)
    }
}
