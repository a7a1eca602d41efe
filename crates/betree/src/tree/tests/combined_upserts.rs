//! Upserts of one key become one where they move down together, and count once whatever a checkpoint under
//! way writes.

use super::*;
use crate::cache::RUNS_MAX;
use crate::key::Cut;
use crate::message::Msn;
use crate::upsert::Upsert;

/// The whole tree is the root: a leaf's worth of messages over nothing.
const ONE_NODE: Geometry = Geometry { node_bytes: 256 << 10, ..GEOMETRY };
const LOG: &[u8] = b"log";

/// Appends deltas, and combines all.
struct Joined;

impl Upsert for Joined {
    fn name(&self) -> &str {
        "joined"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        Some([old.unwrap_or_default(), delta].concat())
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        Some([older, newer].concat())
    }
}

fn open(device: &Arc<MemDevice>) -> Env {
    Env::open(device.clone(), Options::new(8 << 20, Arc::new(Joined))).unwrap()
}

/// Commits deltas, each in a memtable of its own, and flushes them to the root.
fn append(env: &Env, deltas: core::ops::Range<u32>) {
    for number in deltas {
        let mut batch = Batch::new();
        batch.upsert(D, LOG, format!("{number},").as_bytes());
        env.commit(&batch).unwrap();
        to_root(env);
    }
}

fn appended(deltas: core::ops::Range<u32>) -> Vec<u8> {
    deltas.flat_map(|number| format!("{number},").into_bytes()).collect()
}

/// The messages of the key at an edge of the root, by their numbers, oldest first.
fn waiting(env: &Env) -> Vec<Msn> {
    let tree = tree(env);
    let root = root(&tree);
    let edge = &root.edges()[root.edge_of(LOG)];
    let Some(piece) = &edge.partition else { return Vec::new() };
    let run = env.engine.store.run(piece).unwrap();
    let points = run.points(run.first_behind(&Cut::before(LOG)), run.first_behind(&Cut::just_after(LOG)));
    points.map(|point| point.msn).collect()
}

#[test]
fn a_flush_gives_the_child_one_upsert_of_a_key_with_the_number_of_the_newest() {
    let device = formatted(&GEOMETRY);
    let env = open(&device);
    (0..KEYS).for_each(|number| put(&env, &key(number), &value(number)));
    to_root(&env);
    append(&env, 0..5);
    let tree = tree(&env);
    let before = waiting(&env);
    assert_eq!(before.len(), 5, "each came in a memtable of its own");
    let above = root(&tree);
    let child = above.edges()[above.edge_of(LOG)].child.unwrap();
    assert!(tree.node(child).unwrap().height > 0);
    tree.flush(&above, above.edge_of(LOG), false).unwrap();
    assert!(waiting(&env).is_empty());
    let child = tree.node(child).unwrap();
    let piece = child.edges()[child.edge_of(LOG)].partition.clone().unwrap();
    let run = env.engine.store.run(&piece).unwrap();
    let points: Vec<_> = run.points(0, run.len()).filter(|point| *point.key == *LOG).collect();
    assert_eq!(
        points.iter().map(|point| (point.msn, point.value)).collect::<Vec<_>>(),
        [(before[4], &appended(0..5)[..])]
    );
    assert_eq!(env.get(D, LOG).unwrap(), Some(appended(0..5)));
}

/// A partition in as many runs as there may be is written as one: its upserts become one before that, and a
/// checkpoint that writes it meanwhile does not make any of them count twice.
#[test]
fn upserts_of_a_partition_in_too_many_runs_become_one_and_count_once() {
    let device = formatted(&ONE_NODE);
    device.do_not_seek();
    let env = open(&device);
    let full = RUNS_MAX as u32;
    for number in 0..full {
        append(&env, number..number + 1);
        env.checkpoint().unwrap();
    }
    assert_eq!(waiting(&env).len(), RUNS_MAX);
    append(&env, full..full + 1);
    assert_eq!(waiting(&env), [Msn::from(full) + 1]);
    let mut committed = env.checkpoint.lock();
    let captured = env.engine.capture(Msn::from(full) + 2);
    append(&env, full + 1..full + 3);
    assert_eq!(waiting(&env).len(), 3, "the first of them is on its way to the device");
    let superblock = committed.superblock.clone();
    env.engine.write_checkpoint(&mut committed, captured, superblock, &|| ()).unwrap();
    drop(committed);
    append(&env, full + 3..full + 4);
    let all = Some(appended(0..full + 4));
    assert_eq!(env.get(D, LOG).unwrap(), all);
    env.close().unwrap();
    drop(env);
    let env = open(&device);
    assert_eq!(env.get(D, LOG).unwrap(), all);
    assert_eq!(problems(&env), Vec::<String>::new());
}
