//! The objects that a listing brings along.
//!
//! An entry with its object costs the kernel an inode and a name in its cache, and the server an inode in
//! memory: twice the time of the name alone. A task that opens each file, or asks for its size, is spared a
//! LOOKUP for each; a task that looks for names has no use for objects. A task's needs show only where an
//! object did *not* come along. So a task's first directory comes with all objects (`ls -l` lists one
//! directory), later ones with the objects of directories only, until the task looks up a file: from then on
//! all objects come along.

use std::collections::VecDeque;

use betrfs::{InodeId, Objects};
use parking_lot::Mutex;

/// Number of tasks remembered; the least recent to list a directory is forgotten.
const TASKS_MAX: usize = 32;

/// The tasks that have listed directories, newest first.
#[derive(Default)]
pub struct ReaddirplusPolicy(Mutex<VecDeque<Walker>>);

struct Walker {
    task: u32,
    first: InodeId,
    wants_files: bool,
}

impl ReaddirplusPolicy {
    /// Notes that a task lists a directory; returns the objects to bring along.
    pub fn lists(&self, task: u32, dir: InodeId) -> Objects {
        let mut readdirplus_policy = self.0.lock();
        let known = readdirplus_policy
            .iter()
            .position(|walker| walker.task == task)
            .and_then(|at| readdirplus_policy.remove(at));
        let walker = known.unwrap_or(Walker { task, first: dir, wants_files: false });
        let all = walker.wants_files || walker.first == dir;
        readdirplus_policy.truncate(TASKS_MAX - 1);
        readdirplus_policy.push_front(walker);
        if all { Objects::All } else { Objects::Directories }
    }

    /// Notes that a task looks up something other than a directory.
    pub fn looks_up_a_file(&self, task: u32) {
        let mut readdirplus_policy = self.0.lock();
        if let Some(walker) = readdirplus_policy.iter_mut().find(|walker| walker.task == task) {
            walker.wants_files = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRS: [InodeId; 3] = [InodeId(1), InodeId(2), InodeId(3)];

    #[test]
    fn a_task_that_looks_up_no_file_gets_all_objects_of_its_first_directory_only() {
        let readdirplus_policy = ReaddirplusPolicy::default();
        assert_eq!(readdirplus_policy.lists(7, DIRS[0]), Objects::All);
        assert_eq!(readdirplus_policy.lists(7, DIRS[1]), Objects::Directories);
        assert_eq!(readdirplus_policy.lists(7, DIRS[2]), Objects::Directories);
        readdirplus_policy.looks_up_a_file(8);
        assert_eq!(readdirplus_policy.lists(7, DIRS[2]), Objects::Directories, "that was another task");
        readdirplus_policy.looks_up_a_file(7);
        assert_eq!(readdirplus_policy.lists(7, DIRS[2]), Objects::All);
    }

    #[test]
    fn the_least_recent_task_is_forgotten() {
        let readdirplus_policy = ReaddirplusPolicy::default();
        for task in 0..TASKS_MAX as u32 {
            readdirplus_policy.lists(task, DIRS[0]);
        }
        readdirplus_policy.lists(0, DIRS[1]);
        readdirplus_policy.lists(1000, DIRS[0]);
        assert_eq!(readdirplus_policy.lists(0, DIRS[2]), Objects::Directories, "it had just listed");
        assert_eq!(readdirplus_policy.lists(1, DIRS[2]), Objects::All, "it is as new");
        assert_eq!(readdirplus_policy.0.lock().len(), TASKS_MAX);
    }
}
