//! Histories of volumes that lose an interior node: a repair finds its children again. Each key is then as it
//! was, lost, or as it was before: what was pending in the node is gone, and the repair says so.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use betree::{Cut, DictId, Env, Error, Finding, FindingCode, OpenMode, Options};
use betree_platform::{BLOCK_BYTES, Device};
use seeded::Rng;

use crate::append_capped::AppendCapped;
use crate::damage::{Known, LOGGED_STEPS, known_of, open_as, problems};
use crate::mem_device::MemDevice;
use crate::mix::Mix;
use crate::model::{Edit, show};
use crate::runner::Runner;
use crate::step::{Setup, Step, history_of_seed};

/// The place of the height in a node's header. What stands before it is in each header.
const HEIGHT_AT: usize = 53;

/// The values that each key has ever had, by dictionary.
pub(crate) struct Past {
    dicts: Vec<BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>>,
    /// Below a node that clones share, a key may be as its source was before it was cloned.
    has_clones: bool,
}

impl Past {
    pub(crate) fn new(setup: &Setup, has_clones: bool) -> Past {
        Past { dicts: vec![BTreeMap::new(); usize::from(setup.geometry.dicts)], has_clones }
    }

    /// Adds the values of the present.
    pub(crate) fn add(&mut self, runner: &Runner) {
        for (dict, past) in (0..).map(DictId).zip(&mut self.dicts) {
            for (key, value) in runner.history().latest().dict(dict) {
                if !past.get(key).is_some_and(|values| values.contains(value)) {
                    past.entry(key.clone()).or_default().insert(value.clone());
                }
            }
        }
    }

    /// Whether a key that could not be read may be like this, as children of lost nodes were found again: it
    /// has been like this before. Each key was absent once.
    pub(crate) fn may_be(&self, dict: DictId, key: &[u8], now: &Known, found_again: usize) -> bool {
        let past = &self.dicts[usize::from(dict.0)];
        match now {
            Known::Value(value) if self.has_clones => {
                found_again > 0 && past.values().any(|values| values.contains(value))
            }
            Known::Value(value) => {
                found_again > 0 && past.get(key).is_some_and(|values| values.contains(value))
            }
            Known::Absent => found_again > 0,
            Known::Lost => false,
        }
    }

    /// Each key of the sound volume and of the repaired one is as it was, or lost, or, if it could not be
    /// read from the damaged one, as it was before; if that does not open, none could. Returns how many keys
    /// are as before, and how many that could not be read are as they were.
    ///
    /// # Errors
    /// A key that is not, as a sentence.
    pub(crate) fn nothing_is_invented(
        &self,
        [repaired, sound]: [&Env; 2],
        damaged: Option<&Env>,
        found_again: usize,
    ) -> Result<(usize, usize), String> {
        let (mut older, mut kept) = (0, 0);
        for dict in (0..self.dicts.len() as u8).map(DictId) {
            let mut keys = BTreeSet::new();
            for env in [repaired, sound] {
                let mut cursor = env.cursor(dict, Cut::LOW, Cut::HIGH);
                while let Some((key, _)) = cursor.next_past(&mut |_| ()) {
                    keys.insert(key.to_vec());
                }
            }
            for key in keys {
                let (now, was) = (known_of(repaired.get(dict, &key))?, known_of(sound.get(dict, &key))?);
                let was_unread = match damaged {
                    Some(damaged) => known_of(damaged.get(dict, &key))? == Known::Lost,
                    None => true,
                };
                if now == was {
                    kept += usize::from(was_unread);
                } else if was_unread && self.may_be(dict, &key, &now, found_again) {
                    older += 1;
                } else if !was_unread || now != Known::Lost {
                    return Err(format!("{dict:?}: {} is {now:?}, and was {was:?}", show(&key)));
                }
            }
        }
        Ok((older, kept))
    }
}

/// What histories with lost interior nodes have reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostNodesReached {
    /// Volumes that lost an interior node.
    pub lost: usize,
    /// Those whose children were found again.
    pub found_again: usize,
    /// Keys that could not be read, and are as they were.
    pub kept: usize,
    /// Keys that are as in an older state.
    pub older: usize,
    /// Volumes with a log to replay, where a rescue has found the children again.
    pub with_log: usize,
}

