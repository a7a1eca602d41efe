//! Mistakes that can be switched on, so that tests can show that they would be noticed.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The superblock is written before what it points to is durable.
    MissingSyncBeforeSuperblock,
    /// What the last checkpoint names is given away while it is still the one to recover from.
    ExtentReusedOneCheckpointEarly,
}

#[cfg(feature = "planted-bugs")]
mod switch {
    use core::sync::atomic::{AtomicU8, Ordering};

    use super::Bug;

    static PLANTED: AtomicU8 = AtomicU8::new(0);

    /// Switches one mistake on for the whole program, or all off.
    pub fn set(bug: Option<Bug>) {
        PLANTED.store(bug.map_or(0, |b| b as u8 + 1), Ordering::SeqCst);
    }

    pub(crate) fn is(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) == bug as u8 + 1
    }
}

#[cfg(feature = "planted-bugs")]
pub(crate) use switch::is;
#[cfg(feature = "planted-bugs")]
pub use switch::set;

/// No mistake is planted in an ordinary build.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn is(_: Bug) -> bool {
    false
}
