//! Blocks of the log that the device does not read.

use super::*;

#[test]
fn an_unreadable_segment_is_a_loss_and_not_the_end() {
    let device = five_segments();
    let disk = Disk::new(device.clone());
    let at = |segment: u64| (LOG_AREA.offset + segment * BLOCK) as usize;
    let mut seen = 0;
    device.fail_reads_of(at(9)..at(10));
    let mut each = |_, _, _: &[u8]| -> Result<()> {
        seen += 1;
        Ok(())
    };
    replay(&disk, LOG_AREA, &ID, &START, None, &mut each).unwrap();
    device.fail_reads_of(at(3)..at(4));
    let end = replay(&disk, LOG_AREA, &ID, &START, None, &mut each).unwrap();
    assert!(matches!(end.lost, Some(Error::Device(error)) if error.offset == at(3) as u64));
    assert_eq!((seen, end.next.position), (5 + 3, 3 * BLOCK));
    // The error of a caller's own read is not one of the log.
    let mut reads = |_, _, _: &[u8]| disk.read_at(at(3) as u64, &mut [0; BLOCK as usize]);
    assert!(matches!(replay(&disk, LOG_AREA, &ID, &START, None, &mut reads), Err(Error::Device(_))));
    let mut fails = |_, _, _: &[u8]| -> Result<()> { Err(Error::NoSpace) };
    assert_eq!(replay(&disk, LOG_AREA, &ID, &START, None, &mut fails), Err(Error::NoSpace));
    // A malformed record is the end, and reported with its place.
    let mut fails = |_, _, _: &[u8]| -> Result<()> { Err(Error::BadRecord) };
    let end = replay(&disk, LOG_AREA, &ID, &START, None, &mut fails).unwrap();
    let is_first = |offset: u64| offset == LOG_AREA.offset;
    assert!(matches!(end.lost, Some(Error::Corrupt { what: "log segment", offset, .. }) if is_first(offset)));
    assert_eq!(end.records, 0);
}

/// The log goes on at its first block only where a segment may not fit before the end of its area.
#[test]
fn the_first_block_is_read_only_where_the_log_may_go_on_there() {
    let device = five_segments();
    let first = LOG_AREA.offset as usize;
    device.fail_reads_of(first..first + 1);
    let disk = Disk::new(device);
    let replayed = |position: u64| {
        let from = LogStart { seq: START.seq + position / BLOCK, position, ..START };
        replay(&disk, LOG_AREA, &ID, &from, None, &mut |_, _, _| Ok(())).unwrap()
    };
    let end = replayed(2 * BLOCK);
    assert_eq!((end.segments, end.lost), (3, None));
    // A quarter of the area is the longest segment.
    assert_eq!(replayed(24 * BLOCK).lost, None);
    assert!(matches!(replayed(25 * BLOCK).lost, Some(Error::Device(_))));
}
