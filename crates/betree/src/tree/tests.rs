//! The tree on a damaged device, its writes while a checkpoint writes nodes that other threads merge, and its
//! number of reads for neighbouring pieces.

mod block_inheritance;
mod changes_during_checkpoint;
mod check_of_damage;
mod combined_upserts;
mod drain_gives_way;
mod header_eviction;
mod hostile_nodes;
mod lost_below_changes;
mod merge_while_written;
mod messages_over_basements;
mod miscounted_references;
mod range_delete_weight;
mod reads_in_one_go;
mod shown_nodes;
mod space_comes_back;
mod unreadable_blocks;
mod work_of_installs;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashSet;

use super::{Drain, Tree, TreeChange};
use crate::batch::Batch;
use crate::env::Env;
use crate::io::mem::MemDevice;
use crate::node::{Body, Edge, Node};
use crate::node_id::NodeId;
use crate::settings::{Compression, DictId, Geometry, Options};
use crate::upsert::Append;

const D: DictId = DictId(0);
/// Nodes of some blocks each.
const GEOMETRY: Geometry =
    Geometry { node_bytes: 16 << 10, basement_bytes: 2048, fanout_max: 8, log_bytes: 1 << 20, dicts: 1 };
const KEYS: u32 = 2000;
/// Leaves with enough basements for a scan to read ahead.
const LONG_LEAVES: Geometry =
    Geometry { node_bytes: 256 << 10, basement_bytes: 16 << 10, log_bytes: 2 << 20, ..GEOMETRY };
const KEYS_OF_LEAF: u32 = 1200;

fn open(device: &Arc<MemDevice>) -> Env {
    let options = Options::new(8 << 20, Arc::new(Append));
    Env::open(device.clone(), Options { compression: Compression::None, ..options }).unwrap()
}

fn formatted(geometry: &Geometry) -> Arc<MemDevice> {
    let device = MemDevice::new(4096);
    Env::format(device.clone(), geometry, [1; 16]).unwrap();
    device
}

/// No key has a separator, so every node has the dictionary's coordinates.
fn key(number: u32) -> Vec<u8> {
    format!("k{number:04}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    key(number).repeat(30)
}

/// An open volume of one long leaf, all of it on the device and in memory.
fn volume_with_long_leaf() -> (Arc<MemDevice>, Env) {
    let device = formatted(&LONG_LEAVES);
    let env = open(&device);
    // One batch, which is much for one child, goes to a leaf at once.
    let mut batch = Batch::new();
    (0..KEYS_OF_LEAF).for_each(|number| batch.put(D, &key(number), &value(number)));
    env.commit(&batch).unwrap();
    env.checkpoint().unwrap();
    (device, env)
}

fn only_leaf(tree: &Tree<'_>) -> Arc<Node> {
    tree.node(root(tree).edges().first().unwrap().child.unwrap()).unwrap()
}

fn put(env: &Env, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(D, key, value);
    env.commit(&batch).unwrap();
}

/// Flushes all commits to the root.
fn to_root(env: &Env) {
    env.engine.freeze(true);
    env.engine.absorb_all().unwrap();
}

/// A closed volume whose root has interior children with pending messages.
fn volume() -> Arc<MemDevice> {
    volume_of(&GEOMETRY)
}

/// As [`volume`], of another geometry.
fn volume_of(geometry: &Geometry) -> Arc<MemDevice> {
    let device = formatted(geometry);
    let env = open(&device);
    for number in 0..KEYS {
        put(&env, &key(number), &value(number));
    }
    for number in 0..KEYS / 2 {
        // Far apart and few at a time: too little for one child to go down.
        let number = number * 769 % KEYS;
        put(&env, &key(number), &value(number));
        if number.is_multiple_of(8) {
            to_root(&env);
        }
    }
    env.close().unwrap();
    let tree = tree(&env);
    assert!(root(&tree).height >= 2, "the root has interior children");
    device
}

fn tree(env: &Env) -> Tree<'_> {
    env.engine.tree(D).unwrap()
}

fn root(tree: &Tree<'_>) -> Arc<Node> {
    let id = tree.dict.state.read().root;
    tree.node(id).unwrap()
}

/// The interior children of the root, with the edges to them.
fn interior_children(tree: &Tree<'_>) -> Vec<(Edge, Arc<Node>)> {
    let root = root(tree);
    let children =
        root.edges().iter().filter_map(|edge| Some((edge.clone(), tree.node(edge.child?).unwrap())));
    children.filter(|(_, child)| child.height > 0).collect()
}

/// Where a node's header begins on the device, in bytes.
fn header_at(tree: &Tree<'_>, id: NodeId) -> usize {
    tree.table.lock().place(id).unwrap().extent.place(0) as usize
}

/// Installs a version of a node that the tree itself would never make, and writes it.
fn make_up(env: &Env, node: &Node, height: u8, body: Body) {
    let tree = tree(env);
    let (lo, hi) = match body.edges() {
        [first, .., last] => (first.lo.clone(), last.hi.clone()),
        [only] => (only.lo.clone(), only.hi.clone()),
        [] => (node.lo.clone(), node.hi.clone()),
    };
    let changed = Vec::from([tree.version(node.id, height, lo, hi, body)]);
    tree.install(TreeChange { changed, ..TreeChange::default() });
    env.checkpoint().unwrap();
}

fn problems(env: &Env) -> Vec<String> {
    let mut all = Vec::new();
    env.check(&mut |found| all.extend(found.into_problem()), &mut |_, _| ()).unwrap();
    all
}
