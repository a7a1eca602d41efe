use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::*;
use crate::batch::Batch;
use crate::error::Error;
use crate::health::Watcher;
use crate::io::mem::MemDevice;
use crate::key::KEY_BYTES_MAX;
use crate::settings::{Geometry, Options};
use crate::stall::Writes;
use crate::upsert::Replace;

/// Threads that each found room in the log may together take more than there was.
#[test]
fn a_sync_that_finds_no_room_in_the_log_makes_a_checkpoint() {
    let geometry = Geometry {
        node_bytes: 16 << 10,
        basement_bytes: 4096,
        fanout_max: 4,
        log_bytes: 128 << 10,
        dicts: 1,
    };
    let device = MemDevice::new(2048);
    Env::format(device.clone(), &geometry, [1; 16]).unwrap();
    let env = Env::open(device, Options::new(1 << 20, Arc::new(Replace))).unwrap();
    let before = env.stats();
    for number in 0..40u8 {
        let mut batch = Batch::new();
        batch.put(DictId(0), &[number], &[number; 6000]);
        // As a thread that found room before the others took it.
        let mut commit = env.commit.lock();
        env.log.append(commit.next_msn, 1, batch.record()).unwrap();
        env.engine.take(commit.next_msn, batch.record()).unwrap();
        commit.next_msn += 1;
        drop(commit);
        env.sync().unwrap();
    }
    let now = env.stats();
    let (logged, checkpoints) = (now.log_writes - before.log_writes, now.checkpoints - before.checkpoints);
    assert!(logged > 30 && checkpoints > 0, "{logged} segments, {checkpoints} checkpoints");
}

/// A commit holds locks that others wait for, so it leaves what is pending to a writer that waits for room.
#[test]
fn writers_that_wait_for_room_write_ahead_of_a_sync_and_commits_do_not() {
    let geometry = Geometry {
        node_bytes: 1 << 20,
        basement_bytes: 64 << 10,
        fanout_max: 16,
        log_bytes: 64 << 20,
        dicts: 1,
    };
    let device = MemDevice::new(40 << 10);
    Env::format(device.clone(), &geometry, [1; 16]).unwrap();
    // The log keeps a sixteenth of it.
    let env = Env::open(device, Options::new(64 << 20, Arc::new(Replace))).unwrap();
    let put = |number| env.commit(&noisy(number, 60_000)).unwrap();
    for number in 0..2 {
        put(number);
        env.sync().unwrap();
    }
    let before = env.stats().log_writes;
    (0..36).for_each(put);
    assert_eq!((env.stats().log_writes, env.log.pending_bytes() > 2 << 20), (before, true));
    env.throttle(60_000).unwrap();
    assert!(env.stats().log_writes > before);
    assert_eq!(env.log.pending_bytes(), 0);
}

/// What comes while someone syncs is not given up, so that the next sync has no checkpoint to wait for. The
/// log keeps a sixteenth of the cache, 64 KiB.
#[test]
fn much_that_comes_during_a_sync_is_made_durable_by_the_log() {
    let env = env_of(1, 1 << 20);
    let counts = || (env.stats().checkpoints, env.stats().log_writes);
    // Each takes two blocks of the log, so the last one is too much: a further one would wait.
    let put_much = || {
        for number in 0..9 {
            env.commit(&noisy(number, 6000)).unwrap();
        }
    };
    let before = counts();
    put_much();
    env.sync().unwrap();
    assert_eq!(counts(), (before.0 + 1, before.1), "nobody was syncing: a checkpoint");
    let before = counts();
    let under_way = env.log.begin_sync();
    put_much();
    assert!(env.log.has_too_much_pending(Writes::Much));
    std::thread::scope(|scope| {
        // Also ends where this fails: the other thread waits for it.
        let _under_way = under_way;
        let waits = scope.spawn(|| env.commit(&noisy(9, 6000)).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!waits.is_finished());
        env.sync().unwrap();
        waits.join().unwrap();
    });
    assert!(!env.log.has_too_much_pending(Writes::Much));
    assert_eq!(counts(), (before.0, before.1 + 1), "one write to the log");
}

