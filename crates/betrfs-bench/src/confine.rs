//! A control group for what is measured: client, server and page cache together have so much memory,
//! and their CPU time is counted.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};

use crate::teardown::Teardown;

/// Where control groups of the first version are mounted.
const MOUNTS: &str = "/sys/fs/cgroup";
/// Its members.
const MEMBERS: &str = "cgroup.procs";
/// What of the memory may wait to be written: the kernel throttles writers by the machine's memory,
/// and in a small group would rather end them.
const DIRTY_SHARE: u64 = 5;
/// The two sysctls that say how much may be dirty; setting one clears the other.
const DIRTY_BYTES: &str = "/proc/sys/vm/dirty_bytes";
const DIRTY_RATIO: &str = "/proc/sys/vm/dirty_ratio";

/// A group in one hierarchy, and the one that this process came from.
#[derive(Clone)]
struct Group {
    dir: PathBuf,
    home: PathBuf,
}

impl Group {
    /// Makes one below the group of this process.
    fn new(controller: &str) -> Result<Group> {
        let groups = std::fs::read_to_string("/proc/self/cgroup")?;
        let own = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|name| name == controller).then_some(path)
        });
        let own = own.with_context(|| {
            format!("no control group of the first version for {controller}: a memory limit needs them")
        })?;
        let home = Path::new(MOUNTS).join(controller).join(own.trim_start_matches('/'));
        let dir = home.join(format!("betrfs-bench-{}", std::process::id()));
        std::fs::create_dir(&dir)
            .with_context(|| format!("cannot make the control group {}", dir.display()))?;
        Ok(Group { dir, home })
    }

    fn enter(&self) -> Result<()> {
        add_self(&self.dir)
    }

    fn leave(&self) -> Result<()> {
        add_self(&self.home)
    }
}

fn add_self(dir: &Path) -> Result<()> {
    std::fs::write(dir.join(MEMBERS), std::process::id().to_string())
        .with_context(|| format!("cannot enter the control group {}", dir.display()))
}

/// What has to be put back as it was.
#[derive(Clone)]
pub struct Undo {
    groups: Vec<Group>,
    sysctl: Option<(&'static str, String)>,
}

impl Undo {
    /// Ends whoever else is in the groups, and puts everything back as far as that goes.
    pub fn undo(&self) {
        if let Some((path, value)) = &self.sysctl
            && let Err(error) = std::fs::write(path, value)
        {
            eprintln!("betrfs-bench: {path} was {} and could not be set again: {error}", value.trim());
        }
        for group in &self.groups {
            if let Err(error) = group.leave() {
                eprintln!("betrfs-bench: {error:#}");
            }
            // A member that ends is gone from the group a little later.
            let gone = (0..100).any(|_| {
                end_members(&group.dir);
                std::fs::remove_dir(&group.dir).is_ok() || {
                    thread::sleep(Duration::from_millis(20));
                    false
                }
            });
            if !gone {
                eprintln!("betrfs-bench: the control group {} is still in use", group.dir.display());
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

/// A limit on memory, for as long as this lives, on those who are started within it.
pub struct Confinement {
    memory: Group,
    cpu: Group,
    teardown: Teardown,
    _alone: File,
}

impl Confinement {
    /// A limit of so many bytes; nobody is in it yet.
    pub fn new(memory_bytes: u64, teardown: &Teardown) -> Result<Confinement> {
        let alone = wait_until_alone()?;
        let mut undo = Undo { groups: Vec::new(), sysctl: None };
        let made = (|| {
            let memory = Group::new("memory")?;
            undo.groups.push(memory.clone());
            let cpu = Group::new("cpuacct")?;
            undo.groups.push(cpu.clone());
            std::fs::write(memory.dir.join("memory.limit_in_bytes"), memory_bytes.to_string())
                .context("cannot limit memory")?;
            undo.sysctl = Some(limit_dirty(memory_bytes / DIRTY_SHARE)?);
            Ok((memory, cpu))
        })();
        match made {
            Ok((memory, cpu)) => {
                teardown.confined(undo);
                Ok(Confinement { memory, cpu, teardown: teardown.clone(), _alone: alone })
            }
            Err(error) => {
                undo.undo();
                Err(error)
            }
        }
    }

    /// Does something within the limit.
    pub fn within<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.memory.enter()?;
        self.cpu.enter()?;
        let done = work();
        self.cpu.leave()?;
        self.memory.leave()?;
        done
    }

    /// The CPU time of all who are or were in it.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let usage = std::fs::read_to_string(self.cpu.dir.join("cpuacct.usage"))?;
        Ok(usage.trim().parse::<u64>()? as f64 / 1e9)
    }
}

impl Drop for Confinement {
    fn drop(&mut self) {
        self.teardown.unconfine();
    }
}

/// Two runs at once would disturb each other, and put back what the other had set.
fn wait_until_alone() -> Result<File> {
    let alone = File::open(DIRTY_BYTES).with_context(|| format!("cannot open {DIRTY_BYTES}"))?;
    if let Err(TryLockError::WouldBlock) = alone.try_lock() {
        eprintln!("betrfs-bench: waiting for the end of another run's figure");
        alone.lock().with_context(|| format!("cannot lock {DIRTY_BYTES}"))?;
    }
    Ok(alone)
}

/// Limits what may be dirty; what is to be written, and where, to have it as it was.
fn limit_dirty(bytes: u64) -> Result<(&'static str, String)> {
    let read = |path| std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
    let (was_bytes, was_ratio) = (read(DIRTY_BYTES)?, read(DIRTY_RATIO)?);
    std::fs::write(DIRTY_BYTES, bytes.to_string()).with_context(|| format!("cannot set {DIRTY_BYTES}"))?;
    Ok(if was_bytes.trim() == "0" { (DIRTY_RATIO, was_ratio) } else { (DIRTY_BYTES, was_bytes) })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn within_it_memory_is_limited_and_time_counted_and_then_all_is_as_before() {
        let read = |path: &str| std::fs::read_to_string(path).unwrap();
        let teardown = Teardown::new(Path::new("/nonexistent")).unwrap();
        // The others wait until the first is done.
        let alone = wait_until_alone().unwrap();
        let before = (read(DIRTY_BYTES), read(DIRTY_RATIO), read("/proc/self/cgroup"));
        drop(alone);
        let confinement = Confinement::new(100 << 20, &teardown).unwrap();
        assert_eq!(read(DIRTY_BYTES).trim(), (20 << 20).to_string());
        let groups = [confinement.memory.dir.clone(), confinement.cpu.dir.clone()];
        let limit = groups[0].join("memory.limit_in_bytes");
        assert_eq!(read(limit.to_str().unwrap()).trim(), (100 << 20).to_string());
        let cpu_before = confinement.cpu_seconds().unwrap();
        let inside = confinement.within(|| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(50) {}
            Ok(read("/proc/self/cgroup"))
        });
        let name = groups[0].file_name().unwrap().to_str().unwrap();
        assert_eq!(inside.unwrap().matches(name).count(), 2);
        assert!(confinement.cpu_seconds().unwrap() > cpu_before);
        // Whoever is left in it ends with it.
        let sleep = || Ok(std::process::Command::new("sleep").arg("1000").spawn()?);
        let mut left = confinement.within(sleep).unwrap();
        drop(confinement);
        assert!(!left.wait().unwrap().success());
        assert_eq!(before, (read(DIRTY_BYTES), read(DIRTY_RATIO), read("/proc/self/cgroup")));
        assert!(groups.iter().all(|group| !group.exists()));
    }
}
