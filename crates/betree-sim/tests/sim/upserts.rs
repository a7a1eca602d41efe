//! Upserts that make values which are large, or too large to be stored: they concern their own key alone.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use betree::{Batch, Cut, DictId, Env, Geometry, Options, Upsert};
use betree_platform::Device;
use betree_sim::{MemDevice, Setup, format_env, problems};

const D: DictId = DictId(0);
const KIB: usize = 1 << 10;
const SETUP: Setup = Setup {
    geometry: Geometry {
        node_bytes: 64 << 10,
        basement_bytes: 8 << 10,
        fanout_max: 8,
        log_bytes: 1 << 20,
        dicts: 1,
    },
    cache_bytes: 2 << 20,
    volume_bytes: 64 << 20,
    seeks: true,
};

/// Appends as many zeros as the delta says.
struct Zeros;

impl Upsert for Zeros {
    fn name(&self) -> &str {
        "zeros"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        let more = delta.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Some(vec![0; old.map_or(0, <[u8]>::len) + more as usize])
    }
}

fn open(device: &Arc<MemDevice>) -> Env {
    Env::open(device.clone(), Options::new(SETUP.cache_bytes, Arc::new(Zeros))).unwrap()
}

fn change(env: &Env, key: &[u8], more: Option<usize>) {
    let mut batch = Batch::new();
    match more {
        Some(more) => batch.upsert(D, key, &(more as u64).to_le_bytes()),
        None => batch.put(D, key, &[7; 100]),
    }
    env.commit(&batch).unwrap();
}

/// The key and the length of each value, as a scan and as point queries find them.
fn found(env: &Env) -> Vec<(Vec<u8>, usize)> {
    let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
    let mut found = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        found.push((key.to_vec(), value.len()));
    }
    for (key, len) in &found {
        assert_eq!(env.get(D, key).unwrap().map(|value| value.len()), Some(*len));
    }
    found
}

/// A value grows beyond node, log and cache as far as it may, and another one would be far too large. Both
/// pass through memtables, flushes, checkpoints, a crash and a replay, and keep what they were before the
/// delta that is too much. The keys around them are as they were put.
#[test]
fn no_size_of_a_value_stops_a_flush_or_a_replay() {
    let device = Arc::new(MemDevice::new(SETUP.volume_bytes).which_seeks(true));
    format_env(&(device.clone() as Arc<dyn Device>), &SETUP).unwrap();
    let env = open(&device);
    let most = env.batch_bytes_max();
    let names: Vec<Vec<u8>> = (0..2000).map(|number| format!("k{number:04}").into_bytes()).collect();
    let mut expected: Vec<(Vec<u8>, usize)> = names.iter().map(|name| (name.clone(), 100)).collect();
    for (turn, names) in names.chunks(100).enumerate() {
        names.iter().for_each(|name| change(&env, name, None));
        for key in [&b"k0500 grows"[..], b"k0501 grows", b"k0502 grows"] {
            change(&env, key, Some(20 * KIB));
        }
        change(&env, b"k0700 too large", Some(if turn == 2 { 10 } else { 1 << 30 }));
        env.sync().unwrap();
        if turn % 4 == 3 {
            env.checkpoint().unwrap();
        }
    }
    let grown = most / (20 * KIB) * (20 * KIB);
    assert!((100 * KIB..20 * 20 * KIB).contains(&grown));
    expected.extend(["k0500", "k0501", "k0502"].map(|key| (format!("{key} grows").into_bytes(), grown)));
    expected.push((b"k0700 too large".to_vec(), 10));
    expected.sort();
    assert_eq!(found(&env), expected);
    change(&env, b"k0500 grows", None);
    change(&env, b"k0500 grows", Some(1));
    env.sync().unwrap();
    env.abandon();
    drop(env);

    let env = open(&device);
    expected.iter_mut().filter(|(key, _)| key == b"k0500 grows").for_each(|(_, len)| *len = 101);
    assert_eq!(found(&env), expected, "replayed");
    assert_eq!(problems(&env).unwrap(), [""; 0]);
    env.close().unwrap();
    assert_eq!(found(&open(&device)), expected, "read back");
}
