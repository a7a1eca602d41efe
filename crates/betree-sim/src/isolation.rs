//! The isolation of transactions, judged from outside: by what they have read and written, and when.
//!
//! After Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations" (VLDB
//! 2020). No element is written twice, so what is read tells who has written it (*recoverability*). A key is
//! a list that is appended to, whose reads tell the order of all writes before them (*traceability*); or a
//! register: a transaction that has read it and then writes it tells that its write came later. From that
//! come the dependencies between transactions (Adya, "Weak Consistency", MIT 1999): a write over a write, a
//! read of a write, a write over what was read. An isolation forbids some kinds of cycles of them.

mod cycles;
mod versions;

use std::collections::BTreeMap;
use std::ops::Range;

use betree::Isolation;

/// A key.
pub type Key = u32;
/// What is written; no two writes have the same.
pub type Element = u64;

/// An operation of a transaction, with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Put an element behind the others of a list.
    Append(Key, Element),
    /// Replaced what a register holds.
    Write(Key, Element),
    /// Read a key: the elements of a list, the one of a register; none if the key is absent.
    Read(Key, Vec<Element>),
    /// Passed over these keys, and met those that are given; the others are absent.
    Scan(Range<Key>, Vec<(Key, Vec<Element>)>),
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its writes took effect.
    Committed,
    /// They did not.
    Aborted,
}

/// A transaction, as its user has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// When it began: no two moments of a history are the same.
    pub invoked: u64,
    /// When its end was known.
    pub returned: u64,
    /// What it did, in this order.
    pub operations: Vec<Operation>,
    /// How it ended.
    pub end: End,
}

/// What is wrong with a history, by the names of the literature; those of cycles from the strongest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// An element was read that nobody wrote to that key.
    Garbage,
    /// An element was read twice in one list.
    Duplicate,
    /// A transaction did not read what it had read or written before.
    Internal,
    /// Two reads of a list, neither of which is the beginning of the other.
    IncompatibleOrder,
    /// A read of what an aborted transaction wrote.
    G1a,
    /// A read of what its writer replaced before it committed.
    G1b,
    /// Two transactions read one version of a key, and both replaced it.
    LostUpdate,
    /// A cycle of writes over writes.
    G0,
    /// A cycle of writes over writes and reads of writes.
    G1c,
    /// A cycle with one write over what was read (read skew).
    GSingle,
    /// A cycle with several writes over what was read, none right behind another.
    GNonadjacent,
    /// A cycle with several writes over what was read (write skew).
    G2Item,
    /// The same, where some were writes of keys that a scan had found absent.
    G2,
}

impl Anomaly {
    /// Whether an isolation allows it.
    pub fn is_allowed_in(self, isolation: Isolation) -> bool {
        isolation == Isolation::Snapshot && matches!(self, Anomaly::G2Item | Anomaly::G2)
    }
}

/// An anomaly that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which one.
    pub anomaly: Anomaly,
    /// Whether it takes the order of real time: one transaction was over before another began.
    pub is_real_time: bool,
    /// The transactions by their numbers in the history, and the keys.
    pub what: String,
}

/// Looks for anomalies: one of each kind that is not a cycle, and the strongest cycle. Both isolations forbid
/// cycles with the order of real time as well: a transaction sees all that was committed before it began.
pub fn anomalies(history: &[Recorded]) -> Vec<Finding> {
    let observed = versions::observe(history);
    let mut first: BTreeMap<Anomaly, String> = BTreeMap::new();
    for (anomaly, what) in observed.anomalies {
        first.entry(anomaly).or_insert(what);
    }
    let found = first.into_iter().map(|(anomaly, what)| Finding { anomaly, is_real_time: false, what });
    found.chain(cycles::strongest(history, &observed.dependencies)).collect()
}

/// What an isolation forbids in a history.
pub fn forbidden(history: &[Recorded], isolation: Isolation) -> Vec<Finding> {
    anomalies(history).into_iter().filter(|found| !found.anomaly.is_allowed_in(isolation)).collect()
}

#[cfg(test)]
mod tests;
