use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc;

use betree_std::{FileDevice, StdPlatform};
use betrfs::{FileType, FormatOptions, InodeId, NewNode, OpenOptions};

use super::*;

const LONG: Duration = Duration::from_secs(10);
const FILE: NewNode =
    NewNode { file_type: FileType::Regular, perm: 0o644, uid: 0, gid: 0, rdev: 0, umask: 0 };

fn volume() -> Volume {
    // Its file is gone with the directory, and lasts as long as the device.
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(FileDevice::create(&dir.path().join("volume"), 64 << 20).unwrap());
    let platform = Arc::new(StdPlatform::new());
    Volume::format(device.clone(), &FormatOptions::default(), &*platform).unwrap();
    Volume::open(device, OpenOptions::new(platform)).unwrap()
}

fn silent(_: Step) -> io::Result<()> {
    Ok(())
}

/// Ends the freeze where an assertion fails, so that the failure is told and no thread waits for ever.
struct ThawAtEnd<'f>(&'f Freezer);

impl Drop for ThawAtEnd<'_> {
    fn drop(&mut self) {
        let ThawAtEnd(freezer) = self;
        if thread::panicking() {
            freezer.thaw(None);
        }
    }
}

/// Waits until a condition holds.
fn poll(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "it does not come true");
        thread::yield_now();
    }
}

/// Calls `while_frozen` while another thread freezes the volume for `time`; returns the end of the freeze.
fn frozen(
    freezer: &Freezer,
    volume: &Volume,
    time: Option<Duration>,
    while_frozen: impl FnOnce(u64),
) -> Result<End, FreezeError> {
    thread::scope(|scope| {
        let (stands, stood) = mpsc::channel();
        let freezing = scope.spawn(move || {
            freezer.freeze(volume, time, &mut |step| {
                if let Step::StandsStill(number) = step {
                    stands.send(number).unwrap();
                }
                Ok(())
            })
        });
        let _thawed = ThawAtEnd(freezer);
        while_frozen(stood.recv_timeout(LONG).unwrap());
        freezing.join().unwrap()
    })
}

/// Counts the waits of a thread.
#[derive(Default)]
struct Counted(AtomicU32, AtomicU32);

struct Around(Arc<Counted>);

impl AroundWaits for Around {
    fn begins(&self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }

