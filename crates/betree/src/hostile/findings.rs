//! Each finding of the engine has an image that shows it: a check tells it with its place and changes
//! nothing, and a repair does about it what its code says.

mod cases;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::vec::Vec;

use super::image::Image;
use super::repair::{open_as, pairs, problems};
use super::{DICTS, fill, open, options};
use crate::batch::Batch;
use crate::check::{Finding, FindingCode as Code, Place, Remedy, undo_repair};
use crate::env::Env;
use crate::io::mem::MemDevice;
use crate::key::Cut;
use crate::settings::{DictId, OpenMode};
pub(super) use cases::Teller;
use cases::{Bases, Case, Shown};

const BLOCK: usize = betree_platform::BLOCK_BYTES;

/// Codes that tell of no damage: why something was not checked, or what is known.
const NOTES: [Code; 6] = [
    Code::OldCheckpoint,
    Code::NodesByHeader,
    Code::LogNotChecked,
    Code::KnownDamage,
    Code::ReferencesNotChecked,
    Code::SpaceNotChecked,
];

/// Codes whose images no repair opens or changes: a later version made something.
const REFUSED: [Code; 1] = [Code::LaterKind];

/// What is told of an image. Nothing of it changes by that.
pub(super) fn told(by: Teller, image: &Image) -> Vec<Finding> {
    let device = image.device();
    let mut all = Vec::new();
    let mut tell = |found: Finding| all.push(found);
    match by {
        Teller::Check => check(&device, &mut tell),
        Teller::Repair => drop(Env::open_for_repair(device.clone(), options(), &mut tell).unwrap()),
        Teller::Rescue => drop(Env::open_for_rescue(device.clone(), options(), &mut tell).unwrap()),
    }
    assert!(device.bytes() == image.bytes, "it was written to");
    all
}

/// Checks a volume as the command does: one that is refused as far as it can be read.
fn check(device: &Arc<MemDevice>, tell: &mut dyn FnMut(Finding)) {
    let mut reading = options();
    reading.mode = OpenMode::ReadOnly;
    let opened =
        Env::open(device.clone(), reading).or_else(|_| Env::open_damaged(device.clone(), options(), tell));
    if let Ok(env) = opened {
        env.check(tell, &mut |_, _| ()).unwrap();
    }
}

/// Each code that was told, and whether as a problem.
pub(super) fn codes(found: &[Finding]) -> BTreeMap<Code, bool> {
    let mut all = BTreeMap::<Code, bool>::new();
    found.iter().for_each(|found| *all.entry(found.code).or_default() |= found.is_problem);
    all
}

/// Makes the changes of a repair in memory. Returns whether it is opened at all.
fn changed_in_memory(device: &Arc<MemDevice>, takes_away: bool) -> Option<Env> {
    let env = match takes_away {
        true => {
            let env = Env::open_for_repair(device.clone(), options(), &mut |_| ()).ok()?;
            env.note_damage().ok()?;
            env
        }
        false => {
            let mut options = options();
            options.mode = OpenMode::Repair;
            Env::open(device.clone(), options).ok()?
        }
    };
    env.mend_references(&mut |_, _| ControlFlow::Continue(())).unwrap();
    Some(env)
}

/// The image after a repair.
pub(super) fn repaired(image: &Image, takes_away: bool) -> Image {
    let device = image.device();
    let env = changed_in_memory(&device, takes_away).unwrap();
    assert!(device.bytes() == image.bytes, "it is in memory alone");
    env.write_repair().unwrap();
    drop(env);
    Image { bytes: device.bytes() }
}

/// The volume can be changed, and is sound then but for known damage.
pub(super) fn assert_is_usable(image: &Image) {
    let device = image.device();
    let env = open(device.clone()).unwrap();
    fill(&env, 1000..1120);
    while env.run_due_work().unwrap() {}
    env.checkpoint().unwrap();
    assert_eq!(problems(&env), []);
    env.close().unwrap();
    drop(env);
    let mut left = codes(&told(Teller::Check, &Image { bytes: device.bytes() }));
    left.remove(&Code::KnownDamage);
    assert_eq!(left, BTreeMap::new());
}

/// A volume whose repair is taken back is as it was, but for superblocks that are whole now.
pub(super) fn assert_undone(repaired: &Image, before: &Image) {
    let device = repaired.device();
    assert!(undo_repair(device.clone()).unwrap().is_some());
    let undone = Image { bytes: device.bytes() };
    for block in undone.blocks_of_checkpoint() {
        let at = block as usize * BLOCK;
        let bytes = at..(at + BLOCK).min(before.bytes.len());
        if !bytes.is_empty() {
            assert!(undone.bytes[bytes.clone()] == before.bytes[bytes], "block {block} is another");
        }
    }
    let told_of = |image: &Image| {
        let mut told = told(Teller::Check, image);
        told.retain(|found| found.code != Code::BadSuperblock);
        told
    };
    assert_eq!(told_of(&undone), told_of(before));
}

