//! Pairs that ask for a compression of their own: they take it along wherever they go, pieces are compressed
//! as most of their bytes ask, and a volume with such pairs says so before the first is in its log.

// A failing call fails the test, also in the functions that tests share.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use betree::debug::{StoredAs, superblocks};
use betree::{
    Batch, Cut, DictId, Env, Error, Geometry, Located, Options, PairCompression, Replace, Upsert, ZstdLevel,
};
use betree_platform::{Codec, DeviceOp};
use betree_sim::{ENOSPC, Fault, MemDevice, Rng, problems};
use betree_std::Zstd;

const D: DictId = DictId(0);
const VOLUME_BYTES: u64 = 64 << 20;
/// The bit of `incompat`.
const PAIR_COMPRESSION: u64 = 2;

/// Appends the delta, up to 200 bytes.
struct Append;

impl Upsert for Append {
    fn name(&self) -> &str {
        "append"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        let all = [old.unwrap_or_default(), delta].concat();
        Some(all[all.len().saturating_sub(200)..].to_vec())
    }
}

fn opened(device: &Arc<MemDevice>, upsert: Arc<dyn Upsert>) -> Env {
    opened_with(device, upsert, Arc::new(Zstd::default()))
}

fn opened_with(device: &Arc<MemDevice>, upsert: Arc<dyn Upsert>, zstd: Arc<dyn Codec>) -> Env {
    let mut options = Options::new(256 << 10, upsert);
    options.zstd = Some(zstd);
    Env::open(device.clone(), options).unwrap()
}

/// Notes the levels at which it is to compress.
#[derive(Default)]
struct Levels(Mutex<BTreeSet<Option<i32>>>);

impl Codec for Levels {
    fn compress(&self, raw: &[u8], level: Option<i32>, out: &mut Vec<u8>) -> bool {
        self.0.lock().unwrap().insert(level);
        Zstd::default().compress(raw, level, out)
    }

    fn decompress(&self, stored: &[u8], raw: &mut [u8]) -> bool {
        Zstd::default().decompress(stored, raw)
    }
}

fn made(node_bytes: u32, basement_bytes: u32, fanout_max: u32) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(VOLUME_BYTES));
    let geometry = Geometry { node_bytes, basement_bytes, fanout_max, log_bytes: 1 << 20, dicts: 1 };
    Env::format(device.clone(), &geometry, [3; 16]).unwrap();
    device
}

/// What a change asks for, by the last byte of its value or delta: a value made of several has that of the
/// newest.
fn asked_by(value: &[u8]) -> PairCompression {
    value.last().and_then(|last| PairCompression::from_code(last % 22)).unwrap()
}

/// Random changes beside a map, with nodes so small that pairs are flushed, split, merged and cloned often.
fn history(seed: u64) {
    const KEYS: u64 = 300;
    let device = made(8 << 10, 2 << 10, 4);
    let mut env = opened(&device, Arc::new(Append));
    let mut rng = Rng::new(seed);
    let mut model = BTreeMap::<Vec<u8>, Vec<u8>>::new();
    let key = |rng: &mut Rng| {
        let number = rng.next_u64() % KEYS;
        vec![b'a' + (number % 5) as u8, (number / 5) as u8]
    };
    for _ in 0..120 {
        let mut batch = Batch::new();
        match rng.next_u64() % 12 {
            0 => {
                let (one, other) = (key(&mut rng), key(&mut rng));
                let (lo, hi) = (one.clone().min(other.clone()), one.max(other));
                model.retain(|key, _| *key < lo || *key >= hi);
                batch.delete_range(D, &Cut::before(lo.as_slice()), &Cut::before(hi.as_slice()));
            }
            1 => {
                let [from, to] = [(); 2].map(|()| vec![b'a' + (rng.next_u64() % 5) as u8]);
                if from == to {
                    continue;
                }
                let copied: Vec<_> = model
                    .iter()
                    .filter(|(key, _)| key.starts_with(&from))
                    .map(|(key, value)| ([&to, &key[1..]].concat(), value.clone()))
                    .collect();
                model.retain(|key, _| !key.starts_with(&to));
                model.extend(copied);
                batch.clone_range(D, &from, &to);
            }
            2 => {
                env.checkpoint().unwrap();
                continue;
            }
            3 => {
                if rng.next_u64().is_multiple_of(2) {
                    env.close().unwrap();
                } else {
                    // A crash: what was synced is replayed from the log.
                    env.sync().unwrap();
                    env.abandon();
                }
                drop(env);
                env = opened(&device, Arc::new(Append));
                continue;
            }
            _ => {
                for _ in 0..rng.next_u64() % 30 {
                    let at = key(&mut rng);
                    let len = 1 + rng.next_u64() % 60;
                    let value: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
                    batch.compress_as(asked_by(&value));
                    match rng.next_u64() % 4 {
                        0 => {
                            model.remove(&at);
                            batch.delete(D, &at);
                        }
                        1 => {
                            let old = model.get(&at).map(Vec::as_slice);
                            model.insert(at.clone(), Append.apply(old, &value).unwrap());
                            batch.upsert(D, &at, &value);
                        }
                        _ => {
                            batch.put(D, &at, &value);
                            model.insert(at, value);
                        }
                    }
                }
            }
        }
        env.throttle(batch.bytes()).unwrap();
        env.commit(&batch).unwrap();
    }
    let compare = |env: &Env, when: &str| {
        let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
        let mut found = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            let pair = (key.to_vec(), value.to_vec());
            found.push((pair, cursor.asked()));
        }
        let expected: Vec<_> =
            model.iter().map(|(key, value)| ((key.clone(), value.clone()), asked_by(value))).collect();
        assert_eq!(found, expected, "seed {seed}, {when}");
    };
    compare(&env, "at the end");
    env.close().unwrap();
    drop(env);
    let env = opened(&device, Arc::new(Append));
    compare(&env, "opened again");
    assert_eq!(problems(&env).unwrap(), Vec::<String>::new(), "seed {seed}");
}

