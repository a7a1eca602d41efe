//! Accounts of small volumes, held to the debugger's map and to [`View::usage`].

use alloc::format;
use alloc::sync::Arc;

use betree_platform::Device;

use super::*;
use crate::batch::Batch;
use crate::debug::{Inspector, Owner as Named};
use crate::env::Env;
use crate::io::mem::MemDevice;
use crate::key::Cut;
use crate::settings::{Geometry, Options};
use crate::upsert::Replace;

const D: DictId = DictId(0);
const OTHER: DictId = DictId(1);
const BLOCKS: u64 = 16 << 10;

fn options() -> Options {
    Options::new(4 << 20, Arc::new(Replace))
}

/// A volume of 64 MiB with tiny nodes.
fn volume() -> (Arc<MemDevice>, Arc<Env>) {
    let geometry =
        Geometry { node_bytes: 8192, basement_bytes: 1024, fanout_max: 4, log_bytes: 4 << 20, dicts: 2 };
    let device = MemDevice::new(BLOCKS as usize);
    Env::format(device.clone(), &geometry, [1; 16]).unwrap();
    let env = Arc::new(Env::open(device.clone(), options()).unwrap());
    (device, env)
}

fn fill(env: &Env, dict: DictId, prefix: &str, keys: u64, value: impl Fn(u64) -> Vec<u8>) {
    for first in (0..keys).step_by(50) {
        let mut batch = Batch::new();
        for key in first..keys.min(first + 50) {
            batch.put(dict, format!("{prefix}{key:05}").as_bytes(), &value(key));
        }
        env.commit(&batch).unwrap();
    }
}

