//! Few threads wait for requests at a time, and whoever has to wait for the disk lets another in.
//!
//! A request is answered by the thread that read it: handing it to another costs more than most
//! answers do. And the more threads wait at /dev/fuse, the more often the kernel wakes one whose
//! CPU sleeps. So a thread passes here before it reads; those whose requests turn out to take time
//! step aside, and another takes their place.

use std::cell::RefCell;
use std::sync::Arc;

use betree_sys::{Device, DeviceError};
use parking_lot::{Condvar, Mutex};

thread_local! {
    /// The turnstile behind which this thread is.
    static PASSED: RefCell<Option<Arc<Turnstile>>> = const { RefCell::new(None) };
}

/// How many more may pass.
pub struct Turnstile {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Turnstile {
    /// One that so many threads may pass.
    pub fn new(places: usize) -> Turnstile {
        Turnstile { free: Mutex::new(places), freed: Condvar::new() }
    }

    /// Waits for a place, where the thread has none.
    pub fn pass(self: &Arc<Turnstile>) {
        PASSED.with_borrow_mut(|passed| {
            if passed.is_none() {
                let mut free = self.free.lock();
                self.freed.wait_while(&mut free, |free| *free == 0);
                *free -= 1;
                *passed = Some(Arc::clone(self));
            }
        });
    }
}

/// Gives up the place of this thread, if it has one: what it does next may take time.
pub fn step_aside() {
    if let Some(turnstile) = PASSED.take() {
        *turnstile.free.lock() += 1;
        turnstile.freed.notify_one();
    }
}

/// A device at which threads that answer requests step aside.
pub struct SlowDevice<D>(pub Arc<D>);

impl<D: Device> Device for SlowDevice<D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        step_aside();
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        step_aside();
        self.0.write_at(offset, buf)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        step_aside();
        self.0.sync()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn seeks(&self) -> bool {
        self.0.seeks()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        step_aside();
        self.0.discard(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_steps_aside_lets_another_pass() {
        let turnstile = Arc::new(Turnstile::new(1));
        turnstile.pass();
        turnstile.pass(); // It is behind it already.
        let (passed, was_passed) = mpsc::channel();
        let other = thread::spawn({
            let turnstile = Arc::clone(&turnstile);
            move || {
                turnstile.pass();
                passed.send(()).unwrap();
                step_aside();
            }
        });
        assert!(was_passed.recv_timeout(Duration::from_millis(50)).is_err());
        step_aside();
        was_passed.recv_timeout(Duration::from_secs(10)).unwrap();
        other.join().unwrap();
        step_aside();
        assert_eq!(*turnstile.free.lock(), 1);
    }
}
