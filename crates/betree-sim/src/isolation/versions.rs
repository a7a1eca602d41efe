//! The versions of keys, and what they tell: who wrote what was read, and in which order writes were made.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::cycles::{Dependency, Kind};
use super::{Anomaly, Element, End, Key, Operation, Recorded};

/// What a history tells.
#[derive(Default)]
pub(super) struct Observed {
    pub anomalies: Vec<(Anomaly, String)>,
    /// Between transactions, by their numbers in the history.
    pub dependencies: Vec<(usize, usize, Dependency)>,
}

/// Who wrote an element.
#[derive(Clone, Copy)]
struct Write {
    by: usize,
    key: Key,
    /// Whether the transaction wrote nothing to the key afterwards.
    is_last: bool,
}

/// A read of what others wrote.
struct Read {
    by: usize,
    key: Key,
    found: Vec<Element>,
    /// The dependency of it on a write over what it has found.
    over: Kind,
    /// Whether the transaction wrote the key afterwards.
    is_replaced: bool,
}

/// A transaction, with what it knows of each key while it goes on.
#[derive(Default)]
struct Knowledge {
    /// What a read of the key has to give.
    known: HashMap<Key, Vec<Element>>,
    /// What it wrote to keys that it had not read.
    own: HashMap<Key, Vec<Element>>,
}

#[derive(Default)]
struct History {
    writes: HashMap<Element, Write>,
    reads: Vec<Read>,
    registers: BTreeSet<Key>,
    /// The committed writers of each key.
    writers: BTreeMap<Key, BTreeSet<usize>>,
    observed: Observed,
}

/// Finds the anomalies that are no cycles, and the dependencies of committed transactions.
pub(super) fn observe(history: &[Recorded]) -> Observed {
    let mut told = History::default();
    for (by, transaction) in history.iter().enumerate() {
        told.note_writes(by, transaction);
    }
    let committed = history.iter().enumerate().filter(|(_, one)| one.end == End::Committed);
    committed.for_each(|(by, transaction)| told.note_reads(by, transaction));
    told.check_reads(history);
    told.check_lost_updates();
    let mut by_key: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    for (number, read) in told.reads.iter().enumerate() {
        by_key.entry(read.key).or_default().push(number);
    }
    let keys: BTreeSet<Key> = by_key.keys().chain(told.writers.keys()).copied().collect();
    for key in keys {
        let reads = by_key.remove(&key).unwrap_or_default();
        match told.registers.contains(&key) {
            true => told.order_of_register(key, &reads),
            false => told.order_of_list(key, &reads),
        }
    }
    told.observed
}

impl History {
    fn tell(&mut self, anomaly: Anomaly, what: String) {
        self.observed.anomalies.push((anomaly, what));
    }

    fn depends(&mut self, from: usize, to: usize, kind: Kind, key: Key) {
        if from != to {
            self.observed.dependencies.push((from, to, Dependency { kind, key: Some(key) }));
        }
    }

    fn note_writes(&mut self, by: usize, transaction: &Recorded) {
        let mut last: HashMap<Key, Element> = HashMap::new();
        for operation in &transaction.operations {
            let (Operation::Append(key, element) | Operation::Write(key, element)) = operation else {
                continue;
            };
            if matches!(operation, Operation::Write(..)) {
                self.registers.insert(*key);
            }
            if let Some(before) = last.insert(*key, *element)
                && let Some(write) = self.writes.get_mut(&before)
            {
                write.is_last = false;
            }
            self.writes.insert(*element, Write { by, key: *key, is_last: true });
            if transaction.end == End::Committed {
                self.writers.entry(*key).or_default().insert(by);
            }
        }
    }

