//! Allocations beside a bitmap, claims, and what became free.

use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

use seeded::Rng;

use super::*;

/// The most blocks beyond a share that are handed out together.
const HANDED_OUT_AT_ONCE: u64 = 64;

fn row(start_block: u64, len_blocks: u64) -> Vec<BlockRange> {
    vec![BlockRange { start_block, len_blocks }]
}

fn free_ranges(space: &Space) -> Vec<(u64, u64)> {
    space.free_ranges().iter().map(|range| (range.start_block, range.len_blocks)).collect()
}

fn agree(space: &Space, used: &[bool], first: u64, seed: u64) {
    let mut expected = Vec::new();
    let mut run = 0;
    for (i, &u) in used.iter().chain([&true]).enumerate() {
        if u && run > 0 {
            expected.push((first + i as u64 - run, run));
        }
        run = if u { 0 } else { run + 1 };
    }
    assert_eq!(free_ranges(space), expected, "seed {seed}");
    assert_eq!(space.free_blocks(), expected.iter().map(|g| g.1).sum::<u64>());
}

#[test]
fn what_is_added_behind_the_end_is_free_in_one_range_with_the_end() {
    let space = Space::new(7, 10);
    let held = space.allocate(6, 1).unwrap();
    space.grow(5);
    assert_eq!((space.total_blocks(), free_ranges(&space)), (15, vec![(13, 9)]));
    // What was outside is inside now.
    assert!(space.claim(row(17, 5)).is_ok() && space.claim(row(18, 5)).is_err());
    space.grow(0);
    space.grow(u64::MAX);
    assert_eq!(space.total_blocks(), u64::MAX - 7);
    drop(held);
    assert_eq!(free_ranges(&space), [(7, u64::MAX - 7)]);
}

