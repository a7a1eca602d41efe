use seeded::Rng;

use super::*;

const GIB: u64 = 1 << 30;
const BLOCK: u64 = 4096;

fn megabytes_per_s(bytes: u64, ns: Nanos) -> f64 {
    bytes as f64 * 1e3 / ns as f64
}

#[test]
fn random_reads_come_at_about_150_a_second() {
    let mut model = Model::default();
    let (mut now, mut rng) = (0, Rng::new(1));
    let count = 2000;
    for _ in 0..count {
        let at = rng.below_u64(4 * GIB / BLOCK) * BLOCK;
        // The host takes a little time to ask for the next one.
        now = model.read(now, &(at..at + BLOCK)) + 200_000;
    }
    let per_second = f64::from(count) * 1e9 / now as f64;
    assert!((135.0..165.0).contains(&per_second), "{per_second}");
}

#[test]
fn sequential_reads_come_at_the_rate_of_the_media() {
    let mut model = Model::default();
    let piece = 128 << 10;
    let first = model.read(0, &(0..piece));
    let mut now = first;
    for number in 1..2000 {
        let range = number * piece..(number + 1) * piece;
        now = model.read(now, &range);
    }
    let rate = megabytes_per_s(1999 * piece, now - first);
    assert!((110.0..150.0).contains(&rate), "{rate}");
    assert_eq!(model.counters().seeks, 0);
}

#[test]
fn pauses_between_sequential_reads_cost_nothing_as_the_drive_reads_ahead() {
    let mut model = Model::default();
    let now = model.read(0, &(0..BLOCK));
    // With a little for rounding.
    let later = now + media_ns(8 * BLOCK) + 10;
    assert_eq!(model.read_from_memory(later, &(BLOCK..9 * BLOCK)), Some(later + interface_ns(8 * BLOCK)));
    // Data that is not in the cache yet passes under the head in time.
    let next = 9 * BLOCK..10 * BLOCK;
    assert_eq!(model.read_from_memory(later, &next), None);
    assert!(model.read(later, &next).abs_diff(later + media_ns(BLOCK)) < 100);
    // A write-back without dirty data does not interrupt it.
    assert_eq!(model.destage(later), None);
    // It stops reading ahead at a limit after the last request.
    let last = later + media_ns(20 * BLOCK);
    assert!(model.read_from_memory(last, &(10 * BLOCK..20 * BLOCK)).is_some());
    let end = 20 * BLOCK + READ_AHEAD_BYTES;
    let much_later = later + 1_000_000_000;
    assert!(model.read_from_memory(much_later, &(end - BLOCK..end)).is_some());
    assert_eq!(model.read_from_memory(much_later, &(end..end + BLOCK)), None);
}

#[test]
fn data_that_passes_while_the_head_waits_for_its_sector_is_kept() {
    let mut model = Model::default();
    let at = GIB;
    // So that the head arrives half a turn early.
    let arrives = seek_ns(at);
    let half = ROTATION_NS / 2;
    let now = (media_ns(at % TRACK_BYTES) + 100 * ROTATION_NS - arrives - half) % ROTATION_NS + ROTATION_NS;
    let done = model.read(now, &(at..at + BLOCK));
    assert!((done - now).abs_diff(arrives + half + media_ns(BLOCK)) < 1000, "{}", done - now);
    let passed = TRACK_BYTES / 2 - BLOCK;
    assert!(model.read_from_memory(done, &(at - passed..at)).is_some());
    assert!(model.read_from_memory(done, &(at - passed - 2 * BLOCK..at)).is_none());
}

#[test]
fn the_cache_forgets_the_oldest_segment() {
    let mut model = Model::default();
    let mut now = 0;
    for number in 0..=SEGMENTS as u64 {
        let at = (number + 1) * GIB;
        now = model.read(now, &(at..at + BLOCK));
    }
    assert!(model.read_from_memory(now, &(GIB..GIB + BLOCK)).is_none());
    assert!(model.read_from_memory(now, &(2 * GIB..2 * GIB + BLOCK)).is_some());
}

