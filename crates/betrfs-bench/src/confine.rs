//! A control group for what is measured: client, server and page cache together have so much memory,
//! and their CPU time is counted.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::output::tell;
use crate::teardown::Teardown;

/// Where control groups are: those of the first version in a directory for each controller.
const MOUNTS: &str = "/sys/fs/cgroup";
/// A group's members.
const MEMBERS: &str = "cgroup.procs";
/// What of the memory may wait to be written: the kernel throttles writers by the machine's memory,
/// and in a small group would rather end them.
const DIRTY_SHARE: u64 = 5;
/// The two sysctls that say how much may be dirty; setting one clears the other.
const DIRTY_BYTES: &str = "/proc/sys/vm/dirty_bytes";
const DIRTY_RATIO: &str = "/proc/sys/vm/dirty_ratio";

/// A group in one hierarchy, and the one that this process came from.
#[derive(Clone, Serialize, Deserialize)]
struct Group {
    dir: PathBuf,
    platform: PathBuf,
}

impl Group {
    /// Makes one of the first version, below the group of this process.
    fn of_controller(controller: &str) -> Result<Group> {
        let platform = own_group(|controllers| controllers.split(',').any(|name| name == controller))?;
        let platform = platform.with_context(|| format!("there is no control group for {controller}"))?;
        let platform = Path::new(MOUNTS).join(controller).join(platform);
        Group { dir: platform.join(name()), platform }.made()
    }

    /// Makes one of the second version, below the root: only there a group may have members and limits
    /// at once.
    fn unified() -> Result<Group> {
        let root = Path::new(MOUNTS);
        let platform =
            own_group(str::is_empty)?.context("there are no control groups of the second version")?;
        std::fs::write(root.join("cgroup.subtree_control"), "+memory")
            .context("control groups of the second version cannot limit memory")?;
        Group { dir: root.join(name()), platform: root.join(platform) }.made()
    }

    fn made(self) -> Result<Group> {
        std::fs::create_dir(&self.dir)
            .with_context(|| format!("cannot make the control group {}", self.dir.display()))?;
        Ok(self)
    }

    fn limit(&self, file: &str, memory_bytes: u64) -> Result<()> {
        let path = self.dir.join(file);
        std::fs::write(&path, memory_bytes.to_string())
            .with_context(|| format!("cannot limit memory by {}", path.display()))
    }

    fn enter(&self) -> Result<()> {
        add_self(&self.dir)
    }

    fn leave(&self) -> Result<()> {
        add_self(&self.platform)
    }
}

/// What groups made here are called.
fn name() -> String {
    format!("betrfs-bench-{}", std::process::id())
}

/// The group of this process in the hierarchy that has certain controllers, the second version's
/// having none by name.
fn own_group(is_wanted: impl Fn(&str) -> bool) -> Result<Option<PathBuf>> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").context("cannot read /proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        is_wanted(controllers).then(|| PathBuf::from(path.trim_start_matches('/')))
    });
    Ok(own)
}

fn add_self(dir: &Path) -> Result<()> {
    std::fs::write(dir.join(MEMBERS), std::process::id().to_string())
        .with_context(|| format!("cannot enter the control group {}", dir.display()))
}

/// What has to be put back as it was.
#[derive(Clone, Serialize, Deserialize)]
pub struct Undo {
    groups: Vec<Group>,
    sysctl: Option<(PathBuf, String)>,
}

impl Undo {
    /// Takes this process out of the groups.
    pub fn leave(&self) {
        for group in &self.groups {
            if let Err(error) = group.leave() {
                tell(format_args!("betrfs-bench: {error:#}"));
            }
        }
    }

