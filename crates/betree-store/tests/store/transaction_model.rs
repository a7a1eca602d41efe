//! Random interleaved transactions, views and plain changes against maps with copies.

use std::collections::BTreeMap;

use betree_store::{Dict, DictOptions, Error, Isolation, Outcome, Savepoint, Store, Transaction, View};
use seeded::Rng;

use crate::{append, appending, store};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
/// The dictionaries by name: a number that none had before, and the pairs.
type Dicts = BTreeMap<String, (u64, Map)>;

const NAMES: &[&str] = &["a", "b", "c", "d"];
const STEPS: usize = 600;
const SEEDS: u64 = 24;

/// Something that a transaction depends on, or that a change touches.
#[derive(Clone, Debug, PartialEq)]
enum Place {
    Name(String),
    /// The keys from one to another, which is the last.
    Keys(u64, Vec<u8>, Vec<u8>),
}

/// Behind all keys of the test.
const LAST: &[u8] = &[0xff; 64];

fn all(id: u64) -> Place {
    Place::Keys(id, vec![], LAST.to_vec())
}

/// The keys that begin with a prefix.
fn behind(id: u64, prefix: &[u8]) -> Place {
    Place::Keys(id, prefix.to_vec(), [prefix, LAST].concat())
}

fn one(id: u64, key: &[u8]) -> Place {
    Place::Keys(id, key.to_vec(), key.to_vec())
}

impl Place {
    fn meets(&self, other: &Place) -> bool {
        match (self, other) {
            (Place::Name(a), Place::Name(b)) => a == b,
            (Place::Keys(a, from, to), Place::Keys(b, lo, hi)) => a == b && from <= hi && lo <= to,
            _ => false,
        }
    }

