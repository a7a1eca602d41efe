//! Operations on the volume, and their results.

use betrfs::{
    Attr, Entry, Error, FileType, FlagSetter, Held, InodeId, NewNode, Result, SNAPSHOTS_NAME, Usage, Volume,
};

use crate::at::SlotId;
use crate::client::{Client, Failed, Parts};
use crate::compare::Inos;
use crate::model::State;
use crate::nodes::Nodes;
use crate::op::{Op, Owner};
use crate::reached::Reached;
use crate::step::Act;

/// The result of an operation.
pub enum Answer {
    /// Nothing but its success.
    Done,
    /// The object that it made.
    Made(Attr),
    /// Attributes.
    Attr(Attr),
    /// Number of bytes written or copied.
    Written(u64),
    /// Bytes read.
    Bytes(Vec<u8>),
    /// A place in a file.
    Place(u64),
    /// Entries of a directory.
    Entries(Vec<Listed>),
    /// Snapshots below a directory.
    Snapshots(Held),
    /// Open files.
    Open(Vec<InodeId>),
    /// Bytes that something takes.
    Usage(Usage),
}

/// An entry of a listing.
pub struct Listed {
    /// Its name.
    pub name: Vec<u8>,
    /// The cookie behind it.
    pub cookie: u64,
    /// The inode number.
    pub ino: u64,
    /// The type.
    pub file_type: FileType,
    /// The attributes, if the object came along.
    pub attr: Option<Attr>,
}

impl Client for Nodes {
    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn parts(&mut self, op: &Op, _state: &State) -> Option<Parts> {
        Some(Parts::whole(op))
    }

    fn sets_id_aside(&self) -> bool {
        false
    }

    fn perform(&mut self, op: &Op, cookie: u64) -> std::result::Result<Answer, Failed> {
        Ok(self.call(op, cookie)?)
    }

    fn close_slot(&mut self, slot: SlotId, is_open: bool) {
        if let Some(node) = self.held.remove(&slot) {
            if is_open {
                self.volume.release_node(node);
            }
            self.volume.forget(node, 1);
        }
    }

    fn node_of(&self, slot: SlotId) -> Option<InodeId> {
        self.held.get(&slot).copied()
    }

    fn check_memory(&mut self, _state: &State, _inos: &mut Inos) -> std::result::Result<(), String> {
        Ok(())
    }

    fn take(&mut self, act: Act) -> std::result::Result<(), Failed> {
        Err(Failed::Wrong(format!("the library's caller does not {act}")))
    }

    fn count(&mut self, _reached: &mut Reached) {}

    fn leave(&mut self) -> std::result::Result<(), Failed> {
        Ok(())
    }

    fn close(&mut self) -> std::result::Result<(), Failed> {
        Ok(self.volume.close()?)
    }
}

