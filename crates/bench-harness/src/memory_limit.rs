//! A limit on the memory of client, server and page cache together, and a count of their CPU time.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cgroup::{Groups, Restore};
use crate::machine::{self, DIRTY_BYTES};
use crate::output::tell;
use crate::teardown::Teardown;

/// Divisor for the part of the memory that may be dirty. The kernel throttles writers by the machine's
/// memory; in a small group it would kill them before.
const DIRTY_SHARE: u64 = 5;
/// The other sysctl for dirty memory; setting one of the two clears the other.
const DIRTY_RATIO: &str = "/proc/sys/vm/dirty_ratio";

/// A limit on the memory of the processes that are started within it. It ends when this is dropped.
pub struct MemoryLimit {
    /// `None` without a limit.
    groups: Option<Groups>,
    memory_bytes: u64,
    teardown: Teardown,
    _machine: File,
}

impl MemoryLimit {
    /// A limit in bytes; no process is in it yet. With `may_be_unlimited`, a machine that cannot limit memory
    /// is no error.
    ///
    /// # Errors
    /// The machine cannot limit memory.
    pub fn new(memory_bytes: u64, may_be_unlimited: bool, teardown: &Teardown) -> Result<MemoryLimit> {
        let machine = machine::lock()?;
        let mut restore = Restore::default();
        let made = Groups::new(memory_bytes, &mut restore).and_then(|groups| {
            restore.sysctl = Some(limit_dirty(memory_bytes / DIRTY_SHARE)?);
            Ok(groups)
        });
        let groups = match made {
            Ok(groups) => {
                teardown.memory_limited(restore);
                Some(groups)
            }
            Err(error) => {
                restore.leave();
                restore.restore();
                if !may_be_unlimited {
                    return Err(error);
                }
                tell(format_args!("betrfs-bench: memory is not limited: {error:#}"));
                None
            }
        };
        Ok(MemoryLimit { groups, memory_bytes, teardown: teardown.clone(), _machine: machine })
    }

    /// The limit in bytes, if there is one.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.groups.as_ref().map(|_| self.memory_bytes)
    }

    /// Runs `work` within the limit; processes that it starts stay there.
    ///
    /// # Errors
    /// Those of the work, or the groups cannot be entered.
    pub fn within<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let groups = self.groups.as_ref().map_or_else(Vec::new, Groups::all);
        groups.iter().try_for_each(|group| group.enter())?;
        let done = work();
        groups.iter().try_for_each(|group| group.leave())?;
        done
    }

    /// The CPU time of all processes within it, if there is a group to count it.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn cpu_seconds(&self) -> Result<Option<f64>> {
        self.groups.as_ref().map(Groups::cpu_seconds).transpose()
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        self.teardown.end_memory_limit();
    }
}

/// Limits dirty memory. Returns the sysctl that restores it, and its value.
fn limit_dirty(bytes: u64) -> Result<(PathBuf, String)> {
    let read = |path| std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
    let (was_bytes, was_ratio) = (read(DIRTY_BYTES)?, read(DIRTY_RATIO)?);
    std::fs::write(DIRTY_BYTES, bytes.to_string()).with_context(|| format!("cannot set {DIRTY_BYTES}"))?;
    let is_ratio = was_bytes.trim() == "0";
    Ok(if is_ratio { (DIRTY_RATIO.into(), was_ratio) } else { (DIRTY_BYTES.into(), was_bytes) })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn memory_is_limited_and_time_counted_and_then_everything_is_restored() {
        let read = |path: &str| std::fs::read_to_string(path).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let teardown = Teardown::new(scratch.path()).unwrap();
        // The lock waits until other runs are done.
        let machine = machine::lock().unwrap();
        let before = (read(DIRTY_BYTES), read(DIRTY_RATIO), read("/proc/self/cgroup"));
        drop(machine);
        let limit = MemoryLimit::new(100 << 20, false, &teardown).unwrap();
        assert_eq!(read(DIRTY_BYTES).trim(), (20 << 20).to_string());
        let (groups, limit_file) = match limit.groups.as_ref().unwrap() {
            Groups::First { memory, cpu } => {
                (vec![memory.dir.clone(), cpu.dir.clone()], memory.dir.join("memory.limit_in_bytes"))
            }
            Groups::Second(group) => (vec![group.dir.clone()], group.dir.join("memory.max")),
        };
        assert_eq!(read(limit_file.to_str().unwrap()).trim(), (100 << 20).to_string());
        assert_eq!(limit.memory_bytes(), Some(100 << 20));
        let cpu_before = limit.cpu_seconds().unwrap();
        let inside = limit.within(|| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(50) {}
            Ok(read("/proc/self/cgroup"))
        });
        let name = groups[0].file_name().unwrap().to_str().unwrap();
        assert_eq!(inside.unwrap().matches(name).count(), groups.len());
        assert!(limit.cpu_seconds().unwrap() > cpu_before);
        // A process left in the limit ends with it.
        let sleep = || Ok(std::process::Command::new("sleep").arg("1000").spawn()?);
        let mut left = limit.within(sleep).unwrap();
        drop(limit);
        assert!(!left.wait().unwrap().success());
        assert_eq!(before, (read(DIRTY_BYTES), read(DIRTY_RATIO), read("/proc/self/cgroup")));
        assert!(groups.iter().all(|group| !group.exists()));
        teardown.end();
    }
}
