//! Laws of known damage: what a repair has noted as lost is an error to readers and nothing else, stays as it
//! is through all changes of the tree, and goes where something newer covers it.
#![allow(clippy::panic)]

use betree_sim::harness::{effort, guarded, seeds};
use betree_sim::{
    DamageReached, LostNodesReached, damage_history, lost_nodes_history, lost_superblocks_history,
};

const STEPS: usize = 100;

#[test]
fn known_damage_is_an_error_for_its_keys_until_something_newer_covers_them() {
    let mut all = DamageReached::default();
    let mut damaged = 0;
    let all_seeds = seeds(effort(60));
    for seed in all_seeds.clone() {
        let replay = format!("BETRFS_SEED={seed} cargo test -p betree-sim --test sim damage::");
        let ran = guarded(&replay, || {
            if let Some(reached) = damage_history(seed, STEPS)? {
                damaged += 1;
                all.structures += reached.structures;
                all.lost += reached.lost;
                all.healed += reached.healed;
                all.noted += reached.noted;
                all.cloned += reached.cloned;
                all.found_again += reached.found_again;
                all.older += reached.older;
                all.with_clones_in_log += reached.with_clones_in_log;
            }
            Ok(())
        });
        if let Err(what) = ran {
            panic!("{what}\n  replay: {replay}");
        }
    }
    println!("{damaged} volumes were damaged: {all:?}");
    if all_seeds.count() == 1 {
        return;
    }
    assert!(all.structures > damaged && all.lost > damaged as usize, "{damaged}: {all:?}");
    assert!(
        all.healed > 0 && all.noted > damaged as usize && all.cloned > 0 && all.with_clones_in_log > 0,
        "{all:?}"
    );
}

#[test]
fn keys_below_a_lost_node_are_as_they_were_or_as_before_or_lost() {
    let mut all = LostNodesReached::default();
    let all_seeds = seeds(effort(15));
    for seed in all_seeds.clone() {
        let replay = format!("BETRFS_SEED={seed} cargo test -p betree-sim --test sim damage::");
        let ran = guarded(&replay, || {
            let reached = lost_nodes_history(seed, STEPS * 2)?;
            all.lost += reached.lost;
            all.found_again += reached.found_again;
            all.kept += reached.kept;
            all.older += reached.older;
            all.with_log += reached.with_log;
            Ok(())
        });
        if let Err(what) = ran {
            panic!("{what}\n  replay: {replay}");
        }
    }
    println!("{all:?}");
    if all_seeds.count() > 1 {
        assert!(
            all.found_again * 4 > all.lost && all.kept > 0 && all.older > 0 && all.with_log > 0,
            "{all:?}"
        );
    }
}

#[test]
fn upserts_count_once_where_superblocks_are_made_anew() {
    for seed in seeds(effort(60).min(200)) {
        let replay = format!("BETRFS_SEED={seed} cargo test -p betree-sim --test sim damage::");
        let ran = guarded(&replay, || lost_superblocks_history(seed).map_err(|failure| failure.to_string()));
        if let Err(what) = ran {
            panic!("{what}\n  replay: {replay}");
        }
    }
}
