//! The work under a dictionary's exclusive state, for which its readers and writers wait: it is that of the
//! nodes of one change, however large the tree is.

use super::*;
use crate::key::Cut;
use crate::tree::install_work;

const GEOMETRY: Geometry =
    Geometry { node_bytes: 8 << 10, basement_bytes: 1024, fanout_max: 4, log_bytes: 1 << 20, dicts: 1 };
/// The most that one change but an ingest looks at. A change has the nodes of one flush: a parent, its
/// children, and those into which these are split; each has `fanout_max` edges, before and after.
const STEPS_MAX: u64 = 400;

fn env() -> Arc<Env> {
    let device = MemDevice::new(16 << 10);
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    install_work::take();
    // A cache that holds some nodes only.
    Arc::new(Env::open(device, Options::new(1 << 20, Arc::new(Append))).unwrap())
}

fn number_key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// The steps of changes by so many puts in random order, and by clones and deletes of ranges among them.
fn steps_of_changes(puts: u32) -> (Arc<Env>, Vec<u64>) {
    let env = env();
    for number in 0..puts {
        put(&env, &number_key(number.wrapping_mul(0x9e37_79b1)), &[7; 100]);
        if number % 500 == 499 {
            let mut batch = Batch::new();
            let from = Cut::before(number_key(number << 20));
            batch.delete_range(D, &from, &Cut::before(number_key((number << 20).saturating_add(1 << 18))));
            batch.clone_range(D, &[number as u8], &[number as u8 ^ 1, 0xff]);
            env.commit(&batch).unwrap();
            while env.run_due_work().unwrap() {}
        }
    }
    while env.run_due_work().unwrap() {}
    env.checkpoint().unwrap();
    let steps = install_work::take();
    (env, steps)
}

#[test]
fn the_work_of_one_change_does_not_grow_with_the_tree() {
    let mut nodes = Vec::new();
    for puts in [4_000, 32_000] {
        let (env, steps) = steps_of_changes(puts);
        let most = steps.iter().copied().max().unwrap();
        nodes.push(env.engine.table.lock().nodes_len());
        std::println!(
            "{puts} puts: {} nodes, {} changes, {most} steps at most",
            nodes[nodes.len() - 1],
            steps.len()
        );
        assert!(steps.len() > 100 && most > 4, "{} changes, {most} steps", steps.len());
        assert!(most <= STEPS_MAX, "{most} steps");
    }
    assert!(nodes[1] > 4 * nodes[0] && nodes[1] > 2 * STEPS_MAX, "{nodes:?}");
}

#[test]
fn the_work_of_an_ingest_is_that_of_its_nodes() {
    for pairs in [4_000u32, 32_000] {
        // In a tree that has as much on both sides.
        let (env, _) = steps_of_changes(8_000);
        let before = env.engine.table.lock().nodes_len();
        let prefix = [0x10, 0, 0, 0];
        let all = (0..pairs).map(|number| ([&prefix[..], &number_key(number)].concat(), [7; 100]));
        env.ingest::<_, _, crate::error::Error>(D, all.map(Ok)).unwrap();
        let most = install_work::take().into_iter().max().unwrap();
        let added = env.engine.table.lock().nodes_len() - before;
        std::println!("{pairs} pairs: {added} nodes, {most} steps");
        assert!(most >= added && most <= 4 * added + STEPS_MAX, "{most} steps for {added} nodes");
    }
}