    fn ends(&self) {
        self.0.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn changes_wait_until_the_thaw_and_what_reads_does_not() {
    let (freezer, volume, counted) = (Freezer::default(), volume(), Arc::new(Counted::default()));
    thread::scope(|scope| {
        let (made, is_made) = mpsc::channel();
        let end = frozen(&freezer, &volume, None, |_| {
            for _ in 0..3 {
                let (freezer, volume, made, around) =
                    (&freezer, &volume, made.clone(), Around(counted.clone()));
                scope.spawn(move || {
                    around_waits(Rc::new(around));
                    drop(freezer.pass(Effect::None));
                    let _passed = freezer.pass(Effect::Change);
                    let name = format!("{:?}", thread::current().id());
                    volume.create(InodeId::ROOT, name.as_bytes(), &FILE).unwrap();
                    made.send(()).unwrap();
                });
            }
            // A thread is counted before it tells that its wait begins.
            poll(|| freezer.waiting() == 3 && counted.0.load(Ordering::Relaxed) == 3);
            let Frozen { since, left, waiting } = freezer.frozen().unwrap();
            assert!(since > 0 && left.is_none() && waiting == 3);
            assert!(is_made.try_recv().is_err());
            // A sync behind changes that wait, waits.
            scope.spawn(|| drop(freezer.pass(Effect::Sync)));
            poll(|| freezer.waiting() == 4);
            drop(freezer.pass(Effect::None));
            assert!(freezer.thaw(None));
            freezer.await_thaw();
            assert!(!volume.env().is_frozen());
        });
        assert_eq!(end.unwrap(), End::Asked);
        (0..3).for_each(|_| is_made.recv_timeout(LONG).unwrap());
    });
    assert_eq!((counted.1.load(Ordering::Relaxed), freezer.waiting(), freezer.frozen()), (3, 0, None));
}

#[test]
fn a_sync_with_nothing_before_it_does_not_wait() {
    let (freezer, volume) = (Freezer::default(), volume());
    let end = frozen(&freezer, &volume, None, |_| {
        drop(freezer.pass(Effect::Sync));
        volume.sync().unwrap();
        assert!(freezer.thaw(None));
    });
    assert_eq!(end.unwrap(), End::Asked);
}

#[test]
fn a_freeze_ends_with_its_time() {
    let (freezer, volume) = (Freezer::default(), volume());
    let end = frozen(&freezer, &volume, Some(Duration::from_millis(20)), |_| ());
    assert_eq!(end.unwrap(), End::Time);
    assert!(!volume.env().is_frozen() && !freezer.thaw(None));
}

/// As soon as its time is over: what asks for the thaw may have copied more than one moment.
#[test]
fn a_thaw_of_a_freeze_whose_time_is_over_is_refused() {
    let (freezer, volume) = (Freezer::default(), volume());
    for _ in 0..20 {
        let end = frozen(&freezer, &volume, Some(Duration::from_millis(1)), |number| {
            poll(|| freezer.frozen().is_none());
            assert!(!freezer.thaw(Some(number)));
        });
        assert_eq!(end.unwrap(), End::Time);
    }
}

#[test]
fn a_second_freeze_is_refused_and_a_thaw_of_another_one_does_nothing() {
    let (freezer, volume) = (Freezer::default(), volume());
    assert!(!freezer.thaw(None));
    for round in 1..=2 {
        let end = frozen(&freezer, &volume, None, |number| {
            assert_eq!(number, round);
            assert!(matches!(freezer.freeze(&volume, None, &mut silent), Err(FreezeError::Busy)));
            assert!(freezer.frozen().is_some());
            assert!(!freezer.thaw(Some(number + 1)) && !freezer.thaw(Some(number - 1)));
            assert!(freezer.thaw(Some(number)));
        });
        assert_eq!(end.unwrap(), End::Asked);
    }
}

#[test]
fn a_client_that_is_gone_and_a_closed_volume_leave_nothing_frozen() {
    let (freezer, volume) = (Freezer::default(), volume());
    for gone_at in [Step::Holds, Step::StandsStill(2)] {
        let gone = freezer.freeze(&volume, None, &mut |step| match step == gone_at {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => Ok(()),
        });
        assert!(matches!(gone, Err(FreezeError::Gone(_))), "{gone:?}");
        assert!(freezer.frozen().is_none() && !volume.env().is_frozen());
        volume.create(InodeId::ROOT, format!("{gone_at:?}").as_bytes(), &FILE).unwrap();
    }
    // A thaw comes before the changes under way have ended.
    thread::scope(|scope| {
        let passed = freezer.pass(Effect::Change);
        let (holds, held) = mpsc::channel();
        let (freezer, volume) = (&freezer, &volume);
        let freezing = scope.spawn(move || {
            freezer.freeze(volume, None, &mut |step| {
                holds.send(step).unwrap();
                Ok(())
            })
        });
        assert_eq!(held.recv_timeout(LONG).unwrap(), Step::Holds);
        assert!(freezer.thaw(None));
        drop(passed);
        assert!(matches!(freezing.join().unwrap(), Err(FreezeError::Thawed)));
    });
    let other = Freezer::default();
    assert!(!other.end_for_good());
    assert!(matches!(other.freeze(&volume, None, &mut silent), Err(FreezeError::Over)));
    volume.close().unwrap();
    let refused = freezer.freeze(&volume, None, &mut silent);
    assert!(matches!(refused, Err(FreezeError::Volume(_))), "{refused:?}");
    drop(freezer.pass(Effect::Change));
}