#[test]
fn pairs_ask_for_what_their_newest_change_asked_for_wherever_they_go() {
    (0..150).for_each(history);
}

/// Text that compresses.
fn text(number: u32) -> Vec<u8> {
    (0..40)
        .flat_map(|word| {
            format!("{} ", number.wrapping_mul(2_654_435_761).rotate_left(word) % 1000).into_bytes()
        })
        .collect()
}

#[test]
fn pieces_are_compressed_as_most_of_their_bytes_ask() {
    let device = made(64 << 10, 8 << 10, 8);
    let ways = [
        PairCompression::None,
        PairCompression::Usual,
        PairCompression::Lz4,
        PairCompression::Zstd(ZstdLevel::new(1).unwrap()),
        PairCompression::Zstd(ZstdLevel::new(19).unwrap()),
    ];
    let mut used = Vec::new();
    let raw_bytes: usize = (0..4000).map(|number| text(number).len() + 5).sum();
    let levels = [None, None, None, Some(1), Some(19)];
    for ((way, asked), level) in (0_u8..).zip(ways).zip(levels) {
        let seen = Arc::new(Levels::default());
        let env = opened_with(&device, Arc::new(Replace), seen.clone());
        let before = env.space().used_bytes;
        for number in 0..4000_u32 {
            let mut batch = Batch::new();
            // One in ten asks for something else: most bytes decide.
            batch.compress_as(if number % 10 == 0 { PairCompression::None } else { asked });
            batch.put(D, &[&[way], &number.to_be_bytes()[..]].concat(), &text(number));
            env.throttle(batch.bytes()).unwrap();
            env.commit(&batch).unwrap();
        }
        env.close().unwrap();
        used.push(env.space().used_bytes - before);
        // A piece at the border may be of the round before, whose level is lower.
        assert_eq!(seen.0.lock().unwrap().last().copied(), level.map(Some), "{asked:?}");
    }
    let [none, usual, lz4, fast, small] = used[..] else { unreachable!() };
    assert!(none >= raw_bytes as u64, "{none} for {raw_bytes}");
    assert!(usual * 10 < none * 9 && lz4.abs_diff(usual) * 20 < usual, "{used:?}");
    // In pieces of 8 KiB levels differ by little.
    assert!(fast * 10 < lz4 * 8 && small * 20 < fast * 21, "{used:?}");
    let env = opened(&device, Arc::new(Replace));
    for way in 0..5_u8 {
        for number in (0..4000_u32).step_by(7) {
            let found = env.get(D, &[&[way], &number.to_be_bytes()[..]].concat()).unwrap();
            assert_eq!(found, Some(text(number)));
        }
    }
    env.close().unwrap();
    drop(env);
    // Without a codec for zstd, what was written with it gives an error that says so, and all else is read.
    let env = Env::open(device, Options::new(256 << 10, Arc::new(Replace))).unwrap();
    let read = |way: u8| env.get(D, &[way, 0, 0, 0, 1]);
    assert!([0, 1, 2].iter().all(|way| read(*way).is_ok()));
    let error = read(4).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { why, .. } if why.contains("zstd")), "{error}");
    env.abandon();
    // What asks for it there is compressed with LZ4.
    let device = made(64 << 10, 8 << 10, 8);
    let env = Env::open(device, Options::new(256 << 10, Arc::new(Replace))).unwrap();
    let before = env.space().used_bytes;
    for number in 0..4000_u32 {
        let mut batch = Batch::new();
        batch.compress_as(ways[4]);
        batch.put(D, &[&[0], &number.to_be_bytes()[..]].concat(), &text(number));
        env.throttle(batch.bytes()).unwrap();
        env.commit(&batch).unwrap();
    }
    env.close().unwrap();
    let taken = env.space().used_bytes - before;
    assert!(taken.abs_diff(lz4) * 10 < lz4, "{taken} for {lz4}");
}

