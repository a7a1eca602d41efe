//! The user on whose behalf a program acts.

use rustix::process::{getegid, geteuid, getgroups};

/// The umask where the system does not tell the process's own.
const USUAL_UMASK: u16 = 0o022;

/// The user who owns what is made, and against whom permissions are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user; 0 may do everything.
    pub uid: u32,
    /// The group of what is made.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// The permissions that new objects do not get.
    pub umask: u16,
}

impl Caller {
    /// The process's own effective user and groups, with its umask.
    pub fn of_process() -> Caller {
        let groups = getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw);
        // The call umask(2) sets one, and other threads would make files by it meanwhile.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Caller {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            groups: groups.collect(),
            umask: umask_of(&status).unwrap_or(USUAL_UMASK),
        }
    }

    /// Whether it is root.
    pub(crate) fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether it is in a group.
    pub(crate) fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// The umask in a process's status (proc_pid_status(5)).
fn umask_of(status: &str) -> Option<u16> {
    let field = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u16::from_str_radix(field.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_the_umask() {
        assert_eq!(umask_of("Name:\tfsx\nUmask:\t0027\nState:\tR\n"), Some(0o27));
        assert_eq!((umask_of(""), umask_of("Umask:\tx\n")), (None, None));
        let caller = Caller::of_process();
        assert!(caller.umask <= 0o777 && caller.uid == geteuid().as_raw());
    }
}
