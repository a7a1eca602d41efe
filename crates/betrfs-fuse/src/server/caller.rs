//! The task that sends a request, and its rights.
//!
//! The kernel names a user only in requests that make something, and then as the owner of the new object,
//! which on an idmapped mount is another identity. So the task's own identity is read from /proc. The task
//! waits for the answer meanwhile, so its number still belongs to it.

use std::fs;

use betrfs::{Attr, FlagSetter, User};

/// The capability to set flags of other users' inodes, if the kernel does not check the owner.
const CAP_FOWNER: u32 = 3;
/// The capability to keep set-id bits where a file's contents change (capabilities(7)).
const CAP_FSETID: u32 = 4;
/// The capability to set and clear the flags immutable and append-only.
const CAP_LINUX_IMMUTABLE: u32 = 9;
/// The capability to administer file systems, and to see `trusted.` attributes.
const CAP_SYS_ADMIN: u32 = 21;

const SET_GROUP_ID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;

/// What is known of the tasks that send requests.
pub trait Tasks: Send + Sync {
    /// The file-system user of a task; `None` if nobody knows it.
    fn user(&self, task: u32) -> Option<u32>;
    /// The same with all groups of the task.
    fn user_and_groups(&self, task: u32) -> Option<User>;
    /// The effective capabilities of a task as far as they count for the mount, each a bit.
    fn capabilities(&self, task: u32) -> u64;
    /// The user who mounted.
    fn mounted_by(&self) -> u32;
}

/// The tasks of this machine, as /proc shows them.
pub struct ProcTasks;

impl Tasks for ProcTasks {
    fn user(&self, task: u32) -> Option<u32> {
        user_of(&status(task)?)
    }

    fn user_and_groups(&self, task: u32) -> Option<User> {
        let status = status(task)?;
        Some(User { uid: user_of(&status)?, groups: groups_of(&status)? })
    }

    fn capabilities(&self, task: u32) -> u64 {
        let Some(effective) = status(task).as_deref().and_then(capabilities_of) else { return 0 };
        // In a user namespace of their own all users have all capabilities.
        if is_of_our_users(task) { effective } else { 0 }
    }

    fn mounted_by(&self) -> u32 {
        rustix::process::getuid().as_raw()
    }
}

fn status(task: u32) -> Option<String> {
    // Task 0 means that the task has no number here.
    (task != 0).then(|| fs::read_to_string(format!("/proc/{task}/status")).ok()).flatten()
}

fn is_of_our_users(task: u32) -> bool {
    let theirs = fs::read_link(format!("/proc/{task}/ns/user"));
    matches!((theirs, fs::read_link("/proc/self/ns/user")), (Ok(theirs), Ok(ours)) if theirs == ours)
}

/// The task that sends a request.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// User id of objects that it makes.
    pub uid: u32,
    /// Group id of objects that it makes.
    pub gid: u32,
    /// The thread's id in the pid namespace of the mount; 0 if it has none there.
    pub task: u32,
    /// What is known of tasks.
    pub tasks: &'a dyn Tasks,
}

