//! The bounded workloads of B3 (Mohan, Martinez, Ponnapalli, Raju, Chidambaram: "Finding Crash-Consistency
//! Bugs with Bounded Black-Box Crash Testing", OSDI 2018, sections 4 and 5): every operation on few files in
//! two levels of directories, each followed by each way to make a related file durable.
//!
//! B3 compares what was persisted. Here more is promised, and so compared: after a cut the volume is as it
//! was after some operation, from the last one that was followed by any sync on. Each workload starts from
//! files that are durable.

mod operations;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use betree_sim::Rng;
use betree_sim::harness::{effort, setting};

use crate::bed::Bed;
use crate::judge::Plan;
use operations::{Operation, all};

/// Workloads on one volume, whose log then stays short.
const WORKLOADS_AT_ONCE: usize = 120;
const PLAN: Plan = Plan { every: 1, fates: 3 };

/// How something is made durable.
#[derive(Clone, Debug)]
pub enum Persist {
    Fsync(&'static str),
    Fdatasync(&'static str),
    Sync,
}

impl Persist {
    /// Does it; what is not there any more is represented by the directory above it.
    fn run(&self, dir: &Path) {
        let open = |path: &str| {
            let above = |path: &Path| path.parent().map_or(dir.to_owned(), Path::to_owned);
            let mut path: PathBuf = dir.join(path);
            while fs::symlink_metadata(&path).map_or(true, |found| found.is_symlink()) {
                path = above(&path);
            }
            File::open(path).unwrap()
        };
        match self {
            Persist::Fsync(path) => open(path).sync_all().unwrap(),
            Persist::Fdatasync(path) => open(path).sync_data().unwrap(),
            Persist::Sync => rustix::fs::syncfs(open("")).unwrap(),
        }
    }

    /// All that B3 tries after an operation: the files it names, their siblings and directories.
    fn after(operation: &Operation) -> Vec<Persist> {
        let mut related: Vec<&'static str> = Vec::new();
        for path in operation.paths() {
            related.extend([path, operations::sibling(path), operations::parent(path)]);
        }
        related.sort_unstable();
        related.dedup();
        let mut all: Vec<Persist> = related.into_iter().map(Persist::Fsync).collect();
        all.extend([Persist::Fdatasync(operation.paths()[0]), Persist::Sync]);
        all
    }
}

/// Operations, each of which may be made durable.
type Workload = Vec<(Operation, Option<Persist>)>;

/// One operation and one way to make it durable.
fn of_one_operation() -> Vec<Workload> {
    let of = |operation: Operation| {
        Persist::after(&operation).into_iter().map(move |persist| vec![(operation.clone(), Some(persist))])
    };
    all().into_iter().flat_map(of).collect()
}

/// Two operations, the first of which may be made durable.
fn of_two_operations(seed: u64) -> Workload {
    let mut rng = Rng::new(seed);
    let operations = all();
    let mut one = |may_be_left: bool| {
        let operation = rng.pick(&operations).clone();
        let persist = rng.pick(&Persist::after(&operation)).clone();
        let is_left = may_be_left && rng.percent(40);
        (operation, (!is_left).then_some(persist))
    };
    vec![one(true), one(false)]
}

/// Runs workloads, each in a directory of its own, and judges all cuts of the power.
fn try_all(workloads: &[Workload]) -> (usize, usize) {
    let (mut images, mut older) = (0, 0);
    for part in workloads.chunks(WORKLOADS_AT_ONCE) {
        let mut bed = Bed::new();
        for (number, workload) in part.iter().enumerate() {
            let name = format!("w{number}");
            bed.sets_up(|dir| {
                for entry in fs::read_dir(dir).unwrap() {
                    fs::remove_dir_all(entry.unwrap().path()).unwrap();
                }
                operations::prepare(&dir.join(&name), workload.iter().map(|(operation, _)| operation));
            });
            for (operation, persist) in workload {
                let run = |dir: &Path| operation.run(&dir.join(&name));
                if operation.is_durable() {
                    bed.syncs(run)
                } else {
                    bed.does(run)
                }
                if let Some(persist) = persist {
                    bed.syncs(|dir| persist.run(&dir.join(&name)));
                }
            }
        }
        let (log, states) = bed.end();
        match crate::judge::judge(&log, &states, PLAN) {
            Ok(seen) => (images, older) = (images + seen.images, older + seen.older),
            Err(what) => panic!("{what}"),
        }
    }
    (images, older)
}

#[test]
fn every_workload_of_one_operation_is_durable_when_it_is_said_to_be() {
    let workloads = of_one_operation();
    let (images, older) = try_all(&workloads);
    println!("{} workloads, {images} images, {older} of older states", workloads.len());
    assert!(workloads.len() >= 300 && images >= 1000 && older >= 200, "{} {images} {older}", workloads.len());
}

#[test]
fn workloads_of_two_operations_are_durable_when_they_are_said_to_be() {
    let (first, count) = (setting("BETRFS_SEED", 0), effort(240));
    let workloads: Vec<Workload> = (first..first + count).map(of_two_operations).collect();
    let (images, older) = try_all(&workloads);
    println!("{count} workloads from {first} on, {images} images, {older} of older states");
    assert!(images as u64 >= 2 * count, "{images}");
}