    /// What stands there.
    fn contents(&self, dicts: &Dicts) -> (Option<u64>, Map) {
        match self {
            Place::Name(name) => (dicts.get(name).map(|(id, _)| *id), Map::new()),
            Place::Keys(number, from, to) => {
                let map = dicts.values().find(|(id, _)| id == number).map(|(_, map)| map);
                let within = map.into_iter().flat_map(|map| map.range(from.clone()..=to.clone()));
                (None, within.map(|(key, value)| (key.clone(), value.clone())).collect())
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(u64, Vec<u8>, Vec<u8>),
    Delete(u64, Vec<u8>),
    Upsert(u64, Vec<u8>, Vec<u8>, /* blind */ bool),
    DeleteRange(u64, Vec<u8>, Vec<u8>),
    Copy(u64, Vec<u8>, Vec<u8>, /* rename */ bool),
    Create(String, u64),
    Rename(String, String),
    Drop(String, u64),
    Clone(String, String, /* from */ u64, /* to */ u64),
}

impl Op {
    /// What it touches.
    fn places(&self) -> Vec<Place> {
        match self {
            Op::Put(id, key, _) | Op::Delete(id, key) | Op::Upsert(id, key, ..) => vec![one(*id, key)],
            // The last key is outside of the range, but another change may stop just there.
            Op::DeleteRange(id, from, to) => vec![Place::Keys(*id, from.clone(), to.clone())],
            Op::Create(name, _) => vec![Place::Name(name.clone())],
            Op::Rename(from, to) => vec![Place::Name(from.clone()), Place::Name(to.clone())],
            Op::Drop(name, id) => vec![Place::Name(name.clone()), all(*id)],
            Op::Copy(id, from, to, is_rename) => {
                let source = is_rename.then(|| behind(*id, from));
                [behind(*id, to)].into_iter().chain(source).collect()
            }
            Op::Clone(_, to, _, id) => vec![Place::Name(to.clone()), all(*id)],
        }
    }

    /// What it copies.
    fn source(&self) -> Option<Place> {
        match self {
            Op::Copy(id, from, ..) => Some(behind(*id, from)),
            Op::Clone(_, _, from, _) => Some(all(*from)),
            _ => None,
        }
    }

    /// The dictionary whose pairs it changes.
    fn dict(&self) -> Option<u64> {
        match self {
            Op::Put(id, ..) | Op::Delete(id, _) | Op::Upsert(id, ..) | Op::DeleteRange(id, ..) => Some(*id),
            Op::Copy(id, ..) => Some(*id),
            _ => None,
        }
    }

    fn apply(&self, dicts: &mut Dicts) {
        if let Some(number) = self.dict() {
            let Some((_, map)) = dicts.values_mut().find(|(id, _)| *id == number) else { return };
            match self {
                Op::Put(_, key, value) => drop(map.insert(key.clone(), value.clone())),
                Op::Delete(_, key) => drop(map.remove(key)),
                Op::Upsert(_, key, delta, _) => {
                    let new = append(map.get(key).map(Vec::as_slice), delta).unwrap();
                    map.insert(key.clone(), new);
                }
                Op::DeleteRange(_, from, to) => map.retain(|key, _| key < from || key >= to),
                Op::Copy(_, from, to, is_rename) => {
                    let source: Map = map
                        .iter()
                        .filter_map(|(key, value)| {
                            Some((key.strip_prefix(&from[..])?.to_vec(), value.clone()))
                        })
                        .collect();
                    map.retain(|key, _| !(key.starts_with(to) || *is_rename && key.starts_with(from)));
                    map.extend(source.into_iter().map(|(rest, value)| ([&to[..], &rest].concat(), value)));
                }
                _ => {}
            }
            return;
        }
        match self {
            Op::Create(name, id) => drop(dicts.insert(name.clone(), (*id, Map::new()))),
            Op::Rename(from, to) => {
                let dict = dicts.remove(from).unwrap();
                dicts.insert(to.clone(), dict);
            }
            Op::Drop(name, _) => drop(dicts.remove(name)),
            Op::Clone(from, to, _, id) => {
                let map = dicts[from].1.clone();
                dicts.insert(to.clone(), (*id, map));
            }
            _ => {}
        }
    }
}

fn key(rng: &mut Rng) -> Vec<u8> {
    (0..rng.below(3)).map(|_| *rng.pick(&[0, 1, b'k', 0xff])).collect()
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let len = if rng.percent(5) { rng.below(9_000) } else { rng.below(20) };
    seeded::bytes(rng.next_u64(), 0, len)
}

/// A transaction, and what it must be.
struct Own {
    transaction: Transaction,
    isolation: Isolation,
    /// As of its beginning, and with its changes.
    then: Dicts,
    own: Dicts,
    ops: Vec<Op>,
    /// What it has read surely, and what it may have.
    read: Vec<Place>,
    perhaps_read: Vec<Place>,
    points: Vec<(Savepoint, Dicts, usize)>,
    /// Commits of others before it began.
    since: usize,
}

impl Own {
    fn begin(rng: &mut Rng, store: &Store, now: &Dicts, since: usize) -> Own {
        let isolation = *rng.pick(&[Isolation::Snapshot, Isolation::Serializable]);
        Own {
            transaction: store.begin(isolation),
            isolation,
            then: now.clone(),
            own: now.clone(),
            ops: vec![],
            read: vec![],
            perhaps_read: vec![],
            points: vec![],
            since,
        }
    }

    fn dict(&mut self, rng: &mut Rng) -> Option<(Dict, u64)> {
        let name = self.own.keys().nth(rng.below(self.own.len().max(1)))?.clone();
        let dict = self.transaction.dict(&name).unwrap();
        let is_own = self.ops.iter().any(|op| op.places().contains(&Place::Name(name.clone())));
        let to = if is_own { &mut self.perhaps_read } else { &mut self.read };
        to.push(Place::Name(name.clone()));
        Some((dict, self.own[&name].0))
    }

    fn step(&mut self, rng: &mut Rng, next_id: &mut u64) {
        match rng.below(26) {
            24..=25 => self.copy(rng),
            0..=5 => self.change(rng),
            6..=11 => self.get(rng),
            12..=15 => self.scan(rng),
            16..=17 => {
                let point = self.transaction.savepoint();
                self.points.push((point, self.own.clone(), self.ops.len()));
            }
            18..=19 if !self.points.is_empty() => {
                let to = rng.below(self.points.len());
                let (point, own, ops) = self.points[to].clone();
                let ended = self.points.last().unwrap().0;
                self.points.truncate(to + 1);
                self.transaction.roll_back(point);
                // One that has ended does nothing.
                if ended != point {
                    self.transaction.roll_back(ended);
                }
                self.own = own;
                self.ops.truncate(ops);
            }
            20..=21 => self.rename(rng, next_id),
            _ => {
                assert_eq!(self.transaction.dicts().unwrap(), self.own.keys().cloned().collect::<Vec<_>>());
                self.read.extend(NAMES.iter().map(|name| Place::Name((*name).into())));
            }
        }
    }

    fn did(&mut self, op: Op) {
        op.apply(&mut self.own);
        self.ops.push(op);
    }

    fn change(&mut self, rng: &mut Rng) {
        let Some((dict, id)) = self.dict(rng) else { return };
        let (key, other, value) = (key(rng), key(rng), value(rng));
        let tx = &mut self.transaction;
        let op = match rng.below(6) {
            0..=1 => tx.put(&dict, &key, &value).map(|()| Op::Put(id, key, value)),
            2 => tx.delete(&dict, &key).map(|()| Op::Delete(id, key)),
            3 => tx.upsert(&dict, &key, &value).map(|()| Op::Upsert(id, key, value, false)),
            4 => tx.upsert_blind(&dict, &key, &value).map(|()| Op::Upsert(id, key, value, true)),
            _ => {
                if key >= other {
                    return;
                }
                let deleted = tx.delete_range(&dict, key.as_slice()..other.as_slice());
                deleted.map(|()| Op::DeleteRange(id, key, other))
            }
        };
        self.did(op.unwrap());
    }

    fn copy(&mut self, rng: &mut Rng) {
        let Some((dict, id)) = self.dict(rng) else { return };
        let (from, to, is_rename) = (key(rng), key(rng), rng.percent(40));
        let map = &self.own.values().find(|(own, _)| *own == id).unwrap().1;
        if from == to || map.keys().any(|key| key.len() > 20) {
            return;
        }
        let copied = match is_rename {
            true => self.transaction.rename_prefix(&dict, &from, &to),
            false => self.transaction.clone_prefix(&dict, &from, &to),
        };
        match copied {
            Ok(()) => {}
            // What comes along with a clone counts.
            Err(Error::TransactionTooLarge { .. } | Error::TooManyClones { .. }) => return,
            Err(error) => panic!("{error}"),
        }
        self.did(Op::Copy(id, from, to, is_rename));
    }

    fn get(&mut self, rng: &mut Rng) {
        let Some((dict, id)) = self.dict(rng) else { return };
        let key = key(rng);
        let found = self.transaction.get(&dict, &key).unwrap();
        let map = &self.own.values().find(|(own, _)| *own == id).unwrap().1;
        assert_eq!(found.as_deref(), map.get(&key).map(Vec::as_slice), "{key:?}");
        let place = one(id, &key);
        let is_own = self.ops.iter().flat_map(Op::places).any(|own| own.meets(&place));
        let to = if is_own { &mut self.perhaps_read } else { &mut self.read };
        to.push(place);
    }

    fn scan(&mut self, rng: &mut Rng) {
        let Some((dict, id)) = self.dict(rng) else { return };
        let (from, to) = (key(rng), key(rng));
        if from > to {
            return;
        }
        let map = &self.own.values().find(|(own, _)| *own == id).unwrap().1;
        let mut expected = map.range(from.clone()..=to.clone());
        let mut found = self.transaction.range(&dict, from.as_slice()..=to.as_slice());
        let steps = rng.below(8);
        let (mut lo, mut hi, mut ended) = (None, None, false);
        for _ in 0..steps {
            let is_forward = rng.percent(60);
            let (found, expected) = match is_forward {
                true => (found.next(), expected.next()),
                false => (found.next_back(), expected.next_back()),
            };
            let found = found.map(Result::unwrap).map(|(key, value)| (key.into_vec(), value.into_vec()));
            let expected = expected.map(|(key, value)| (key.clone(), value.clone()));
            assert_eq!(found, expected);
            match expected {
                Some((key, _)) if is_forward => lo = Some(key),
                Some((key, _)) => hi = Some(key),
                None => {
                    ended = true;
                    break;
                }
            }
        }
        drop(found);
        // Only what was read now: see below.
        let before = std::mem::take(&mut self.read);
        if ended && lo.is_none() && hi.is_none() {
            self.read.push(Place::Keys(id, from.clone(), to.clone()));
        }
        self.read.extend(lo.map(|lo| Place::Keys(id, from.clone(), lo)));
        self.read.extend(hi.map(|hi| Place::Keys(id, hi, to.clone())));
        // What stands in a range that it has deleted or cloned, it has not read there.
        let is_moved = |place: &Place| {
            let ranges = self.ops.iter().filter(|op| matches!(op, Op::Copy(..) | Op::DeleteRange(..)));
            ranges.flat_map(Op::places).any(|own| own.meets(place))
        };
        let read = std::mem::take(&mut self.read);
        let (moved, read): (Vec<_>, Vec<_>) = read.into_iter().partition(is_moved);
        self.read = before;
        self.read.extend(read);
        self.perhaps_read.extend(moved);
        if steps > 0 {
            self.perhaps_read.push(Place::Keys(id, from, to));
        }
    }

    fn rename(&mut self, rng: &mut Rng, next_id: &mut u64) {
        let (name, other) = ((*rng.pick(NAMES)).to_owned(), (*rng.pick(NAMES)).to_owned());
        let tx = &mut self.transaction;
        let is_there = [&name, &other].map(|name| self.own.contains_key(name));
        let op = match (rng.below(4), is_there) {
            (3, [true, false]) => {
                *next_id += 1;
                let from = self.own[&name].0;
                self.perhaps_read.push(Place::Name(name.clone()));
                match tx.clone_dict(&name, &other) {
                    Err(Error::TransactionTooLarge { .. } | Error::TooManyClones { .. }) => return,
                    cloned => cloned.map(|_| Op::Clone(name, other, from, *next_id)),
                }
            }
            (0, [false, _]) => {
                *next_id += 1;
                tx.create(&name, &appending()).map(|_| Op::Create(name, *next_id))
            }
            (1, [true, false]) => tx.rename_dict(&name, &other).map(|()| Op::Rename(name, other)),
            (2, [true, _]) => tx.drop_dict(&name).map(|()| Op::Drop(name.clone(), self.own[&name].0)),
            _ => return,
        };
        let op = op.unwrap();
        let names = op.places().into_iter().filter(|place| matches!(place, Place::Name(_)));
        self.perhaps_read.extend(names);
        self.did(op);
    }

    /// Commits it, and holds the outcome against what the others have committed. Returns what it changed.
    fn commit(self, history: &[Vec<Place>], now: &mut Dicts) -> Option<Vec<Place>> {
        let Own { transaction, isolation, then, own, ops, read, perhaps_read, since, .. } = self;
        let outcome = transaction.commit().unwrap();
        if ops.is_empty() {
            assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
            return None;
        }
        let touched: Vec<&Place> = history[since..].iter().flatten().collect();
        let is_own = |place: &Place| {
            matches!(place, Place::Keys(id, ..)
            if ops.iter().any(|op| matches!(op, Op::Create(_, own) | Op::Clone(.., own) if own == id)))
        };
        // Of a source that the transaction has changed, or that it has cloned, a part counts.
        let mut sources = (vec![], vec![]);
        for (index, op) in ops.iter().enumerate() {
            let Some(source) = op.source() else { continue };
            let is_changed = ops[..index].iter().flat_map(Op::places).any(|own| own.meets(&source));
            if is_changed { sources.1.push(source) } else { sources.0.push(source) }
        }
        let checked = ops.iter().filter(|op| !matches!(op, Op::Upsert(_, _, _, true)));
        let (mut surely, mut perhaps): (Vec<Place>, Vec<Place>) = match isolation {
            Isolation::Snapshot => (checked.flat_map(Op::places).collect(), vec![]),
            Isolation::Serializable => (read, perhaps_read),
        };
        surely.extend(sources.0);
        perhaps.extend(sources.1);
        // Clones may have brought all back to its place.
        let is_nothing = ops.iter().all(|op| matches!(op, Op::Copy(..))) && own == then;
        // The end of a deleted range is no part of it.
        let surely_changed = surely.iter().filter(|place| !is_own(place)).any(|place| {
            let (Place::Keys(id, from, to), Isolation::Snapshot) = (place, isolation) else {
                return place.contents(&then) != place.contents(now);
            };
            let without_end = |dicts: &Dicts| {
                let (_, mut map) = place.contents(dicts);
                map.retain(|key, _| from == to || key < to);
                (id, map)
            };
            without_end(&then) != without_end(now)
        });
        let is_gone =
            |id: u64| then.values().any(|(then, _)| *then == id) && !now.values().any(|(now, _)| *now == id);
        let must_conflict = surely_changed || ops.iter().filter_map(Op::dict).any(is_gone);
        let may_conflict = must_conflict
            || surely.iter().chain(&perhaps).any(|place| touched.iter().any(|other| other.meets(place)));
        match &outcome {
            Outcome::Committed(_) => {
                assert!(
                    is_nothing || !must_conflict,
                    "{isolation:?} {ops:?}, it has to see {surely:?} in {touched:?}"
                );
            }
            Outcome::Conflict(conflict) => {
                assert!(
                    may_conflict,
                    "{conflict:?} {isolation:?} {ops:?} {surely:?} {perhaps:?}, {touched:?}"
                );
                assert!(NAMES.contains(&conflict.dict.as_str()), "{conflict:?}");
                return None;
            }
        }
        ops.iter().for_each(|op| op.apply(now));
        Some(ops.iter().flat_map(Op::places).collect())
    }
}

/// A change of no transaction. Returns what it changed.
fn plain(rng: &mut Rng, store: &Store, now: &mut Dicts, next_id: &mut u64) -> Option<Vec<Place>> {
    let (name, other) = ((*rng.pick(NAMES)).to_owned(), (*rng.pick(NAMES)).to_owned());
    let is_there = [&name, &other].map(|name| now.contains_key(name));
    let (key, to, value) = (key(rng), key(rng), value(rng));
    let op = match (rng.below(12), is_there) {
        (0, [true, _]) => {
            store.drop_dict(&name).unwrap();
            Op::Drop(name.clone(), now[&name].0)
        }
        (1, [true, false]) => {
            store.rename_dict(&name, &other).unwrap();
            Op::Rename(name, other)
        }
        (2, [true, _]) if key < to => {
            let dict = store.open_dict(&name).unwrap();
            dict.delete_range(key.as_slice()..to.as_slice()).unwrap();
            Op::DeleteRange(now[&name].0, key, to)
        }
        (3, [true, false]) => {
            store.clone_dict(&name, &other).unwrap();
            *next_id += 1;
            let map = now[&name].1.clone();
            now.insert(other.clone(), (*next_id, map));
            return Some(vec![Place::Name(other)]);
        }
        (4..=6, [false, _]) => {
            *next_id += 1;
            store.create(&name, &appending()).unwrap();
            Op::Create(name, *next_id)
        }
        (7..=9, [true, _]) => {
            store.open_dict(&name).unwrap().put(&key, &value).unwrap();
            Op::Put(now[&name].0, key, value)
        }
        (10, [true, _]) => {
            store.open_dict(&name).unwrap().upsert(&key, &value).unwrap();
            Op::Upsert(now[&name].0, key, value, true)
        }
        _ => return None,
    };
    op.apply(now);
    Some(op.places())
}

fn check_view(view: &View, then: &Dicts) {
    assert_eq!(view.dicts().unwrap(), then.keys().cloned().collect::<Vec<_>>());
    for (name, (_, map)) in then {
        let dict = view.dict(name).unwrap();
        let found = |pair: betree_store::Result<(betree_store::Key, betree_store::Value)>| {
            let (key, value) = pair.unwrap();
            (key.into_vec(), value.into_vec())
        };
        assert!(dict.iter().map(found).eq(map.clone()), "{name}");
        assert!(dict.iter().rev().map(found).eq(map.clone().into_iter().rev()), "{name}");
        assert!(dict.owned_range::<&[u8]>(..).map(found).eq(map.clone()), "{name}");
        let keys: Vec<&Vec<u8>> = map.keys().collect();
        let values = dict.get_many(&keys).unwrap();
        assert!(values.iter().map(|value| value.as_deref()).eq(map.values().map(|value| Some(&value[..]))));
    }
}

#[test]
fn transactions_and_views_are_as_maps_with_copies_say() {
    let (mut committed, mut conflicts) = (0, 0);
    for seed in 0..SEEDS {
        let rng = &mut Rng::new(seed);
        let (folder, store) = store();
        let (mut now, mut next_id) = (Dicts::new(), 0);
        let mut history: Vec<Vec<Place>> = Vec::new();
        let (mut open, mut views): (Vec<Own>, Vec<(View, Dicts)>) = (Vec::new(), Vec::new());
        for step in 0..STEPS {
            match rng.below(20) {
                0..=1 if open.len() < 4 => open.push(Own::begin(rng, &store, &now, history.len())),
                2..=13 if !open.is_empty() => {
                    let which = rng.below(open.len());
                    open[which].step(rng, &mut next_id);
                }
                14..=15 if !open.is_empty() => {
                    let own = open.swap_remove(rng.below(open.len()));
                    if rng.percent(10) {
                        continue;
                    }
                    let is_change = !own.ops.is_empty();
                    let changed = own.commit(&history, &mut now);
                    match &changed {
                        Some(_) => committed += 1,
                        None if is_change => conflicts += 1,
                        None => {}
                    }
                    history.extend(changed);
                }
                16 if views.len() < 4 => views.push((store.view(), now.clone())),
                17 if !views.is_empty() => {
                    let (view, then) = views.swap_remove(rng.below(views.len()));
                    check_view(&view, &then);
                }
                _ => history.extend(plain(rng, &store, &mut now, &mut next_id)),
            }
            if step % 100 == 0 {
                check_view(&store.view(), &now);
                assert_eq!(store.dicts(), now.keys().cloned().collect::<Vec<_>>());
                assert!(store.check().unwrap().iter().all(|finding| !finding.is_problem));
            }
        }
        drop((open, views));
        check_view(&store.view(), &now);
        store.close().unwrap();
        let store = crate::options().open(folder.path().join("store")).unwrap();
        check_view(&store.view(), &now);
        assert_eq!(store.dicts(), now.keys().cloned().collect::<Vec<_>>());
        store.create("new", &DictOptions::new()).unwrap();
    }
    assert!(committed > 200 && conflicts > 100, "{committed} commits, {conflicts} conflicts");
}
