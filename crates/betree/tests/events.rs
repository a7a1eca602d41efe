//! The engine's events for a subscriber of `tracing`: every target with its level and fields.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use betree::{Batch, Cut, DictId, Env, Error, Geometry, Options, Replace, State, Watcher};
use betree_std::FileDevice;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const VOLUME_BYTES: u64 = 16 << 20;
const GEOMETRY: Geometry =
    Geometry { node_bytes: 16 << 10, basement_bytes: 2048, fanout_max: 4, log_bytes: 1 << 20, dicts: 2 };
const D: DictId = DictId(1);

/// An event of the engine, its fields as text.
#[derive(Debug)]
struct Seen {
    target: &'static str,
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

impl Seen {
    /// The names of its fields.
    fn names(&self) -> Vec<&'static str> {
        self.fields.keys().copied().filter(|name| *name != "message").collect()
    }

    fn number(&self, field: &str) -> u64 {
        self.fields[field].parse().unwrap()
    }

    fn message(&self) -> &str {
        &self.fields["message"]
    }
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

/// Keeps the engine's events.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<Seen>>>);

impl Diary {
    fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Subscriber for Diary {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("betree::")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let (target, level) = (metadata.target(), *metadata.level());
        let mut seen = Seen { target, level, fields: BTreeMap::new() };
        event.record(&mut seen);
        self.0.lock().unwrap().push(seen);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A clock that goes on by a second each time it is asked.
#[derive(Default)]
struct Clock(Mutex<i64>);

impl Watcher for Clock {
    fn now_ns(&self) -> i64 {
        let mut now = self.0.lock().unwrap();
        *now += 1_000_000_000;
        *now
    }

    fn state_changed(&self, _: &State) {}

    fn copy_used(&self, _: &Error) {}

    fn work_failed(&self, _: &Error) {}
}

struct Volume {
    device: Arc<FileDevice>,
    _folder: tempfile::TempDir,
}

impl Volume {
    fn new() -> Volume {
        let folder = tempfile::tempdir().unwrap();
        let device = FileDevice::create(&folder.path().join("volume"), VOLUME_BYTES).unwrap();
        let device = Arc::new(device);
        Env::format(device.clone(), &GEOMETRY, [7; 16]).unwrap();
        Volume { device, _folder: folder }
    }

    fn open(&self, watcher: Option<Arc<dyn Watcher>>) -> Env {
        let mut options = Options::new(256 << 10, Arc::new(Replace));
        options.watcher = watcher;
        Env::open(self.device.clone(), options).unwrap()
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("dir/{number:05}").into_bytes()
}

fn put(env: &Env, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut batch = Batch::new();
        batch.put(D, &key(number), &number.to_le_bytes().repeat(50));
        env.commit(&batch).unwrap();
    }
}

/// One test at a time: an event whose place in the code another thread reaches first, without a subscriber,
/// might not be told.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The history of a test, and the events of it.
fn seen(history: impl FnOnce()) -> Vec<Seen> {
    let diary = Diary::default();
    tracing::subscriber::with_default(diary.clone(), history);
    diary.take()
}

fn of<'s>(seen: &'s [Seen], target: &str, with: &str) -> Vec<&'s Seen> {
    seen.iter().filter(|event| event.target == target && event.fields.contains_key(with)).collect()
}

#[test]
fn each_kind_of_event_has_its_level_and_its_fields() {
    let _turn = turn();
    let volume = Volume::new();
    let seen = seen(|| {
        let env = volume.open(Some(Arc::new(Clock::default())));
        put(&env, 0..4000);
        // Leaves with few keys are merged.
        for number in (0..4000).step_by(10) {
            let mut batch = Batch::new();
            batch.delete_range(D, &Cut::before(key(number + 1)), &Cut::before(key(number + 10)));
            env.commit(&batch).unwrap();
        }
        let mut batch = Batch::new();
        batch.clone_range(D, b"dir/", b"copy/");
        env.commit(&batch).unwrap();
        let env = Arc::new(env);
        let pairs = (0..500).map(|number| Ok::<_, Error>((format!("in/{number:05}"), [7; 200])));
        env.ingest(D, pairs).unwrap();
        env.checkpoint().unwrap();
        env.close().unwrap();
    });
    let kinds: [(&str, Level, &[&str]); 12] = [
        ("betree::commit", Level::TRACE, &["bytes", "changes", "clones", "first_msn"]),
        ("betree::flush", Level::DEBUG, &["bytes", "dictionary", "node", "reached"]),
        ("betree::split", Level::DEBUG, &["bytes", "dictionary", "node", "parts"]),
        ("betree::merge", Level::DEBUG, &["bytes", "dictionary", "edges", "node"]),
        ("betree::clone", Level::DEBUG, &["clones", "deletes", "dictionary", "nodes"]),
        ("betree::ingest", Level::DEBUG, &["bytes", "dictionary", "nodes", "pairs"]),
        ("betree::checkpoint", Level::INFO, &["clean"]),
        ("betree::checkpoint", Level::INFO, &["next_msn", "nodes", "pages"]),
        ("betree::checkpoint", Level::INFO, &["bytes", "duration_ns", "generation"]),
        ("betree::evict", Level::TRACE, &["bytes", "left_bytes", "pieces"]),
        ("betree::evict", Level::TRACE, &["dictionary", "headers"]),
        ("betree::recover", Level::INFO, &["dictionaries", "generation", "was_closed"]),
    ];
    for (target, level, fields) in kinds {
        let found = seen.iter().find(|event| event.target == target && event.names() == fields);
        assert_eq!(found.map(|event| event.level), Some(level), "{target} with {fields:?}");
    }
    let is_known = |event: &&Seen| {
        kinds.iter().any(|(target, _, fields)| event.target == *target && event.names() == *fields)
    };
    assert!(seen.iter().all(|event| is_known(&event)), "{:?}", seen.iter().find(|event| !is_known(event)));

    let commits = of(&seen, "betree::commit", "first_msn");
    assert_eq!(commits.len(), 4000 + 400 + 1);
    assert!(commits.iter().all(|event| event.number("changes") == 1 && event.number("bytes") > 10));
    assert_eq!(commits.iter().map(|event| event.number("clones")).sum::<u64>(), 1);
    assert_eq!(commits[0].number("first_msn"), 1);
    assert_eq!(commits[1].number("first_msn"), 2);
    let clones = of(&seen, "betree::clone", "clones");
    assert_eq!(clones.len(), 1);
    assert_eq!((clones[0].number("clones"), clones[0].number("dictionary")), (1, 1));
    let ingests = of(&seen, "betree::ingest", "pairs");
    assert_eq!(ingests.len(), 1);
    assert_eq!((ingests[0].number("pairs"), ingests[0].number("dictionary")), (500, 1));
    assert!(ingests[0].number("nodes") >= 8 && ingests[0].number("bytes") > 4096 * 8);
    assert!(of(&seen, "betree::split", "parts").iter().any(|event| event.number("parts") == 2));
    assert!(of(&seen, "betree::merge", "edges").iter().all(|event| event.number("edges") >= 2));
    assert!(of(&seen, "betree::evict", "pieces").iter().all(|event| event.number("bytes") > 0));
    // All that was put came down: as one memtable after the other, and from node to node.
    let flushed = |with: &str| {
        let flushes = seen.iter().filter(|event| event.target == "betree::flush");
        flushes.filter(|event| event.message().contains(with)).map(|event| event.number("bytes")).sum::<u64>()
    };
    assert!(flushed("memtable") > 4000 * 200, "{}", flushed("memtable"));
    assert!(flushed("messages of a node") > 0);
}

#[test]
fn a_checkpoint_is_seen_from_its_beginning_to_its_end() {
    let _turn = turn();
    let volume = Volume::new();
    let env = volume.open(Some(Arc::new(Clock::default())));
    let told = |history: &dyn Fn()| -> Vec<Seen> {
        let seen = seen(history);
        seen.into_iter().filter(|event| event.target == "betree::checkpoint").collect()
    };
    put(&env, 0..10);
    let before = env.stats().device_write_bytes;
    let [begin, captured, committed] = told(&|| env.checkpoint().unwrap()).try_into().unwrap();
    let superblocks_bytes = 2 * 4096;
    assert_eq!(begin.fields["clean"], "false");
    assert_eq!((captured.number("next_msn"), captured.number("nodes")), (11, 2), "a root and a leaf");
    assert_eq!(committed.number("bytes"), env.stats().device_write_bytes - before - superblocks_bytes);
    assert_eq!(committed.number("duration_ns"), 1_000_000_000, "the clock was asked twice");
    let [_, end] = told(&|| env.checkpoint().unwrap()).try_into().unwrap();
    assert_eq!(end.message(), "nothing has changed since the last checkpoint");
    let generation = committed.number("generation");
    let [begin, _, committed] = told(&|| env.close().unwrap()).try_into().unwrap();
    assert_eq!((begin.fields["clean"].as_str(), committed.number("generation")), ("true", generation + 1));
}

#[test]
fn a_recovery_tells_what_it_replayed_and_without_a_clock_no_duration() {
    let _turn = turn();
    let volume = Volume::new();
    let env = volume.open(None);
    put(&env, 0..10);
    env.sync().unwrap();
    put(&env, 10..15);
    env.sync().unwrap();
    env.abandon();
    drop(env);
    let reopened = seen(|| volume.open(None).close().unwrap());
    let [replayed] = of(&reopened, "betree::recover", "segments").try_into().unwrap();
    assert_eq!(["segments", "batches", "next_msn"].map(|field| replayed.number(field)), [2, 15, 16]);
    let [opened] = of(&reopened, "betree::recover", "was_closed").try_into().unwrap();
    assert_eq!(opened.fields["was_closed"], "false");
    assert!(of(&reopened, "betree::checkpoint", "duration_ns").is_empty());
    assert!(!of(&reopened, "betree::checkpoint", "generation").is_empty());
    let reopened = seen(|| drop(volume.open(None)));
    assert!(of(&reopened, "betree::recover", "segments").is_empty(), "it was closed");
    assert_eq!(of(&reopened, "betree::recover", "was_closed")[0].fields["was_closed"], "true");
}
