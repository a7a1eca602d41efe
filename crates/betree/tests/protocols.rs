//! The important protocols between threads, under a model checker that chooses the schedule: group commit,
//! eviction against use, checkpoint capture against flushes.
// A test that cannot continue panics.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use betree::{Batch, Cut, DictId, Env, Geometry, Isolation, Options, Replace};
use betree_platform::{BLOCK_BYTES, Device, DeviceError, DeviceOp};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

const D: DictId = DictId(0);
const OTHER: DictId = DictId(1);
const BLOCKS: usize = 1024;

/// A disk in memory that knows which of its bytes are durable. Its lock is never held where the model checker
/// could switch threads.
struct Disk {
    now: Mutex<Vec<u8>>,
    durable: Mutex<Vec<u8>>,
    /// The number of writes that succeed from now on; `None` for all.
    writes_left: Mutex<Option<usize>>,
}

impl Disk {
    fn holding(bytes: Vec<u8>) -> Arc<Disk> {
        let durable = Mutex::new(bytes.clone());
        Arc::new(Disk { now: Mutex::new(bytes), durable, writes_left: Mutex::new(None) })
    }

    /// The bytes that are sure to survive a crash now.
    fn durable(&self) -> Vec<u8> {
        self.durable.lock().unwrap().clone()
    }
}

