//! A checkpoint holds the state at its capture, whatever happens to the tree before it is written.

use alloc::collections::BTreeMap;

use seeded::Rng;

use super::*;
use crate::key::Cut;

const SEEDS: u64 = 60;
const ROUNDS: usize = 8;

/// The model: what a dictionary must hold.
type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

struct Dice(Rng);

impl Dice {
    fn below(&mut self, n: u32) -> u32 {
        self.0.below(n as usize) as u32
    }
}

/// Puts, deletes, and clones of common prefixes, in the environment and in the model.
fn change(env: &Env, pairs: &mut Pairs, dice: &mut Dice) {
    let mut batch = Batch::new();
    match dice.below(10) {
        0..2 => {
            // A hundred keys or a thousand.
            let from = format!("k{}", [dice.below(2), dice.below(20)][dice.below(2) as usize]).into_bytes();
            let to = format!("c{}", dice.below(4)).into_bytes();
            batch.clone_range(D, &from, &to);
            let copied = pairs.range(from.clone()..).take_while(|(key, _)| key.starts_with(&from));
            let copied: Pairs =
                copied.map(|(key, value)| ([&to, &key[from.len()..]].concat(), value.clone())).collect();
            pairs.retain(|key, _| !key.starts_with(&to));
            pairs.extend(copied);
        }
        2 => {
            let prefix = format!("{}{}", ["k", "c"][dice.below(2) as usize], dice.below(10)).into_bytes();
            batch.delete_range(D, &Cut::before(prefix.clone()), &Cut::after(prefix.clone()));
            pairs.retain(|key, _| !key.starts_with(&prefix));
        }
        _ => {
            let first = dice.below(KEYS);
            for number in first..(first + 1 + dice.below(40)).min(KEYS) {
                let value = value(number).repeat(1 + dice.below(2) as usize);
                batch.put(D, &key(number), &value);
                pairs.insert(key(number), value);
            }
        }
    }
    env.commit(&batch).unwrap();
}

/// The work of background threads, or a part of it.
fn work(env: &Env, dice: &mut Dice) {
    match dice.below(4) {
        0 => to_root(env),
        1 => {
            env.engine.drain(&mut Drain::default()).unwrap();
        }
        2 => while env.engine.free_one().unwrap() {},
        _ => {
            env.engine.resume_rebalance().unwrap();
        }
    }
}

fn pairs_of(env: &Env) -> Pairs {
    let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
    let mut pairs = Pairs::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        pairs.insert(key.to_vec(), value.to_vec());
    }
    pairs
}

#[test]
fn a_checkpoint_holds_the_captured_state_whatever_changes_before_it_is_written() {
    for seed in 0..SEEDS {
        let mut dice = Dice(Rng::new(seed));
        let device = formatted(&GEOMETRY);
        device.do_not_seek();
        let env = open(&device);
        let mut pairs = Pairs::new();
        for round in 0..ROUNDS {
            for _ in 0..1 + dice.below(12) {
                change(&env, &mut pairs, &mut dice);
            }
            if dice.below(2) == 0 {
                work(&env, &mut dice);
            }
            to_root(&env);
            let captured_pairs = pairs.clone();
            let mut committed = env.checkpoint.lock();
            let superblock = committed.superblock.clone();
            let captured = env.engine.capture(env.commit.lock().next_msn);
            for _ in 0..dice.below(6) {
                if dice.below(3) == 0 {
                    change(&env, &mut pairs, &mut dice);
                }
                work(&env, &mut dice);
            }
            env.engine.write_checkpoint(&mut committed, captured, superblock, &|| ()).unwrap();
            drop(committed);
            let found = open(&MemDevice::holding(device.durable_bytes()));
            assert_eq!(problems(&found), Vec::<String>::new(), "seed {seed}, round {round}");
            assert!(pairs_of(&found) == captured_pairs, "seed {seed}, round {round}");
            assert!(pairs_of(&env) == pairs, "seed {seed}, round {round}, in memory");
            // The log starts anew.
            env.checkpoint().unwrap();
        }
    }
}
