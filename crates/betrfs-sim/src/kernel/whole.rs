//! Operations of the library that a mount does by several: so the requests are those of the programs that do
//! them.

use betrfs::{FileType, RenameFlags, SnapshotsBelow};

use crate::at::At;
use crate::client::Parts;
use crate::model::{Spot, State};
use crate::op::{Op, Owner};

/// The name of a copy that is being made.
const UNFINISHED_NAME: &[u8] = b".betrfs-clone-0";

/// The operations that an operation is made of; `None` if no program can do it by a mount.
pub fn parts(op: &Op, state: &State) -> Option<Parts> {
    let object = |at: &At| match state.resolve(at) {
        Ok(Spot::Object(id)) => Some(state.object(id)),
        _ => None,
    };
    match op {
        // A new file is written by the descriptor of its creation.
        Op::CreateWith { at, owner, data } => {
            let mut ops =
                vec![Op::Create { at: at.clone(), file_type: FileType::Regular, owner: *owner, rdev: 0 }];
            if data.len > 0 {
                ops.push(Op::Write { at: at.clone(), offset: 0, data: *data });
            }
            Some(Parts { ops, undo: Vec::new() })
        }
        // A write of nothing is no request.
        Op::Write { data, .. } | Op::Append { data, .. } if data.len == 0 => None,
        // The kernel knows where a file ends.
        Op::Append { at, data } => {
            let offset = object(at).map_or(0, |object| object.size());
            Some(Parts::whole(&Op::Write { at: at.clone(), offset, data: *data }))
        }
        // As `betrfs clone` does it.
        Op::Clone { from, to } => {
            let file_type = object(from)?.file_type();
            if !matches!(file_type, FileType::Regular | FileType::Directory) {
                return None;
            }
            let (above, _) = to.split()?;
            let hidden = above.child(UNFINISHED_NAME);
            let is_dir = file_type == FileType::Directory;
            let owner = Owner { perm: if is_dir { 0o700 } else { 0o600 }, uid: 0, gid: 0 };
            let create = Op::Create { at: hidden.clone(), file_type, owner, rdev: 0 };
            let fill = Op::CloneOnto { from: from.clone(), to: hidden.clone() };
            let flags = RenameFlags { no_replace: true, ..RenameFlags::default() };
            let rename = Op::Rename { from: hidden.clone(), to: to.clone(), flags };
            let undo = if is_dir {
                let empty = Op::RemoveBelow { at: hidden.clone(), snapshots: SnapshotsBelow::Hold };
                vec![empty, Op::Rmdir { at: hidden }]
            } else {
                vec![Op::Unlink { at: hidden }]
            };
            Some(Parts { ops: vec![create, fill, rename], undo })
        }
        Op::CloneOnto { .. } | Op::OpenFilesIn { .. } => None,
        // Histories by the protocol have none of these.
        Op::SetProperties { .. } | Op::SetQuota { .. } => None,
        _ => Some(Parts::whole(op)),
    }
}