    /// Ends whoever is in the groups, this process excepted, and puts everything back as far as that goes.
    pub fn put_back(&self) {
        if let Some((path, value)) = &self.sysctl
            && let Err(error) = std::fs::write(path, value)
        {
            let (path, value) = (path.display(), value.trim());
            tell(format_args!("betrfs-bench: {path} was {value} and could not be set again: {error}"));
        }
        for group in &self.groups {
            // A member that ends is gone from the group a little later.
            let gone = (0..100).any(|_| {
                end_members(&group.dir);
                std::fs::remove_dir(&group.dir).is_ok() || {
                    thread::sleep(Duration::from_millis(20));
                    false
                }
            });
            if !gone {
                tell(format_args!("betrfs-bench: the control group {} is still in use", group.dir.display()));
            }
        }
    }
}

/// Ends all other processes of a group.
fn end_members(dir: &Path) {
    let members = std::fs::read_to_string(dir.join(MEMBERS)).unwrap_or_default();
    let members = members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?));
    for pid in members.filter(|pid| *pid != rustix::process::getpid()) {
        // It may have ended by itself.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

/// Groups with a limit on memory in which CPU time is counted.
enum Groups {
    /// Of the first version: one for each.
    First { memory: Group, cpu: Group },
    /// Of the second version.
    Second(Group),
}

impl Groups {
    /// Makes them; what has to be undone, even on a failure, comes to `undo`.
    fn new(memory_bytes: u64, undo: &mut Undo) -> Result<Groups> {
        let mut add = |group: Result<Group>| -> Result<Group> {
            let group = group?;
            undo.groups.push(group.clone());
            Ok(group)
        };
        let has_first =
            own_group(|controllers| controllers.split(',').any(|name| name == "memory"))?.is_some();
        if has_first {
            let memory = add(Group::of_controller("memory"))?;
            memory.limit("memory.limit_in_bytes", memory_bytes)?;
            Ok(Groups::First { memory, cpu: add(Group::of_controller("cpuacct"))? })
        } else {
            let group = add(Group::unified())?;
            group.limit("memory.max", memory_bytes)?;
            Ok(Groups::Second(group))
        }
    }

    /// The CPU time of all who are or were in it.
    fn cpu_seconds(&self) -> Result<f64> {
        let (group, file) = match self {
            Groups::First { cpu, .. } => (cpu, "cpuacct.usage"),
            Groups::Second(group) => (group, "cpu.stat"),
        };
        let usage = std::fs::read_to_string(group.dir.join(file))?;
        match self {
            Groups::First { .. } => Ok(usage.trim().parse::<u64>()? as f64 / 1e9),
            Groups::Second(_) => {
                let used = usage.lines().find_map(|line| line.strip_prefix("usage_usec "));
                Ok(used.context("a group does not tell its CPU time")?.parse::<u64>()? as f64 / 1e6)
            }
        }
    }
}

/// A limit on memory, for as long as this lives, on those who are started within it.
pub struct Confinement {
    /// None where there is no limit.
    groups: Option<Groups>,
    memory_bytes: u64,
    teardown: Teardown,
    _alone: File,
}

impl Confinement {
    /// A limit of so many bytes; nobody is in it yet. Where this machine cannot limit memory, there is
    /// none if that may be.
    pub fn new(memory_bytes: u64, may_be_unlimited: bool, teardown: &Teardown) -> Result<Confinement> {
        let alone = wait_until_alone()?;
        let mut undo = Undo { groups: Vec::new(), sysctl: None };
        let made = Groups::new(memory_bytes, &mut undo).and_then(|groups| {
            undo.sysctl = Some(limit_dirty(memory_bytes / DIRTY_SHARE)?);
            Ok(groups)
        });
        let groups = match made {
            Ok(groups) => {
                teardown.confined(undo);
                Some(groups)
            }
            Err(error) => {
                undo.leave();
                undo.put_back();
                if !may_be_unlimited {
                    return Err(error);
                }
                tell(format_args!("betrfs-bench: memory is not limited: {error:#}"));
                None
            }
        };
        Ok(Confinement { groups, memory_bytes, teardown: teardown.clone(), _alone: alone })
    }

    /// How much memory there is, if that is limited.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.groups.as_ref().map(|_| self.memory_bytes)
    }

    /// Does something within the limit.
    pub fn within<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let groups = match &self.groups {
            None => Vec::new(),
            Some(Groups::First { memory, cpu }) => vec![memory, cpu],
            Some(Groups::Second(group)) => vec![group],
        };
        groups.iter().try_for_each(|group| group.enter())?;
        let done = work();
        groups.iter().try_for_each(|group| group.leave())?;
        done
    }

    /// The CPU time of all who are or were in it, if there is a group to count it.
    pub fn cpu_seconds(&self) -> Result<Option<f64>> {
        self.groups.as_ref().map(Groups::cpu_seconds).transpose()
    }
}

