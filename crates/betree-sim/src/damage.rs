//! Histories of volumes with known damage: bits rot, a repair notes what was lost, and changes go on beside a
//! model in which each key has a value, is absent, or was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use betree::{Cut, DictId, Env, Error, Finding, FindingCode, OpenMode, Options, Unreadable, Upsert};
use betree_platform::{BLOCK_BYTES, Device};
use seeded::Rng;

use crate::append_capped::AppendCapped;
use crate::harness::setting;
use crate::lost_nodes::Past;
use crate::mem_device::MemDevice;
use crate::mix::Mix;
use crate::model::{Edit, batch_of, show};
use crate::runner::{Runner, open_env};
use crate::step::{Setup, Step, history_of_seed};

/// How often other blocks are tried, until a repair has something to note.
const TRIES_MAX: usize = 12;
/// The most blocks that rot together.
const ROTTEN_MAX: usize = 4;
/// Clones are left out of a model with more keys: clones of clones double without end.
const KEYS_MAX: usize = 1500;
/// The most places of a dictionary where keys are noted as lost, and the most keys of each.
const NOTED_MAX: usize = 5;
/// After how many steps everything is compared.
const COMPARED_STEPS: usize = 25;
/// How many steps before the damage are in the log alone, in half of the histories.
pub(crate) const LOGGED_STEPS: usize = 8;
/// The first byte behind the superblocks.
const LOG_AT: u64 = 4 * BLOCK_BYTES as u64;

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Value(Vec<u8>),
    Absent,
    Lost,
}

/// What histories with known damage have reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamageReached {
    /// Structures that were lost and noted.
    pub structures: u64,
    /// Keys that were lost.
    pub lost: usize,
    /// Lost keys that a put or a delete of their own has healed.
    pub healed: usize,
    /// Keys that a repair has noted as lost though they could be read.
    pub noted: usize,
    /// Keys that are lost because clones copied them.
    pub cloned: usize,
    /// Lost interior nodes whose children were found again.
    pub found_again: usize,
    /// Keys below these that are as in an older state.
    pub older: usize,
    /// Volumes with a clone in their logs that needs what cannot be read.
    pub with_clones_in_log: usize,
}

/// The keys of which something is known; others are absent or lost.
type Keys = BTreeMap<Vec<u8>, Known>;

struct Model {
    dicts: Vec<Keys>,
    reached: DamageReached,
}

impl Model {
    fn dict(&mut self, dict: DictId) -> &mut Keys {
        &mut self.dicts[usize::from(dict.0)]
    }

    /// Applies the edits in their order; with clones among them, in the order of a batch with clones.
    fn commit(&mut self, edits: &[Edit]) {
        if edits.iter().any(|edit| matches!(edit, Edit::Clone(..))) {
            self.make(edits);
        } else {
            edits.chunks(1).for_each(|edit| self.make(edit));
        }
    }

    fn make(&mut self, edits: &[Edit]) {
        let mut clones = Vec::new();
        for edit in edits {
            if let Edit::Clone(dict, from, to, lo, hi) = edit
                && lo < hi
            {
                let source: Vec<(Vec<u8>, Known)> = self
                    .dict(*dict)
                    .iter()
                    .filter(|(key, _)| is_in(key, from, lo, hi))
                    .map(|(key, known)| ([to.as_slice(), &key[from.len()..]].concat(), known.clone()))
                    .collect();
                clones.push((*dict, from, to, lo, hi, source));
            }
        }
        for edit in edits {
            if let Edit::DeleteRange(dict, lo, hi) = edit {
                for (_, known) in self.dict(*dict).iter_mut().filter(|(key, _)| is_in(key, &[], lo, hi)) {
                    *known = Known::Absent;
                }
            }
        }
        for (dict, _, to, lo, hi, source) in clones.into_iter().filter(|(_, from, to, ..)| from != to) {
            self.reached.cloned += source.iter().filter(|(_, known)| *known == Known::Lost).count();
            let keys = self.dict(dict);
            keys.retain(|key, _| !is_in(key, to, lo, hi));
            keys.extend(source);
        }
        for edit in edits {
            let (dict, key, known) = match edit {
                Edit::Put(dict, key, value) => (dict, key, Known::Value(value.clone())),
                Edit::Delete(dict, key) => (dict, key, Known::Absent),
                Edit::Upsert(dict, key, delta) => {
                    let old = match self.dict(*dict).get(key) {
                        Some(Known::Value(old)) => Some(old.clone()),
                        Some(Known::Absent) => None,
                        Some(Known::Lost) | None => continue,
                    };
                    let new = AppendCapped.apply(old.as_deref(), delta);
                    (dict, key, new.map_or(Known::Absent, Known::Value))
                }
                Edit::DeleteRange(..) | Edit::Clone(..) => continue,
            };
            let before = self.dict(*dict).insert(key.clone(), known);
            self.reached.healed += usize::from(before == Some(Known::Lost));
        }
    }

