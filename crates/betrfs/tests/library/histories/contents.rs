//! Steps that change the contents of files.

use betrfs::{FallocateMode, SetAttr};

use super::World;

impl World {
    pub(super) fn write(&mut self) -> String {
        let Some((node, id, forget)) = self.file() else { return "write nothing".into() };
        let offset = self.offset(self.model.objects[id].bytes.len());
        let most = *self.dice.pick(&[20, 5000, 20_000]);
        let most = most.min(self.offsets_max);
        let data = self.bytes(most);
        self.volume.write(node, offset, &data).unwrap();
        let bytes = &mut self.model.objects[id].bytes;
        let end = offset as usize + data.len();
        if !data.is_empty() {
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(&data);
        }
        self.compare_some(node, id);
        if forget {
            self.volume.forget(node, 1);
        }
        format!("write {} at {offset} to {id}", data.len())
    }

    pub(super) fn truncate(&mut self) -> String {
        let Some((node, id, forget)) = self.file() else { return "truncate nothing".into() };
        let size = self.offset(self.model.objects[id].bytes.len());
        self.volume.setattr(node, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
        self.model.objects[id].bytes.resize(size as usize, 0);
        self.compare_some(node, id);
        if forget {
            self.volume.forget(node, 1);
        }
        format!("truncate {id} to {size}")
    }

    pub(super) fn punch(&mut self) -> String {
        let Some((node, id, forget)) = self.file() else { return "punch nothing".into() };
        let offset = self.offset(self.model.objects[id].bytes.len());
        let len = 1 + self.dice.roll(20_000);
        let mode = *self.dice.pick(&[
            FallocateMode::PunchHole,
            FallocateMode::Zero { keep_size: false },
            FallocateMode::Zero { keep_size: true },
            FallocateMode::Allocate { keep_size: false },
            FallocateMode::Allocate { keep_size: true },
        ]);
        self.volume.fallocate(node, mode, offset, len).unwrap();
        let bytes = &mut self.model.objects[id].bytes;
        let end = (offset + len) as usize;
        if !matches!(mode, FallocateMode::Allocate { .. }) {
            let size = bytes.len();
            bytes[(offset as usize).min(size)..end.min(size)].fill(0);
        }
        if let FallocateMode::Allocate { keep_size: false } | FallocateMode::Zero { keep_size: false } = mode
        {
            bytes.resize(bytes.len().max(end), 0);
        }
        self.compare_some(node, id);
        if forget {
            self.volume.forget(node, 1);
        }
        format!("{mode:?} {len} at {offset} of {id}")
    }
}