#[test]
fn a_write_is_answered_by_the_cache_and_read_from_it_until_it_is_full() {
    let mut model = Model::default();
    let at = 5 * GIB;
    assert_eq!(model.write(7, &(at..at + BLOCK)), Some(7 + interface_ns(BLOCK)));
    assert!(model.read_from_memory(8, &(at..at + BLOCK)).is_some());
    let mut taken = BLOCK;
    for number in 1.. {
        let at = at + number * 10 * BLOCK;
        if model.write(8, &(at..at + BLOCK)).is_none() {
            break;
        }
        taken += BLOCK;
    }
    assert_eq!((taken, model.dirty_bytes()), (DIRTY_BYTES_MAX, DIRTY_BYTES_MAX));
    assert_eq!(model.counters().write_bytes, taken);
    let done = model.destage(10).unwrap();
    assert_eq!(model.dirty_bytes(), DIRTY_BYTES_MAX - BLOCK);
    assert!(model.write(done, &(0..BLOCK)).is_some());
}

#[test]
fn writes_that_touch_or_overlap_are_one() {
    let mut model = Model::default();
    for (from, to) in [(10, 20), (30, 40), (20, 30), (15, 35), (5, 10), (50, 60)] {
        assert!(model.write(0, &(from * BLOCK..to * BLOCK)).is_some());
    }
    assert_eq!(model.dirty_bytes(), 45 * BLOCK);
    let mut written = 0;
    let mut now = 0;
    while let Some(done) = model.destage(now) {
        now = done;
        written += 1;
    }
    assert_eq!((written, model.dirty_bytes()), (2, 0));
}

#[test]
fn emptying_the_write_cache_goes_upwards_and_so_costs_less_than_writing_each() {
    let mut rng = Rng::new(2);
    let places: Vec<u64> = (0..1000).map(|_| rng.below_u64(4 * GIB / BLOCK) * BLOCK).collect();
    let mut together = Model::default();
    for at in &places {
        together.write(0, &(*at..*at + BLOCK)).unwrap();
    }
    let mut now = 0;
    while let Some(done) = together.destage(now) {
        now = done;
    }
    let mut alone = Model::default();
    let mut each = 0;
    for at in &places {
        alone.write(each, &(*at..*at + BLOCK)).unwrap();
        each = alone.destage(each).unwrap();
    }
    assert!(now < each * 9 / 10, "{now} {each}");
}

#[test]
fn a_long_run_is_written_at_the_rate_of_the_media() {
    let mut model = Model::default();
    let bytes = DIRTY_BYTES_MAX;
    model.write(0, &(0..bytes)).unwrap();
    let first = model.destage(0).unwrap();
    let mut now = first;
    while let Some(done) = model.destage(now) {
        now = done;
    }
    let rate = megabytes_per_s(bytes - DESTAGE_BYTES, now - first);
    assert!((110.0..150.0).contains(&rate), "{rate}");
}

#[test]
fn far_seeks_take_longer_than_near_ones() {
    assert!(seek_ns(TRACK_BYTES * 2) < 1_100_000);
    assert!((8_000_000..9_000_000).contains(&seek_ns(CAPACITY_BYTES / 3)));
}

#[test]
fn in_fast_forward_only_seeks_of_reads_take_time() {
    let mut model = Model::default();
    model.set_fast_forward(0, true);
    let at = 5 * GIB;
    let there = model.read(0, &(at..at + BLOCK));
    assert_eq!(there, FAST_FORWARD_SEEK_NS);
    assert_eq!(model.read(there, &(at + BLOCK..at + 100 * BLOCK)), there);
    model.write(there, &(0..BLOCK)).unwrap();
    assert_eq!(model.destage(there), Some(there));
    // It does not read ahead: the following data is in no segment.
    assert_eq!(model.read_from_memory(there + 1_000_000_000, &(at + 100 * BLOCK..at + 101 * BLOCK)), None);
    assert_eq!(model.counters().fast_forwarded, 1, "the reads were not announced");
    model.asked_to_read(&(at..at + BLOCK));
    model.asked_to_flush();
    assert_eq!(model.counters().fast_forwarded, 3);
    model.set_fast_forward(there, false);
    assert!(model.read_from_memory(there, &(at..at + 100 * BLOCK)).is_some());
    let takes = model.read(there, &(GIB..GIB + BLOCK)) - there;
    assert!((SEEK_NS_MIN..seek_ns(GIB) + 2 * ROTATION_NS).contains(&takes), "{takes}");
    let now = model.free_at();
    model.write(now, &(at..at + BLOCK)).unwrap();
    assert!(model.destage(now).unwrap() > now + SEEK_NS_MIN);
    assert_eq!(model.counters().fast_forwarded, 3);
}