    /// Compares an environment with the model: by queries, and by scans in both directions.
    fn compare(&self, env: &Env) -> Result<(), String> {
        for (dict, keys) in (0..).map(DictId).zip(&self.dicts) {
            for (key, known) in keys {
                let found = known_of(env.get(dict, key))?;
                if found != *known {
                    return Err(format!("{dict:?}: {} is {found:?}, should be {known:?}", show(key)));
                }
            }
            let readable: Vec<&Vec<u8>> =
                keys.iter().filter(|(_, known)| **known != Known::Lost).map(|(key, _)| key).collect();
            let many = env.get_many(dict, &readable).map_err(|error| format!("many keys: {error}"))?;
            for (key, value) in readable.iter().zip(many) {
                let found = value.map_or(Known::Absent, Known::Value);
                if keys.get(*key) != Some(&found) {
                    return Err(format!("{dict:?}: {} among many is {found:?}", show(key)));
                }
            }
            self.compare_scans(env, dict, keys)?;
        }
        Ok(())
    }

    fn compare_scans(&self, env: &Env, dict: DictId, keys: &Keys) -> Result<(), String> {
        let values: Vec<(&[u8], &[u8])> = keys
            .iter()
            .filter_map(|(key, known)| match known {
                Known::Value(value) => Some((key.as_slice(), value.as_slice())),
                Known::Absent | Known::Lost => None,
            })
            .collect();
        let mut passed: Vec<Unreadable> = Vec::new();
        let mut found = Vec::new();
        let mut cursor = env.cursor(dict, Cut::LOW, Cut::HIGH);
        while let Some((key, value)) = cursor.next_past(&mut |unreadable| passed.push(unreadable)) {
            found.push((key.to_vec(), value.to_vec()));
        }
        let differs = found.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).ne(values.clone());
        if differs {
            let keys: BTreeSet<&[u8]> = found.iter().map(|(key, _)| key.as_slice()).collect();
            let missed = values.iter().find(|(key, _)| !keys.contains(key)).map(|(key, _)| show(key));
            return Err(format!("{dict:?}: a scan past damage missed {missed:?}, or has others: {passed:?}"));
        }
        for (key, known) in keys {
            let is_passed = passed.iter().any(|range| is_in(key, &[], &range.lo, &range.hi));
            if is_passed != (*known == Known::Lost) {
                return Err(format!("{dict:?}: {} is {known:?}: {passed:?}", show(key)));
            }
        }
        for is_backward in [false, true] {
            let mut cursor = env.cursor(dict, Cut::LOW, Cut::HIGH);
            let mut expected: Vec<_> = values.clone();
            if is_backward {
                cursor.seek(&Cut::HIGH);
                expected.reverse();
            }
            let mut expected = expected.into_iter();
            loop {
                match if is_backward { cursor.prev() } else { cursor.next() } {
                    Ok(pair) if pair != expected.next() => {
                        return Err(format!("{dict:?}: a scan came to a wrong pair"));
                    }
                    Ok(Some(_)) => {}
                    Ok(None) if passed.is_empty() => break,
                    Ok(None) => return Err(format!("{dict:?}: a scan saw no damage: {passed:?}")),
                    Err(Error::KnownDamage { .. }) => break,
                    Err(error) => return Err(format!("{dict:?}: a scan: {error}")),
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn is_in(key: &[u8], prefix: &[u8], lo: &Cut, hi: &Cut) -> bool {
    key.strip_prefix(prefix).is_some_and(|rest| !lo.is_above(rest) && hi.is_above(rest))
}

/// What a query says of a key.
pub(crate) fn known_of(found: Result<Option<Vec<u8>>, Error>) -> Result<Known, String> {
    match found {
        Ok(Some(value)) => Ok(Known::Value(value)),
        Ok(None) => Ok(Known::Absent),
        Err(Error::KnownDamage { .. } | Error::Corrupt { .. }) => Ok(Known::Lost),
        Err(error) => Err(format!("a query: {error}")),
    }
}

/// The keys that the edits of steps name.
fn named_keys(steps: &[Step], dicts: usize) -> Vec<BTreeSet<Vec<u8>>> {
    let mut all = vec![BTreeSet::new(); dicts];
    for edit in steps
        .iter()
        .filter_map(|step| if let Step::Commit(edits) = step { Some(edits) } else { None })
        .flatten()
    {
        if let Edit::Put(dict, key, _) | Edit::Delete(dict, key) | Edit::Upsert(dict, key, _) = edit {
            all[usize::from(dict.0)].insert(key.clone());
        }
    }
    all
}

pub(crate) fn open_as(device: &Arc<dyn Device>, setup: &Setup, mode: OpenMode) -> Result<Env, Error> {
    let mut options = Options::new(setup.cache_bytes, Arc::new(AppendCapped));
    options.mode = mode;
    Env::open(Arc::clone(device), options)
}

/// The problems that a check finds, but those of kinds that are to be `mended`, and how often it finds known
/// damage.
pub(crate) fn problems(env: &Env, mended: &[FindingCode]) -> Result<(Vec<String>, usize), String> {
    let (mut problems, mut known) = (Vec::new(), 0);
    let mut tell = |found: betree::Finding| {
        known += usize::from(found.code == FindingCode::KnownDamage);
        if !mended.contains(&found.code) {
            problems.extend(found.into_problem());
        }
    };
    env.check(&mut tell, &mut |_, _| ()).map_err(|error| format!("a check: {error}"))?;
    Ok((problems, known))
}

/// Runs a history, lets bits rot until something cannot be read, repairs the volume, and goes on. `None` if
/// none of the tries has made anything unreadable, or each has made the volume one that does not open.
///
/// # Errors
/// The first law that does not hold, as a sentence.
pub fn damage_history(seed: u64, steps: usize) -> Result<Option<DamageReached>, String> {
    let (setup, all) = history_of_seed(seed, steps * 2, Mix::LAWS);
    let (before, after) = all.split_at(steps);
    let sound = Arc::new(MemDevice::new(setup.volume_bytes).which_seeks(setup.seeks));
    let mut runner = Runner::format(sound.clone(), setup).map_err(|e| format!("format: {e}"))?;
    // Half of the volumes have a log to replay.
    let is_closed = seed.is_multiple_of(2);
    let (stored, logged) = before.split_at(if is_closed { steps } else { steps - LOGGED_STEPS.min(steps) });
    let closing = [if is_closed { Step::Reopen } else { Step::Checkpoint }];
    let mut past = Past::new(&setup, true);
    for step in stored.iter().chain(&closing).chain(logged).chain([&Step::Sync]) {
        runner.step(step).map_err(|e| format!("before the damage: {e}"))?;
        past.add(&runner);
    }
    drop(runner);
    let mut rng = Rng::new(seed);
    let whole: Arc<dyn Device> = sound.clone();
    let whole = open_as(&whole, &setup, OpenMode::ReadOnly).map_err(|e| format!("open the sound: {e}"))?;
    for _ in 0..TRIES_MAX {
        let device = rotten(&sound, &setup, &mut rng);
        if let Some(mut model) = repaired(&device, &whole, &setup, (after, &past), &mut rng)? {
            go_on(&device, &setup, after, &mut model)?;
            return Ok(Some(model.reached));
        }
    }
    Ok(None)
}

/// The same disk with flipped bits in some blocks behind the log.
fn rotten(sound: &MemDevice, setup: &Setup, rng: &mut Rng) -> Arc<dyn Device> {
    let device = sound.copy();
    let nodes_at = LOG_AT + setup.geometry.log_bytes;
    let blocks: Vec<u64> = device.written_blocks().into_iter().filter(|at| *at >= nodes_at).collect();
    for _ in 0..rng.between(1, ROTTEN_MAX) {
        if !blocks.is_empty() {
            device.rot(*rng.pick(&blocks) + rng.below(BLOCK_BYTES) as u64, rng.below(8) as u8);
        }
    }
    Arc::new(device)
}

/// Whether a structure that is damaged is a part of a node.
fn is_of_node(what: &str) -> bool {
    what.starts_with("a node's")
}

/// Repairs a volume, and tells what is known of the keys. `None` if it does not open or nothing was lost.
fn repaired(
    device: &Arc<dyn Device>,
    sound: &Env,
    setup: &Setup,
    (after, past): (&[Step], &Past),
    rng: &mut Rng,
) -> Result<Option<Model>, String> {
    let told = |what: &'static str| move |error: Error| format!("{what}: {error}");
    let damaged = match open_as(device, setup, OpenMode::ReadOnly) {
        Ok(damaged) => Some(damaged),
        Err(Error::Corrupt { what, .. }) if !is_of_node(what) => return Ok(None),
        // A root is lost, or a clone in the log needs what cannot be read: a repair takes it away.
        Err(Error::Corrupt { .. }) => None,
        Err(error) => return Err(format!("open for reading: {error}")),
    };
    let options = Options::new(setup.cache_bytes, Arc::new(AppendCapped));
    let mut lost_at_opening = Vec::new();
    let env = Env::open_for_repair(Arc::clone(device), options, &mut |found| lost_at_opening.push(found))
        .map_err(told("open for a repair"))?;
    let read_from = damaged.as_ref().unwrap_or(&env);
    let mut dicts = Vec::new();
    for (dict, named) in (0..).map(DictId).zip(named_keys(after, usize::from(setup.geometry.dicts))) {
        let mut keys = Keys::new();
        let mut cursor = read_from.cursor(dict, Cut::LOW, Cut::HIGH);
        while let Some((key, value)) = cursor.next_past(&mut |_| ()) {
            keys.insert(key.to_vec(), Known::Value(value.to_vec()));
        }
        for key in named {
            let known = known_of(read_from.get(dict, &key))?;
            keys.insert(key, known);
        }
        dicts.push(keys);
    }
    let mut model = Model { dicts, reached: DamageReached::default() };
    let noted = env.note_damage().map_err(told("note"))?;
    model.reached.structures = noted.lost;
    // Without the rest of the log all keys are as before it.
    model.reached.found_again = noted.found_again.len() + usize::from(env.log_loss().is_some());
    model.reached.with_clones_in_log = usize::from(!lost_at_opening.is_empty());
    if noted.lost == 0 {
        let is_refused = damaged.is_none().then(|| "nothing was lost, but readers are refused".into());
        return is_refused.map_or(Ok(None), Err);
    }
    env.mend_references(&mut |_, _| ControlFlow::Continue(())).map_err(told("references"))?;
    for dict in (0..setup.geometry.dicts).map(DictId) {
        let mut cursor = env.cursor(dict, Cut::LOW, Cut::HIGH);
        while let Some((key, _)) = cursor.next_past(&mut |_| ()) {
            let known = known_of(read_from.get(dict, key))?;
            // Messages above what cannot be read are there for scans as for queries.
            let is_passed_over = !model.dict(dict).contains_key(key);
            if damaged.is_some() && is_passed_over && known != Known::Lost {
                return Err(format!("{dict:?}: a scan past damage missed {}, {known:?}", show(key)));
            }
            model.dict(dict).insert(key.to_vec(), known);
        }
    }
    // Before the first key of a leaf nothing was lost, though a query reads the basement.
    for (dict, keys) in (0..).map(DictId).zip(&mut model.dicts) {
        for (key, known) in keys.iter_mut().filter(|(_, known)| **known == Known::Lost) {
            let now = known_of(env.get(dict, key))?;
            if now == known_of(sound.get(dict, key))?
                || past.may_be(dict, key, &now, model.reached.found_again)
            {
                model.reached.older += usize::from(now != known_of(sound.get(dict, key))?);
                *known = now;
            }
        }
    }
    past.nothing_is_invented([&env, sound], damaged.as_ref(), model.reached.found_again)?;
    rescued(device, [&env, sound], damaged.as_ref(), setup, past)
        .map_err(|what| format!("a rescue: {what}"))?;
    drop(damaged);
    let lost = model.dicts.iter().flat_map(|keys| keys.values()).filter(|known| **known == Known::Lost);
    model.reached.lost = lost.count();
    model.compare(&env).map_err(|what| format!("noted in memory: {what}"))?;
    if rng.below(2) == 0 {
        lose_some(&env, &mut model, rng)?;
        model.compare(&env).map_err(|what| format!("more noted in memory: {what}"))?;
    }
    // Copies on the device are written anew with the repair.
    let (found, known) = problems(&env, &[FindingCode::BadCopy])?;
    // A lost node that a pending range delete covers whole leaves none.
    if !found.is_empty() || known == 0 && model.reached.lost > 0 {
        return Err(format!("noted in memory, {known} ranges: a check finds {found:?}"));
    }
    env.write_repair().map_err(told("write the repair"))?;
    Ok(Some(model))
}

/// Notes some keys as lost, as the file system does of those that should be there: single ones, present or
/// not, and some with their neighbours.
fn lose_some(env: &Env, model: &mut Model, rng: &mut Rng) -> Result<(), String> {
    for dict in (0..model.dicts.len() as u8).map(DictId) {
        let keys: Vec<Vec<u8>> = model.dict(dict).keys().cloned().collect();
        let mut ranges = Vec::new();
        for _ in 0..rng.below(NOTED_MAX + 1).min(keys.len()) {
            let first = rng.below(keys.len());
            let last = if rng.below(3) == 0 { first + rng.below(NOTED_MAX) } else { first };
            let last = last.min(keys.len() - 1);
            ranges.push((Cut::before(keys[first].as_slice()), Cut::just_after(&keys[last])));
        }
        env.note_lost(dict, &ranges).map_err(|error| format!("note as lost: {error}"))?;
        for (key, known) in model.dicts[usize::from(dict.0)].iter_mut() {
            if *known != Known::Lost && ranges.iter().any(|(lo, hi)| is_in(key, &[], lo, hi)) {
                model.reached.noted += 1;
                *known = Known::Lost;
            }
        }
    }
    Ok(())
}

/// A rescue invents nothing, and has all that readers of the damaged volume have.
fn rescued(
    device: &Arc<dyn Device>,
    [repaired, sound]: [&Env; 2],
    damaged: Option<&Env>,
    setup: &Setup,
    past: &Past,
) -> Result<(), String> {
    let options = Options::new(setup.cache_bytes, Arc::new(AppendCapped));
    let mut older = 0;
    let is_older = |code| matches!(code, FindingCode::BadNode | FindingCode::BadLog);
    let mut tell = |found: Finding| older += usize::from(is_older(found.code));
    let rescued = Env::open_for_rescue(Arc::clone(device), options, &mut tell)
        .map_err(|error| format!("open: {error}"))?;
    past.nothing_is_invented([&rescued, sound], None, older)?;
    for dict in (0..setup.geometry.dicts).map(DictId) {
        let mut cursor = repaired.cursor(dict, Cut::LOW, Cut::HIGH);
        while let Some((key, _)) = cursor.next_past(&mut |_| ()) {
            let (read, now) = (damaged.map(|env| known_of(env.get(dict, key))), rescued.get(dict, key));
            let (read, now) = (read.transpose()?, known_of(now)?);
            if read.is_some_and(|read| read != Known::Lost && read != now) {
                return Err(format!("{dict:?}: {} is {now:?}, not as readers find it", show(key)));
            }
        }
    }
    Ok(())
}

/// Takes steps on a repaired volume; compares it with the model at intervals, drained, reopened, and emptied.
fn go_on(device: &Arc<dyn Device>, setup: &Setup, steps: &[Step], model: &mut Model) -> Result<(), String> {
    let told = |what: &'static str| move |error: Error| format!("{what}: {error}");
    let mut env = open_env(device, setup).map_err(told("open the repaired"))?;
    model.compare(&env).map_err(|what| format!("repaired: {what}"))?;
    let after_each = setting("BETRFS_CHECK_EACH_STEP", 0) != 0;
    for (index, step) in steps.iter().enumerate() {
        let at = |error: Error| format!("step {index}, {step:?}: {error}");
        match step {
            Step::Commit(edits) => {
                let is_large = model.dicts.iter().map(Keys::len).sum::<usize>() > KEYS_MAX;
                let is_clone = |edit: &&Edit| matches!(edit, Edit::Clone(..));
                let has_clones = !is_large && edits.iter().any(|edit| is_clone(&edit));
                // An upsert over what a clone of the same batch brings may be over a key of which nothing is
                // known.
                let is_taken = |edit: &&Edit| match edit {
                    Edit::Clone(..) => !is_large,
                    Edit::Upsert(dict, key, _) => {
                        !has_clones && model.dicts[usize::from(dict.0)].contains_key(key)
                    }
                    _ => true,
                };
                let taken: Vec<Edit> = edits.iter().filter(is_taken).cloned().collect();
                let batch = batch_of(&taken);
                env.throttle(batch.bytes()).map_err(at)?;
                match env.commit(&batch) {
                    Ok(()) => model.commit(&taken),
                    Err(Error::NoSpace | Error::KeyTooLong { .. }) => {}
                    Err(error) => return Err(at(error)),
                }
            }
            Step::Checkpoint => env.checkpoint().map_err(at)?,
            Step::Sync => env.sync().map_err(at)?,
            Step::Pump(_) => drop(env.run_due_work().map_err(at)?),
            Step::Reopen => {
                env.close().map_err(at)?;
                drop(env);
                env = open_env(device, setup).map_err(at)?;
            }
            Step::Abandon => {
                env.sync().map_err(at)?;
                env.abandon();
                env = open_env(device, setup).map_err(at)?;
            }
            _ => {}
        }
        if index % COMPARED_STEPS == 0 || after_each {
            model.compare(&env).map_err(|what| format!("after step {index}, {step:?}: {what}"))?;
        }
    }
    model.compare(&env).map_err(|what| format!("after the last step: {what}"))?;
    while env.run_due_work().map_err(told("work"))? {}
    model.compare(&env).map_err(|what| format!("drained: {what}"))?;
    let (found, known) = problems(&env, &[])?;
    let has_lost = model.dicts.iter().flat_map(|keys| keys.values()).any(|known| *known == Known::Lost);
    if !found.is_empty() || has_lost && known == 0 {
        return Err(format!("drained, {known} ranges known: a check finds {found:?}"));
    }
    let all = (0..setup.geometry.dicts).map(|dict| Edit::DeleteRange(DictId(dict), Cut::LOW, Cut::HIGH));
    let all: Vec<Edit> = all.collect();
    env.commit(&batch_of(&all)).map_err(told("delete everything"))?;
    model.commit(&all);
    while env.run_due_work().map_err(told("work"))? {}
    env.close().map_err(told("close"))?;
    drop(env);
    let env = open_env(device, setup).map_err(told("open the emptied"))?;
    model.compare(&env).map_err(|what| format!("emptied: {what}"))?;
    match problems(&env, &[])? {
        (found, 0) if found.is_empty() => Ok(()),
        (found, known) => Err(format!("emptied, {known} ranges known: a check finds {found:?}")),
    }
}