/// Runs a history without clones; every other one leaves a log to replay. Lets each interior node rot, each
/// in a copy of the volume of its own, which is rescued and repaired.
///
/// # Errors
/// The first law that does not hold, as a sentence.
pub fn lost_nodes_history(seed: u64, steps: usize) -> Result<LostNodesReached, String> {
    let (setup, all) = history_of_seed(seed, steps, Mix::LAWS);
    let sound = Arc::new(MemDevice::new(setup.volume_bytes).which_seeks(setup.seeks));
    let mut runner = Runner::format(sound.clone(), setup).map_err(|e| format!("format: {e}"))?;
    let mut past = Past::new(&setup, false);
    let has_log = !seed.is_multiple_of(2);
    let mut all: Vec<Step> = all.into_iter().filter_map(without_clones).collect();
    let logged = all.split_off(if has_log { all.len() - LOGGED_STEPS.min(all.len()) } else { all.len() });
    let closing = [if has_log { Step::Checkpoint } else { Step::Reopen }];
    for step in all.iter().chain(&closing).chain(&logged).chain(has_log.then_some(&Step::Sync)) {
        runner.step(step).map_err(|e| format!("before the damage: {e}"))?;
        past.add(&runner);
    }
    drop(runner);
    let mut rng = Rng::new(seed);
    let mut reached = LostNodesReached::default();
    let whole: Arc<dyn Device> = sound.clone();
    let whole = open_as(&whole, &setup, OpenMode::ReadOnly).map_err(|e| format!("open the sound: {e}"))?;
    for at in sound.written_blocks() {
        let mut block = vec![0; BLOCK_BYTES];
        sound.read_at(at, &mut block).map_err(|error| error.to_string())?;
        if block.starts_with(b"btrn") && block[HEIGHT_AT] > 0 {
            let device = sound.copy();
            device.rot(at + rng.below(HEIGHT_AT) as u64, rng.below(8) as u8);
            let device: Arc<dyn Device> = Arc::new(device);
            rescued(&device, &whole, &setup, &past)
                .and_then(|rescued| {
                    reached.with_log += if has_log { rescued.found_again } else { 0 };
                    repaired(&device, &whole, &setup, &past, &rescued, &mut reached)
                })
                .map_err(|what| format!("without the node at byte {at}: {what}"))?;
        }
    }
    Ok(reached)
}

/// What is left of a volume, opened for a rescue.
struct Rescued {
    env: Env,
    found_again: usize,
}

/// Opens a volume for a rescue, in which nothing may be invented.
fn rescued(device: &Arc<dyn Device>, sound: &Env, setup: &Setup, past: &Past) -> Result<Rescued, String> {
    let mut found_again = 0;
    let options = Options::new(setup.cache_bytes, Arc::new(AppendCapped));
    let mut tell = |found: Finding| found_again += usize::from(found.code == FindingCode::BadNode);
    let env = Env::open_for_rescue(Arc::clone(device), options, &mut tell)
        .map_err(|error| format!("open for a rescue: {error}"))?;
    past.nothing_is_invented([&env, sound], None, found_again).map_err(|what| format!("a rescue: {what}"))?;
    Ok(Rescued { env, found_again })
}

/// A step without clones; `None` for walks, which commit between their moves.
fn without_clones(step: Step) -> Option<Step> {
    match step {
        Step::Commit(edits) => {
            let is_kept = |edit: &Edit| !matches!(edit, Edit::Clone(..));
            Some(Step::Commit(edits.into_iter().filter(is_kept).collect()))
        }
        Step::Walk(..) => None,
        other => Some(other),
    }
}

/// Repairs a volume, in memory and then on the device: where children are found again it has what a rescue
/// has. Nothing happens if the node is none of the present, or if the log cannot be replayed without it.
fn repaired(
    device: &Arc<dyn Device>,
    sound: &Env,
    setup: &Setup,
    past: &Past,
    rescued: &Rescued,
    reached: &mut LostNodesReached,
) -> Result<(), String> {
    let told = |what: &'static str| move |error: Error| format!("{what}: {error}");
    // A lost root lets a volume open for nothing else.
    let damaged = match open_as(device, setup, OpenMode::Repair) {
        Err(Error::Corrupt { .. }) if sound.replayed_batches() > 0 => return Ok(()),
        opened => opened.map_err(told("open the damaged"))?,
    };
    let env = open_as(device, setup, OpenMode::Repair).map_err(told("open for a repair"))?;
    let noted = env.note_damage().map_err(told("note"))?;
    if noted.lost == 0 {
        return Ok(());
    }
    env.mend_references(&mut |_, _| ControlFlow::Continue(())).map_err(told("references"))?;
    let found_again = noted.found_again.len();
    reached.lost += 1;
    reached.found_again += found_again;
    let (older, kept) = past.nothing_is_invented([&env, sound], Some(&damaged), found_again)?;
    if found_again > rescued.found_again {
        return Err(format!("{found_again} nodes are found again, {} by a rescue", rescued.found_again));
    }
    if found_again > 0 {
        same_contents(&env, &rescued.env, setup).map_err(|what| format!("a rescue: {what}"))?;
    }
    reached.older += older;
    reached.kept += kept;
    let (found, _) = problems(&env, &[FindingCode::BadCopy])?;
    if !found.is_empty() {
        return Err(format!("noted in memory: a check finds {found:?}"));
    }
    env.write_repair().map_err(told("write the repair"))?;
    let written = open_as(device, setup, OpenMode::ReadOnly).map_err(told("open the repaired"))?;
    match problems(&written, &[])? {
        (found, _) if found.is_empty() => same_contents(&env, &written, setup)
            .map_err(|what| format!("the repair that was written: {what}")),
        (found, _) => Err(format!("repaired: a check finds {found:?}")),
    }
}

/// Whether scans of two environments find the same pairs.
fn same_contents(one: &Env, other: &Env, setup: &Setup) -> Result<(), String> {
    for dict in (0..setup.geometry.dicts).map(DictId) {
        let pairs = |env: &Env| {
            let mut all = Vec::new();
            let mut cursor = env.cursor(dict, Cut::LOW, Cut::HIGH);
            while let Some((key, value)) = cursor.next_past(&mut |_| ()) {
                all.push((key.to_vec(), value.to_vec()));
            }
            all
        };
        if pairs(one) != pairs(other) {
            return Err(format!("{dict:?}: it has other pairs than the volume that is repaired in memory"));
        }
    }
    Ok(())
}