/// Looks at what a repair does about a code.
fn assert_remedy(code: Code, is_problem: bool, image: &Image) {
    match code.remedy() {
        Remedy::Mended(_) => {
            let after = repaired(image, false);
            assert_eq!(told(Teller::Check, &after), [], "{code}");
            let all = |image: &Image| pairs(&open_as(&image.device(), OpenMode::ReadOnly));
            assert!(all(&after) == all(image), "{code}: something was taken away");
            assert_is_usable(&after);
            assert_undone(&after, image);
        }
        Remedy::Dropped(_) => {
            // Without consent it is refused, or left.
            let device = image.device();
            if let Some(env) = changed_in_memory(&device, false) {
                assert!(problems(&env).contains(&code), "{code} is mended by what takes nothing away");
            }
            let after = repaired(image, true);
            let mut left = codes(&told(Teller::Check, &after));
            left.remove(&Code::KnownDamage);
            assert_eq!(left, BTreeMap::new(), "{code}");
            assert_is_usable(&after);
            assert_undone(&after, image);
        }
        Remedy::Left(_) => {
            let device = image.device();
            let env = changed_in_memory(&device, true);
            assert_eq!(env.is_none(), REFUSED.contains(&code), "{code}");
            if let Some(env) = env {
                assert_eq!(problems(&env).contains(&code), is_problem, "{code}");
            }
            assert!(device.bytes() == image.bytes, "{code}: it was written to");
        }
    }
}

#[test]
fn each_finding_has_an_image_and_a_repair_does_what_its_code_says() {
    let bases = Bases::new();
    for base in bases.all() {
        assert_eq!(told(Teller::Check, base), []);
    }
    for code in Code::ALL.iter().copied() {
        let (found, image, at, beside) = match cases::of(code, &bases) {
            Shown::ByImage(Case { image, at, by, beside }) => (told(by, &image), Some(image), at, beside),
            Shown::InMemory(memory) => {
                let env = open_as(&bases.closed.device(), OpenMode::ReadOnly);
                let made = (memory.make)(&env);
                let mut found = Vec::new();
                env.check(&mut |one| found.push(one), &mut |_, _| ()).unwrap();
                drop(made);
                (found, None, memory.at, memory.beside)
            }
        };
        let mut all = codes(&found);
        let is_problem = all.remove(&code).unwrap_or_else(|| panic!("{code} is not told: {found:?}"));
        assert_eq!(is_problem, !NOTES.contains(&code), "{code}: {found:?}");
        assert_eq!(all.into_keys().collect::<Vec<_>>(), beside, "{code}: {found:?}");
        let places: Vec<Place> = found.iter().filter(|one| one.code == code).map(|one| one.place).collect();
        assert!(places.contains(&at), "{code} is not told of {at:?}: {found:?}");
        if let Some(image) = image {
            assert_remedy(code, is_problem, &image);
        }
    }
}

/// Readers get every pair below a bound that is too low, and the nodes above get the right one in time.
#[test]
fn a_bound_of_key_lengths_that_is_too_low_hinders_no_reader() {
    let bases = Bases::new();
    let Shown::ByImage(Case { image, .. }) = cases::of(Code::KeyOverBound, &bases) else {
        panic!("it has one")
    };
    let all = |image: &Image| pairs(&open_as(&image.device(), OpenMode::ReadOnly));
    assert!(all(&image) == all(&bases.closed));
}

/// What is deleted goes with its damage.
#[test]
fn known_damage_heals_by_what_is_written_over_it() {
    let bases = Bases::new();
    let Shown::ByImage(Case { image, .. }) = cases::of(Code::KnownDamage, &bases) else {
        panic!("it has one")
    };
    let device = image.device();
    let env = open(device.clone()).unwrap();
    let mut batch = Batch::new();
    (0..DICTS).for_each(|dict| batch.delete_range(DictId(dict), &Cut::LOW, &Cut::HIGH));
    env.commit(&batch).unwrap();
    assert_eq!(pairs(&env), []);
    while env.run_due_work().unwrap() {}
    fill(&env, 0..100);
    env.close().unwrap();
    drop(env);
    assert_eq!(told(Teller::Check, &Image { bytes: device.bytes() }), []);
}
