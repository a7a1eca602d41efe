//! Reads of a key, and of a small file, read little around it.

use std::thread;
use std::time::Duration;

use betree::Cut;
use betree_sim::{Counts, Rng, Setup};

use super::{D, KEYS, MIB, SETUP, VALUE_BYTES, cost, helped, key, large_volume, open, value};

#[test]
fn a_point_query_reads_a_piece_of_each_node_on_its_path() {
    let device = large_volume();
    // Data of 256 nodes with a fan-out of 16: one or two interior levels below the root, and leaves.
    const PATH_NODES_MAX: u64 = 4;
    let mut rng = Rng::new(3);
    for _ in 0..20 {
        let env = open(&device, &SETUP);
        let number = rng.below(KEYS as usize) as u32;
        let get = cost(&device, || assert_eq!(env.get(D, &key(number)).unwrap(), Some(value(number))));
        // A node's directory and one of its pieces.
        assert!(get.reads <= 2 * PATH_NODES_MAX, "{get:?}");
        let piece = u64::from(SETUP.geometry.node_bytes) / 4;
        assert!(get.read_bytes <= PATH_NODES_MAX * piece, "{get:?}");
    }
}

/// Number of keys of a file: six basements.
const FILE_KEYS: u32 = 24;
const FILE_BYTES: u64 = FILE_KEYS as u64 * VALUE_BYTES as u64;
const FILES: u32 = 100;

/// The cost of reading whole files of the same size in an order, while others read ahead.
fn cost_of_files(order: impl Iterator<Item = u32>) -> Counts {
    let device = large_volume();
    let env = open(&device, &Setup { cache_bytes: 4 * MIB, ..SETUP });
    // A volume's headers and roots are in memory after the first queries.
    for number in (0..KEYS).step_by(64) {
        env.get(D, &key(number)).unwrap();
    }
    cost(&device, || {
        helped(&env, || {
            for file in order {
                let (lo, hi) = (Cut::before(key(file * FILE_KEYS)), Cut::before(key((file + 1) * FILE_KEYS)));
                let mut cursor = env.cursor(D, lo.clone(), hi.clone()).part_of(lo, hi);
                for number in file * FILE_KEYS..(file + 1) * FILE_KEYS {
                    assert!(cursor.next().unwrap() == Some((&key(number), &value(number))), "{number}");
                }
                // Slow enough for the helpers to keep up.
                thread::sleep(Duration::from_millis(2));
            }
        });
    })
}

#[test]
fn a_file_anywhere_is_read_at_once_with_little_around_it() {
    let mut rng = Rng::new(3);
    let files = cost_of_files((0..FILES).map(|_| rng.below((KEYS / FILE_KEYS) as usize) as u32));
    let given = u64::from(FILES) * FILE_BYTES;
    assert!(files.read_bytes < given / 10 * 11, "{} bytes were read to give {given}", files.read_bytes);
    // Some files are in two leaves, each with its header.
    assert!(files.reads < u64::from(FILES) * 5 / 2, "{files:?}");
}

#[test]
fn files_read_in_order_are_read_ahead() {
    let files = cost_of_files(0..FILES);
    let given = u64::from(FILES) * FILE_BYTES;
    assert!(files.read_bytes < given / 4 * 5, "{} bytes were read to give {given}", files.read_bytes);
    assert!(files.reads < u64::from(FILES) * 4 / 5, "{files:?}");
}
