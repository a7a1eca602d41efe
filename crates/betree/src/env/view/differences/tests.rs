use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use seeded::Rng;

use super::*;
use crate::batch::Batch;
use crate::env::Env;
use crate::io::mem::MemDevice;
use crate::settings::{Geometry, Options};
use crate::upsert::Append;

const D: DictId = DictId(0);

fn env() -> Arc<Env> {
    let geometry =
        Geometry { node_bytes: 4 << 10, basement_bytes: 1024, fanout_max: 8, log_bytes: 1 << 20, dicts: 1 };
    let device = MemDevice::new(4096);
    Env::format(device.clone(), &geometry, [1; 16]).unwrap();
    Arc::new(Env::open(device, Options::new(512 << 10, Arc::new(Append))).unwrap())
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The differences of two maps.
fn of_maps(first: &Map, second: &Map) -> Vec<Difference> {
    let keys: alloc::collections::BTreeSet<&Vec<u8>> = first.keys().chain(second.keys()).collect();
    let all = keys.into_iter().map(|rest| Difference {
        rest: rest.clone(),
        first: first.get(rest).cloned(),
        second: second.get(rest).cloned(),
    });
    all.filter(|difference| difference.first != difference.second).collect()
}

fn found(view: &View, [first, second]: [&[u8]; 2]) -> Vec<Difference> {
    let mut differences = view.differences(D, first, second);
    core::iter::from_fn(|| differences.next().unwrap()).collect()
}

/// Clones that are changed on either side, deleted in part, and cloned again, against maps.
#[test]
fn differences_are_those_of_maps_whatever_is_shared() {
    for seed in 0..30 {
        let (env, mut rng) = (env(), Rng::new(seed));
        let mut maps: [Map; 3] = Default::default();
        let prefixes: [&[u8]; 3] = [b"a/", b"b/longer/", b"c/"];
        let key = |rng: &mut Rng| -> Vec<u8> { (rng.below(400) as u16).to_be_bytes().to_vec() };
        for _ in 0..60 {
            let mut batch = Batch::new();
            let (at, other) = (rng.below(3), rng.below(3));
            match rng.below(10) {
                0 if at != other => {
                    batch.clone_range(D, prefixes[at], prefixes[other]);
                    maps[other] = maps[at].clone();
                }
                1 => {
                    let (lo, hi) = (key(&mut rng), key(&mut rng));
                    let bound = |key: &[u8]| Cut::before([prefixes[at], key].concat());
                    batch.delete_range(D, &bound(&lo), &bound(&hi));
                    maps[at].retain(|key, _| *key < lo || *key >= hi);
                }
                2..=3 => {
                    for _ in 0..40 {
                        let (key, value) = (key(&mut rng), seeded::bytes(rng.next_u64(), 0, 60));
                        batch.put(D, &[prefixes[at], &key].concat(), &value);
                        maps[at].insert(key, value);
                    }
                }
                _ => {
                    let (key, value) = (key(&mut rng), seeded::bytes(rng.next_u64(), 0, 20));
                    batch.put(D, &[prefixes[at], &key].concat(), &value);
                    maps[at].insert(key, value);
                }
            }
            env.commit(&batch).unwrap();
            if rng.percent(20) {
                env.checkpoint().unwrap();
            }
            while rng.percent(50) && env.run_due_work().unwrap() {}
            let view = env.view();
            for [first, second] in [[0, 1], [1, 2], [2, 0]] {
                let differences = found(&view, [prefixes[first], prefixes[second]]);
                assert!(differences == of_maps(&maps[first], &maps[second]), "seed {seed}");
            }
        }
    }
}
