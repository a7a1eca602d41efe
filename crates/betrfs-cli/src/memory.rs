//! The memory available to this process.

use std::path::Path;

/// Control groups, of version 2 and version 1: the controller's name, the mount point, and the file with a
/// group's limit in bytes.
const HIERARCHIES: [(&str, &str, &str); 2] =
    [("", "/sys/fs/cgroup", "memory.max"), ("memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes")];

/// The default budget of a mount's node cache: a quarter of the available memory, as the kernel's pages of
/// the same files need memory too; but at least what a usual checkpoint needs, and not so much that a
/// checkpoint takes long.
pub fn default_cache_bytes() -> u64 {
    cache_bytes_of(available_bytes())
}

fn cache_bytes_of(available_bytes: u64) -> u64 {
    (available_bytes / 4).clamp(64 << 20, 1 << 30)
}

/// The machine's memory, or the least limit of this process's control groups.
pub fn available_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let machine_bytes = (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = |path: &Path| std::fs::read_to_string(path).ok();
    group_limit_bytes(&groups, limit).map_or(machine_bytes, |bytes| bytes.min(machine_bytes))
}

/// The least limit of a process's groups and their parents. Groups for which `limit` returns `None` or no
/// number count as unlimited: in a container the parents are not visible.
fn group_limit_bytes(groups: &str, limit: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let of_line = |line: &str| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let (_, mount, file) = HIERARCHIES
            .iter()
            .find(|(name, ..)| controllers.split(',').any(|controller| controller == *name))?;
        let limits = Path::new(group.trim_start_matches('/'))
            .ancestors()
            .filter_map(|group| limit(&Path::new(mount).join(group).join(file))?.trim().parse::<u64>().ok());
        limits.min()
    };
    groups.lines().filter_map(of_line).min()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn limit_of(groups: &str, limits: &[(&str, &str)]) -> Option<u64> {
        let limits: BTreeMap<_, _> = limits.iter().map(|(path, text)| (Path::new(path), *text)).collect();
        group_limit_bytes(groups, |path| limits.get(path).map(|text| (*text).to_owned()))
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_counts() {
        let unified = "0::/jobs/one\n";
        let limits = [
            ("/sys/fs/cgroup/jobs/one/memory.max", "max\n"),
            ("/sys/fs/cgroup/jobs/memory.max", "3000\n"),
            ("/sys/fs/cgroup/memory.max", "4000\n"),
        ];
        assert_eq!(limit_of(unified, &limits), Some(3000));
        assert_eq!(limit_of(unified, &limits[..1]), None);
        assert_eq!(limit_of("", &limits), None);
        assert_eq!(limit_of("nonsense\n0::\n", &limits), Some(4000));
    }

    #[test]
    fn in_version_1_the_memory_group_counts() {
        let first = "5:cpu,cpuacct:/a\n4:memory:/b\n0::/\n";
        let limits = [
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n"),
            ("/sys/fs/cgroup/memory/b/memory.limit_in_bytes", "2000\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(limit_of(first, &limits), Some(2000));
    }

    #[test]
    fn a_quarter_of_the_memory_is_the_default_between_its_bounds() {
        for (available_mib, cache_mib) in [(0, 64), (128, 64), (1024, 256), (2048, 512), (65_536, 1024)] {
            assert_eq!(cache_bytes_of(available_mib << 20), cache_mib << 20, "of {available_mib} MiB");
        }
        assert!(available_bytes() >= 64 << 20);
    }
}
