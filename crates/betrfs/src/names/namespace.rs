//! The namespace's lock as tokens.
//!
//! Every operation that makes a key holds the namespace, shared, until its batch is committed or its query
//! answered; one that moves keys holds it exclusively. A function that requires the lock takes the token as
//! an argument: a call without the lock does not compile.

use betree_platform::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock of the namespace.
#[derive(Default)]
pub(crate) struct Namespace(RwLock<()>);

/// The namespace is held, shared with others.
pub(crate) struct Shared<'n> {
    _guard: RwLockReadGuard<'n, ()>,
}

/// The namespace is held by this operation alone.
pub(crate) struct Exclusive<'n> {
    _guard: RwLockWriteGuard<'n, ()>,
}

/// The namespace is held, shared or alone.
pub(crate) trait InNamespace {}

impl InNamespace for Shared<'_> {}
impl InNamespace for Exclusive<'_> {}

impl Namespace {
    /// Takes the namespace together with others.
    pub fn shared(&self) -> Shared<'_> {
        Shared { _guard: self.0.read() }
    }

    /// Takes the namespace alone. Operations call `Volume::exclusive`, which first finds what they will need.
    pub fn exclusive(&self) -> Exclusive<'_> {
        Exclusive { _guard: self.0.write() }
    }
}
