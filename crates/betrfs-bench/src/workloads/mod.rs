//! The workloads, one in each file.

mod age_fileserver;
mod age_git;
mod archive;
mod clone_tree;
mod clone_write;
mod create;
mod delete_large;
mod filebench;
mod find;
mod git_checkout;
mod git_clone;
mod git_diff;
mod grep;
mod mail;
mod oltp;
mod random_write;
mod remove;
mod rename_dir;
mod rsync;
mod seen;
mod sequential;
mod tokubench;
mod unpack;

pub use sequential::fill;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use bench_harness::scale::Scale;
use filebench::Filebench;
use seen::Seen;

use crate::cloner::Cloner;
use crate::data::{FileSet, History, Layout};
use crate::repository::Repository;
use crate::tree::Tree;

pub use tokubench::Microfiles;

/// Timed work on a file system.
pub trait Workload {
    /// The name on the command line and in tables.
    fn name(&self) -> &'static str;

    /// The work in one line.
    fn about(&self) -> String;

    /// Whether the timed part changes the file system: its time then includes a sync that makes everything
    /// durable.
    fn writes(&self) -> bool;

    /// How long a round may take, with preparing and checking, before it counts as hung.
    fn time_max(&self) -> Duration {
        Duration::from_secs(60 * 60)
    }

    /// The number of further runs, each cold and after [`age`](Workload::age). The last run is the figure;
    /// those before it are a series.
    fn steps(&self) -> u64 {
        0
    }

    /// Makes the file system older; `step` counts from 1. Not timed.
    fn age(&self, _dir: &Path, _step: u64) -> Result<()> {
        Ok(())
    }

    /// Prepares the file system. Not timed; it is cold again when the time begins.
    fn prepare(&self, _dir: &Path) -> Result<()> {
        Ok(())
    }

    /// Brings input from elsewhere into memory. Not timed.
    fn warm(&self) -> Result<()> {
        Ok(())
    }

    /// Does the work; its time is the figure.
    fn run(&self, dir: &Path) -> Result<()>;

    /// Checks after each run, on a cold mount, that it has read everything. Not timed.
    fn check_run(&self, _dir: &Path) -> Result<()> {
        Ok(())
    }

    /// Checks its writes or findings once, on a cold mount. Not timed.
    fn check(&self, _dir: &Path) -> Result<()> {
        Ok(())
    }

    /// The size of the disk.
    fn disk_bytes(&self) -> u64 {
        DISK_BYTES
    }

    /// The memory limit of client, server and page cache together.
    fn memory_bytes(&self) -> u64 {
        MEMORY_BYTES
    }
}

/// The inputs of workloads.
pub struct Inputs<'t> {
    /// The tree to unpack.
    pub tree: &'t Tree,
    /// A repository with two versions of the tree.
    pub tree_repository: Repository,
    /// A repository with a generated history.
    pub history_repository: Repository,
    /// The binary `betrfs`.
    pub betrfs: PathBuf,
}

impl<'t> Inputs<'t> {
    /// The inputs for a tree, with repositories in a directory.
    pub fn new(tree: &'t Tree, scratch: &Path, betrfs: &Path) -> Inputs<'t> {
        Inputs {
            tree,
            tree_repository: Repository::new(scratch, "tree.git"),
            history_repository: Repository::new(scratch, "history.git"),
            betrfs: betrfs.to_owned(),
        }
    }
}

/// The size of the disk for most workloads: room for two trees of Linux.
const DISK_BYTES: u64 = 4 << 30;
/// The size of the disk for the others.
const DISK_BYTES_LARGE: u64 = 16 << 30;
/// The memory of most workloads: room for a tree of Linux.
const MEMORY_BYTES: u64 = 2 << 30;
/// The memory of workloads whose data outgrows it.
const MEMORY_BYTES_SMALL: u64 = 512 << 20;

/// All workloads.
pub fn all<'t>(scale: Scale, inputs: &'t Inputs<'t>) -> Vec<Box<dyn Workload + 't>> {
    let tree = inputs.tree;
    let mut all: Vec<Box<dyn Workload + 't>> = vec![
        Box::new(unpack::Unpack { tree }),
        Box::new(find::Find { tree, seen: Seen::default() }),
        Box::new(grep::Grep { tree, seen: Seen::default() }),
        Box::new(archive::Archive { tree, seen: Seen::default() }),
        Box::new(remove::Remove { tree }),
        Box::new(create::Create { dirs: scale.pick(10, 100), files_per_dir: scale.part(50, 1000) as usize }),
        Box::new(sequential::Write { mib: scale.part(16, 1024) }),
        Box::new(sequential::Read { mib: scale.part(16, 1024) }),
    ];
    all.extend(random_writes(scale));
    for (name, threads) in [("tokubench-1", 1), ("tokubench-4", 4)] {
        let microfiles = Microfiles { files: scale.part(2000, 1_000_000), threads };
        all.push(Box::new(tokubench::TokuBench { name, microfiles, memory_bytes: MEMORY_BYTES_SMALL }));
    }
    // Beside the others with a large disk, which is then made once.
    for (name, tiny_mib, full_mib) in [("delete-large-10", 4, 10 << 10), ("delete-large-1", 1, 1 << 10)] {
        all.push(Box::new(delete_large::DeleteLarge { name, mib: scale.part(tiny_mib, full_mib) }));
    }
    for (name, in_place, older_copy) in [
        ("rsync", false, false),
        ("rsync-inplace", true, false),
        ("rsync-update", false, true),
        ("rsync-update-inplace", true, true),
    ] {
        all.push(Box::new(rsync::Rsync { name, tree, in_place, older_copy }));
    }
    let repository = &inputs.tree_repository;
    all.push(Box::new(git_clone::GitClone { tree, repository }));
    all.push(Box::new(git_diff::GitDiff { tree, repository }));
    all.push(Box::new(git_checkout::GitCheckout { tree, repository }));
    all.push(Box::new(mail::Mail {
        folders: scale.pick(4, 10),
        messages: scale.part(50, 1000),
        mean_bytes: 8 << 10,
        clients: 4,
        operations: scale.part(50, 5000),
    }));
    all.extend(renames(scale));
    all.extend(clones(scale, inputs));
    all.extend(filebench_profiles(scale));
    all.extend(aging(scale, &inputs.history_repository));
    all
}