    /// Follows what a transaction knows from operation to operation.
    fn note_reads(&mut self, by: usize, transaction: &Recorded) {
        let mut knows = Knowledge::default();
        let first = self.reads.len();
        for operation in &transaction.operations {
            match operation {
                Operation::Append(key, element) => {
                    self.replaced(first, *key);
                    match knows.known.get_mut(key) {
                        Some(known) => known.push(*element),
                        None => knows.own.entry(*key).or_default().push(*element),
                    }
                }
                Operation::Write(key, element) => {
                    self.replaced(first, *key);
                    knows.known.insert(*key, vec![*element]);
                }
                Operation::Read(key, found) => self.note_read(by, &mut knows, *key, found, Kind::OverItem),
                Operation::Scan(keys, met) => {
                    let met: HashMap<Key, &Vec<Element>> =
                        met.iter().map(|(key, found)| (*key, found)).collect();
                    let nothing = Vec::new();
                    for key in keys.clone() {
                        let found = met.get(&key).copied().unwrap_or(&nothing);
                        self.note_read(by, &mut knows, key, found, Kind::OverAbsent);
                    }
                    if let Some(key) = met.keys().find(|key| !keys.contains(key)) {
                        self.tell(Anomaly::Garbage, format!("T{by} met key {key} in a scan of {keys:?}"));
                    }
                }
            }
        }
    }

    /// The transaction whose reads begin at `first` writes a key.
    fn replaced(&mut self, first: usize, key: Key) {
        let own = self.reads.iter_mut().skip(first).filter(|read| read.key == key);
        own.for_each(|read| read.is_replaced = true);
    }

    fn note_read(&mut self, by: usize, knows: &mut Knowledge, key: Key, found: &[Element], over: Kind) {
        let own = knows.own.remove(&key).unwrap_or_default();
        let others = match knows.known.get(&key) {
            Some(known) if known == found => return,
            Some(_) => None,
            None => found.strip_suffix(own.as_slice()),
        };
        let Some(others) = others else {
            let should = knows.known.get(&key).unwrap_or(&own);
            self.tell(
                Anomaly::Internal,
                format!("T{by} read {found:?} of key {key}, and knew of {should:?}"),
            );
            return;
        };
        let is_replaced = !own.is_empty();
        let over = if others.is_empty() { over } else { Kind::OverItem };
        self.reads.push(Read { by, key, found: others.to_vec(), over, is_replaced });
        knows.known.insert(key, found.to_vec());
    }

    /// Looks at who wrote what was read.
    fn check_reads(&mut self, history: &[Recorded]) {
        let mut anomalies = Vec::new();
        for Read { by, key, found, .. } in &self.reads {
            let what = format!("T{by} read {found:?} of key {key}");
            if found.iter().collect::<BTreeSet<_>>().len() < found.len() {
                anomalies.push((Anomaly::Duplicate, what.clone()));
            }
            if self.registers.contains(key) && found.len() > 1 {
                anomalies.push((Anomaly::Garbage, format!("{what}, a register")));
            }
            for element in found {
                match self.writes.get(element).filter(|write| write.key == *key) {
                    None => anomalies.push((Anomaly::Garbage, format!("{what}; nobody wrote {element}"))),
                    Some(write) if history.get(write.by).is_none_or(|one| one.end == End::Aborted) => {
                        anomalies.push((Anomaly::G1a, format!("{what}; T{} aborted", write.by)));
                    }
                    Some(_) => {}
                }
            }
            if let Some(write) = found.last().and_then(|element| self.writes.get(element))
                && !write.is_last
                && write.by != *by
            {
                anomalies.push((Anomaly::G1b, format!("{what}; T{} wrote more", write.by)));
            }
        }
        self.observed.anomalies.extend(anomalies);
    }

    /// Looks for two transactions that replaced the same version.
    fn check_lost_updates(&mut self) {
        let mut replaced: HashMap<(Key, &[Element]), usize> = HashMap::new();
        let mut anomalies = Vec::new();
        for Read { by, key, found, .. } in self.reads.iter().filter(|read| read.is_replaced) {
            if let Some(other) = replaced.insert((*key, found), *by)
                && other != *by
            {
                let what = format!("T{other} and T{by} both read {found:?} of key {key}, and wrote it");
                anomalies.push((Anomaly::LostUpdate, what));
            }
        }
        self.observed.anomalies.extend(anomalies);
    }

