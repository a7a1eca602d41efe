//! Crashes of transactions and views on purpose, beside those that random histories meet.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use betree::{Batch, Cut, DictId, Env, Geometry, Isolation, Outcome};
use betree_platform::Device;
use betree_sim::{SMALL_NODES, Setup, SimDisk, format_env, open_env, problems};

const DICTS: [DictId; 2] = [DictId(0), DictId(1)];
const SETUP: Setup = Setup {
    geometry: Geometry { log_bytes: 128 << 10, dicts: 2, ..SMALL_NODES },
    cache_bytes: 64 << 10,
    volume_bytes: 16 << 20,
    seeks: true,
};

/// With room for many versions of the nodes that are changed.
const ROOMY: Setup = Setup {
    geometry: Geometry { node_bytes: 16 << 10, log_bytes: 1 << 20, ..SETUP.geometry },
    cache_bytes: 512 << 10,
    ..SETUP
};

fn new_volume(setup: &Setup) -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new(setup.volume_bytes));
    let device: Arc<dyn Device> = disk.clone();
    format_env(&device, setup).unwrap();
    disk
}

fn open(disk: &Arc<SimDisk>, setup: &Setup) -> betree::Result<Arc<Env>> {
    let device: Arc<dyn Device> = disk.clone();
    open_env(&device, setup).map(Arc::new)
}

const TRANSACTIONS: u32 = 1000;
const SYNC_EVERY: u32 = 9;
const COUNTER: &[u8] = b"counter";

fn count(value: Option<Vec<u8>>) -> u32 {
    value.map_or(0, |value| u32::from_be_bytes(value.try_into().unwrap()))
}

/// Transaction `number` puts the key of that number into both dictionaries, and counts it in both.
fn transact(env: &Arc<Env>, number: u32) -> betree::Result<()> {
    let isolation = [Isolation::Snapshot, Isolation::Serializable][number as usize % 2];
    let mut transaction = env.begin(isolation);
    for dict in DICTS {
        assert_eq!(count(transaction.get(dict, COUNTER)?), number);
        transaction.put(dict, COUNTER, &(number + 1).to_be_bytes())?;
        transaction.put(dict, &[b"n", &number.to_be_bytes()[..]].concat(), &[number as u8; 60])?;
    }
    assert!(matches!(transaction.commit()?, Outcome::Committed(_)));
    Ok(())
}

/// Runs transactions until the power fails. Returns how many were surely durable, and how many began.
fn transact_until_cut(env: &Arc<Env>) -> (u32, u32) {
    let mut synced = 0;
    for number in 0..TRANSACTIONS {
        if transact(env, number).and_then(|()| env.run_due_work()).is_err() {
            return (synced, number + 1);
        }
        if number % SYNC_EVERY == 0 {
            match env.sync() {
                Ok(()) => synced = number + 1,
                Err(_) => return (synced, number + 1),
            }
        }
    }
    (synced, TRANSACTIONS)
}

/// How many transactions a volume holds, each whole.
fn transactions_in(env: &Env) -> u32 {
    let counts = DICTS.map(|dict| count(env.get(dict, COUNTER).unwrap()));
    assert_eq!(counts[0], counts[1], "one is there in one dictionary");
    for dict in DICTS {
        let mut cursor = env.cursor(dict, Cut::before(*b"n"), Cut::after(*b"n"));
        for number in 0..counts[0] {
            let (key, value) = cursor.next().unwrap().unwrap();
            assert_eq!((&key[1..], value), (&number.to_be_bytes()[..], &[number as u8; 60][..]));
        }
        assert_eq!(cursor.next().unwrap(), None, "one of {} is there in part", counts[0]);
    }
    counts[0]
}

#[test]
fn a_crash_between_any_two_writes_of_a_thousand_transactions_leaves_a_prefix_of_them() {
    let disk = new_volume(&SETUP);
    let before = disk.changing_calls();
    let env = open(&disk, &SETUP).unwrap();
    assert_eq!(transact_until_cut(&env).1, TRANSACTIONS);
    let calls = disk.changing_calls() - before;
    assert!(calls > 400, "{calls} calls");
    env.abandon();
    let (mut lost, mut kept) = (0, 0);
    for call in 1..=calls {
        let disk = new_volume(&SETUP);
        disk.cut_power_at(call);
        let (synced, begun) = open(&disk, &SETUP).map_or((0, 0), |env| {
            let done = transact_until_cut(&env);
            env.abandon();
            done
        });
        assert!(disk.is_cut(), "call {call} came");
        let env = open(&Arc::new(disk.crash(call)), &SETUP).unwrap();
        let found = transactions_in(&env);
        assert!((synced..=begun).contains(&found), "call {call}: {found}, {synced} were synced of {begun}");
        assert_eq!(problems(&env).unwrap(), Vec::<String>::new(), "call {call}");
        (lost, kept) = (lost + begun - found, kept + found - synced);
        env.abandon();
    }
    assert!(lost > 100 && kept > 100, "{lost} transactions were lost, {kept} kept without a sync");
}

/// Overwrites less than the cache holds, and brings it to the nodes.
fn overwrite(env: &Env, round: u32) {
    for number in 0..20_u32 {
        let mut batch = Batch::new();
        let value = seeded::bytes(u64::from(round) << 32 | u64::from(number), 0, 400);
        DICTS.iter().for_each(|dict| batch.put(*dict, &number.to_be_bytes(), &value));
        env.throttle(batch.bytes()).unwrap();
        env.commit(&batch).unwrap();
    }
    while env.run_due_work().unwrap() {}
}

#[test]
fn a_crash_with_views_and_spilled_versions_leaves_none_of_their_blocks() {
    let volume = |views: usize| {
        let disk = new_volume(&ROOMY);
        let env = open(&disk, &ROOMY).unwrap();
        let free_at_first = env.space().free_bytes;
        let mut held = Vec::new();
        for round in 0..60 {
            overwrite(&env, round);
            held.extend((held.len() < views).then(|| env.view()));
        }
        env.sync().unwrap();
        (disk, env, held, free_at_first)
    };
    let (_, without, _, _) = volume(0);
    let (disk, env, views, free_at_first) = volume(60);
    let written = [&env, &without].map(|env| env.stats().device_write_bytes);
    // What only views see is written where it leaves memory, and by nobody else.
    assert!(written[0] > written[1] + ROOMY.cache_bytes as u64, "{written:?} bytes");
    let free_with_views = env.space().free_bytes;
    for seed in 0..8 {
        let env = open(&Arc::new(disk.crash(seed)), &ROOMY).unwrap();
        assert_eq!(problems(&env).unwrap(), Vec::<String>::new(), "seed {seed}");
        let free = env.space().free_bytes;
        assert!(
            free > free_with_views,
            "seed {seed}: {free} bytes are free, {free_with_views} were with views"
        );
        let mut batch = Batch::new();
        DICTS.iter().for_each(|dict| batch.delete_range(*dict, &Cut::LOW, &Cut::HIGH));
        env.commit(&batch).unwrap();
        while env.run_due_work().unwrap() {}
        (0..2).for_each(|_| env.checkpoint().unwrap());
        let free = env.space().free_bytes;
        // The node table keeps the pages of its largest size.
        assert!(free + ROOMY.volume_bytes / 64 >= free_at_first, "seed {seed}: {free} of {free_at_first}");
        env.abandon();
    }
    drop(views);
    [env, without].iter().for_each(|env| env.abandon());
}
