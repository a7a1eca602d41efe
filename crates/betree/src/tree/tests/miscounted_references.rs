//! A node table that counts fewer references to a node than there are edges, or does not hold a node that a
//! tree has: the node may be in use when the table says that it is free.

use super::*;
use crate::error::Error;
use crate::health::State;

#[test]
fn references_below_zero_make_the_volume_read_only_and_free_nothing() {
    let env = open(&volume());
    let tree = tree(&env);
    let (edge, child) = interior_children(&tree).swap_remove(0);
    assert_eq!(tree.table.lock().count(child.id, -1), Some(0));
    // The edge that the table did not count goes.
    let root = root(&tree);
    let mut edges = root.edges().to_vec();
    *edges.first_mut().unwrap() = Edge::null(edge.lo.clone(), edge.hi.clone());
    let changed = Vec::from([tree.with_body(&root, Body::Interior(edges))]);
    tree.install(TreeChange { changed, ..TreeChange::default() });

    assert_read_only(&env, child.id);
    assert!(tree.table.lock().holds(child.id) && tree.dict.dead.lock().is_empty());
    env.abandon();
}

fn assert_read_only(env: &Env, id: NodeId) {
    let State::ReadOnly(trouble) = env.state() else { panic!("the mismatch was not noticed") };
    assert!(trouble.why.contains(&format!("node {id}")), "{}", trouble.why);
    let mut batch = Batch::new();
    batch.put(D, b"key", b"value");
    assert!(matches!(env.commit(&batch), Err(Error::ReadOnly { .. })));
}

/// A tree that changes or drops a node which is in memory, though the table has let go of it.
#[test]
fn a_node_that_the_table_does_not_hold_makes_the_volume_read_only() {
    let changed = |node: Arc<Node>| TreeChange { changed: Vec::from([node]), ..TreeChange::default() };
    let removed = |node: Arc<Node>| TreeChange { removed: Vec::from([node.id]), ..TreeChange::default() };
    let changes: [&dyn Fn(Arc<Node>) -> TreeChange; 2] = [&changed, &removed];
    for change in changes {
        let env = open(&volume());
        let tree = tree(&env);
        let (_, child) = interior_children(&tree).swap_remove(0);
        tree.table.lock().remove(child.id);
        assert_eq!(env.state(), State::Writable);
        tree.install(change(child.clone()));
        assert_read_only(&env, child.id);
        env.abandon();
    }
}