/// An environment of `dicts` dictionaries on a device of 8 MiB.
fn env_of(dicts: u8, cache_bytes: usize) -> Env {
    let geometry =
        Geometry { node_bytes: 64 << 10, basement_bytes: 8192, fanout_max: 8, log_bytes: 2 << 20, dicts };
    let device = MemDevice::new(2048);
    Env::format(device.clone(), &geometry, [1; 16]).unwrap();
    Env::open(device, Options::new(cache_bytes, Arc::new(Replace))).unwrap()
}

#[test]
fn stats_tell_how_full_the_log_is_and_whether_a_checkpoint_is_under_way() {
    let env = env_of(1, 1 << 20);
    env.checkpoint().unwrap();
    let empty = env.stats().log_used_bytes;
    env.commit(&noisy(1, 6000)).unwrap();
    // Also before it is written.
    assert!(env.stats().log_used_bytes >= empty + 6000);
    env.checkpoint().unwrap();
    assert!(env.stats().log_used_bytes < empty + 6000);
    env.commit(&noisy(2, 6000)).unwrap();
    let captured = env.capture().unwrap();
    let mut committed = env.checkpoint.lock();
    let superblock = committed.superblock.clone();
    let seen = core::cell::Cell::new(0);
    let look = || seen.set(env.stats().checkpoints_under_way);
    env.engine.write_checkpoint(&mut committed, captured, superblock, &look).unwrap();
    assert_eq!((seen.get(), env.stats().checkpoints_under_way), (1, 0));
}

#[test]
fn background_work_passes_over_a_dictionary_that_is_busy() {
    let env = env_of(3, 1 << 20);
    // The first is busy and has nothing to do, the second is busy and full, the third is full.
    for (number, dict) in [1, 2].into_iter().flat_map(|dict| (0..20u8).map(move |n| (n, dict))) {
        let mut batch = Batch::new();
        batch.put(DictId(dict), &[number], &[number; 4000]);
        env.commit(&batch).unwrap();
    }
    let frozen = |dict: usize| env.engine.dicts[dict].state.read().frozen.len();
    assert_eq!([0, 1, 2].map(frozen), [0, 1, 1]);
    let busy = [0, 1].map(|dict| env.engine.dicts[dict].structure.lock());
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel();
        let env = &env;
        scope.spawn(move || done.send(env.run_due_work()));
        let seen = is_done.recv_timeout(std::time::Duration::from_secs(10));
        drop(busy);
        assert_eq!(seen, Ok(Ok(true)), "it worked on the third dictionary");
    });
    assert_eq!([0, 1, 2].map(frozen), [0, 1, 0]);
    assert!(env.run_due_work().unwrap());
    assert_eq!(frozen(1), 0);
}

/// Ends the threads of an environment, also where a test fails: the scope waits for them.
struct Stop<'e>(&'e Env);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Who writes little does not wait where large writers fill all room as soon as there is any.
#[test]
fn small_changes_go_past_a_stall_of_large_ones() {
    let env = env_of(2, 1 << 20);
    let small = |number: u64| {
        let mut batch = Batch::new();
        batch.put(DictId(1), &number.to_be_bytes(), &[7; 64]);
        batch
    };
    std::thread::scope(|scope| {
        let stop = Stop(&env);
        // Does nothing, so that a stall lasts. Before it serves, who writes makes room alone and never waits.
        let worker = scope.spawn(|| env.scheduler.serve(|| false));
        poll(|| env.scheduler.has_workers());
        let fill = scope.spawn(|| (0..1000).try_for_each(|number| env.commit(&noisy(number % 10, 6000))));
        poll(|| env.is_crowded(6000, Writes::Much));
        const FEW: u64 = 100;
        (0..FEW).for_each(|number| env.commit(&small(number)).unwrap());
        assert!(!fill.is_finished(), "large ones wait");
        // Not without end.
        let endless = scope.spawn(|| (FEW..20_000).try_for_each(|number| env.commit(&small(number))));
        poll(|| env.is_crowded(64, Writes::Little));
        assert!(!endless.is_finished());
        drop(stop);
        worker.join().unwrap();
        fill.join().unwrap().unwrap();
        endless.join().unwrap().unwrap();
    });
}