fn noise(key: u64) -> Vec<u8> {
    let mut rng = seeded::Rng::new(key);
    (0..50).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

/// The occupancy, which adds up cell by cell.
fn taken(env: &Arc<Env>, cells_max: u32) -> Occupancy {
    let occupancy = env.view().occupancy(cells_max, &mut || ControlFlow::Continue(())).unwrap();
    assert!(occupancy.cells.len() as u64 <= u64::from(cells_max));
    let (last, whole) = occupancy.cells.split_last().unwrap();
    assert!(whole.iter().all(|cell| cell.values().sum::<u64>() == occupancy.cell_bytes));
    let rest = env.volume_bytes() - occupancy.cell_bytes * whole.len() as u64;
    assert_eq!(last.values().sum::<u64>(), rest);
    occupancy
}

fn bytes_of(occupancy: &Occupancy, is_meant: impl Fn(&Occupant) -> bool) -> u64 {
    occupancy.sums().iter().filter(|(occupant, _)| is_meant(occupant)).map(|(_, bytes)| bytes).sum()
}

fn is_node_of(of: DictId) -> impl Fn(&Occupant) -> bool {
    move |occupant| matches!(occupant, Occupant::Node { dict, .. } if *dict == of)
}

fn is_shared(occupant: &Occupant) -> bool {
    matches!(occupant, Occupant::Node { sharing: Sharing::Shared, .. })
}

#[test]
fn the_account_agrees_with_the_map_of_the_closed_volume_and_with_usage() {
    let (device, env) = volume();
    fill(&env, D, "a/", 600, noise);
    fill(&env, OTHER, "", 200, noise);
    env.checkpoint().unwrap();
    // What the last checkpoint alone still names goes with the next.
    fill(&env, D, "b", 1, noise);
    env.checkpoint().unwrap();
    for dict in [D, OTHER] {
        let usage = env.view().usage(dict, &Cut::LOW, &Cut::HIGH).unwrap();
        assert_eq!(bytes_of(&taken(&env, 1), is_node_of(dict)), usage.stored_bytes, "{dict:?}");
    }
    env.close().unwrap();
    let env = Arc::new(Env::open(device.clone(), options()).unwrap());
    let (few, many) = (taken(&env, 7), taken(&env, 3000));
    assert_eq!(few.sums(), many.sums());
    assert_eq!(few.unreadable_nodes, 0);
    let inspector = Inspector::open(device, options(), &mut |found| panic!("{found}")).unwrap();
    let map = inspector.map();
    let mapped = |is_meant: fn(&Named) -> bool| -> u64 {
        map.iter().filter(|owned| is_meant(&owned.owner)).map(|owned| owned.blocks.len_blocks * BLOCK).sum()
    };
    let is = |wanted: Occupant| bytes_of(&few, move |occupant| *occupant == wanted);
    assert_eq!(is(Occupant::Superblocks), mapped(|owner| *owner == Named::Superblocks));
    assert_eq!(is(Occupant::Log), mapped(|owner| *owner == Named::Log));
    let nodes = bytes_of(&few, |occupant| matches!(occupant, Occupant::Node { .. }));
    assert_eq!(nodes, mapped(|owner| matches!(owner, Named::Node(_))));
    assert_eq!(
        is(Occupant::Table) + is(Occupant::TableCopy),
        mapped(|owner| matches!(owner, Named::Page(_) | Named::Directory))
    );
    assert!(is(Occupant::TableCopy) > 0);
    assert_eq!(is(Occupant::Free), mapped(|owner| *owner == Named::Nobody));
    assert_eq!((is(Occupant::Held), is(Occupant::Unreached)), (0, 0));
    // The copies stand at the end of the volume.
    assert!(many.cells.last().unwrap().contains_key(&Occupant::TableCopy));
    assert!(many.cells[0].contains_key(&Occupant::Superblocks));
}

#[test]
fn what_clones_share_is_told_once_and_what_views_keep_is_held() {
    let (_device, env) = volume();
    fill(&env, D, "a/", 600, noise);
    fill(&env, D, "z/", 200, noise);
    env.checkpoint().unwrap();
    let before = taken(&env, 1);
    assert_eq!(bytes_of(&before, is_shared), 0);
    let mut batch = Batch::new();
    batch.clone_range(D, b"a/", b"c/");
    env.commit(&batch).unwrap();
    env.checkpoint().unwrap();
    env.checkpoint().unwrap();
    let cloned = taken(&env, 1);
    let all = |occupancy: &Occupancy| bytes_of(occupancy, is_node_of(D));
    let shared = bytes_of(&cloned, is_shared);
    // The nodes of `z/` lie below ones that are shared, and are not.
    let lowest = bytes_of(&cloned, |o| matches!(o, Occupant::Node { height: 0, sharing: Sharing::Own, .. }));
    assert!(shared >= 600 * 400 && lowest >= 150 * 400, "{:?}", cloned.sums());
    assert!(all(&cloned) < all(&before) + (64 << 10), "{} and {}", all(&cloned), all(&before));

    let view = env.view();
    assert!(view.get(D, b"a/00000").unwrap().is_some());
    let mut batch = Batch::new();
    for prefix in ["a/", "c/"] {
        batch.delete_range(D, &Cut::before(prefix), &Cut::after(prefix));
    }
    batch.mark_freeing(1 << 20);
    env.commit(&batch).unwrap();
    env.reclaim().unwrap();
    env.checkpoint().unwrap();
    env.checkpoint().unwrap();
    let held = |occupancy: &Occupancy| bytes_of(occupancy, |occupant| *occupant == Occupant::Held);
    let kept = taken(&env, 1);
    assert!(held(&kept) + bytes_of(&kept, |o| *o == Occupant::Unreached) >= 600 * 400, "{kept:?}");
    drop(view);
    env.reclaim().unwrap();
    env.checkpoint().unwrap();
    env.checkpoint().unwrap();
    let freed = taken(&env, 1);
    assert!(held(&freed) < 64 << 10 && all(&freed) < all(&before) / 2, "{freed:?}");
}

/// Behind a clone whose nodes have changed, several edges lead to leaves.
#[test]
fn a_leaf_to_which_several_ways_lead_is_shared_and_counts_once() {
    let (_device, env) = volume();
    fill(&env, D, "a/", 600, noise);
    env.checkpoint().unwrap();
    let mut batch = Batch::new();
    batch.clone_range(D, b"a/", b"c/");
    env.commit(&batch).unwrap();
    env.checkpoint().unwrap();
    fill(&env, D, "c/003", 100, noise);
    env.reclaim().unwrap();
    env.checkpoint().unwrap();
    env.checkpoint().unwrap();
    let changed = taken(&env, 1);
    let leaves = env.engine.table.lock().nodes().filter(|(_, height, _)| *height == 0).count() as u64;
    assert_eq!(changed.compressed.leaves, leaves);
    assert!(bytes_of(&changed, is_shared) >= 300 * 400, "{:?}", changed.sums());
}

/// A view's node and a later one may have the same slot of the node table.
#[test]
fn a_node_that_was_made_after_the_view_is_unreached() {
    let (_device, env) = volume();
    fill(&env, D, "a/", 600, noise);
    env.checkpoint().unwrap();
    let view = env.view();
    assert!(view.get(D, b"a/00000").unwrap().is_some());
    let mut batch = Batch::new();
    batch.delete_range(D, &Cut::LOW, &Cut::HIGH);
    batch.mark_freeing(1 << 20);
    env.commit(&batch).unwrap();
    env.reclaim().unwrap();
    env.checkpoint().unwrap();
    fill(&env, OTHER, "", 600, noise);
    env.checkpoint().unwrap();
    let stale = view.occupancy(1, &mut || ControlFlow::Continue(())).unwrap();
    assert!(bytes_of(&stale, is_node_of(D)) < 64 << 10, "{:?}", stale.sums());
    assert!(bytes_of(&stale, |occupant| *occupant == Occupant::Unreached) >= 600 * 400, "{:?}", stale.sums());
}

/// Two windows that show different halves of a node share nothing; a third one over both does.
#[test]
fn a_node_is_shared_where_windows_overlap() {
    let at = |lo: &str, hi: &str| Shown { once: (Cut::before(lo), Cut::before(hi)), twice: None };
    let mut shown = at("a", "m");
    shown.add(&at("m", "z"));
    assert_eq!(shown.sharing(), Sharing::Own);
    shown.add(&at("k", "n"));
    assert_eq!(shown.twice, Some((Cut::before("k"), Cut::before("n"))));
    let unchanged = Translation::default();
    let below = |lo: &str, hi: &str| shown.through(&unchanged, &Cut::before(lo), &Cut::before(hi));
    assert_eq!(below("b", "c").unwrap().sharing(), Sharing::Own);
    assert_eq!(below("b", "l").unwrap().sharing(), Sharing::Shared);
    assert!(below("zz", "zzz").is_none());
}

#[test]
fn leaves_tell_the_ratio_of_compression() {
    let (_device, env) = volume();
    fill(&env, D, "", 500, noise);
    env.checkpoint().unwrap();
    let Compressed { raw_bytes, stored_bytes, leaves, leaves_read } = taken(&env, 1).compressed;
    assert_eq!(leaves, leaves_read);
    assert!(
        stored_bytes > 500 * 400 && raw_bytes < stored_bytes + stored_bytes / 8,
        "{raw_bytes}, {stored_bytes}"
    );
    fill(&env, D, "", 500, |_| alloc::vec![7; 400]);
    env.reclaim().unwrap();
    env.checkpoint().unwrap();
    let Compressed { raw_bytes, stored_bytes, .. } = taken(&env, 1).compressed;
    assert!(raw_bytes > 500 * 400 && raw_bytes > stored_bytes * 4, "{raw_bytes}, {stored_bytes}");
}

/// The headers of interior nodes, and of some leaves.
#[test]
fn a_volume_of_many_leaves_costs_as_many_reads_as_it_has_interior_nodes() {
    let (device, env) = volume();
    fill(&env, D, "", 12_000, noise);
    env.close().unwrap();
    let env = Arc::new(Env::open(device, options()).unwrap());
    let (interior, leaves) = {
        let table = env.engine.table.lock();
        let count =
            |is_leaf: bool| table.nodes().filter(|(_, height, _)| (*height == 0) == is_leaf).count() as u64;
        (count(false), count(true))
    };
    assert!(leaves > LEAVES_READ_MAX as u64 * 2, "{leaves}");
    let before = env.stats();
    let first = taken(&env, 10);
    let read = env.stats().device_reads - before.device_reads;
    let looked_at = first.compressed.leaves_read;
    assert!(
        (looked_at, first.compressed.leaves) == (leaves.div_ceil(leaves.div_ceil(256)), leaves),
        "{first:?}"
    );
    assert!(read <= interior + looked_at && read >= looked_at, "{read} for {interior} and {looked_at}");
    assert_eq!(env.stats().device_writes, before.device_writes);
    let mut steps = 0;
    let ended = env.view().occupancy(10, &mut || {
        steps += 1;
        if steps == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((ended, steps), (Err(Error::Interrupted), 3));
}

#[test]
fn below_a_damaged_node_nothing_is_reached_and_the_account_still_adds_up() {
    let (device, env) = volume();
    fill(&env, D, "", 600, noise);
    env.close().unwrap();
    let inspector = Inspector::open(device.clone(), options(), &mut |found| panic!("{found}")).unwrap();
    let is_inner = |id: &NodeId| {
        let header = inspector.node(*id, &mut |_| ()).unwrap().header.unwrap();
        header.height == 1 && header.origin.dict == D.0
    };
    let inner = inspector.ids().into_iter().find(is_inner).unwrap();
    let place = inspector.map().into_iter().find(|owned| owned.owner == Named::Node(inner)).unwrap();
    device.flip(((place.blocks.start_block * BLOCK + 100) * 8) as usize);
    let env = Arc::new(Env::open(device.clone(), options()).unwrap());
    let found = taken(&env, 100);
    assert_eq!(found.unreadable_nodes, 1);
    assert!(bytes_of(&found, |occupant| *occupant == Occupant::Unreached) > 0, "{:?}", found.sums());
    assert_eq!(device.len(), env.volume_bytes());
}
