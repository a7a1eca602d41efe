//! A node table that counts fewer references to a node than there are edges: the node may be in use when its
//! count says that it is free.

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

    let State::ReadOnly(trouble) = env.state() else { panic!("the miscount was not noticed") };
    assert!(trouble.why.contains(&format!("node {}", child.id.slot)), "{}", trouble.why);
    assert!(tree.table.lock().holds(child.id) && tree.dead.lock().is_empty());
    let mut batch = Batch::new();
    batch.put(D, b"key", b"value");
    assert!(matches!(env.commit(&batch), Err(Error::ReadOnly { .. })));
    env.abandon();
}
