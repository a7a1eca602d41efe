//! Several threads on one log.

use std::boxed::Box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use betree_platform::{Device, DeviceError};

use super::*;

type Hook = Box<dyn FnOnce() + Send>;

/// A device that runs a hook in the middle of a sync, and notices two writes or syncs at once.
struct Watched {
    inner: Arc<MemDevice>,
    during_sync: Mutex<Option<Hook>>,
    inside: [AtomicU64; 2],
    overlapped: AtomicU64,
}

impl Watched {
    fn new(inner: Arc<MemDevice>) -> Arc<Watched> {
        let inside = [AtomicU64::new(0), AtomicU64::new(0)];
        let during_sync = Mutex::new(None);
        Arc::new(Watched { inner, during_sync, inside, overlapped: AtomicU64::new(0) })
    }

    fn alone<T>(&self, which: usize, act: impl FnOnce() -> T) -> T {
        if self.inside[which].fetch_add(1, Ordering::SeqCst) > 0 {
            self.overlapped.fetch_add(1, Ordering::SeqCst);
        }
        // Lets the other threads come while this one is inside.
        (0..20).for_each(|_| std::thread::yield_now());
        let result = act();
        self.inside[which].fetch_sub(1, Ordering::SeqCst);
        result
    }
}

impl Device for Watched {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> core::result::Result<(), DeviceError> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> core::result::Result<(), DeviceError> {
        self.alone(0, || self.inner.write_at(offset, buf))
    }

    fn sync(&self) -> core::result::Result<(), DeviceError> {
        self.alone(1, || {
            self.inner.sync()?;
            if let Some(hook) = self.during_sync.lock().unwrap().take() {
                hook();
            }
            Ok(())
        })
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn seeks(&self) -> bool {
        true
    }

    fn discard(&self, offset: u64, len: u64) -> core::result::Result<(), DeviceError> {
        self.inner.discard(offset, len)
    }
}

#[test]
fn a_sync_makes_no_record_durable_that_was_written_after_it_began() {
    let device = Watched::new(device());
    let disk = Arc::new(Disk::new(device.clone()));
    let log = Arc::new(Log::open_at(disk, LOG_AREA, &ID, &START, u64::MAX));
    append(&log, 1);
    let inner = log.clone();
    *device.during_sync.lock().unwrap() = Some(Box::new(move || {
        append(&inner, 2);
        inner.write_out().unwrap();
        append(&inner, 3);
    }));
    assert!(log.sync_to(1).unwrap());
    assert_eq!(log.durable_msn(), 1);
    assert_eq!(msns(&replayed(device.inner.durable_bytes(), &START).1), [1]);
    assert!(log.sync_to(2).unwrap());
    assert_eq!(msns(&replayed(device.inner.durable_bytes(), &START).1), [1, 2, 3]);
}

/// Two threads that come during a sync share the next one, however they are scheduled.
#[test]
fn threads_that_come_during_a_sync_share_the_next() {
    for _ in 0..20 {
        let device = Watched::new(device());
        let disk = Arc::new(Disk::new(device.clone()));
        let log = Arc::new(Log::open_at(disk.clone(), LOG_AREA, &ID, &START, u64::MAX));
        append(&log, 1);
        let inner = log.clone();
        let (send, threads) = mpsc::channel();
        *device.during_sync.lock().unwrap() = Some(Box::new(move || {
            append(&inner, 2);
            append(&inner, 3);
            for msn in [2, 3] {
                let log = inner.clone();
                send.send(std::thread::spawn(move || assert!(log.sync_to(msn).unwrap()))).unwrap();
            }
            (0..100).for_each(|_| std::thread::yield_now());
        }));
        assert!(log.sync_to(1).unwrap());
        let threads: Vec<_> = threads.try_iter().collect();
        assert_eq!(threads.len(), 2, "they begin during the sync");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((disk.counts().writes, disk.counts().syncs, log.durable_msn()), (2, 2, 3));
    }
}

/// Threads append and sync; each record is durable when `sync_to` returns. In the end all records are there
/// in order, and there were not more syncs than calls.
#[test]
fn threads_share_writes_and_syncs() {
    const EACH: u64 = 60;
    let watched = Watched::new(device());
    let device = watched.inner.clone();
    let disk = Arc::new(Disk::new(watched.clone()));
    let log = Log::open_at(disk.clone(), LOG_AREA, &ID, &START, u64::MAX);
    let next = Mutex::new(1);
    let calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (log, next, calls, device) = (&log, &next, &calls, &device);
            scope.spawn(move || {
                for i in 0..EACH {
                    let msn = {
                        let mut next = next.lock().unwrap();
                        append(log, *next);
                        *next += 1;
                        *next - 1
                    };
                    if (i + thread) % 5 == 0 {
                        log.write_out().unwrap();
                    } else {
                        assert!(log.sync_to(msn).unwrap());
                        calls.fetch_add(1, Ordering::Relaxed);
                        assert!(log.durable_msn() >= msn);
                    }
                    // At most half of the log area is in use, by checkpoints that hold every durable record.
                    if log.free_bytes() < log.capacity_bytes() / 2 {
                        let start = log.start_for(log.durable_msn() + 1);
                        log.trim_to(&start);
                        let (_, all) = replayed(device.bytes(), &start);
                        assert!(msns(&all).windows(2).all(|pair| pair[0] + 1 == pair[1]));
                    }
                }
            });
        }
    });
    assert_eq!(watched.overlapped.load(Ordering::SeqCst), 0, "two writes or two syncs at once");
    let start = log.start_for(1);
    assert!(log.sync_to(u64::MAX).unwrap());
    assert_eq!(log.durable_msn(), 4 * EACH);
    let all = msns(&replayed(device.durable_bytes(), &start).1);
    let first = all.first().copied().unwrap_or(4 * EACH + 1);
    assert_eq!(all, (first..=4 * EACH).collect::<Vec<_>>());
    assert!(disk.counts().syncs <= calls.load(Ordering::Relaxed) + 1);
}

/// All threads that wait for a failed sync get its error.
#[test]
fn a_failed_sync_fails_all_waiting_threads() {
    let device = device();
    let (log, _) = open(&device, &START);
    (1..=8).for_each(|msn| append(&log, msn));
    device.fail_syncs(true);
    let failed = std::thread::scope(|scope| {
        let waiters: Vec<_> = (1..=8)
            .map(|msn| {
                scope.spawn({
                    let log = &log;
                    move || log.sync_to(msn).is_err()
                })
            })
            .collect();
        waiters.into_iter().map(|w| w.join().unwrap()).filter(|&failed| failed).count()
    });
    assert_eq!((failed, log.durable_msn()), (8, 0));
}