impl Drop for Confinement {
    fn drop(&mut self) {
        self.teardown.unconfine();
    }
}

/// Waits until no other run measures: they would disturb each other, and put back what the other had set.
pub fn wait_until_alone() -> Result<File> {
    let alone = File::open(DIRTY_BYTES).with_context(|| format!("cannot open {DIRTY_BYTES}"))?;
    if let Err(TryLockError::WouldBlock) = alone.try_lock() {
        tell(format_args!("betrfs-bench: waiting for the end of another run's figure"));
        alone.lock().with_context(|| format!("cannot lock {DIRTY_BYTES}"))?;
    }
    Ok(alone)
}

/// Limits what may be dirty; what is to be written, and where, to have it as it was.
fn limit_dirty(bytes: u64) -> Result<(PathBuf, String)> {
    let read = |path| std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
    let (was_bytes, was_ratio) = (read(DIRTY_BYTES)?, read(DIRTY_RATIO)?);
    std::fs::write(DIRTY_BYTES, bytes.to_string()).with_context(|| format!("cannot set {DIRTY_BYTES}"))?;
    let is_ratio = was_bytes.trim() == "0";
    Ok(if is_ratio { (DIRTY_RATIO.into(), was_ratio) } else { (DIRTY_BYTES.into(), was_bytes) })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn within_it_memory_is_limited_and_time_counted_and_then_all_is_as_before() {
        let read = |path: &str| std::fs::read_to_string(path).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let teardown = Teardown::new(scratch.path()).unwrap();
        // The others wait until the first is done.
        let alone = wait_until_alone().unwrap();
        let before = (read(DIRTY_BYTES), read(DIRTY_RATIO), read("/proc/self/cgroup"));
        drop(alone);
        let confinement = Confinement::new(100 << 20, false, &teardown).unwrap();
        assert_eq!(read(DIRTY_BYTES).trim(), (20 << 20).to_string());
        let (groups, limit) = match confinement.groups.as_ref().unwrap() {
            Groups::First { memory, cpu } => {
                (vec![memory.dir.clone(), cpu.dir.clone()], memory.dir.join("memory.limit_in_bytes"))
            }
            Groups::Second(group) => (vec![group.dir.clone()], group.dir.join("memory.max")),
        };
        assert_eq!(read(limit.to_str().unwrap()).trim(), (100 << 20).to_string());
        assert_eq!(confinement.memory_bytes(), Some(100 << 20));
        let cpu_before = confinement.cpu_seconds().unwrap();
        let inside = confinement.within(|| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(50) {}
            Ok(read("/proc/self/cgroup"))
        });
        let name = groups[0].file_name().unwrap().to_str().unwrap();
        assert_eq!(inside.unwrap().matches(name).count(), groups.len());
        assert!(confinement.cpu_seconds().unwrap() > cpu_before);
        // Whoever is left in it ends with it.
        let sleep = || Ok(std::process::Command::new("sleep").arg("1000").spawn()?);
        let mut left = confinement.within(sleep).unwrap();
        drop(confinement);
        assert!(!left.wait().unwrap().success());
        assert_eq!(before, (read(DIRTY_BYTES), read(DIRTY_RATIO), read("/proc/self/cgroup")));
        assert!(groups.iter().all(|group| !group.exists()));
        teardown.end();
    }
}