fn random_writes<'t>(scale: Scale) -> impl Iterator<Item = Box<dyn Workload + 't>> {
    let kinds = [
        ("random", 1024, 4, 4, MEMORY_BYTES),
        ("random-beyond", 2048, 4, 4, MEMORY_BYTES_SMALL),
        ("unaligned", 1024, 4096, 1, MEMORY_BYTES),
        ("unaligned-beyond", 2048, 4096, 1, MEMORY_BYTES_SMALL),
    ];
    kinds.into_iter().map(move |(name, full_mib, write_bytes, align_bytes, memory_bytes)| {
        let (file_mib, writes) = (scale.part(16, full_mib), scale.part(200, 10_000));
        let workload =
            random_write::RandomWrite { name, file_mib, writes, write_bytes, align_bytes, memory_bytes };
        Box::new(workload) as Box<dyn Workload>
    })
}

/// Renames of directories, each with ten times the files of the one before; at the tiny scale up to a
/// hundred.
fn renames<'t>(scale: Scale) -> impl Iterator<Item = Box<dyn Workload + 't>> {
    let sizes = [
        ("rename-dir-1", 1),
        ("rename-dir-10", 10),
        ("rename-dir-100", 100),
        ("rename-dir-1000", 1000),
        ("rename-dir-10000", 10_000),
        ("rename-dir-100000", 100_000),
    ];
    sizes.into_iter().take(scale.pick(3, sizes.len())).map(|(name, files)| {
        let workload = rename_dir::RenameDir { name, files };
        Box::new(workload) as Box<dyn Workload>
    })
}

/// Clones of a tree of small files, and of a directory of large files, which are then written to.
fn clones<'t>(scale: Scale, inputs: &'t Inputs<'t>) -> [Box<dyn Workload + 't>; 4] {
    let cloner = |has_snapshots| Cloner { betrfs: inputs.betrfs.clone(), has_snapshots };
    let tree = |name, has_snapshots| clone_tree::CloneTree {
        name,
        tree: inputs.tree,
        cloner: cloner(has_snapshots),
    };
    let set = || clone_write::CloneSet {
        fanout: scale.pick(2, 8),
        file_bytes: scale.part(64 << 10, 4 << 20),
        clones: 4,
        cloner: cloner(false),
    };
    [
        Box::new(tree("clone-tree", false)),
        Box::new(tree("clone-tree-snapshot", true)),
        Box::new(clone_write::CloneDir(set())),
        Box::new(clone_write::CloneWrite(set())),
    ]
}

/// Filebench's profiles with their published sizes and threads.
fn filebench_profiles<'t>(scale: Scale) -> Vec<Box<dyn Workload + 't>> {
    let mut profiles: Vec<Box<dyn Workload>> = vec![Box::new(oltp::Oltp {
        files: scale.pick(2, 10),
        file_bytes: scale.part(1 << 20, 10 << 20),
        readers: scale.pick(20, 200),
        writers: scale.pick(2, 10),
        batches: scale.pick(1, 10),
    })];
    profiles.extend(filebench::servers(scale).map(|server| Box::new(server) as Box<dyn Workload>));
    profiles
}

fn aging<'t>(scale: Scale, repository: &'t Repository) -> [Box<dyn Workload + 't>; 4] {
    let history =
        History { files: scale.part(100, 4000), mean_bytes: 8 << 10, commits: scale.part(6, 10_000) };
    // Each grep needs a cold disk: the quarter scale has a tenth of the greps.
    let pulls_per_step = if scale == Scale::Quarter { 250 } else { scale.pick(3, 100) };
    let server = || age_fileserver::AgeFileServer {
        server: Filebench {
            personality: &filebench::FILE_SERVER,
            set: FileSet {
                layout: Layout { files: scale.part(100, 10_000), fanout: 20 },
                mean_bytes: 16 << 10,
                present_percent: 80,
            },
            threads: scale.pick(4, 50),
            loops: scale.part(5, 100),
            write_bytes_max: 16 << 10,
        },
        steps: scale.pick(2, 10),
        seen: Seen::default(),
    };
    [
        Box::new(age_git::AgeGit { history, repository, pulls_per_step, seen: Seen::default() }),
        Box::new(age_git::AgeGitFresh { history, repository, seen: Seen::default() }),
        Box::new(server()),
        Box::new(age_fileserver::AgeFileServerFresh { aged: server() }),
    ]
}