impl Nodes {
    fn call(&mut self, op: &Op, cookie: u64) -> Result<Answer> {
        let volume = &self.volume;
        match op {
            Op::Create { at, file_type, owner, rdev } => {
                let new = new_node(*file_type, *owner, *rdev);
                self.made(self.with_name(at, |dir, name| volume.create(dir, name, &new))?)
            }
            Op::CreateWith { at, owner, data } => {
                let new = new_node(FileType::Regular, *owner, 0);
                let bytes = data.bytes();
                self.made(self.with_name(at, |dir, name| volume.create_with(dir, name, &new, &bytes))?)
            }
            Op::Symlink { at, target, uid, gid } => {
                self.made(self.with_name(at, |dir, name| volume.symlink(dir, name, target, *uid, *gid))?)
            }
            Op::CreateUnnamed { dir, owner, slot } => {
                let new = new_node(FileType::Regular, *owner, 0);
                let entry = self.with(dir, |dir| volume.create_unnamed(dir, &new))?;
                volume.open_inode(entry.node)?;
                self.held.insert(*slot, entry.node);
                Ok(Answer::Attr(entry.attr))
            }
            Op::Link { from, to } => {
                let link = |node| self.with_name(to, |dir, name| volume.link(node, dir, name));
                self.made(self.with(from, link)?)
            }
            Op::Unlink { at } => done(self.with_name(at, |dir, name| volume.unlink(dir, name))),
            Op::Rmdir { at } => done(self.with_name(at, |dir, name| volume.rmdir(dir, name))),
            Op::RemoveBelow { at, snapshots } => {
                done(self.with(at, |node| volume.remove_below(node, *snapshots)))
            }
            Op::Rename { from, to, flags } => done(self.with_name(from, |from, name| {
                self.with_name(to, |to, to_name| volume.rename(from, name, to, to_name, *flags))
            })),
            Op::Write { at, offset, data } => {
                let written = self.with(at, |node| volume.write(node, *offset, &data.bytes()))?;
                Ok(Answer::Written(written as u64))
            }
            Op::Append { at, data } => {
                let (_, written) = self.with(at, |node| volume.append(node, &data.bytes()))?;
                Ok(Answer::Written(written as u64))
            }
            Op::Fallocate { at, mode, offset, len } => {
                done(self.with(at, |node| volume.fallocate(node, *mode, *offset, *len)))
            }
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                let copy = |from, to| volume.copy_range(from, *from_offset, to, *to_offset, *len);
                Ok(Answer::Written(self.with(from, |from| self.with(to, |to| copy(from, to)))?))
            }
            Op::SetAttr { at, set } => Ok(Answer::Attr(self.with(at, |node| volume.setattr(node, set))?)),
            Op::SetXattr { at, name, value, mode } => {
                done(self.with(at, |node| volume.set_xattr(node, name, &value.bytes(), *mode)))
            }
            Op::RemoveXattr { at, name } => done(self.with(at, |node| volume.remove_xattr(node, name))),
            Op::SetFlags { at, flags, project } => done(
                self.with(at, |node| volume.set_flags_and_project(node, *flags, *project, FlagSetter::ROOT)),
            ),
            Op::SetProperties { at, set } => {
                done(self.with(at, |node| volume.set_properties(node, set, None)))
            }
            Op::SetQuota { at, limits: Some(limits) } => {
                done(self.with(at, |node| volume.set_quota(node, *limits)))
            }
            Op::SetQuota { at, limits: None } => done(self.with(at, |node| volume.clear_quota(node))),
            Op::Clone { from, to } => {
                let clone = |node| self.with_name(to, |dir, name| volume.clone_inode(node, dir, name));
                self.made(self.with(from, clone)?)
            }
            Op::CloneOnto { from, to } => {
                done(self.with(from, |from| self.with(to, |to| volume.clone_onto(from, to))))
            }
            Op::Snapshot { of, name } => {
                let new = new_node(FileType::Directory, Owner { perm: 0o700, uid: 0, gid: 0 }, 0);
                let inside = of.child(SNAPSHOTS_NAME);
                self.made(self.with(&inside, |dir| volume.create(dir, name, &new))?)
            }
            Op::RemoveSnapshot { of, name } => {
                done(self.with(&of.child(SNAPSHOTS_NAME), |dir| volume.rmdir(dir, name)))
            }
            Op::Restore { of, name, keep_as } => {
                done(self.with(of, |node| volume.restore_snapshot(node, name, keep_as)))
            }
            Op::Open { at, slot } | Op::Hold { at, slot } => {
                let node = self.hold(at)?;
                if matches!(op, Op::Open { .. })
                    && let Err(error) = volume.open_inode(node)
                {
                    volume.forget(node, 1);
                    return Err(error);
                }
                self.held.insert(*slot, node);
                Ok(Answer::Done)
            }
            Op::OpenHeld { slot } => done(volume.open_inode(*self.held.get(slot).ok_or(Error::Stale)?)),
            // How it is closed depends on whether it is open.
            Op::Close { .. } => Ok(Answer::Done),
            Op::Stat { at } => Ok(Answer::Attr(self.with(at, |node| volume.getattr(node))?)),
            Op::Read { at, offset, len } => {
                let mut out = Vec::new();
                self.with(at, |node| volume.read(node, *offset, *len, &mut out))?;
                Ok(Answer::Bytes(out))
            }
            Op::Seek { at, offset, what } => {
                Ok(Answer::Place(self.with(at, |node| volume.seek(node, *offset, *what))?))
            }
            Op::List { at, objects, chunk } => {
                let list = |dir| {
                    let mut all = Vec::new();
                    loop {
                        let cookie = all.last().map_or(0, |last: &Listed| last.cookie);
                        let some = self.list(dir, cookie, *objects, *chunk)?;
                        if some.is_empty() {
                            return Ok(all);
                        }
                        all.extend(some);
                    }
                };
                Ok(Answer::Entries(self.with(at, list)?))
            }
            Op::ListOn { slot, objects, count } => {
                let dir = *self.held.get(slot).ok_or(Error::Stale)?;
                Ok(Answer::Entries(self.list(dir, cookie, *objects, *count)?))
            }
            Op::SnapshotsBelow { at } => {
                Ok(Answer::Snapshots(self.with(at, |node| volume.snapshots_below(node))?))
            }
            Op::OpenFilesIn { at } => Ok(Answer::Open(self.with(at, |node| volume.open_files_in(node))?)),
            Op::Usage { at } => Ok(Answer::Usage(self.with(at, |node| volume.usage(node))?)),
            Op::StatFs => {
                let room = volume.statfs()?;
                let fits = room.available_bytes <= room.free_bytes && room.free_bytes <= room.total_bytes;
                if fits {
                    Ok(Answer::Done)
                } else {
                    Err(Error::Invalid("statfs has more free than there is"))
                }
            }
            Op::Fsync { at } => done(self.with(at, |node| volume.fsync(node))),
            Op::Sync => done(volume.sync()),
        }
    }

    /// Looks up what is to be held. A held object that is held once more counts again.
    fn hold(&self, at: &crate::at::At) -> Result<InodeId> {
        if at.names.is_empty() && at.base != crate::at::Base::Root {
            return Err(Error::NotSupported);
        }
        self.look_up(at)
    }

    fn made(&self, entry: Entry) -> Result<Answer> {
        self.volume.forget(entry.node, 1);
        Ok(Answer::Made(entry.attr))
    }

    fn list(&self, dir: InodeId, cookie: u64, objects: betrfs::Objects, count: usize) -> Result<Vec<Listed>> {
        let (mut listed, mut nodes) = (Vec::new(), Vec::new());
        let mut each = |entry: &betrfs::DirEntry<'_>| {
            if listed.len() == count {
                return false;
            }
            nodes.extend(entry.entry.map(|entry| entry.node));
            listed.push(Listed {
                name: entry.name.to_vec(),
                cookie: entry.cookie,
                ino: entry.ino,
                file_type: entry.file_type,
                attr: entry.entry.map(|entry| entry.attr),
            });
            true
        };
        self.volume.readdir(dir, cookie, objects, &mut each)?;
        nodes.into_iter().for_each(|node| self.volume.forget(node, 1));
        Ok(listed)
    }
}

fn new_node(file_type: FileType, owner: Owner, rdev: u32) -> NewNode {
    NewNode { file_type, perm: owner.perm, uid: owner.uid, gid: owner.gid, rdev, umask: 0 }
}

fn done<T>(result: Result<T>) -> Result<Answer> {
    result.map(|_| Answer::Done)
}