#[test]
fn random_use_agrees_with_a_bitmap() {
    for seed in 0..60 {
        let mut dice = Rng::new(seed);
        let (first, total) = (7, 1 + dice.below_u64(300));
        let space = Space::new(first, total);
        let mut used = vec![false; total as usize];
        let mut held: Vec<Arc<Extent>> = Vec::new();
        let mark = |used: &mut Vec<bool>, e: &Extent, to: bool| {
            for part in e.parts() {
                for b in part.start_block..part.start_block + part.len_blocks {
                    let bit = &mut used[(b - first) as usize];
                    assert_ne!(*bit, to, "seed {seed}: block {b}");
                    *bit = to;
                }
            }
        };
        for _ in 0..400 {
            match dice.below_u64(5) {
                0 | 1 => {
                    let len = 1 + dice.below_u64(12);
                    let parts_max = 1 + dice.below_u64(3) as usize;
                    let mut gaps: Vec<_> = free_ranges(&space).iter().map(|g| g.1).collect();
                    gaps.sort_unstable();
                    let largest: Vec<u64> = gaps.into_iter().rev().take(parts_max).collect();
                    match space.allocate(len, parts_max) {
                        Some(extent) => {
                            assert_eq!(extent.len_blocks(), len);
                            assert!(extent.parts().len() <= parts_max);
                            assert_eq!(extent.parts().len() == 1, largest[0] >= len, "seed {seed}");
                            mark(&mut used, &extent, true);
                            held.push(extent);
                        }
                        None => assert!(largest.iter().sum::<u64>() < len, "seed {seed}"),
                    }
                }
                2 => {
                    let (start, len) = (dice.below_u64(total + 20), dice.below_u64(9));
                    let range = start as usize..(start + len) as usize;
                    let in_range = start >= first && start + len <= first + total && len > 0;
                    let free = in_range
                        && used[range.start - first as usize..range.end - first as usize].iter().all(|u| !u);
                    match space.claim(row(start, len)) {
                        Ok(extent) => {
                            assert!(free, "seed {seed}");
                            mark(&mut used, &extent, true);
                            held.push(extent);
                        }
                        Err(Error::Corrupt { offset, .. }) => {
                            assert!(!free && offset == start * 4096, "seed {seed}");
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                _ if !held.is_empty() => {
                    let extent = held.swap_remove(dice.below_u64(held.len() as u64) as usize);
                    mark(&mut used, &extent, false);
                }
                _ => {}
            }
            agree(&space, &used, first, seed);
            let further = held.iter().map(|e| e.parts().len() as u64 - 1).sum::<u64>();
            assert_eq!(space.further_parts(), further, "seed {seed}");
        }
        held.clear();
        assert_eq!(free_ranges(&space), [(first, total)], "seed {seed}: all gaps are one again");
    }
}

#[test]
fn consecutive_allocations_are_adjacent() {
    let space = Space::new(10, 100);
    let all: Vec<_> = (0..10).map(|_| space.allocate(10, 1).unwrap()).collect();
    let starts: Vec<_> = all.iter().map(|e| e.parts()[0].start_block).collect();
    assert_eq!(starts, (1..=10).map(|i| i * 10).collect::<Vec<_>>());
    assert!(space.allocate(1, 1).is_none());
}

#[test]
fn copies_stand_at_the_end_and_leave_the_cursor_alone() {
    let space = Space::new(0, 100);
    let first = space.allocate(10, 1).unwrap();
    let starts: Vec<_> = (0..2)
        .map(|_| {
            let copy = space.allocate_last(5, 1, &[]).unwrap();
            let start = copy.parts()[0].start_block;
            core::mem::forget(copy);
            start
        })
        .collect();
    assert_eq!(starts, [95, 90]);
    let next = space.allocate(10, 1).unwrap();
    assert_eq!((first.parts()[0].start_block, next.parts()[0].start_block), (0, 10));
    assert!(space.allocate_last(71, 1, &[]).is_none() && space.allocate_last(0, 1, &[]).is_none());
    assert_eq!(space.allocate_last(70, 1, &[]).unwrap().parts()[0].start_block, 20);
}

#[test]
fn freed_blocks_behind_the_cursor_wait_until_it_has_gone_round() {
    let space = Space::new(0, 100);
    let first = space.allocate(30, 1).unwrap();
    drop(first);
    assert_eq!(free_ranges(&space), [(0, 100)]);
    let second = space.allocate(30, 1).unwrap();
    assert_eq!(second.parts()[0].start_block, 30, "the cursor goes on within the joined gap");
    let third = space.allocate(35, 1).unwrap();
    assert_eq!(third.parts()[0].start_block, 60);
    let fourth = space.allocate(10, 1).unwrap();
    assert_eq!(fourth.parts()[0].start_block, 0, "5 blocks at the end are too few");
}

#[test]
fn beyond_many_small_gaps_the_best_fit_is_found() {
    let space = Space::new(0, 1000);
    let wall: BTreeSet<u64> = (0..400).filter(|b| b % 2 == 1).chain([420, 999]).collect();
    let _walls: Vec<_> = wall.iter().map(|&b| space.claim(row(b, 1)).unwrap()).collect();
    let best = space.allocate(15, 1).unwrap();
    assert_eq!(best.parts()[0].start_block, 400, "20 blocks fit better than 578");
    assert_eq!(free_ranges(&space).last(), Some(&(421, 578)));
}

#[test]
fn an_extent_is_in_use_until_its_last_holder_lets_go() {
    let space = Space::new(0, 8);
    let one = space.allocate(8, 1).unwrap();
    let other = Arc::clone(&one);
    drop(one);
    assert_eq!(space.free_blocks(), 0);
    drop(other);
    assert_eq!(space.free_blocks(), 8);
}

#[test]
fn without_a_large_enough_gap_the_largest_are_used_and_bytes_run_through_them() {
    let space = Space::new(0, 100);
    // Free: 0..4, 10..16, 30..33.
    let walls = [(4, 6), (16, 14), (33, 67)];
    let _walls: Vec<_> = walls.iter().map(|&(at, len)| space.claim(row(at, len)).unwrap()).collect();
    assert!(space.allocate(7, 1).is_none());
    assert!(space.allocate(14, 9).is_none());
    let extent = space.allocate(8, 2).unwrap();
    assert_eq!(extent.parts(), [row(0, 2), row(10, 6)].concat());
    const B: u64 = BLOCK_BYTES as u64;
    let places = |offset, len| extent.places(offset, len).collect::<Vec<_>>();
    assert_eq!(places(0, 8 * B), [(0, 2 * B), (10 * B, 6 * B)]);
    assert_eq!(places(2 * B - 1, 2), [(2 * B - 1, 1), (10 * B, 1)]);
    assert_eq!(places(3 * B + 5, B), [(11 * B + 5, B)]);
    assert_eq!(places(8 * B - 1, 9), [(16 * B - 1, 1)], "beyond the end there is nothing");
    assert_eq!((extent.place(2 * B), extent.place(8 * B)), (10 * B, 0));
    assert_eq!(space.further_parts(), 1);
    drop(extent);
    assert_eq!((space.free_blocks(), space.further_parts()), (13, 0));
}

/// The device is told of each block once after it became free, unless somebody got it before.
#[test]
fn what_became_free_is_told_once_and_nothing_that_is_in_use() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let (first, total) = (3, 100);
        let space = Space::new(first, total);
        space.note_freed();
        // Of each block: in use, and to be told of.
        let mut blocks = vec![(false, false); total as usize];
        let mut held: Vec<Arc<Extent>> = Vec::new();
        let mark = |blocks: &mut Vec<(bool, bool)>, parts: &[BlockRange], to: (bool, bool)| {
            for part in parts {
                let from = (part.start_block - first) as usize;
                blocks[from..from + part.len_blocks as usize].fill(to);
            }
        };
        for step in 0..300 {
            match rng.below(4) {
                0 | 1 => {
                    if let Some(extent) = space.allocate(1 + rng.below_u64(12), 3) {
                        mark(&mut blocks, extent.parts(), (true, false));
                        held.push(extent);
                    }
                }
                2 if !held.is_empty() => {
                    let extent = held.swap_remove(rng.below(held.len()));
                    mark(&mut blocks, extent.parts(), (false, true));
                }
                _ => {
                    let Some(range) = space.take_untold(1 + rng.below_u64(9)) else {
                        assert!(blocks.iter().all(|(_, untold)| !untold), "seed {seed} step {step}");
                        continue;
                    };
                    let from = (range.start_block - first) as usize;
                    let told = &blocks[from..from + range.len_blocks as usize];
                    assert!(told.iter().all(|block| *block == (false, true)), "seed {seed} step {step}");
                    let free = space.free_blocks();
                    space.give_back_told(range);
                    assert_eq!(space.free_blocks(), free + range.len_blocks);
                    mark(&mut blocks, &[range], (false, false));
                }
            }
        }
    }
}

#[test]
fn a_claim_that_is_refused_takes_nothing() {
    let space = Space::new(0, 10);
    let overlapping = [row(2, 3), row(4, 1)].concat();
    assert!(matches!(space.claim(overlapping), Err(Error::Corrupt { offset: 16384, .. })));
    assert_eq!(free_ranges(&space), [(0, 10)]);
}

#[test]
fn blocks_without_storage_are_free_and_no_extent_gets_them() {
    let space = Space::new(0, 100);
    let held = space.allocate(10, 1).unwrap();
    space.doubt_backing();
    let numbers = || (space.free_blocks(), space.backed_blocks(), space.unbacked_blocks());
    assert_eq!(numbers(), (90, 0, 90));
    assert!(space.allocate(1, 1).is_none());
    let range = space.take_unbacked(20).unwrap();
    assert_eq!((range.start_block, range.len_blocks), (10, 20), "where the last allocation ended");
    assert_eq!(numbers(), (70, 0, 70));
    space.give_backed(range);
    assert_eq!(numbers(), (90, 20, 70));
    let next = space.allocate(15, 1).unwrap();
    assert_eq!(next.parts()[0].start_block, 10);
    assert!(space.allocate(10, 2).is_none(), "5 have storage");
    let range = space.take_unbacked(8).unwrap();
    assert_eq!(range.start_block, 30);
    space.give_back_told(range);
    assert_eq!(numbers(), (75, 5, 70));
    let last = space.take_last_unbacked(4).unwrap();
    assert_eq!(last.start_block, 96);
    space.give_backed(last);
    assert!(space.take_last_unbacked(4).is_none(), "those behind it have storage");
    // What extents give back has storage; what is discarded has none.
    drop((held, next));
    assert_eq!(numbers(), (100, 34, 66));
    let whole = BlockRange { start_block: 0, len_blocks: 30 };
    assert!(space.take_free(whole) && !space.take_doubted(whole));
    space.give_back_told(whole);
    assert_eq!(numbers(), (100, 4, 96));
    assert!(space.take_doubted(whole));
    space.give_backed(whole);
    space.grow(50);
    assert_eq!(numbers(), (150, 34, 116));
    assert_eq!(free_ranges(&space), [(0, 30), (30, 66), (96, 4), (100, 50)]);
}

#[test]
fn withheld_blocks_are_free_and_handed_out_from_their_start() {
    let space = Space::new(10, 10_000);
    let first = space.claim(vec![BlockRange { start_block: 20, len_blocks: 5 }]).unwrap();
    space.withhold_end();
    assert_eq!(space.free_blocks(), 9995);
    assert_eq!(free_ranges(&space), [(10, 10), (25, 9985)]);
    let fits = space.allocate(8, 1).unwrap();
    assert_eq!(fits.parts()[0].start_block, 10);
    let next = space.allocate(100, 1).unwrap();
    assert_eq!(next.parts()[0].start_block, 25, "as many as it takes");
    // One block in eight of those handed out stays free: what was freed there is used before any behind it.
    drop((first, fits));
    let mut held = Vec::new();
    while held.len() < 50 {
        held.push(space.allocate(10, 1).unwrap());
    }
    let end = held.iter().flat_map(|extent| extent.parts()).map(|part| part.start_block + part.len_blocks);
    let end = end.max().unwrap();
    assert!(end <= 10 + (600 + 15) * 9 / 7 + HANDED_OUT_AT_ONCE, "{end}");
    drop(held.split_off(10));
    let again = space.allocate(300, 1).unwrap();
    assert!(again.parts()[0].start_block < end);
    // Blocks that come by growth are withheld too, and all can be had.
    space.grow(500);
    let free = space.free_blocks();
    assert_eq!(free, 10_500 - 100 - 100 - 300);
    let all = space.allocate(free, usize::MAX).unwrap();
    assert_eq!((all.len_blocks(), space.free_blocks()), (free, 0));
}
