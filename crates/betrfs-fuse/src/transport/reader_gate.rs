//! The reader gate: few threads wait for requests at a time, and a thread that must wait for something else
//! lets another in.
//!
//! A request is answered by the thread that read it: handing it to another costs more than most answers do.
//! And the more threads wait at /dev/fuse, the more often the kernel wakes one whose CPU sleeps. So a thread
//! passes the gate before it reads, and leaves it, for another to pass, before it may take time: before it
//! uses the disk ([`SlowDevice`]), and before it waits for room, a lock or other threads
//! ([`leave_gate_where_it_waits`]).

use std::cell::RefCell;
use std::sync::Arc;

use betree_platform::sync::before_waiting;
use betree_platform::{Device, DeviceError, Read};
use parking_lot::{Condvar, Mutex};

thread_local! {
    /// The gate that this thread has passed.
    static PASSED: RefCell<Option<Arc<ReaderGate>>> = const { RefCell::new(None) };
}

/// A gate with a fixed number of places.
pub struct ReaderGate {
    free: Mutex<usize>,
    freed: Condvar,
}

impl ReaderGate {
    /// A gate with this number of places.
    pub fn new(places: usize) -> ReaderGate {
        ReaderGate { free: Mutex::new(places), freed: Condvar::new() }
    }

    /// Takes a place, unless the thread has one; waits until one is free.
    pub fn pass(self: &Arc<ReaderGate>) {
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

/// Gives up this thread's place, if it has one, before a step that may take time.
pub fn leave_gate() {
    if let Some(reader_gate) = PASSED.take() {
        *reader_gate.free.lock() += 1;
        reader_gate.freed.notify_one();
    }
}

/// Has this thread leave the gate whenever it waits in the library or the engine.
pub fn leave_gate_where_it_waits() {
    before_waiting(leave_gate);
}

/// A device whose callers leave the gate.
pub struct SlowDevice<D>(pub Arc<D>);

impl<D: Device> Device for SlowDevice<D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        leave_gate();
        self.0.read_at(offset, buf)
    }

    fn read_many(&self, reads: &mut [Read<'_>]) {
        leave_gate();
        self.0.read_many(reads);
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        leave_gate();
        self.0.write_at(offset, buf)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        leave_gate();
        self.0.sync()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn len_in_bytes(&self) -> u64 {
        self.0.len_in_bytes()
    }

    fn grow(&self, len: u64) -> Result<u64, DeviceError> {
        leave_gate();
        self.0.grow(len)
    }

    fn is_sparse(&self) -> bool {
        self.0.is_sparse()
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        leave_gate();
        self.0.allocate(offset, len)
    }

    fn is_open_ended(&self) -> bool {
        self.0.is_open_ended()
    }

    fn contents_len(&self) -> u64 {
        self.0.contents_len()
    }

    fn open_end(&self, len: u64) {
        self.0.open_end(len);
    }

    fn next_allocated(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        self.0.next_allocated(offset, len)
    }

    fn forked_from(&self) -> Option<u32> {
        self.0.forked_from()
    }

    fn seeks(&self) -> bool {
        self.0.seeks()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        leave_gate();
        self.0.discard(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::thread;
    use std::time::Duration;

    use betree::{Batch, DictId, Env, Geometry, Options, Replace};

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn a_thread_that_leaves_lets_another_pass() {
        let reader_gate = Arc::new(ReaderGate::new(1));
        reader_gate.pass();
        reader_gate.pass(); // Has a place already.
        let (passed, was_passed) = mpsc::channel();
        let other = thread::spawn({
            let reader_gate = Arc::clone(&reader_gate);
            move || {
                reader_gate.pass();
                passed.send(()).unwrap();
                leave_gate();
            }
        });
        assert!(was_passed.recv_timeout(Duration::from_millis(50)).is_err());
        leave_gate();
        was_passed.recv_timeout(Duration::from_secs(10)).unwrap();
        other.join().unwrap();
        leave_gate();
        assert_eq!(*reader_gate.free.lock(), 1);
    }

    /// Ends the threads of an environment when it is dropped.
    struct Stop<'e>(&'e Env);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.stop();
        }
    }

    /// A disk in memory whose next write can be made to wait.
    struct Stopping {
        bytes: Mutex<Vec<u8>>,
        stop: Mutex<Option<Receiver<()>>>,
        stopped: Sender<()>,
    }

    impl Device for Stopping {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
            let at = offset as usize;
            buf.copy_from_slice(&self.bytes.lock()[at..at + buf.len()]);
            Ok(())
        }

        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
            if let Some(stop) = &*self.stop.lock() {
                self.stopped.send(()).unwrap();
                // Until the other end is dropped.
                let _ = stop.recv();
            }
            let at = offset as usize;
            self.bytes.lock()[at..at + buf.len()].copy_from_slice(buf);
            Ok(())
        }

        fn sync(&self) -> Result<(), DeviceError> {
            Ok(())
        }

        fn len(&self) -> u64 {
            self.bytes.lock().len() as u64
        }

        fn seeks(&self) -> bool {
            true
        }

        fn discard(&self, _offset: u64, _len: u64) -> Result<(), DeviceError> {
            Ok(())
        }
    }

    #[test]
    fn a_thread_that_waits_for_room_in_the_engine_lets_another_pass() {
        let (stopped, was_stopped) = mpsc::channel();
        let bytes = Mutex::new(vec![0; 16 << 20]);
        let device = Arc::new(Stopping { bytes, stop: Mutex::new(None), stopped });
        let geometry = Geometry::for_volume(device.len(), 1);
        Env::format(device.clone(), &geometry, [1; 16]).unwrap();
        let env = Env::open(device.clone(), Options::new(256 << 10, Arc::new(Replace))).unwrap();
        // The disk stops in the middle of a checkpoint, so no room is made.
        let (go_on, may_go_on) = mpsc::channel();
        let put = |number: u32| {
            let mut batch = Batch::new();
            batch.put(DictId(0), &number.to_be_bytes(), &[number as u8; 4000]);
            env.commit(&batch).unwrap();
        };
        put(0);
        *device.stop.lock() = Some(may_go_on);
        thread::scope(|scope| {
            // Both also end where this fails: the scope waits for those who wait for them.
            let (go_on, stop) = (go_on, Stop(&env));
            scope.spawn(|| env.run_worker());
            scope.spawn(|| env.checkpoint().unwrap());
            was_stopped.recv_timeout(LONG).unwrap();
            let reader_gate = Arc::new(ReaderGate::new(1));
            let (passed, was_passed) = mpsc::channel();
            for writer in 1..=2 {
                let (reader_gate, passed, put) = (Arc::clone(&reader_gate), passed.clone(), &put);
                scope.spawn(move || {
                    leave_gate_where_it_waits();
                    reader_gate.pass();
                    passed.send(()).unwrap();
                    (0..500).for_each(|number| put(writer << 16 | number));
                    leave_gate();
                });
            }
            let seen = [(); 2].map(|()| was_passed.recv_timeout(LONG).is_ok());
            drop((go_on, stop));
            assert_eq!(seen, [true; 2], "the second comes in while the first waits for room");
        });
    }
}
