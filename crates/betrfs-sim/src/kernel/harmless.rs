//! Requests that change nothing, whatever the volume holds: each with the error number that it must get. They
//! come between the operations of a history.

use betrfs::{InodeId, SNAPSHOTS_NAME};
use betrfs_fuse::Errno;
use betrfs_fuse::wire::{self, Opcode, change, ioctl};
use seeded::Rng;
use zerocopy::IntoBytes;

use super::Kernel;
use super::cache::{ROOT_NODE, is_dir, is_file};
use super::connection::{PLAIN_TASK, Request, Travel};
use super::hostile::structure_bytes;
use crate::client::Failed;

/// A node that nobody has seen.
const UNKNOWN_NODE: u64 = 0xdead_beef_0000_0001;

impl Kernel {
    /// Sends a request that is refused, by a seed.
    ///
    /// # Errors
    /// The answer is another one.
    pub fn provoke(&mut self, seed: u64) -> Result<&'static str, Failed> {
        let mut rng = Rng::new(seed);
        let (what, request, right) = self.draw_refused(&mut rng);
        match (self.connection.send(&request), right) {
            (Ok(reply), None) if reply.is_empty() => Ok(what),
            (Err(errno), Some(right)) if errno == right => Ok(what),
            (answer, right) => Err(Failed::Wrong(format!("{what}: {answer:?}, and should be {right:?}"))),
        }
    }

    /// A request with its name and its error; `None` for one that has an empty reply or none.
    fn draw_refused(&self, rng: &mut Rng) -> (&'static str, Request, Option<Errno>) {
        let (files, dirs) = self.nodes();
        let (dir, file) = (*rng.pick(&dirs), files.get(rng.below(files.len())).copied());
        let any = file.unwrap_or(dir);
        let mut request = |opcode, node, structure: &[u8], rest: &[u8]| {
            let mut request = Request::new(opcode, node);
            request.travel = *rng.pick(&[Travel::Device, Travel::Ring]);
            (request.structure, request.rest) = (structure.to_vec(), rest.to_vec());
            request
        };
        let write = wire::WriteIn { size: 500, ..wire::WriteIn::default() };
        let too_much = wire::ReadIn { size: (1 << 20) + 1, ..wire::ReadIn::default() };
        let mut all = vec![
            ("INTERRUPT", request(Opcode::Interrupt, 0, &[0; 8], b""), Some(Errno::NOSYS)),
            ("OPENDIR", request(Opcode::Opendir, dir, &[0; 8], b""), Some(Errno::NOSYS)),
            ("INIT again", request(Opcode::Init, 0, &[0; 64], b""), Some(Errno::NOSYS)),
            ("FLUSH", request(Opcode::Flush, any, &[0; 24], b""), Some(Errno::NOSYS)),
            ("LOOKUP without an end", request(Opcode::Lookup, dir, b"", b"name"), Some(Errno::INVAL)),
            ("LOOKUP in nothing", request(Opcode::Lookup, UNKNOWN_NODE, b"", b"a\0"), Some(Errno::STALE)),
            ("GETATTR of nothing", request(Opcode::Getattr, UNKNOWN_NODE, &[0; 16], b""), Some(Errno::STALE)),
            ("FORGET of nothing", request(Opcode::Forget, UNKNOWN_NODE, &[1; 8], b""), None),
            ("FORGET of no look-up", request(Opcode::Forget, any, &[0; 8], b""), None),
            ("FORGET of nobody", request(Opcode::Forget, 0, &[0xff; 8], b""), None),
            (
                "WRITE of more than came",
                request(Opcode::Write, any, write.as_bytes(), &[1; 499]),
                Some(Errno::INVAL),
            ),
            (
                "READ of more than fits",
                request(Opcode::Read, any, too_much.as_bytes(), b""),
                Some(Errno::INVAL),
            ),
            (
                "READDIR of more than fits",
                request(Opcode::Readdir, dir, too_much.as_bytes(), b""),
                Some(Errno::INVAL),
            ),
            ("READDIRPLUS without room", request(Opcode::Readdirplus, dir, &[0; 40], b""), None),
            ("IOCTL of an unknown number", self.ioctl_request(any, 0x1234_5678, b""), Some(Errno::NOTTY)),
            ("FILL by an ioctl", self.ioctl_request(any, ioctl::FILL, &[7; 8]), Some(Errno::OPNOTSUPP)),
            ("FILL without a source", change_request(any, ioctl::FILL, &[7; 8]), Some(Errno::STALE)),
            ("FILL without a token", change_request(any, ioctl::FILL, &[7; 3]), Some(Errno::INVAL)),
            ("a change that is not one", change_request(any, ioctl::USAGE, b""), Some(Errno::OPNOTSUPP)),
        ];
        let lying = wire::BatchForgetIn { count: 1 << 30, dummy: 0 };
        all.push((
            "BATCH_FORGET of too many",
            request(Opcode::BatchForget, 0, lying.as_bytes(), &[0; 33]),
            None,
        ));
        let flags = wire::Rename2In { newdir: dir, flags: 0x80, padding: 0 };
        let renamed = request(Opcode::Rename2, dir, flags.as_bytes(), b"a\0b\0");
        all.push(("RENAME2 with an unknown flag", renamed, Some(Errno::INVAL)));
        let asked = [ioctl::SOURCE, ioctl::USAGE, ioctl::HELD].map(|cmd| self.ioctl_request(dir, cmd, b""));
        for mut plain in asked.into_iter().chain([change_request(dir, ioctl::EMPTY, b"")]) {
            plain.header.pid = PLAIN_TASK;
            all.push(("a request by a user without rights", plain, Some(Errno::PERM)));
        }
        if let Some(inside) = self.snapshots_node() {
            for opcode in [Opcode::Mkdir, Opcode::Rmdir] {
                let mut plain = request(opcode, inside, &vec![0; structure_bytes(opcode)], b"s\0");
                plain.header.pid = PLAIN_TASK;
                all.push(("a snapshot by a user without rights", plain, Some(Errno::PERM)));
            }
        }
        let mut unknown = Request::new(Opcode::Getattr, any);
        unknown.header.opcode = *rng.pick(&[0, 7, 19, 29, 31, 40, 48, 49, 54, 55, 4096, u32::MAX]);
        all.push(("an unknown opcode", unknown, Some(Errno::NOSYS)));
        let opcode = *rng.pick(Opcode::ALL);
        let bytes = structure_bytes(opcode);
        if bytes > 0 && !matches!(opcode, Opcode::Forget | Opcode::BatchForget | Opcode::Statx) {
            let mut short = Request::new(opcode, any);
            short.structure = vec![0; rng.below(bytes)];
            all.push(("a structure cut short", short, Some(Errno::INVAL)));
        }
        all.swap_remove(rng.below(all.len()))
    }

    fn ioctl_request(&self, node: u64, cmd: u32, argument: &[u8]) -> Request {
        let mut request = Request::new(Opcode::Ioctl, node);
        request.structure = wire::IoctlIn { cmd, ..wire::IoctlIn::default() }.as_bytes().to_vec();
        request.rest = argument.to_vec();
        request
    }

    /// The files and the directories that the kernel knows.
    fn nodes(&self) -> (Vec<u64>, Vec<u64>) {
        let caches = self.caches.lock();
        let mut files: Vec<u64> = Vec::new();
        let mut dirs = vec![ROOT_NODE];
        for (node, inode) in &caches.inodes {
            if is_file(&inode.attr) {
                files.push(*node);
            } else if is_dir(&inode.attr) {
                dirs.push(*node);
            }
        }
        files.sort_unstable();
        dirs.sort_unstable();
        (files, dirs)
    }

    /// The entry of snapshots of the root, if the kernel knows it.
    fn snapshots_node(&self) -> Option<u64> {
        let caches = self.caches.lock();
        let dentry = caches.names.get(&(ROOT_NODE, SNAPSHOTS_NAME.to_vec()))?;
        self.volume.holds_snapshots(InodeId(dentry.node)).unwrap_or(false).then_some(dentry.node)
    }

    /// Forgets some names, pages and listings, as a kernel does that is short of memory.
    pub fn shrink(&mut self, seed: u64) {
        let mut rng = Rng::new(seed);
        let percent = *rng.pick(&[20, 50, 100]);
        {
            let mut caches = self.caches.lock();
            // The names in a directory are forgotten before the directory, and none by which something is
            // held.
            let mut kept: Vec<u64> = caches.names.keys().map(|(dir, _)| *dir).collect();
            kept.extend(self.held.values().map(|held| held.node));
            caches.names.retain(|_, dentry| kept.contains(&dentry.node) || !rng.percent(percent));
            let mut nodes: Vec<u64> = caches.inodes.keys().copied().collect();
            nodes.sort_unstable();
            for node in nodes {
                if let Some(inode) = caches.inodes.get_mut(&node).filter(|_| rng.percent(percent)) {
                    inode.pages.clear();
                    inode.listing = None;
                }
            }
        }
        self.forget_unused();
    }
}

/// A change by the attribute for that.
fn change_request(node: u64, cmd: u32, argument: &[u8]) -> Request {
    let value = change::change_bytes(cmd, argument);
    let set = wire::SetxattrIn { size: value.len() as u32, flags: 3 };
    let mut request = Request::new(Opcode::Setxattr, node);
    request.structure = wire::SetxattrWhole { set, ..wire::SetxattrWhole::default() }.as_bytes().to_vec();
    request.rest = [change::CHANGE, b"\0", &value].concat();
    request
}