/// Waits until a condition holds.
fn poll(holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed().as_secs() < 60, "it does not come true");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed << 1 | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A batch of one value that does not compress.
fn noisy(key: u64, len: usize) -> Batch {
    let mut batch = Batch::new();
    batch.put(DictId(0), &key.to_be_bytes(), &noise(key, len));
    batch
}

/// Puts values at increasing keys until one is refused for want of space.
fn fill(env: &Env, first: u64, len: usize) {
    let refused = (first..).find_map(|key| env.commit(&noisy(key, len)).err());
    assert_eq!(refused, Some(Error::NoSpace));
}

/// An environment with `free_bytes` free, or a little more.
fn nearly_full(free_bytes: u64) -> Env {
    let env = env_of(1, 64 << 10);
    for key in 0.. {
        let more = env.space().free_bytes.saturating_sub(free_bytes);
        if more < 9000 {
            env.checkpoint().unwrap();
            if env.space().free_bytes < free_bytes + 9000 {
                break;
            }
        }
        env.commit(&noisy(key, 4000)).unwrap();
    }
    env
}

#[test]
fn one_of_two_simultaneous_batches_is_refused_if_there_is_room_for_one() {
    let env = nearly_full(150_000);
    let batches = [1 << 40, 2 << 40].map(|key| noisy(key, 100_000));
    let results = std::thread::scope(|scope| {
        let held = env.commit.lock();
        let threads = batches.each_ref().map(|batch| {
            let env = &env;
            scope.spawn(move || env.commit(batch))
        });
        // Both threads reach this lock.
        std::thread::sleep(std::time::Duration::from_millis(200));
        drop(held);
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(results.contains(&Ok(())) && results.contains(&Err(Error::NoSpace)), "{results:?}");
    env.checkpoint().unwrap();
    let least = env.engine.room().reserve_bytes() + env.engine.room().owed_bytes();
    assert!(
        env.engine.room().free_bytes() >= least,
        "{} of {least} bytes are free",
        env.engine.room().free_bytes()
    );
}

#[test]
fn a_full_device_accepts_replacing_batches_and_refuses_adding_ones() {
    let env = env_of(1, 64 << 10);
    fill(&env, 0, 4000);
    let value = noise(7, 8000);
    let moved = |number: u64| {
        let mut batch = Batch::new();
        batch.delete(DictId(0), &number.to_be_bytes());
        batch.put(DictId(0), &(1 << 41 | number).to_be_bytes(), &value);
        batch.mark_replacing();
        batch
    };
    // Each takes the place of two values of 4000 bytes.
    for number in 0..300 {
        let mut batch = moved(2 * number);
        batch.delete(DictId(0), &(2 * number + 1).to_be_bytes());
        env.commit(&batch).unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    fill(&env, 1 << 40, 4000);
    // Batches that claim to replace, but add, are refused before the reserve is used up.
    let refused = (1 << 20..).find_map(|number| env.commit(&moved(number)).err());
    assert_eq!(refused, Some(Error::NoSpace));
    env.checkpoint().unwrap();
    let mut batch = Batch::new();
    batch.delete_range(DictId(0), &Cut::LOW, &Cut::HIGH);
    env.commit(&batch).unwrap();
    env.commit(&noisy(1 << 40, 100_000)).unwrap();
}

#[test]
fn room_set_aside_is_only_for_batches_that_draw_on_it() {
    let env = nearly_full(1 << 20);
    let free = env.space().free_bytes;
    assert_eq!(env.set_aside(free + (64 << 10)), Err(Error::NoSpace));
    env.set_aside(700_000).unwrap();
    assert!(env.space().free_bytes <= free - 700_000);
    assert_eq!(env.set_aside(700_000), Err(Error::NoSpace), "the room is given once");
    fill(&env, 1 << 40, 1000);
    for key in 0..700 {
        let mut batch = noisy(2 << 40 | key, 1000);
        batch.draw(1000);
        env.commit(&batch).unwrap_or_else(|error| panic!("{key}: {error}"));
    }
    assert_eq!(env.commit(&noisy(3 << 40, 10_000)), Err(Error::NoSpace));
    // Room that is put back is free for all batches.
    let mut batch = Batch::new();
    batch.delete_range(DictId(0), &Cut::before((2u64 << 40).to_be_bytes()), &Cut::HIGH);
    env.commit(&batch).unwrap();
    env.reclaim().unwrap();
    env.set_aside(500_000).unwrap();
    assert_eq!(env.commit(&noisy(3 << 40, 220_000)), Err(Error::NoSpace));
    env.put_back(500_000);
    env.commit(&noisy(3 << 40, 220_000)).unwrap();
}

const SMALL: Geometry =
    Geometry { node_bytes: 16 << 10, basement_bytes: 4096, fanout_max: 4, log_bytes: 128 << 10, dicts: 1 };

fn open(device: &Arc<MemDevice>) -> Env {
    Env::open(device.clone(), Options::new(1 << 20, Arc::new(Replace))).unwrap()
}

/// An environment with an unsynced change.
fn unsynced(device: &Arc<MemDevice>) -> Env {
    Env::format(device.clone(), &SMALL, [1; 16]).unwrap();
    let env = open(device);
    let mut batch = Batch::new();
    batch.put(DictId(0), b"key", b"value");
    env.commit(&batch).unwrap();
    env
}

/// The state after a crash: whether the volume is clean, and the value.
fn left(device: &Arc<MemDevice>) -> (bool, Option<alloc::vec::Vec<u8>>) {
    let crashed = MemDevice::holding(device.durable_bytes());
    let disk = crate::io::Disk::new(crashed.clone());
    let clean = crate::format::superblock::slots::load(&disk).unwrap().superblock.clean;
    (clean, open(&crashed).get(DictId(0), b"key").unwrap())
}

#[test]
fn the_last_drop_closes_the_environment() {
    let device = MemDevice::new(2048);
    let env = Arc::new(unsynced(&device));
    let other = env.clone();
    drop(env);
    assert_eq!(left(&device), (false, None));
    drop(other);
    assert_eq!(left(&device), (true, Some(b"value".to_vec())));
}

#[test]
fn dropping_a_closed_environment_writes_nothing() {
    let device = MemDevice::new(2048);
    let env = unsynced(&device);
    env.close().unwrap();
    let (bytes, writes) = (device.bytes(), env.stats().device_writes);
    env.close().unwrap();
    assert_eq!(env.stats().device_writes, writes);
    drop(env);
    assert!(device.bytes() == bytes);
}

#[test]
fn abandoning_and_dropping_in_a_panic_are_crashes() {
    let device = MemDevice::new(2048);
    let env = unsynced(&device);
    env.abandon();
    assert!(matches!(env.sync(), Err(Error::ReadOnly { .. })));
    assert!(matches!(env.checkpoint(), Err(Error::ReadOnly { .. })));
    drop(env);
    assert_eq!(left(&device), (false, None));

    let device = MemDevice::new(2048);
    let env = unsynced(&device);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _env = env;
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(left(&device), (false, None));
}

/// There is no room for a checkpoint; the log has room.
#[test]
fn a_drop_that_cannot_close_syncs() {
    let device = MemDevice::new(2048);
    let env = unsynced(&device);
    let space = env.engine.store.space.clone();
    let all: alloc::vec::Vec<_> = core::iter::from_fn(|| space.allocate(1, 1)).collect();
    assert!(all.len() > 100);
    drop(env);
    assert_eq!(left(&device), (false, Some(b"value".to_vec())));
}

/// Collects the reports of the environment.
#[derive(Default)]
struct Diary(std::sync::Mutex<alloc::vec::Vec<alloc::string::String>>);

impl Diary {
    fn take(&self) -> alloc::vec::Vec<alloc::string::String> {
        core::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Watcher for Diary {
    fn now_ns(&self) -> i64 {
        77
    }

    fn state_changed(&self, state: &State) {
        self.0.lock().unwrap().push(alloc::format!("{state:?}"));
    }

    fn work_failed(&self, error: &Error) {
        self.0.lock().unwrap().push(alloc::format!("work: {error}"));
    }

    fn copy_used(&self, error: &Error) {
        self.0.lock().unwrap().push(alloc::format!("copy: {error}"));
    }
}

/// A watched environment and its reports.
fn watched(device: &Arc<MemDevice>) -> (Env, Arc<Diary>) {
    Env::format(device.clone(), &SMALL, [1; 16]).unwrap();
    let diary = Arc::new(Diary::default());
    let options = Options { watcher: Some(diary.clone()), ..Options::new(1 << 20, Arc::new(Replace)) };
    (Env::open(device.clone(), options).unwrap(), diary)
}

fn put(env: &Env, number: u32) -> Result<()> {
    let mut batch = Batch::new();
    batch.put(DictId(0), &number.to_be_bytes(), &[7; 3000]);
    env.commit(&batch)
}

#[test]
fn commits_on_a_full_disk_become_durable_once_it_has_room() {
    let device = MemDevice::new(2048);
    let (env, diary) = watched(&device);
    put(&env, 0).unwrap();
    env.sync().unwrap();
    device.fill_up(true);
    // Memory accepts some more.
    let taken = (1..1000).take_while(|number| put(&env, *number).is_ok()).count() as u32;
    assert!((1..999).contains(&taken), "{taken}");
    for error in [put(&env, 1000), env.sync(), env.checkpoint(), env.run_due_work().map(|_| ())] {
        let error = error.unwrap_err();
        assert!(matches!(&error, Error::DeviceFull(_)), "{error}");
        assert!(error.to_string().contains("the disk under the volume is full"), "{error}");
    }
    let State::DeviceFull(trouble) = env.state() else { panic!("{:?}", env.state()) };
    assert_eq!(trouble.since_ns, 77);
    assert_eq!(diary.take().len(), 1, "it is reported once");
    assert_eq!(env.get(DictId(0), &1u32.to_be_bytes()).unwrap().unwrap(), [7; 3000]);

    device.fill_up(false);
    env.sync().unwrap();
    put(&env, 1001).unwrap();
    env.checkpoint().unwrap();
    assert_eq!((env.state(), diary.take()), (State::Writable, alloc::vec!["Writable".to_string()]));
    env.abandon();
    let env = open(&MemDevice::holding(device.durable_bytes()));
    for number in (0..=taken).chain([1001]) {
        assert!(env.get(DictId(0), &number.to_be_bytes()).unwrap().is_some(), "{number}");
    }
}

#[test]
fn a_failed_sync_makes_it_read_only_and_says_so_once() {
    let device = MemDevice::new(2048);
    let (env, diary) = watched(&device);
    put(&env, 0).unwrap();
    device.fail_syncs(true);
    assert!(matches!(env.sync(), Err(Error::Device(_))));
    device.fail_syncs(false);
    for refused in [put(&env, 1), env.sync(), env.checkpoint(), env.close()] {
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    }
    let State::ReadOnly(trouble) = env.state() else { panic!("{:?}", env.state()) };
    assert!(trouble.why.contains("device sync"), "{}", trouble.why);
    assert_eq!(diary.take().len(), 1);
}

/// Background work that cannot go on without unreadable data reports the place and the reason.
#[test]
fn a_read_error_of_background_work_is_reported_with_its_place() {
    let device = MemDevice::new(2048);
    let (env, diary) = watched(&device);
    (0..100).for_each(|number| put(&env, number).unwrap());
    env.close().unwrap();
    drop(env);
    let options = Options { watcher: Some(diary.clone()), ..Options::new(1 << 20, Arc::new(Replace)) };
    let env = Env::open(device.clone(), options).unwrap();
    device.fail_reads_of(160 << 10..2048 * 4096);
    let failed = (0..1000).find_map(|number| put(&env, number).err()).unwrap();
    assert!(matches!(failed, Error::Device(_)), "{failed}");
    let State::ReadOnly(trouble) = env.state() else { panic!("{:?}", env.state()) };
    assert!(trouble.why.contains("device read"), "{}", trouble.why);
    // Before, it went round what cannot be read as long as that was possible.
    let told = diary.take();
    let (last, before) = told.split_last().unwrap();
    assert!(last.contains("ReadOnly") && before.iter().all(|told| told.starts_with("work: ")), "{told:?}");
    assert_eq!(put(&env, 1), Err(Error::ReadOnly { why: trouble.why }));
}

#[test]
fn a_refusal_names_the_size_and_the_limit() {
    let env = env_of(1, 1 << 20);
    let told = |change: &dyn Fn(&mut Batch)| {
        let mut batch = Batch::new();
        batch.put(DictId(0), b"beside", &[0; 5000]);
        change(&mut batch);
        env.commit(&batch).unwrap_err().to_string()
    };
    let long = [7; KEY_BYTES_MAX + 1];
    let too_long = "a key of 65537 bytes is over the limit of 65536 bytes";
    assert_eq!(told(&|batch| batch.put(DictId(0), &long, b"")), too_long);
    assert_eq!(told(&|batch| batch.delete_range(DictId(0), &Cut::LOW, &Cut::before(long))), too_long);
    assert_eq!(told(&|batch| batch.clone_range(DictId(0), b"a", &long)), too_long);
    let limit = env.batch_bytes_max();
    let large = told(&|batch| batch.put(DictId(0), b"key", &alloc::vec![0; 300_000]));
    assert_eq!(large, alloc::format!("a batch of 305033 bytes is over the limit of {limit} bytes"));
    let geometry = env.engine.geometry;
    let small = Env::format(MemDevice::new(700), &geometry, [1; 16]).unwrap_err();
    let Error::TooSmall { bytes, least_bytes } = small else { panic!("{small}") };
    assert_eq!(bytes, 700 * 4096);
    assert!(Env::format(MemDevice::new((least_bytes / 4096 - 1) as usize), &geometry, [1; 16]).is_err());
    Env::format(MemDevice::new((least_bytes / 4096) as usize), &geometry, [1; 16]).unwrap();
}

#[test]
fn a_log_record_that_does_not_parse_is_reported_with_its_place() {
    let geometry = Geometry {
        node_bytes: 16 << 10,
        basement_bytes: 4096,
        fanout_max: 4,
        log_bytes: 128 << 10,
        dicts: 1,
    };
    let device = MemDevice::new(2048);
    Env::format(device.clone(), &geometry, [1; 16]).unwrap();
    let options = || Options::new(1 << 20, Arc::new(Replace));
    let env = Env::open(device.clone(), options()).unwrap();
    let mut commit = env.commit.lock();
    env.log.append(commit.next_msn, 1, &Arc::new(b"\x01o change is so".to_vec())).unwrap();
    commit.next_msn += 1;
    drop(commit);
    env.sync().unwrap();
    let crashed = MemDevice::holding(device.durable_bytes());
    let told = Env::open(crashed.clone(), options()).unwrap_err().to_string();
    assert!(told.starts_with("log segment at byte "), "{told}");
    assert!(told.ends_with("is damaged: a record does not hold the changes that it counts"), "{told}");
    // Opening it as damaged finds the same.
    let mut all = Vec::new();
    Env::open_damaged(crashed, options(), &mut |found| all.extend(found.into_problem())).unwrap();
    assert_eq!(
        all,
        ["1 record of the log, which begins at byte 16384, does not hold the changes that it counts"]
    );
}

#[test]
fn a_range_that_is_renamed_to_itself_stays() {
    let device = MemDevice::new(4096);
    Env::format(device.clone(), &Geometry::for_volume(16 << 20, 1), [1; 16]).unwrap();
    let env = Env::open(device, Options::new(1 << 20, Arc::new(Replace))).unwrap();
    let mut batch = Batch::new();
    batch.put(DictId(0), b"a/1", b"value");
    env.commit(&batch).unwrap();
    let mut batch = Batch::new();
    batch.rename_range(DictId(0), b"a/", b"a/");
    env.commit(&batch).unwrap();
    assert_eq!(env.get(DictId(0), b"a/1").unwrap().as_deref(), Some(&b"value"[..]));
}
