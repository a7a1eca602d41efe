//! How a node is shown where a test or a panic prints one.

use alloc::format;

use super::*;

#[test]
fn a_node_is_shown_in_a_line_without_its_contents() {
    let env = open(&volume());
    let tree = tree(&env);
    let root = root(&tree);
    let edges = root.edges().len();
    let expected = format!(
        "node {} of height {} [before \"\", after \"\"): {edges} edges, 0 of them null, 0 GOTOs, {} bytes",
        root.id,
        root.height,
        root.content_bytes()
    );
    assert_eq!(format!("{root:?}"), expected);
    let leaf = (0..).find_map(|slot| {
        let id = tree.table.lock().nodes().nth(slot)?.0;
        tree.find(id).unwrap().filter(|node| node.height == 0)
    });
    let leaf = format!("{:?}", leaf.unwrap());
    assert!(leaf.contains("of height 0 [") && leaf.contains(" basements, ") && leaf.len() < 100, "{leaf}");
}
