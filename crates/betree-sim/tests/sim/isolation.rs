//! Laws of isolation: whatever transactions do side by side, what they have read and written has none of the
//! anomalies that their isolation forbids. With snapshots, write skew comes.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use betree::Isolation;
use betree_sim::harness::{effort, guarded, seeds};
use betree_sim::interleaving::{EngineSubject, engine_history, in_threads};
use betree_sim::isolation::{Anomaly, End, Operation, Recorded, anomalies, forbidden};
use betree_std::{Workers, WorkersOptions};

/// Counts of what histories have come to.
#[derive(Default)]
struct Counts {
    histories: usize,
    anomalies: BTreeMap<Anomaly, usize>,
    committed: usize,
    aborted: usize,
    scanned: usize,
}

impl Counts {
    fn add(&mut self, history: &[Recorded]) {
        anomalies(history).iter().for_each(|found| *self.anomalies.entry(found.anomaly).or_default() += 1);
        self.histories += 1;
        let committed = history.iter().filter(|one| one.end == End::Committed);
        self.committed += committed.clone().count();
        self.aborted += history.len() - committed.clone().count();
        let operations = committed.flat_map(|one| &one.operations);
        self.scanned += operations.filter(|operation| matches!(operation, Operation::Scan(..))).count();
    }
}

/// The counts of all histories, none of which has a forbidden anomaly.
fn judged(isolation: Isolation) -> Counts {
    let mut counts = Counts::default();
    for seed in seeds(effort(300)) {
        let replay = format!("BETRFS_SEED={seed} cargo test -p betree-sim --test sim isolation::");
        let judged = guarded(&replay, || {
            let history = engine_history(isolation, seed).map_err(|failure| failure.to_string())?;
            counts.add(&history);
            match forbidden(&history, isolation).as_slice() {
                [] => Ok(()),
                found => Err(format!("{found:#?} in {}", told(&history))),
            }
        });
        assert_eq!(judged.err().unwrap_or_default(), "", "{replay}");
    }
    counts
}

fn told(history: &[Recorded]) -> String {
    history.iter().enumerate().map(|(number, one)| format!("\n  T{number}: {one:?}")).collect()
}

#[test]
fn snapshots_have_no_anomaly_but_write_skew() {
    let counts = judged(Isolation::Snapshot);
    assert!(
        counts.aborted * 10 > counts.committed,
        "{} aborts, {} commits",
        counts.aborted,
        counts.committed
    );
    assert!(counts.scanned > counts.histories * 4, "{} scans", counts.scanned);
    let met: Vec<Anomaly> = counts.anomalies.keys().copied().collect();
    assert_eq!(met, [Anomaly::G2Item, Anomaly::G2], "both kinds of write skew come");
}

#[test]
fn serializable_transactions_have_no_anomaly() {
    let counts = judged(Isolation::Serializable);
    assert!(
        counts.aborted * 10 > counts.committed,
        "{} aborts, {} commits",
        counts.aborted,
        counts.committed
    );
    assert!(counts.scanned > counts.histories * 4, "{} scans", counts.scanned);
}

#[test]
fn threads_meet_no_forbidden_anomaly() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        for seed in 0..effort(5) {
            let subject = EngineSubject::new(1 << 20).unwrap();
            let options = WorkersOptions { threads: 2, ..WorkersOptions::default() };
            let workers = Workers::start(Arc::clone(&subject.env), options).unwrap();
            let history = in_threads(&subject, isolation, seed, 4, 50).unwrap_or_else(|e| panic!("{e}"));
            workers.stop();
            let committed = history.iter().filter(|one| one.end == End::Committed).count();
            assert!(committed > 50 && committed < history.len(), "{committed} of {}", history.len());
            let found = forbidden(&history, isolation);
            assert!(found.is_empty(), "{isolation:?}, seed {seed}: {found:#?} in {}", told(&history));
        }
    }
}
