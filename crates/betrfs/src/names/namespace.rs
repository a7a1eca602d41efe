//! The lock of the namespace as tokens.
//!
//! Every operation that makes a key holds the namespace, shared, until its batch is committed or its query
//! answered; what moves keys holds it exclusively. A function that may be called only so takes the token as
//! an argument: a call without the lock does not compile.

use betree_platform::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock of the namespace.
#[derive(Default)]
pub(crate) struct Namespace(RwLock<()>);

/// The namespace is held, shared with others.
pub(crate) struct Shared<'n> {
    _guard: RwLockReadGuard<'n, ()>,
}

/// The namespace is held, and nobody else is in it.
pub(crate) struct Exclusive<'n> {
    _guard: RwLockWriteGuard<'n, ()>,
}

/// The namespace is held, in either way.
pub(crate) trait InNamespace {}

impl InNamespace for Shared<'_> {}
impl InNamespace for Exclusive<'_> {}

impl Namespace {
    /// Takes the namespace together with others.
    pub fn shared(&self) -> Shared<'_> {
        Shared { _guard: self.0.read() }
    }

    /// Takes the namespace alone. Operations do it by `Volume::exclusive`, which finds before what they will
    /// ask for.
    pub fn exclusive(&self) -> Exclusive<'_> {
        Exclusive { _guard: self.0.write() }
    }
}
