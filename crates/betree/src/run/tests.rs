//! Runs that are built, read back, searched, and refused.

use super::*;
use crate::message::PairCompression;

fn sample() -> Run {
    let mut builder = RunBuilder::default();
    builder.push(b"", 3, Kind::Put(PairCompression::Usual), b"empty key");
    builder.push(b"a", 4, Kind::Upsert(PairCompression::Usual), b"");
    builder.push(b"a", 9, Kind::Upsert(PairCompression::Usual), b"x");
    builder.push(b"b\xff", 5, Kind::Delete, b"");
    builder.set_ranges(alloc::vec![
        RangeDelete { lo: Cut::LOW, hi: Cut::before(*b"a"), msn: 2 },
        RangeDelete { lo: Cut::before(*b"b"), hi: Cut::after(*b"b"), msn: 1 },
    ]);
    builder.finish()
}

#[test]
fn a_run_reads_back_as_it_was_built() {
    let run = Run::parse(sample().as_bytes().to_vec()).unwrap();
    assert_eq!(run.len(), 4);
    assert_eq!((run.last_msn(), sample().last_msn()), (9, 9));
    assert_eq!(run.point(2).value, b"x");
    assert_eq!(run.point(3).kind, Kind::Delete);
    assert_eq!(run.lower_bound(b"a"), 1);
    assert_eq!(run.lower_bound(b"a\0"), 3);
    assert_eq!(run.first_behind(&Cut::after(*b"b")), 4);
    assert_eq!(run.ranges(), sample().ranges());
    assert!(run.range_over(b"bzz").is_some() && run.range_over(b"a").is_none());
    assert!(run.range_over(b"").is_some());
}

/// Enough points for fences between them.
fn long_sample() -> Run {
    let mut builder = RunBuilder::default();
    for number in 0..24u8 {
        builder.push(
            &[b'k', number / 2],
            u64::from(number) + 1,
            Kind::Upsert(PairCompression::Usual),
            &[number; 3],
        );
    }
    builder.set_ranges(sample().ranges().to_vec());
    builder.finish()
}

/// Calls every query of an accepted run.
fn assert_answers(run: &Run, place: &str) {
    for (index, point) in run.points(0, run.len()).enumerate() {
        let key = run.key(index);
        assert_eq!(*point.key, *key, "{place}");
        let first = run.lower_bound(key);
        assert!(first <= index && run.key(first) == key, "{place}: point {index} is not found");
        assert!(first == 0 || run.key(first - 1) < key, "{place}: point {index} is found too late");
        assert_eq!(run.first_behind(&Cut::before(key)), first, "{place}");
        assert!(run.first_behind(&Cut::just_after(key)) > index, "{place}");
        assert!(run.first_behind(&Cut::after(key)) > index, "{place}");
        assert!(run.range_over(key).is_none_or(|range| range.covers(key)), "{place}");
    }
    for range in run.ranges() {
        assert!(range.lo < range.hi, "{place}");
        assert!(run.first_behind(&range.lo) <= run.first_behind(&range.hi), "{place}");
    }
    let newest = run.points(0, run.len()).map(|point| point.msn);
    let newest = newest.chain(run.ranges().iter().map(|range| range.msn)).max();
    assert_eq!(run.last_msn(), newest.unwrap_or(0), "{place}");
}

#[test]
fn a_search_from_any_point_on_finds_the_first_one_from_there() {
    let run = long_sample();
    for from in 0..=run.len() {
        for number in 0..14u8 {
            let key = [b'k', number];
            assert_eq!(run.lower_bound_after(from, &key), run.lower_bound(&key).max(from), "{from} {number}");
        }
    }
}

#[test]
fn pairs_pushed_as_a_range_make_the_same_run_as_one_by_one() {
    let (mut builder, keys) = (RunBuilder::default(), [&b"a"[..], b"bc", b"", b"d"]);
    let value = |index: usize| std::vec![index as u8; index * 3];
    let push = |builder: &mut RunBuilder, index: usize| {
        builder.push(keys[index], 0, Kind::Put(PairCompression::Usual), &value(index))
    };
    (0..4).for_each(|index| push(&mut builder, index));
    let all = builder.finish();
    for (from, to) in (0..=4).flat_map(|from| (from..=4).map(move |to| (from, to))) {
        let (mut one_by_one, mut at_once) = (RunBuilder::default(), RunBuilder::default());
        push(&mut one_by_one, 1);
        push(&mut at_once, 1);
        (from..to).for_each(|index| push(&mut one_by_one, index));
        at_once.push_pairs(&all, from, to);
        assert_eq!(at_once.finish().as_bytes(), one_by_one.finish().as_bytes(), "{from} {to}");
        let bytes = (from..to).map(|index| RunBuilder::bytes_of(keys[index], &value(index))).sum();
        let count = to.saturating_sub(from);
        assert_eq!(all.points_that_take(from, 4.max(from), bytes), count);
        assert_eq!(all.points_that_take(from, to, bytes + 1), count);
        if count > 0 {
            assert_eq!(all.points_that_take(from, to, bytes - 1), count - 1);
        }
    }
}

#[test]
fn no_truncation_and_no_flipped_bit_makes_a_run_panic() {
    for whole in [sample(), long_sample()] {
        let whole = whole.as_bytes().to_vec();
        for len in 0..whole.len() {
            assert!(Run::parse(whole[..len].to_vec()).is_err(), "cut at {len}");
        }
        let mut believed = 0;
        for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            if let Ok(run) = Run::parse(bytes) {
                assert_answers(&run, &std::format!("bit {bit} of byte {at}"));
                believed += 1;
            }
        }
        assert!(believed > 0, "a run does not verify its values");
    }
}
