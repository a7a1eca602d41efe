//! Nodes with valid checksums that no engine would write: they cause an error or a finding of a check, never
//! an endless search or a panic.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::error::Error;
use crate::key::Cut;

/// Longer than any search here takes.
const TOO_LONG: Duration = Duration::from_secs(60);

/// Asserts that a query of the volume ends, with an error.
fn assert_refused<T: Send + 'static>(
    device: &Arc<MemDevice>,
    ask: impl FnOnce(&Arc<Env>) -> crate::error::Result<T> + Send + 'static,
) {
    let env = Arc::new(open(device));
    let (answer, answered) = mpsc::channel();
    thread::spawn(move || {
        let told = answer.send(ask(&env).map(|_| ()));
        // The next query must find the volume as it was.
        env.abandon();
        told
    });
    match answered.recv_timeout(TOO_LONG) {
        Ok(answer) => assert!(matches!(answer, Err(Error::Corrupt { .. })), "{answer:?}"),
        Err(error) => panic!("no answer: {error}"),
    }
}

/// Every operation that goes from node to node.
fn assert_all_refused(device: &Arc<MemDevice>, key: &'static [u8]) {
    assert_refused(device, move |env| env.get(D, key));
    assert_refused(device, move |env| {
        let mut cursor = env.cursor(D, Cut::before(key), Cut::HIGH);
        cursor.next().map(|pair| pair.is_some())
    });
    assert_refused(device, move |env| {
        let mut cursor = env.cursor(D, Cut::LOW, Cut::just_after(key));
        cursor.seek(&Cut::HIGH);
        cursor.prev().map(|pair| pair.is_some())
    });
    assert_refused(device, move |env| env.view().usage(D, &Cut::before(key), &Cut::just_after(key)));
    assert_refused(device, move |env| {
        let mut batch = Batch::new();
        batch.clone_range(D, key, b"copy");
        env.commit(&batch)
    });
}

/// A volume, and the first interior child of its root, which holds the first keys.
fn with_child<T>(device: &Arc<MemDevice>, change: impl FnOnce(&Env, &Node, &Node) -> T) -> T {
    let env = open(device);
    let tree = tree(&env);
    let (edge, child) = interior_children(&tree).swap_remove(0);
    assert_eq!(edge.lo, Cut::LOW);
    change(&env, &root(&tree), &child)
}

#[test]
fn an_edge_that_leads_back_to_the_root_is_refused() {
    let device = volume();
    with_child(&device, |env, root, child| {
        let mut edges = child.edges().to_vec();
        edges[0].child = Some(root.id);
        edges[0].partition = None;
        make_up(env, child, child.height, Body::Interior(edges));
    });
    assert_all_refused(&device, b"k0000");
}

/// Whatever is put into a window onto nothing waits there, or does not: that depends on how high nothing is.
#[test]
fn a_clone_into_a_window_onto_a_node_that_is_not_there_is_refused() {
    let device = volume();
    let env = open(&device);
    let root = root(&tree(&env));
    let mut edges = root.edges().to_vec();
    let last = edges.last_mut().unwrap();
    let prefix = last.lo.bytes().to_vec();
    last.child = Some(NodeId { slot: 99_999, generation: 1 });
    last.partition = None;
    make_up(&env, &root, root.height, Body::Interior(edges));
    env.close().unwrap();
    assert_refused(&device, move |env| {
        let mut batch = Batch::new();
        batch.clone_range(D, b"k01", &[prefix.as_slice(), b"x"].concat());
        env.commit(&batch)
    });
}

#[test]
fn a_node_of_another_height_than_the_node_table_says_is_refused() {
    let device = volume();
    with_child(&device, |env, _, child| {
        make_up(env, child, child.height + 1, Body::Interior(child.edges().to_vec()));
    });
    assert_refused(&device, |env| env.get(D, b"k0000"));
}

#[test]
fn a_node_that_lies_beside_the_window_onto_it_is_refused() {
    for edges in [
        // Behind the window, before it, and in its middle.
        [Edge::null(Cut::before(*b"x"), Cut::before(*b"y")), Edge::null(Cut::before(*b"y"), Cut::HIGH)],
        [Edge::null(Cut::LOW, Cut::before(*b"a")), Edge::null(Cut::before(*b"a"), Cut::before(*b"b"))],
        [
            Edge::null(Cut::before(*b"k0001"), Cut::before(*b"k0002")),
            Edge::null(Cut::before(*b"k0002"), Cut::before(*b"k0003")),
        ],
    ] {
        let device = volume();
        with_child(&device, |env, _, child| {
            make_up(env, child, child.height, Body::Interior(Vec::from(edges)));
        });
        assert_refused(&device, |env| env.get(D, b"k0000"));
        for way_up in [true, false] {
            assert_refused(&device, move |env| {
                // A memtable's deletes are looked up in the rest of the window.
                let mut batch = Batch::new();
                batch.delete_range(D, &Cut::before(*b"k0005"), &Cut::before(*b"k0006"));
                env.commit(&batch)?;
                let mut cursor = env.cursor(D, Cut::before(*b"k0000"), Cut::before(*b"k0001"));
                if way_up {
                    return cursor.next().map(|pair| pair.is_some());
                }
                cursor.seek(&Cut::HIGH);
                cursor.prev().map(|pair| pair.is_some())
            });
        }
    }
}

/// A node named twice is checked once, but each window onto it is checked.
#[test]
fn a_check_reports_each_window_that_shows_more_than_its_node_has() {
    for (wrong, right) in [(0, 1), (1, 0)] {
        let device = volume();
        let env = open(&device);
        let root = root(&tree(&env));
        let mut edges = root.edges().to_vec();
        assert!(edges[wrong].child.is_some() && edges[right].child.is_some());
        edges[wrong] = Edge {
            lo: edges[wrong].lo.clone(),
            hi: edges[wrong].hi.clone(),
            partition: None,
            gotos: Vec::new(),
            ..edges[right].clone()
        };
        let name = format!("node {}: ", edges[right].child.unwrap());
        assert_eq!(problems(&env), Vec::<String>::new());
        make_up(&env, &root, root.height, Body::Interior(edges));
        // Its extent holds the blocks of the version before.
        drop(root);
        let problems = problems(&env);
        let is_told =
            |problem: &String| problem.starts_with(&name) && problem.contains("its parent shows more");
        assert!(problems.len() == 1 && problems.iter().all(is_told), "{problems:?}");
    }
}
