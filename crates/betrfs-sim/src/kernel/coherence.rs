//! Is everything true that the kernel remembers? Each name, attribute, page and listing that it may use
//! without a request is compared with the model.

use std::collections::BTreeMap;

use super::Kernel;
use super::cache::{Dentry, Inode, PAGE_BYTES, ROOT_NODE, stale};
use super::perform::{attr_of, time_ns};
use betrfs::{InodeId, SNAPSHOTS_NAME};

use crate::compare::Inos;
use crate::model::{Contents, ObjectId, ROOT, Spot, Standing, State};

impl Kernel {
    /// Compares what the kernel remembers with a state.
    pub(super) fn compare_with(&self, state: &State, inos: &mut Inos) -> Result<(), String> {
        let now_ns = self.now_ns();
        let caches = self.caches.lock();
        let mut known = BTreeMap::from([(ROOT_NODE, Spot::Object(ROOT))]);
        for (slot, held) in &self.held {
            if let Some(right) = state.slots().get(slot) {
                known.insert(held.node, Spot::Object(right.id));
            }
        }
        let mut due: Vec<u64> = known.keys().copied().collect();
        while let Some(dir) = due.pop() {
            let Some(spot) = known.get(&dir).copied() else { continue };
            // A program that has the entry of snapshots open needs no name.
            let is_known = |name: &[u8], dentry: &Dentry| dentry.until_ns > now_ns || name == SNAPSHOTS_NAME;
            for (name, dentry) in caches.names_in(dir).filter(|(name, dentry)| is_known(name, dentry)) {
                let told = |what: &str| format!("the kernel remembers {} {what}", name.escape_ascii());
                let right = match state.child(spot, name) {
                    Ok(right) => Some(right),
                    Err(crate::model::Refusal::Unsaid) => continue,
                    Err(_) => None,
                };
                match (right, dentry.node) {
                    (None, 0) => {}
                    (None, _) => return Err(told("as a name, and it is none")),
                    (Some(_), 0) => return Err(told("as absent, and it is there")),
                    (Some(right), node) => {
                        let before = *known.entry(node).or_insert(right);
                        if before != right {
                            return Err(told("as the name of another object"));
                        }
                        due.push(node);
                    }
                }
            }
            // Each is looked into once.
            due.retain(|node| *node != dir);
        }
        for (node, spot) in &known {
            let Some(inode) = caches.inodes.get(node) else { continue };
            let told = |what: String| format!("the kernel remembers of {}: {what}", inode.attr.ino);
            match spot {
                Spot::Object(id) => self.compare_inode(state, *id, inode, now_ns, inos).map_err(told)?,
                Spot::Snapshots(_) => self.compare_snapshots(*node, inode, now_ns).map_err(told)?,
            }
            compare_listing(state, *spot, inode).map_err(told)?;
        }
        Ok(())
    }

    fn compare_inode(
        &self,
        state: &State,
        id: ObjectId,
        inode: &Inode,
        now_ns: i64,
        inos: &mut Inos,
    ) -> Result<(), String> {
        let object = state.object(id);
        inos.note(id, inode.attr.ino)?;
        if matches!(object.standing, Standing::Gone | Standing::Limbo) {
            return Ok(());
        }
        let attr = attr_of(&inode.attr, None).map_err(|failed| format!("{failed:?}"))?;
        let is_known = |bit| inode.stale_at(now_ns) & bit == 0;
        let differs =
            |what: &str, is: String, right: String| Err(format!("its {what} as {is}, and it is {right}"));
        let (rights, right) = ((attr.perm, attr.uid, attr.gid), (object.perm, object.uid, object.gid));
        if is_known(stale::RIGHTS) && rights != right {
            return differs("mode and owner", format!("{rights:?}"), format!("{right:?}"));
        }
        if is_known(stale::NLINK) && attr.nlink != state.nlink(id) {
            return differs("number of names", attr.nlink.to_string(), state.nlink(id).to_string());
        }
        if is_known(stale::SIZE) && attr.size != object.size() {
            return differs("size", attr.size.to_string(), object.size().to_string());
        }
        let may_show = |contents: &Contents| contents.may_show_512(attr.blocks_512);
        let has_blocks = object.contents().map_or(attr.blocks_512 == 0, may_show);
        if is_known(stale::MODIFIED) && !(has_blocks && attr.mtime_ns == object.mtime_ns) {
            let blocks = object.contents().map(Contents::blocks_512);
            let (is, right) = ((attr.blocks_512, attr.mtime_ns), (blocks, object.mtime_ns));
            return differs("(blocks, mtime)", format!("{is:?}"), format!("{right:?}"));
        }
        if is_known(stale::CTIME) && attr.ctime_ns != object.ctime_ns {
            return differs("ctime", attr.ctime_ns.to_string(), object.ctime_ns.to_string());
        }
        if is_known(stale::ATIME) && !object.atime.allows(attr.atime_ns) {
            return differs("atime", attr.atime_ns.to_string(), format!("{:?}", object.atime));
        }
        compare_pages(object.contents().map_or(&[], |contents| contents.bytes()), inode)
    }

    /// The entry of snapshots, whose attributes follow those of its directory: the model does not have them.
    fn compare_snapshots(&self, node: u64, inode: &Inode, now_ns: i64) -> Result<(), String> {
        let right = self.volume.getattr(InodeId(node)).map_err(|error| error.to_string())?;
        let mtime_ns = time_ns(inode.attr.mtime, inode.attr.mtime_nsec);
        let known = (inode.attr.mode & 0o7777, inode.attr.uid, inode.attr.gid, inode.attr.nlink, mtime_ns);
        let right = (u32::from(right.perm), right.uid, right.gid, right.nlink, right.mtime_ns);
        if inode.stale_at(now_ns) == stale::NONE && known != right {
            return Err(format!("the entry of snapshots as {known:?}, and it is {right:?}"));
        }
        Ok(())
    }
}

fn compare_pages(bytes: &[u8], inode: &Inode) -> Result<(), String> {
    for (page, known) in &inode.pages {
        let from = (page * PAGE_BYTES) as usize;
        let right = bytes.get(from..).unwrap_or_default();
        let right = &right[..right.len().min(PAGE_BYTES as usize)];
        if known.get(..right.len()) != Some(right) {
            return Err(format!("page {page} of its contents, which is another one"));
        }
    }
    Ok(())
}

fn compare_listing(state: &State, spot: Spot, inode: &Inode) -> Result<(), String> {
    let Some(listing) = &inode.listing else { return Ok(()) };
    let entries = match spot {
        Spot::Object(id) => state.object(id).dir().map(|dir| &dir.entries),
        Spot::Snapshots(id) => state.object(id).dir().map(|dir| &dir.snapshots),
    };
    let mut names: Vec<&Vec<u8>> = listing.iter().map(|kept| &kept.name).collect();
    names.sort_unstable();
    let right = entries.map(|entries| entries.keys().collect::<Vec<_>>()).unwrap_or_default();
    if names == right { Ok(()) } else { Err(format!("it lists {names:?}, and has {right:?}")) }
}
