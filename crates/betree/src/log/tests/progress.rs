//! How far a replay is.

use std::sync::Mutex;

use super::*;

/// A log of 8 MiB, so that reads of headers are shorter than it.
const AREA: LogArea = LogArea { offset: 2 * BLOCK, len: 2048 * BLOCK };

/// A log with segments of records of these bytes from a position on; returns it with the segments' lengths.
fn written(position: u64, records: &[usize]) -> (Arc<MemDevice>, LogStart, Vec<u64>) {
    let device = MemDevice::new(2048 + 4);
    let start = LogStart { position, ..START };
    let log = Log::open_at(Arc::new(Disk::new(device.clone())), AREA, &ID, &start, u64::MAX);
    for (msn, len) in (1..).zip(records) {
        log.append(msn, 1, &record(&vec![7; *len])).unwrap();
        assert!(log.sync_to(msn).unwrap());
    }
    // With the heads of segment and record.
    let segment_bytes = |len: &usize| (*len as u64 + 80 + 16).next_multiple_of(BLOCK);
    (device, start, records.iter().map(segment_bytes).collect())
}

/// What a replay tells, and its reads and read bytes.
fn told(device: &Arc<MemDevice>, start: &LogStart) -> (Vec<(u64, u64)>, [u64; 2]) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let progress = move |done, all| heard.lock().unwrap().push((done, all));
    let disk = Disk::new(device.clone());
    replay(&disk, AREA, &ID, start, Some(&progress), &mut |_, _, _| Ok(())).unwrap();
    let (told, counts) = (told.lock().unwrap().clone(), disk.counts());
    (told, [counts.reads, counts.read_bytes])
}

/// The reads and read bytes of a replay of which nobody hears.
fn unheard(device: &Arc<MemDevice>, start: &LogStart) -> [u64; 2] {
    let disk = Disk::new(device.clone());
    replay(&disk, AREA, &ID, start, None, &mut |_, _, _| Ok(())).unwrap();
    [disk.counts().reads, disk.counts().read_bytes]
}

#[test]
fn each_segment_is_told_with_the_bytes_of_all() {
    // In one lap, and over the log's end.
    for position in [5 * BLOCK, 2000 * BLOCK] {
        let (device, start, segments) = written(position, &[1, 100_000, 3 * BLOCK as usize, 1 << 20, 200]);
        let all: u64 = segments.iter().sum();
        let mut done = 0;
        let mut right = vec![(0, all)];
        right.extend(segments.iter().map(|segment| {
            done += segment;
            (done, all)
        }));
        assert_eq!(told(&device, &start).0, right, "from {position} on");
    }
    let (device, start, _) = written(0, &[]);
    assert_eq!(told(&device, &start).0, [], "an empty log");
}

#[test]
fn a_torn_segment_is_the_end_of_what_is_told() {
    let (device, start, segments) = written(0, &[1, 100_000, 100_000, 200]);
    device.flip((AREA.offset + segments[0] + segments[1] + 2 * BLOCK) as usize * 8);
    let (all, done) = (segments.iter().sum(), segments[0] + segments[1]);
    assert_eq!(told(&device, &start).0, [(0, all), (segments[0], all), (done, all), (done, done)]);
    // A header that cannot be read ends what is known in advance, and is no other error than without.
    let third = (AREA.offset + done) as usize;
    device.fail_reads_of(third..third + 1);
    let hears = |progress: Option<&ReplayProgress>| {
        replay(&Disk::new(device.clone()), AREA, &ID, &start, progress, &mut |_, _, _| Ok(()))
    };
    assert!(matches!(hears(None), Ok(End { lost: Some(Error::Device(_)), .. })));
    assert_eq!(hears(Some(&move |_, all| assert_eq!(all, done))), hears(None));
}

#[test]
fn only_who_hears_of_it_pays_for_the_headers() {
    const WINDOW: u64 = 64 << 10;
    // Each header needs a read of its own, and one the look at the end.
    let (device, start, segments) = written(0, &[1 << 20; 5]);
    let ([reads, bytes], (_, [heard_reads, heard_bytes])) = (unheard(&device, &start), told(&device, &start));
    assert_eq!((segments.len(), heard_reads - reads), (5, 5 + 1));
    assert_eq!(heard_bytes - bytes, (5 + 1) * WINDOW);
    // Of small ones sixteen stand in a read.
    let (device, start, _) = written(0, &[200; 100]);
    let ([reads, bytes], (_, [heard_reads, heard_bytes])) = (unheard(&device, &start), told(&device, &start));
    assert_eq!(heard_reads - reads, 100 / 16 + 1);
    assert_eq!(heard_bytes - bytes, (100 / 16 + 1) * WINDOW);
}