/// How the pairs of a new volume are stored: of each the compression that it asks for and the
/// length of its value, which compresses.
fn stored_as(pairs: &[(PairCompression, usize)]) -> Vec<StoredAs> {
    let device = made(64 << 10, 8 << 10, 8);
    let env = opened(&device, Arc::new(Replace));
    let mut batch = Batch::new();
    for (number, (asked, len)) in (0_u8..).zip(pairs) {
        batch.compress_as(*asked);
        batch.put(D, &[number], &vec![b'x'; *len]);
    }
    env.commit(&batch).unwrap();
    env.close().unwrap();
    drop(env);
    let env = Arc::new(opened(&device, Arc::new(Replace)));
    let mut found = Vec::new();
    let each = &mut |located: Located| found.extend(located.runs.iter().map(|run| run.stored_as));
    env.view().locate(D, &Cut::LOW, &Cut::HIGH, each).unwrap();
    found
}

#[test]
fn few_long_pairs_outweigh_many_short_ones_and_of_as_many_bytes_the_smaller_code_decides() {
    let [none, lz4, zstd] =
        [PairCompression::None, PairCompression::Lz4, PairCompression::Zstd(ZstdLevel::DEFAULT)];
    let short = |asked| [(asked, 10), (asked, 10), (asked, 10)];
    // All lie in one run.
    let stored_as = |pairs: &[_]| {
        let mut found = stored_as(pairs);
        found.dedup();
        found
    };
    assert_eq!(stored_as(&[&[(none, 2000)], &short(lz4)[..]].concat()), [StoredAs::Raw]);
    assert_eq!(stored_as(&[&short(none)[..], &[(zstd, 2000)]].concat()), [StoredAs::Zstd]);
    assert_eq!(stored_as(&[(lz4, 1000), (none, 1000)]), [StoredAs::Raw]);
    assert_eq!(stored_as(&[(lz4, 1000), (zstd, 1000)]), [StoredAs::Lz4]);
    assert_eq!(stored_as(&[(none, 1000), (PairCompression::Usual, 1000)]), [StoredAs::Lz4]);
}

/// Pieces that ask for none say nothing about whether the compression of others pays.
#[test]
fn pieces_behind_many_that_ask_for_none_are_compressed() {
    let pairs = [[(PairCompression::None, 8000); 3], [(PairCompression::Lz4, 8000); 3]].concat();
    let (raw, lz4) = (StoredAs::Raw, StoredAs::Lz4);
    assert_eq!(stored_as(&pairs), [raw, raw, raw, lz4, lz4, lz4]);
}

fn incompat(device: &Arc<MemDevice>) -> u64 {
    let found = superblocks(device.clone(), &mut |_| ()).unwrap();
    found.current.unwrap().features.incompat
}

/// The bit is in the superblock before anything that needs it is in the log.
#[test]
fn the_first_change_that_asks_makes_a_checkpoint_that_says_so() {
    let device = made(64 << 10, 8 << 10, 8);
    let put = |env: &Env, asked| {
        let mut batch = Batch::new();
        batch.compress_as(asked);
        batch.put(D, b"key", b"value");
        env.commit(&batch).unwrap();
    };
    let env = opened(&device, Arc::new(Replace));
    let before = env.stats().checkpoints;
    put(&env, PairCompression::Usual);
    env.sync().unwrap();
    assert_eq!((env.stats().checkpoints, incompat(&device)), (before, 0));
    put(&env, PairCompression::None);
    assert_eq!((env.stats().checkpoints, incompat(&device)), (before + 1, PAIR_COMPRESSION));
    put(&env, PairCompression::None);
    env.let_pairs_ask().unwrap();
    env.sync().unwrap();
    assert_eq!(env.stats().checkpoints, before + 1, "once is enough");
    env.abandon();
    drop(env);
    let env = opened(&device, Arc::new(Replace));
    let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
    assert_eq!(cursor.next().unwrap(), Some((&b"key"[..], &b"value"[..])));
    assert_eq!(cursor.asked(), PairCompression::None);
    drop(cursor);
    let before = env.stats().checkpoints;
    put(&env, PairCompression::None);
    assert_eq!(env.stats().checkpoints, before);
    env.close().unwrap();
    assert_eq!(incompat(&device), PAIR_COMPRESSION, "it stays");
}

/// The next change that asks tries again.
#[test]
fn a_checkpoint_that_fails_leaves_the_volume_to_programs_that_do_not_know_it() {
    let device = made(64 << 10, 8 << 10, 8);
    let env = opened(&device, Arc::new(Replace));
    let mut batch = Batch::new();
    batch.compress_as(PairCompression::None);
    batch.put(D, b"key", b"value");
    device.set_fault(Some(Fault { at_call: 1, op: Some(DeviceOp::Write), errno: ENOSPC, lasting: true }));
    assert!(env.commit(&batch).is_err());
    device.set_fault(None);
    env.checkpoint().unwrap();
    assert_eq!((env.get(D, b"key").unwrap(), incompat(&device)), (None, 0));
    env.commit(&batch).unwrap();
    assert_eq!(incompat(&device), PAIR_COMPRESSION);
    env.close().unwrap();
}