    fn committed_writer(&self, key: Key, element: Element) -> Option<usize> {
        let write = self.writes.get(&element).filter(|write| write.key == key)?;
        self.writers.get(&key)?.contains(&write.by).then_some(write.by)
    }

    /// The longest read of a list is the order of its writes. A committed element that nobody has read comes
    /// behind all that were: there, no read contradicts it.
    fn order_of_list(&mut self, key: Key, reads: &[usize]) {
        let reads: Vec<(usize, Vec<Element>, Kind)> = reads
            .iter()
            .filter_map(|number| self.reads.get(*number))
            .map(|read| (read.by, read.found.clone(), read.over))
            .collect();
        let longest = reads.iter().map(|(_, found, _)| found).max_by_key(|found| found.len()).cloned();
        let longest = longest.unwrap_or_default();
        for (by, found, _) in &reads {
            if !longest.starts_with(found) {
                let what = format!("T{by} read {found:?} of key {key}, another {longest:?}");
                self.tell(Anomaly::IncompatibleOrder, what);
            }
        }
        let order: Vec<Option<usize>> =
            longest.iter().map(|element| self.committed_writer(key, *element)).collect();
        let traced: BTreeSet<usize> = order.iter().flatten().copied().collect();
        let untraced: Vec<usize> =
            self.writers.get(&key).into_iter().flatten().filter(|by| !traced.contains(by)).copied().collect();
        for (earlier, later) in order.iter().zip(order.iter().skip(1)) {
            if let (Some(earlier), Some(later)) = (earlier, later) {
                self.depends(*earlier, *later, Kind::WriteOverWrite, key);
            }
        }
        if let Some(Some(last)) = order.last() {
            untraced.iter().for_each(|later| self.depends(*last, *later, Kind::WriteOverWrite, key));
        }
        for (by, found, over) in &reads {
            if let Some(Some(writer)) = found.len().checked_sub(1).and_then(|last| order.get(last)) {
                self.depends(*writer, *by, Kind::ReadOfWrite, key);
            }
            match order.get(found.len()) {
                Some(Some(next)) => self.depends(*by, *next, *over, key),
                Some(None) => {}
                None => untraced.iter().for_each(|next| self.depends(*by, *next, *over, key)),
            }
        }
    }

    /// Of a register it is known that all writes came behind its absence, and that of a transaction which had
    /// read it behind what that found. A write behind a later one of these needs no dependency of its own.
    fn order_of_register(&mut self, key: Key, reads: &[usize]) {
        let reads: Vec<(usize, Option<Element>, Kind, bool)> = reads
            .iter()
            .filter_map(|number| self.reads.get(*number))
            .map(|read| (read.by, read.found.last().copied(), read.over, read.is_replaced))
            .collect();
        let mut later: HashMap<Option<Element>, BTreeSet<usize>> = HashMap::new();
        later.insert(None, self.writers.get(&key).cloned().unwrap_or_default());
        for (by, found, _, is_replaced) in &reads {
            if *is_replaced {
                later.entry(*found).or_default().insert(*by);
            }
        }
        for (found, later) in &later {
            let writer = found.and_then(|element| self.committed_writer(key, element));
            if let Some(writer) = writer {
                later.iter().for_each(|later| self.depends(writer, *later, Kind::WriteOverWrite, key));
            }
        }
        for (by, found, over, _) in &reads {
            if let Some(writer) = found.and_then(|element| self.committed_writer(key, element)) {
                self.depends(writer, *by, Kind::ReadOfWrite, key);
            }
            for next in later.get(found).into_iter().flatten() {
                self.depends(*by, *next, *over, key);
            }
        }
    }
}
