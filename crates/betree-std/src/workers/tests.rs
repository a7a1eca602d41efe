use betree::{Batch, DictId, Geometry, Options, Replace};
use betree_platform::DeviceOp;
use betree_sim::{EIO, Fault, MemDevice};

use super::*;

const GEOMETRY: Geometry =
    Geometry { node_bytes: 64 << 10, basement_bytes: 8 << 10, fanout_max: 8, log_bytes: 1 << 20, dicts: 1 };

fn volume() -> (Arc<MemDevice>, Arc<Env>) {
    let device = Arc::new(MemDevice::new(64 << 20));
    Env::format(device.clone(), &GEOMETRY, [7; 16]).unwrap();
    let options = Options::new(4 << 20, Arc::new(Replace));
    let env = Env::open(Arc::clone(&device) as Arc<dyn betree_platform::Device>, options).unwrap();
    (device, Arc::new(env))
}

fn put(env: &Env, key: &[u8]) {
    let mut batch = Batch::new();
    batch.put(DictId(0), key, b"value");
    env.commit(&batch).unwrap();
}

/// Waits until `done`, and fails after a long time.
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}: not after 20 s");
        thread::sleep(Duration::from_millis(1));
    }
}

fn fast(sync_ms: u64, checkpoint_ms: u64) -> WorkersOptions {
    WorkersOptions {
        threads: 2,
        sync_every: Duration::from_millis(sync_ms),
        checkpoint_every: Duration::from_millis(checkpoint_ms),
    }
}

#[test]
fn commits_are_synced_soon_and_once() {
    let (device, env) = volume();
    let workers = Workers::start(Arc::clone(&env), fast(5, 1 << 30)).unwrap();
    for i in 0..3u8 {
        let before = device.counts().syncs;
        put(&env, &[i]);
        wait_until("a sync", || device.counts().syncs > before);
    }
    // Ten periods without a commit: nothing is synced.
    thread::sleep(Duration::from_millis(10));
    let idle = device.counts().syncs;
    thread::sleep(Duration::from_millis(50));
    assert_eq!(device.counts().syncs, idle);
    workers.stop();
}

#[test]
fn a_volume_that_changes_is_checkpointed_and_one_that_rests_is_not() {
    let (_device, env) = volume();
    let workers = Workers::start(Arc::clone(&env), fast(1 << 30, 5)).unwrap();
    let before = env.stats().checkpoints;
    put(&env, b"a");
    wait_until("a checkpoint", || env.stats().checkpoints > before);
    thread::sleep(Duration::from_millis(10));
    let idle = env.stats().checkpoints;
    thread::sleep(Duration::from_millis(50));
    assert_eq!(env.stats().checkpoints, idle);
    workers.stop();
}

#[test]
fn counts_of_errors_are_kept_with_the_period_of_checkpoints_and_at_once_after_a_failure() {
    let (device, env) = volume();
    let kept = |env: &Arc<Env>| {
        let left = Arc::new(device.copy()) as Arc<dyn betree_platform::Device>;
        let superblock = betree::debug::superblocks(left, &mut |_| ()).unwrap().current.unwrap();
        superblock.errors() == env.errors()
    };
    put(&env, b"a");
    let mut timer = Timer::new(Arc::clone(&env), fast(5, 1 << 30));
    timer.tick(Instant::now());
    let idle = device.counts();
    timer.tick(Instant::now());
    assert_eq!(device.counts(), idle, "nothing has failed");

    put(&env, b"b");
    device.set_fault(Some(Fault { at_call: 1, op: Some(DeviceOp::Sync), errno: EIO, lasting: false }));
    timer.tick(Instant::now());
    assert!(timer.reported && !kept(&env));
    timer.tick(Instant::now());
    assert_eq!(env.errors().syncs.count, 1);
    assert!(kept(&env), "not at once");
    let idle = device.counts();
    timer.tick(Instant::now());
    timer.tick(Instant::now() + Duration::from_millis(2 << 30));
    assert_eq!(device.counts(), idle, "they are kept");
}

#[test]
fn stopping_is_prompt_whatever_the_periods_are() {
    let (_device, env) = volume();
    let workers = Workers::start(env, fast(1 << 30, 1 << 30)).unwrap();
    let start = Instant::now();
    drop(workers);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_failing_device_leaves_the_threads_alive_and_stoppable() {
    let (device, env) = volume();
    put(&env, b"a");
    device.set_fault(Some(Fault { at_call: 1, op: Some(DeviceOp::Sync), errno: EIO, lasting: true }));
    let mut timer = Timer::new(Arc::clone(&env), fast(5, 1 << 30));
    assert!(!timer.reported);
    timer.tick(Instant::now());
    assert!(timer.reported, "the failure is reported");
    assert_eq!(timer.synced_commits, 0, "failed syncs do not count");
    let workers = Workers::start(Arc::clone(&env), fast(5, 20)).unwrap();
    thread::sleep(Duration::from_millis(50));
    let start = Instant::now();
    workers.stop();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(Arc::strong_count(&env), 2, "all threads are gone: the test and its timer have the volume");
}

#[test]
fn a_volume_that_is_dropped_with_its_threads_is_closed() {
    let (device, env) = volume();
    let workers = Workers::start(Arc::clone(&env), fast(1 << 30, 1 << 30)).unwrap();
    put(&env, b"a");
    let before = device.counts().syncs;
    drop(env);
    assert_eq!(device.counts().syncs, before, "the threads still have it");
    drop(workers);
    let left = Arc::new(device.copy()) as Arc<dyn betree_platform::Device>;
    let env = Env::open(left, Options::new(4 << 20, Arc::new(Replace))).unwrap();
    assert_eq!(env.get(DictId(0), b"a").unwrap().as_deref(), Some(&b"value"[..]));
}
