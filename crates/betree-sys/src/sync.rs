//! Locks, condition variables and atomics, under one set of names for every home.
//!
//! The interface is parking_lot's: `lock`, `read` and `write` return guards and cannot fail.

#[cfg(all(feature = "std", not(feature = "shuttle")))]
mod chosen {
    pub use core::sync::atomic;
    pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

    /// A condition variable for [`Mutex`].
    #[derive(Default)]
    pub struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// A new one with nobody waiting.
        pub const fn new() -> Self {
            Condvar(parking_lot::Condvar::new())
        }

        /// Gives up the lock, waits to be notified (or wakes without cause), takes the lock again.
        pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(&mut guard);
            guard
        }

        /// Wakes one waiter.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes all waiters.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[cfg(feature = "shuttle")]
mod chosen {
    use std::sync::PoisonError;

    pub use shuttle::sync::atomic;
    pub use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    /// shuttle's mutex with the names of parking_lot's.
    #[derive(Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// An unlocked mutex.
        pub fn new(value: T) -> Self {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        /// Waits for the lock. A holder that panicked has ended the test already.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// The lock, if it is free.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }

        /// The value, when nobody else can hold the lock.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// shuttle's readers-writer lock with the names of parking_lot's.
    #[derive(Default)]
    pub struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// An unlocked one.
        pub fn new(value: T) -> Self {
            RwLock(shuttle::sync::RwLock::new(value))
        }

        /// Waits for a shared lock.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        /// Waits for the exclusive lock.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A condition variable for [`Mutex`].
    #[derive(Default)]
    pub struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        /// A new one with nobody waiting.
        pub fn new() -> Self {
            Condvar(shuttle::sync::Condvar::new())
        }

        /// Gives up the lock, waits to be notified, takes the lock again.
        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
        }

        /// Wakes one waiter.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes all waiters.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[cfg(not(any(feature = "std", feature = "shuttle")))]
mod chosen {
    use core::sync::atomic::{AtomicU32, Ordering};

    pub use core::sync::atomic;
    pub use spin::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

    /// A condition variable that spins: a home without threads never waits on one.
    #[derive(Default)]
    pub struct Condvar(AtomicU32);

    impl Condvar {
        /// A new one with nobody waiting.
        pub const fn new() -> Self {
            Condvar(AtomicU32::new(0))
        }

        /// Gives up the lock, spins until notified, takes the lock again.
        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T>
        where
            T: 'a,
        {
            // The guard keeps its mutex to itself, so the lock cannot be let go and taken again
            // here. Without threads nobody else could notify: a wake without cause is allowed.
            let _ = self.0.load(Ordering::Acquire);
            guard
        }

        /// Wakes one waiter.
        pub fn notify_one(&self) {
            self.0.fetch_add(1, Ordering::Release);
        }

        /// Wakes all waiters.
        pub fn notify_all(&self) {
            self.0.fetch_add(1, Ordering::Release);
        }
    }
}

pub use chosen::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};
