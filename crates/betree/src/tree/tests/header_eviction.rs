//! Eviction of headers that take too much memory.

use super::*;

fn open_with(device: &Arc<MemDevice>, cache_bytes: usize) -> Env {
    Env::open(device.clone(), Options::new(cache_bytes, Arc::new(Append))).unwrap()
}

fn read_all(env: &Env) {
    for number in 0..KEYS {
        assert_eq!(env.get(D, &key(number)).unwrap(), Some(value(number)));
    }
}

fn header_bytes(env: &Env) -> usize {
    env.engine.store.cache.header_bytes()
}

#[test]
fn reads_evict_headers_without_background_work() {
    let device = volume();
    let env = open(&device);
    read_all(&env);
    let all_bytes = header_bytes(&env);
    drop(env);
    let share_bytes = all_bytes / 4;
    let env = open_with(&device, share_bytes * 8);
    read_all(&env);
    let bytes = header_bytes(&env);
    assert!(bytes <= share_bytes * 3 / 2, "{bytes} bytes of headers where {share_bytes} is their share");
    assert!(bytes >= share_bytes / 2, "{bytes} bytes of headers where {share_bytes} is their share");
}

#[test]
fn headers_of_interior_nodes_stay_only_while_the_tree_is_changed() {
    let env = open(&volume());
    read_all(&env);
    let tree = tree(&env);
    // The first call clears the touched marks.
    let evict_untouched = || (0..2).for_each(|_| tree.dict.evict_headers());
    let all_bytes = header_bytes(&env);
    {
        let _changing = tree.dict.structure.lock();
        evict_untouched();
    }
    let bytes = header_bytes(&env);
    assert!((1..all_bytes).contains(&bytes), "{bytes} of {all_bytes} bytes are left");
    let reads = env.stats().device_reads;
    assert!(interior_children(&tree).len() > 1);
    assert_eq!(env.stats().device_reads, reads, "a thread that changes the tree needs the interior nodes");
    evict_untouched();
    assert_eq!(header_bytes(&env), 0, "no thread needs them");
    read_all(&env);
    assert_eq!(problems(&env), Vec::<String>::new());
}
