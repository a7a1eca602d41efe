//! Control groups: they limit the memory of a set of processes, and count their CPU time.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::output::tell;

/// Where control groups are mounted: those of version 1 in a directory for each controller.
const MOUNTS: &str = "/sys/fs/cgroup";
/// A group's members.
const MEMBERS: &str = "cgroup.procs";

/// A group in one hierarchy.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) dir: PathBuf,
    /// The group that this process came from.
    origin: PathBuf,
}

impl Group {
    /// Makes a group of version 1, below the group of this process.
    fn of_controller(controller: &str) -> Result<Group> {
        let origin = own_group(|controllers| controllers.split(',').any(|name| name == controller))?;
        let origin = origin.with_context(|| format!("there is no control group for {controller}"))?;
        let origin = Path::new(MOUNTS).join(controller).join(origin);
        Group { dir: origin.join(name()), origin }.made()
    }

    /// Makes a group of version 2, below the root: only there a group may have both members and limits.
    fn unified() -> Result<Group> {
        let root = Path::new(MOUNTS);
        let origin = own_group(str::is_empty)?.context("there are no control groups of version 2")?;
        std::fs::write(root.join("cgroup.subtree_control"), "+memory")
            .context("control groups of version 2 cannot limit memory")?;
        Group { dir: root.join(name()), origin: root.join(origin) }.made()
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

    /// Moves this process into the group.
    pub(crate) fn enter(&self) -> Result<()> {
        add_self(&self.dir)
    }

    /// Moves this process back to where it came from.
    pub(crate) fn leave(&self) -> Result<()> {
        add_self(&self.origin)
    }
}

/// The name of the groups that this process makes.
fn name() -> String {
    format!("betrfs-bench-{}", std::process::id())
}

/// The group of this process in the hierarchy with the wanted controllers; that of version 2 names none.
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

/// The changes of a memory limit to the machine, to be restored.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Restore {
    pub(crate) groups: Vec<Group>,
    /// A sysctl's path and its former value.
    pub(crate) sysctl: Option<(PathBuf, String)>,
}

impl Restore {
    /// Moves this process out of the groups.
    pub fn leave(&self) {
        for group in &self.groups {
            if let Err(error) = group.leave() {
                tell(format_args!("betrfs-bench: {error:#}"));
            }
        }
    }

    /// Kills the other members of the groups, and restores everything as far as possible.
    pub fn restore(&self) {
        if let Some((path, value)) = &self.sysctl
            && let Err(error) = std::fs::write(path, value)
        {
            let (path, value) = (path.display(), value.trim());
            tell(format_args!("betrfs-bench: {path} was {value} and could not be set again: {error}"));
        }
        for group in &self.groups {
            // A killed member leaves the group a little later.
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

/// Kills all other processes of a group.
fn end_members(dir: &Path) {
    let members = std::fs::read_to_string(dir.join(MEMBERS)).unwrap_or_default();
    let members = members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?));
    for pid in members.filter(|pid| *pid != rustix::process::getpid()) {
        // The process may have ended by itself.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

/// Groups that limit memory and count CPU time.
pub(crate) enum Groups {
    /// Of version 1: one for each.
    First { memory: Group, cpu: Group },
    /// Of version 2.
    Second(Group),
}

impl Groups {
    /// Makes them. Each group made is added to `restore`, even on a failure.
    pub(crate) fn new(memory_bytes: u64, restore: &mut Restore) -> Result<Groups> {
        let mut add = |group: Result<Group>| -> Result<Group> {
            let group = group?;
            restore.groups.push(group.clone());
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

    /// Each group.
    pub(crate) fn all(&self) -> Vec<&Group> {
        match self {
            Groups::First { memory, cpu } => vec![memory, cpu],
            Groups::Second(group) => vec![group],
        }
    }

    /// The CPU time of all members, past ones too.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        let (group, file) = match self {
            Groups::First { cpu, .. } => (cpu, "cpuacct.usage"),
            Groups::Second(group) => (group, "cpu.stat"),
        };
        let usage = std::fs::read_to_string(group.dir.join(file))?;
        match self {
            Groups::First { .. } => Ok(usage.trim().parse::<u64>()? as f64 / 1e9),
            Groups::Second(_) => {
                let used = usage.lines().find_map(|line| line.strip_prefix("usage_usec "));
                Ok(used.context("a group does not report its CPU time")?.parse::<u64>()? as f64 / 1e6)
            }
        }
    }
}
