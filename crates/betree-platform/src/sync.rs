//! Locks, condition variables and atomics, under one set of names for every platform.
//!
//! The interface is parking_lot's: `lock`, `read` and `write` return guards and cannot fail. With `std`, a
//! thread can set a hook that runs before each of its waits.

#[cfg(all(feature = "std", not(feature = "shuttle")))]
mod chosen {
    use core::cell::Cell;

    pub use core::sync::atomic;
    pub use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    std::thread_local! {
        static BEFORE_WAITING: Cell<fn()> = const { Cell::new(|| {}) };
    }

    /// Sets a hook that this thread calls before each wait for a held lock or for a condition, to give up
    /// resources that others need meanwhile. The hook must not wait for anything that the thread may hold.
    pub fn before_waiting(hook: fn()) {
        BEFORE_WAITING.set(hook);
    }

    #[cold]
    fn wait_begins() {
        // A thread whose thread-locals are being destroyed has no hook any more.
        if let Ok(hook) = BEFORE_WAITING.try_with(Cell::get) {
            hook();
        }
    }

    /// parking_lot's mutex, with the hook before waits.
    #[derive(Default)]
    pub struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        /// An unlocked mutex.
        pub const fn new(value: T) -> Self {
            Mutex(parking_lot::Mutex::new(value))
        }

        /// Waits for the lock.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.try_lock().unwrap_or_else(|| {
                wait_begins();
                self.0.lock()
            })
        }

        /// The lock, if it is free.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock()
        }

        /// The value: `&mut` shows that the lock is free.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
    }

    /// parking_lot's readers-writer lock, with the hook before waits.
    #[derive(Default)]
    pub struct RwLock<T>(parking_lot::RwLock<T>);

    impl<T> RwLock<T> {
        /// An unlocked lock.
        pub const fn new(value: T) -> Self {
            RwLock(parking_lot::RwLock::new(value))
        }

        /// Waits for a shared lock.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.try_read().unwrap_or_else(|| {
                wait_begins();
                self.0.read()
            })
        }

        /// Waits for the exclusive lock.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.try_write().unwrap_or_else(|| {
                wait_begins();
                self.0.write()
            })
        }
    }

    /// A condition variable for [`Mutex`].
    #[derive(Default)]
    pub struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// A condition variable without waiters.
        pub const fn new() -> Self {
            Condvar(parking_lot::Condvar::new())
        }

        /// Releases the lock, waits to be notified (or wakes without cause), and takes the lock again.
        pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            wait_begins();
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

    #[cfg(test)]
    mod tests {
        use std::sync::mpsc::{self, Receiver, Sender};
        use std::thread;
        use std::time::Duration;

        use super::*;

        const LONG: Duration = Duration::from_secs(10);

        std::thread_local! {
            static SAYS: Cell<Option<Sender<()>>> = const { Cell::new(None) };
        }

        /// Does `work` with a hook that reports the first wait.
        fn saying<T>(says: Sender<()>, work: impl FnOnce() -> T) -> T {
            SAYS.set(Some(says));
            before_waiting(|| SAYS.take().map_or((), |says| says.send(()).unwrap()));
            let done = work();
            SAYS.take();
            done
        }

        /// Does `work` in another thread while this one holds a lock that it needs. Returns whether the
        /// thread reported its wait.
        fn says_that_it_waits<G>(held: G, work: impl FnOnce() + Send) -> bool {
            let (says, said): (_, Receiver<()>) = mpsc::channel();
            thread::scope(|scope| {
                scope.spawn(move || saying(says, work));
                let waits = said.recv_timeout(LONG).is_ok();
                drop(held);
                waits
            })
        }

        #[test]
        fn a_held_lock_calls_the_hook_before_the_wait() {
            let (mutex, shared) = (Mutex::new(()), RwLock::new(()));
            assert!(says_that_it_waits(mutex.lock(), || drop(mutex.lock())));
            assert!(says_that_it_waits(shared.write(), || drop(shared.read())));
            assert!(says_that_it_waits(shared.read(), || drop(shared.write())));
        }

        #[test]
        fn a_free_lock_does_not_call_the_hook() {
            let (mutex, shared) = (Mutex::new(()), RwLock::new(()));
            let work = || {
                drop(mutex.lock());
                drop(shared.write());
                drop(shared.read());
            };
            assert!(!says_that_it_waits((), work));
            assert!(!says_that_it_waits(shared.read(), || drop(shared.read())));
        }

        #[test]
        fn a_wait_for_a_condition_calls_the_hook() {
            let (ready, changed) = (Mutex::new(false), Condvar::new());
            let (says, said) = mpsc::channel();
            thread::scope(|scope| {
                scope.spawn(|| {
                    saying(says, || {
                        let mut ready = ready.lock();
                        while !*ready {
                            ready = changed.wait(ready);
                        }
                    });
                });
                let waits = said.recv_timeout(LONG).is_ok();
                // Also where it does not say so: the scope waits for it.
                *ready.lock() = true;
                changed.notify_all();
                assert!(waits);
            });
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

        /// The value: `&mut` shows that the lock is free.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// shuttle's readers-writer lock with the names of parking_lot's.
    #[derive(Default)]
    pub struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// An unlocked lock.
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
        /// A condition variable without waiters.
        pub fn new() -> Self {
            Condvar(shuttle::sync::Condvar::new())
        }

        /// Releases the lock, waits to be notified, and takes the lock again.
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

    /// A condition variable without waiting: a platform without threads never needs to wait on one.
    #[derive(Default)]
    pub struct Condvar(AtomicU32);

    impl Condvar {
        /// A condition variable without waiters.
        pub const fn new() -> Self {
            Condvar(AtomicU32::new(0))
        }

        /// Returns at once: a wake without cause.
        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T>
        where
            T: 'a,
        {
            // The guard hides its mutex, so the lock cannot be released and taken again here. Without threads
            // nothing else could notify, and a wake without cause is allowed.
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

#[cfg(all(feature = "std", not(feature = "shuttle")))]
pub use chosen::before_waiting;
pub use chosen::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};