impl Device for Disk {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let at = offset as usize;
        buf.copy_from_slice(&self.now.lock().unwrap()[at..at + buf.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        let at = offset as usize;
        if let Some(left) = self.writes_left.lock().unwrap().as_mut() {
            let len = buf.len() as u64;
            let failed = || DeviceError { op: DeviceOp::Write, offset, len, errno: 5 };
            *left = left.checked_sub(1).ok_or_else(failed)?;
        }
        self.now.lock().unwrap()[at..at + buf.len()].copy_from_slice(buf);
        thread::yield_now();
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let now = self.now.lock().unwrap().clone();
        thread::yield_now();
        *self.durable.lock().unwrap() = now;
        Ok(())
    }

    fn len(&self) -> u64 {
        (BLOCKS * BLOCK_BYTES) as u64
    }

    fn seeks(&self) -> bool {
        true
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

fn formatted() -> Vec<u8> {
    let geometry =
        Geometry { node_bytes: 512, basement_bytes: 128, fanout_max: 4, log_bytes: 256 << 10, dicts: 2 };
    let disk = Disk::holding(vec![0; BLOCKS * BLOCK_BYTES]);
    Env::format(disk.clone(), &geometry, [1; 16]).unwrap();
    disk.durable()
}

fn open(disk: &Arc<Disk>, cache_bytes: usize) -> Env {
    Env::open(disk.clone(), Options::new(cache_bytes, Arc::new(Replace))).unwrap()
}

fn key(thread: usize, number: usize) -> Vec<u8> {
    format!("t{thread}k{number:03}").into_bytes()
}

fn put(env: &Env, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(D, key, value);
    batch.put(OTHER, key, value);
    env.commit(&batch).unwrap();
}

fn problems(env: &Env) -> Vec<String> {
    let mut all = Vec::new();
    env.check(&mut |found| all.extend(found.into_problem()), &mut |_, _| ()).unwrap();
    all
}

/// The number of schedules to try.
fn schedules(gate: usize) -> usize {
    seeded::effort(gate as u64) as usize
}

#[test]
fn synced_changes_are_durable_whichever_thread_wrote_them() {
    check_random(
        || {
            let disk = Disk::holding(formatted());
            let env = Arc::new(open(&disk, 1 << 20));
            let threads: Vec<_> = (0..3)
                .map(|t| {
                    let (env, disk) = (env.clone(), disk.clone());
                    thread::spawn(move || {
                        for n in 0..2 {
                            put(&env, &key(t, n), b"value");
                            env.sync().unwrap();
                            let after_crash = open(&Disk::holding(disk.durable()), 1 << 20);
                            for n in 0..=n {
                                let found = after_crash.get(D, &key(t, n)).unwrap();
                                assert_eq!(found.as_deref(), Some(&b"value"[..]), "thread {t} key {n}");
                            }
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert!(env.stats().log_writes <= 6);
        },
        schedules(100),
    );
}

#[test]
fn readers_see_each_key_s_last_value_while_nodes_are_flushed_and_evicted() {
    check_random(
        || {
            let disk = Disk::holding(formatted());
            let env = Arc::new(open(&disk, 2 << 10));
            for n in 0..12 {
                put(&env, &key(0, n), &[b'a'; 60]);
            }
            env.checkpoint().unwrap();
            let writer = {
                let env = env.clone();
                thread::spawn(move || {
                    for n in 0..12 {
                        put(&env, &key(1, n), &[b'b'; 60]);
                    }
                })
            };
            let worker = {
                let env = env.clone();
                thread::spawn(move || env.run_worker())
            };
            for n in (0..12).rev() {
                assert_eq!(env.get(D, &key(0, n)).unwrap().as_deref(), Some(&[b'a'; 60][..]), "key {n}");
            }
            let mut cursor = env.cursor(D, Cut::before(*b"t0"), Cut::after(*b"t0"));
            for n in 0..12 {
                let (found, value) = cursor.next().unwrap().unwrap();
                assert_eq!((found, value), (key(0, n).as_slice(), &[b'a'; 60][..]));
            }
            assert_eq!(cursor.next().unwrap(), None);
            writer.join().unwrap();
            env.stop();
            worker.join().unwrap();
            assert_eq!(problems(&env), Vec::<String>::new());
        },
        schedules(60),
    );
}

#[test]
fn a_checkpoint_holds_one_moment_during_flushes() {
    check_random(
        || {
            let disk = Disk::holding(formatted());
            let env = Arc::new(open(&disk, 4 << 10));
            let worker = {
                let env = env.clone();
                thread::spawn(move || env.run_worker())
            };
            let checkpointer = {
                let (env, disk) = (env.clone(), disk.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        env.checkpoint().unwrap();
                        // A crash right here: a prefix, each batch in both dictionaries or in none.
                        let after_crash = open(&Disk::holding(disk.durable()), 1 << 20);
                        let there: Vec<bool> = (0..10)
                            .map(|n| {
                                let both =
                                    [D, OTHER].map(|d| after_crash.get(d, &key(0, n)).unwrap().is_some());
                                assert_eq!(both[0], both[1], "batch {n} is half there");
                                both[0]
                            })
                            .collect();
                        assert!(there.windows(2).all(|w| w[0] || !w[1]), "no prefix: {there:?}");
                        assert_eq!(problems(&after_crash), Vec::<String>::new());
                    }
                })
            };
            for n in 0..10 {
                put(&env, &key(0, n), &[n as u8; 80]);
            }
            checkpointer.join().unwrap();
            env.stop();
            worker.join().unwrap();
            env.close().unwrap();
            let env = open(&Disk::holding(disk.durable()), 1 << 20);
            for n in 0..10 {
                assert_eq!(env.get(D, &key(0, n)).unwrap().as_deref(), Some(&[n as u8; 80][..]));
            }
            assert_eq!(problems(&env), Vec::<String>::new());
        },
        schedules(60),
    );
}

#[test]
fn nodes_that_other_threads_write_for_a_checkpoint_are_durable_when_it_returns() {
    check_random(
        || {
            let disk = Disk::holding(formatted());
            let env = Arc::new(open(&disk, 8 << 10));
            let helpers: Vec<_> = (0..2)
                .map(|_| {
                    let env = env.clone();
                    thread::spawn(move || env.run_writeback())
                })
                .collect();
            for round in 0..2 {
                (0..8).for_each(|n| put(&env, &key(round, n), &[n as u8; 100]));
                env.checkpoint().unwrap();
                let after_crash = open(&Disk::holding(disk.durable()), 1 << 20);
                for n in 0..8 {
                    let found = after_crash.get(D, &key(round, n)).unwrap();
                    assert_eq!(found.as_deref(), Some(&[n as u8; 100][..]), "round {round} key {n}");
                }
                assert_eq!(problems(&after_crash), Vec::<String>::new());
            }
            env.stop();
            helpers.into_iter().for_each(|t| t.join().unwrap());
            // Without these threads the checkpoint writes its nodes itself.
            put(&env, &key(2, 0), b"last");
            env.close().unwrap();
            let after = open(&Disk::holding(disk.durable()), 1 << 20);
            assert_eq!(after.get(D, &key(2, 0)).unwrap().as_deref(), Some(&b"last"[..]));
        },
        schedules(60),
    );
}

#[test]
fn a_write_that_fails_in_another_thread_fails_the_checkpoint() {
    check_random(
        || {
            let disk = Disk::holding(formatted());
            let env = Arc::new(open(&disk, 8 << 10));
            let helper = {
                let env = env.clone();
                thread::spawn(move || env.run_writeback())
            };
            (0..8).for_each(|n| put(&env, &key(0, n), &[n as u8; 100]));
            env.checkpoint().unwrap();
            *disk.writes_left.lock().unwrap() = Some(1);
            (0..8).for_each(|n| put(&env, &key(1, n), &[n as u8; 100]));
            assert!(env.checkpoint().is_err());
            assert!(env.checkpoint().is_err(), "unwritten nodes are still to be written");
            let after_crash = open(&Disk::holding(disk.durable()), 1 << 20);
            for n in 0..8 {
                let found = after_crash.get(D, &key(0, n)).unwrap();
                assert_eq!(found.as_deref(), Some(&[n as u8; 100][..]), "key {n}");
            }
            env.stop();
            helper.join().unwrap();
        },
        schedules(60),
    );
}

#[test]
fn waiting_writers_go_on_whichever_thread_makes_room() {
    check_pct(
        || {
            let env = Arc::new(open(&Disk::holding(formatted()), 64 << 10));
            let worker = {
                let env = env.clone();
                thread::spawn(move || env.run_worker())
            };
            // Clones flush the memtables themselves.
            let others = {
                let env = env.clone();
                thread::spawn(move || {
                    for n in 0..8u8 {
                        let mut batch = Batch::new();
                        batch.clone_range(D, &key(0, n.into()), &key(9, n.into()));
                        env.commit(&batch).unwrap();
                    }
                })
            };
            let writers: Vec<_> = (0..2)
                .map(|t| {
                    let env = env.clone();
                    thread::spawn(move || (0..8).for_each(|n| put(&env, &key(t, n), &[b'a'; 400])))
                })
                .collect();
            // A writer that no thread wakes is a deadlock, which the model checker reports.
            writers.into_iter().chain([others]).for_each(|t| t.join().unwrap());
            env.stop();
            worker.join().unwrap();
        },
        schedules(300),
        4,
    );
}

#[test]
fn a_view_sees_each_batch_in_all_dictionaries_or_in_none_and_never_changes() {
    const ROUNDS: u8 = 8;
    check_random(
        || {
            let env = Arc::new(open(&Disk::holding(formatted()), 4 << 10));
            let worker = {
                let env = env.clone();
                thread::spawn(move || env.run_worker())
            };
            let writer = {
                let env = env.clone();
                thread::spawn(move || {
                    for round in 0..ROUNDS {
                        put(&env, b"from/key", &[round; 100]);
                        let mut batch = Batch::new();
                        [D, OTHER].into_iter().for_each(|dict| batch.clone_range(dict, b"from/", b"to/"));
                        env.commit(&batch).unwrap();
                    }
                })
            };
            let rounds_of = |env: &betree::View| {
                let round =
                    |dict, key: &[u8]| env.get(dict, key).unwrap().and_then(|value| value.first().copied());
                [(D, &b"from/key"[..]), (OTHER, b"from/key"), (D, b"to/key"), (OTHER, b"to/key")]
                    .map(|(d, k)| round(d, k))
            };
            for _ in 0..4 {
                let view = env.view();
                let first = rounds_of(&view);
                thread::yield_now();
                assert_eq!(first[0], first[1], "a batch of puts is seen in part");
                assert_eq!(first[2], first[3], "a batch of clones is seen in part");
                let behind = first[0].map_or(0, |round| round + 1) - first[2].map_or(0, |round| round + 1);
                assert!(behind <= 1, "{first:?}");
                for _ in 0..2 {
                    thread::yield_now();
                    assert_eq!(rounds_of(&view), first);
                }
            }
            writer.join().unwrap();
            env.stop();
            worker.join().unwrap();
            assert_eq!(problems(&env), Vec::<String>::new());
        },
        schedules(100),
    );
}

#[test]
fn serializable_transactions_have_an_order_in_every_schedule() {
    check_random(
        || {
            let env = Arc::new(open(&Disk::holding(formatted()), 4 << 10));
            put(&env, b"a", b"1");
            put(&env, b"b", b"1");
            let worker = {
                let env = env.clone();
                thread::spawn(move || env.run_worker())
            };
            // Each takes one of two things away if both are there: one at least stays.
            let takers: Vec<_> = [b"a", b"b"]
                .into_iter()
                .map(|mine| {
                    let env = env.clone();
                    thread::spawn(move || {
                        env.run(Isolation::Serializable, |transaction| {
                            let there = [b"a", b"b"].map(|key| transaction.get(D, key).unwrap().is_some());
                            if there == [true, true] {
                                transaction.delete(D, mine)?;
                            }
                            Ok(())
                        })
                        .unwrap();
                    })
                })
                .collect();
            let counters: Vec<_> = (0..2)
                .map(|_| {
                    let env = env.clone();
                    thread::spawn(move || {
                        for _ in 0..3 {
                            env.run(Isolation::Snapshot, |transaction| {
                                let count = transaction.get(OTHER, b"count")?.map_or(0, |value| value[0]);
                                transaction.put(OTHER, b"count", &[count + 1])
                            })
                            .unwrap();
                        }
                    })
                })
                .collect();
            let checkpointer = {
                let env = env.clone();
                thread::spawn(move || env.checkpoint().unwrap())
            };
            takers.into_iter().chain(counters).chain([checkpointer]).for_each(|t| t.join().unwrap());
            let left = [b"a", b"b"].map(|key| env.get(D, key).unwrap().is_some());
            assert_ne!(left, [false, false], "both were taken");
            assert_eq!(env.get(OTHER, b"count").unwrap(), Some(vec![6]), "a count was lost");
            env.stop();
            worker.join().unwrap();
            assert_eq!(problems(&env), Vec::<String>::new());
        },
        schedules(150),
    );
}

/// Ingests enough pairs for leaves on several levels, with helpers that encode and write.
fn ingest_with_helpers(env: &Arc<Env>, round: usize, pairs: usize) -> betree::Result<betree::Ingested> {
    let helpers: Vec<_> = (0..2)
        .map(|_| {
            let env = env.clone();
            thread::spawn(move || env.run_writeback())
        })
        .collect();
    let done = env.ingest(D, (0..pairs).map(|n| Ok::<_, betree::Error>((key(round, n), [n as u8; 60]))));
    env.stop();
    helpers.into_iter().for_each(|t| t.join().unwrap());
    done
}

#[test]
fn what_other_threads_write_of_an_ingest_is_whole_when_it_returns() {
    check_random(
        || {
            let disk = Disk::holding(formatted());
            let env = Arc::new(open(&disk, 64 << 10));
            let ingested = ingest_with_helpers(&env, 1, 40).unwrap();
            assert!(ingested.written_bytes > 0 && ingested.pairs == 40, "{ingested:?}");
            env.sync().unwrap();
            let after_crash = open(&Disk::holding(disk.durable()), 1 << 20);
            for n in 0..40 {
                let found = after_crash.get(D, &key(1, n)).unwrap();
                assert_eq!(found.as_deref(), Some(&[n as u8; 60][..]), "key {n}");
            }
            assert_eq!(problems(&after_crash), Vec::<String>::new());
        },
        schedules(60),
    );
}

#[test]
fn a_write_of_another_thread_that_fails_fails_the_ingest_and_leaves_nothing_of_it() {
    check_random(
        || {
            let disk = Disk::holding(formatted());
            let env = Arc::new(open(&disk, 64 << 10));
            put(&env, &key(0, 0), b"before");
            // The second frees what the first one's predecessor named alone.
            (0..2).for_each(|_| env.checkpoint().unwrap());
            let free_bytes = env.space().free_bytes;
            *disk.writes_left.lock().unwrap() = Some(3);
            assert!(ingest_with_helpers(&env, 1, 40).is_err());
            // A page of the node table is to be written, which had the ids of its nodes.
            assert!(env.space().free_bytes >= free_bytes - BLOCK_BYTES as u64);
            assert_eq!(env.get(D, &key(0, 0)).unwrap().as_deref(), Some(&b"before"[..]));
            assert!((0..40).all(|n| env.get(D, &key(1, n)).unwrap().is_none()));
        },
        schedules(60),
    );
}

/// Tasks with stacks for an opening, whose superblocks are large.
fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 256 << 10;
    config
}

/// Tries as many random schedules.
fn check_random(test: impl Fn() + Send + Sync + 'static, schedules: usize) {
    Runner::new(RandomScheduler::new(schedules), config()).run(test);
}

/// Tries as many schedules with a bounded number of preemptions.
fn check_pct(test: impl Fn() + Send + Sync + 'static, schedules: usize, depth: usize) {
    Runner::new(PctScheduler::new(depth, schedules), config()).run(test);
}