impl Caller<'_> {
    /// The task's file-system user, if it is known.
    pub fn user(self) -> Option<u32> {
        self.tasks.user(self.task)
    }

    /// The same with all groups of the task.
    pub fn user_and_groups(self) -> Option<User> {
        self.tasks.user_and_groups(self.task)
    }

    /// Whether it may do everything: it is root with the capability for that, or another user who mounted.
    /// Processes in containers often are root without it.
    pub fn is_trusted(self) -> bool {
        match self.user() {
            Some(0) => may_administer(self.tasks, self.task),
            Some(user) => user == self.tasks.mounted_by(),
            None => false,
        }
    }

    /// Whether set-id bits stay when it changes a file's contents: for requests in which the kernel does not
    /// say.
    pub fn keeps_set_id(self) -> bool {
        self.has(CAP_FSETID)
    }

    /// Whether a change by this task that clears set-id bits also clears set-group-id of an object without
    /// execute permission for its group: the task is not in that group and has no `CAP_FSETID`. The kernel
    /// leaves this to the server, and so does `FUSE_HANDLE_KILLPRIV_V2`. A task that nobody knows is outside.
    pub fn is_outside_group(self, attr: &Attr) -> bool {
        let is_for_group = attr.perm & (SET_GROUP_ID | GROUP_EXECUTE) == SET_GROUP_ID;
        let is_in = || self.user_and_groups().is_some_and(|user| user.groups.contains(&attr.gid));
        is_for_group && !self.keeps_set_id() && !is_in()
    }

    /// Whether it may see `trusted.` attributes.
    pub fn sees_trusted(self) -> bool {
        self.has(CAP_SYS_ADMIN)
    }

    /// Which inode flags the caller may set; `passed` if the kernel has checked that it is the owner. The
    /// capability is checked here in any case: from Linux 6.17 on, the kernel repeats a request answered with
    /// `EOPNOTSUPP`, with an argument read from the caller anew and without its own check.
    pub fn flag_setter(self, passed: bool) -> Option<FlagSetter> {
        let owner = if passed || self.has(CAP_FOWNER) { None } else { Some(self.user()?) };
        Some(FlagSetter { owner, may_protect: self.has(CAP_LINUX_IMMUTABLE) })
    }

    fn has(self, capability: u32) -> bool {
        self.tasks.capabilities(self.task) & 1 << capability != 0
    }
}

/// Whether a task has the capability to administer file systems.
pub fn may_administer(tasks: &dyn Tasks, task: u32) -> bool {
    tasks.capabilities(task) & 1 << CAP_SYS_ADMIN != 0
}

/// The file-system user in a task's status (proc_pid_status(5)): the last of four.
fn user_of(status: &str) -> Option<u32> {
    field(status, "Uid:")?.split_whitespace().nth(3)?.parse().ok()
}

/// The file-system group in a task's status, and the supplementary groups.
fn groups_of(status: &str) -> Option<Vec<u32>> {
    let own = field(status, "Gid:")?.split_whitespace().nth(3)?.parse().ok()?;
    let others = field(status, "Groups:")?.split_whitespace().map(|group| group.parse().ok());
    std::iter::once(Some(own)).chain(others).collect()
}

/// The effective capabilities.
fn capabilities_of(status: &str) -> Option<u64> {
    u64::from_str_radix(field(status, "CapEff:")?, 16).ok()
}

fn field<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tfsx\nUid:\t1000\t1001\t1002\t1003\nGid:\t1\t2\t3\t4\nGroups:\t7 8 \nCapEff:\t000001ffffffffff\n";

    #[test]
    fn user_and_capabilities_are_parsed_from_a_status() {
        assert_eq!(user_of(STATUS), Some(1003));
        assert_eq!(groups_of(STATUS), Some(vec![4, 7, 8]));
        assert_eq!(groups_of("Gid:\t1\t2\t3\t4\nGroups:\t\n"), Some(vec![4]));
        assert_eq!(groups_of("Gid:\t1\t2\t3\t4\nGroups:\tx\n"), None);
        assert_eq!(capabilities_of(STATUS), Some(0x01ff_ffff_ffff));
        assert_eq!(user_of("Uid:\t1\t2\t3\n"), None);
        assert_eq!(capabilities_of("Uid:\t1\n"), None);
    }

    #[test]
    fn a_tasks_user_is_read_from_proc_and_not_from_the_request() {
        let task = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let ours = rustix::process::geteuid().as_raw();
        assert_eq!(Caller { uid: 7, gid: 7, task, tasks: &ProcTasks }.user(), Some(ours));
        let nobody = Caller { uid: 0, gid: 0, task: 0, tasks: &ProcTasks };
        assert_eq!(nobody.user(), None);
        assert!(!nobody.is_trusted() && !nobody.keeps_set_id());
    }
}
