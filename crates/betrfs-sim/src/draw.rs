//! Draws the steps of a history. A model of its own keeps the draws near what exists.

mod settings;

use betrfs::{
    FallocateMode, FileType, InodeFlags, Objects, RenameFlags, SNAPSHOTS_NAME, SeekWhat, SetAttr,
    SnapshotsBelow, TimeSet, XattrMode,
};
use seeded::Rng;

use crate::at::{At, Base, SlotId};
use crate::drive::Fault;
use crate::model::{ObjectId, ROOT, Rules, State};
use crate::op::{Data, Op, Owner};
use crate::platform::START_NS;
use crate::step::{Act, Crash, Step};
use crate::swarm::{Kind, Swarm};

/// Names that sort close to each other, and around the separator of keys.
const NAMES: [&[u8]; 8] =
    [b"a", b"b", b"a\x01", b"ab", b"c", b"\xff", b"d", b"long-long-long-long-long-name"];
const XATTRS: [&[u8]; 6] =
    [b"user.a", b"user.b", b"trusted.c", b"security.capability", b"user.", b"system.posix_acl_access"];
const SLOTS: u8 = 6;
/// Number of draws for an operation that succeeds.
const REDRAWS_MAX: usize = 4;
const DEPTH_MAX: usize = 4;

/// Draws steps.
pub struct Draw {
    rng: Rng,
    swarm: Swarm,
    state: State,
    rules: Rules,
    now_ns: i64,
    /// Number of different names.
    names: usize,
    /// Most changes of files are below this offset.
    offsets_max: u64,
    /// Whether files of more than a MiB are written.
    has_large: bool,
    mark: u8,
}

impl Draw {
    /// The draws of a history.
    pub fn new(mut rng: Rng, swarm: Swarm, rules: Rules) -> Draw {
        let names = *rng.pick(&[2, 4, 8]);
        let offsets_max = *rng.pick(&[3000, 50_000, 50_000, 200_000]);
        let has_large = rng.percent(3);
        let state = State::new(START_NS);
        Draw { rng, swarm, state, rules, now_ns: START_NS, names, offsets_max, has_large, mark: 0 }
    }

    /// The next steps.
    pub fn steps(&mut self, count: usize) -> Vec<Step> {
        (0..count).map(|_| self.step()).collect()
    }

    fn step(&mut self) -> Step {
        self.now_ns += 1_000_000;
        let step = match self.swarm.choose(&mut self.rng) {
            Kind::Pump => Step::Pump(self.rng.between(1, 8)),
            Kind::Checkpoint => Step::Checkpoint,
            Kind::Wait => Step::Wait(*self.rng.pick(&[1, 1000, 11_000, 700_000])),
            Kind::Check => Step::Check,
            Kind::Compare => Step::Compare,
            Kind::Reopen => Step::Reopen,
            Kind::Kill => Step::Kill,
            Kind::Crash => Step::Crash(self.crash()),
            Kind::Fault => Step::Fault(self.fault()),
            Kind::Heal => Step::Heal,
            Kind::Shrink => Step::Act(Act::Shrink(self.rng.next_u64())),
            Kind::Forget => Step::Act(Act::Forget),
            Kind::Provoke => Step::Act(Act::Provoke(self.rng.next_u64())),
            kind => Step::Op(self.likely(kind)),
        };
        match &step {
            Step::Op(op) => {
                let mut next = self.state.clone();
                if next.apply(op, self.now_ns, &self.rules).is_ok() {
                    self.state = next;
                }
            }
            Step::Reopen | Step::Kill | Step::Crash(_) => self.state.let_go(),
            _ => {}
        }
        step
    }

    /// An operation that mostly succeeds: of those that are refused, one in some is kept.
    fn likely(&mut self, kind: Kind) -> Op {
        for _ in 0..REDRAWS_MAX {
            let op = self.op(kind);
            if self.state.clone().apply(&op, self.now_ns, &self.rules).is_ok() || self.rng.percent(15) {
                return op;
            }
        }
        self.op(kind)
    }

    fn crash(&mut self) -> Crash {
        let rng = &mut self.rng;
        let most = *rng.pick(&[3, 12, 40, 150]);
        let call = rng.between(1, most) as u64;
        let seed = rng.next_u64();
        let count = *rng.pick(&[0, 0, 0, 1, 1, 2]);
        let recoveries = (0..count)
            .map(|_| {
                let most = *rng.pick(&[8, 80]);
                (rng.between(1, most) as u64, rng.next_u64())
            })
            .collect();
        let sync_after = seed.is_multiple_of(4).then_some(1 + (seed >> 32) % 5);
        Crash { call, sync_after, seed, recoveries }
    }

    fn fault(&mut self) -> Fault {
        let rng = &mut self.rng;
        let most = *rng.pick(&[1, 4, 20, 60]);
        let (call, seed, lasting) = (rng.between(1, most) as u64, rng.next_u64(), rng.percent(30));
        match rng.below(16) {
            0..=3 => Fault::Read { call, lasting },
            4..=6 => Fault::Write { call, lasting },
            7 | 8 => Fault::Sync { call },
            9..=11 => Fault::Full { call },
            12 => Fault::Slow { call, secs: *rng.pick(&[1, 20, 4000]) },
            13 => Fault::BadBlock { seed },
            14 => Fault::Rot { seed },
            _ => Fault::LostWrite { call },
        }
    }

    fn op(&mut self, kind: Kind) -> Op {
        match kind {
            Kind::Create => {
                let file_type = match self.rng.below(8) {
                    0 => *self.rng.pick(&[FileType::Fifo, FileType::Socket, FileType::CharDevice]),
                    1 => FileType::BlockDevice,
                    _ => FileType::Regular,
                };
                let rdev = self.rng.below(3) as u32 * 0x101;
                Op::Create { at: self.new_path(), file_type, owner: self.owner(0o644), rdev }
            }
            Kind::Mkdir => {
                let (at, owner) = (self.new_path(), self.owner(0o755));
                Op::Create { at, file_type: FileType::Directory, owner, rdev: 0 }
            }
            Kind::CreateWith => {
                Op::CreateWith { at: self.new_path(), owner: self.owner(0o644), data: self.data() }
            }
            Kind::Symlink => {
                let most = *self.rng.pick(&[20, 1000]);
                let target = vec![b't'; self.rng.between(1, most)];
                Op::Symlink { at: self.new_path(), target, uid: 1, gid: 2 }
            }
            Kind::CreateUnnamed => {
                Op::CreateUnnamed { dir: self.dir(), owner: self.owner(0o600), slot: self.free_slot() }
            }
            Kind::Link => Op::Link { from: self.file(), to: self.new_path() },
            Kind::Unlink => Op::Unlink { at: self.known_path() },
            Kind::Rmdir => Op::Rmdir { at: self.dir() },
            Kind::RemoveBelow => {
                let snapshots = *self.rng.pick(&[SnapshotsBelow::Hold, SnapshotsBelow::Go]);
                Op::RemoveBelow { at: self.dir(), snapshots }
            }
            Kind::Rename => {
                let to = if self.rng.percent(50) { self.known_path() } else { self.new_path() };
                let flags = match self.rng.below(8) {
                    0 => RenameFlags { no_replace: true, ..RenameFlags::default() },
                    1 => RenameFlags { whiteout: true, ..RenameFlags::default() },
                    _ => RenameFlags::default(),
                };
                Op::Rename { from: self.known_path(), to, flags }
            }
            Kind::Exchange => {
                let flags = RenameFlags { exchange: true, ..RenameFlags::default() };
                Op::Rename { from: self.known_path(), to: self.known_path(), flags }
            }
            Kind::SetProperties => self.set_properties(),
            Kind::SetQuota => self.set_quota(),
            Kind::Clone => Op::Clone { from: self.source(), to: self.new_path() },
            Kind::CloneOnto => Op::CloneOnto { from: self.source(), to: self.known_path() },
            Kind::Snapshot => Op::Snapshot { of: self.dir(), name: self.snapshot_name() },
            Kind::RemoveSnapshot => Op::RemoveSnapshot { of: self.dir(), name: self.snapshot_name() },
            Kind::Restore => {
                let keep_as = self.rng.pick(&[&b"s"[..], b"t", b"u", b"v"]).to_vec();
                let (of, name) = self.a_snapshot();
                Op::Restore { of, name, keep_as }
            }
            Kind::Open => Op::Open { at: self.known_path(), slot: self.free_slot() },
            Kind::Hold => Op::Hold { at: self.known_path(), slot: self.free_slot() },
            Kind::OpenHeld => Op::OpenHeld { slot: self.used_slot() },
            Kind::Close => Op::Close { slot: self.used_slot() },
            Kind::Stat => Op::Stat { at: self.any() },
            Kind::Seek => {
                let at = self.file();
                let what = *self.rng.pick(&[SeekWhat::Data, SeekWhat::Hole]);
                Op::Seek { offset: self.offset(&at), at, what }
            }
            Kind::List => Op::List { at: self.dir(), objects: self.objects(), chunk: self.rng.between(1, 5) },
            Kind::ListOn => {
                Op::ListOn { slot: self.used_slot(), objects: self.objects(), count: self.rng.between(1, 3) }
            }
            Kind::Ask => match self.rng.below(4) {
                0 => Op::SnapshotsBelow { at: self.dir() },
                1 => Op::OpenFilesIn { at: self.any() },
                2 => Op::Usage { at: self.known_path() },
                _ => Op::StatFs,
            },
            Kind::Fsync => Op::Fsync { at: self.any() },
            Kind::Sync => Op::Sync,
            _ => self.file_op(kind),
        }
    }

    fn file_op(&mut self, kind: Kind) -> Op {
        match kind {
            Kind::Append => Op::Append { at: self.file(), data: self.data() },
            Kind::Read => {
                let at = self.file();
                Op::Read { offset: self.offset(&at), at, len: *self.rng.pick(&[1, 100, 5000, 60_000]) }
            }
            Kind::Fallocate => {
                let at = self.file();
                let mode = *self.rng.pick(&[
                    FallocateMode::PunchHole,
                    FallocateMode::PunchHole,
                    FallocateMode::Zero { keep_size: false },
                    FallocateMode::Zero { keep_size: true },
                    FallocateMode::Allocate { keep_size: false },
                    FallocateMode::Allocate { keep_size: true },
                ]);
                Op::Fallocate { offset: self.offset(&at), at, mode, len: 1 + self.rng.below_u64(20_000) }
            }
            Kind::CopyRange => {
                let (from, to) = (self.file(), self.file());
                let from_offset = self.offset(&from);
                let to_offset = if self.rng.percent(50) { from_offset } else { self.offset(&to) };
                let most = if self.has_large { 3 << 20 } else { self.offsets_max };
                let len = 1 + self.rng.below_u64(most);
                Op::CopyRange { from, from_offset, to, to_offset, len }
            }
            Kind::Truncate => {
                let at = self.file();
                let kill_set_id = self.rng.percent(30);
                let set = SetAttr { size: Some(self.offset(&at)), kill_set_id, ..SetAttr::default() };
                Op::SetAttr { at, set }
            }
            Kind::SetAttr => Op::SetAttr { at: self.any(), set: self.set() },
            Kind::Xattr => {
                let (at, name) = (self.any(), self.rng.pick(&XATTRS).to_vec());
                if self.rng.percent(30) {
                    return Op::RemoveXattr { at, name };
                }
                let most = *self.rng.pick(&[1, 100, 300, 3000]);
                let modes = [XattrMode::Any, XattrMode::Any, XattrMode::Create, XattrMode::Replace];
                let mode = *self.rng.pick(&modes);
                Op::SetXattr { at, name, value: self.data_of(most), mode }
            }
            Kind::SetFlags => {
                let flags = *self.rng.pick(&[
                    InodeFlags::NONE,
                    InodeFlags::NONE,
                    InodeFlags::NODUMP,
                    InodeFlags::NOATIME,
                    InodeFlags::APPEND,
                    InodeFlags::IMMUTABLE,
                ]);
                let project = self.rng.percent(20).then_some(7);
                Op::SetFlags { at: self.any(), flags, project }
            }
            _ => {
                let at = self.file();
                Op::Write { offset: self.offset(&at), at, data: self.data() }
            }
        }
    }

    fn set(&mut self) -> SetAttr {
        let now_or_then = |rng: &mut Rng| {
            *rng.pick(&[None, None, Some(TimeSet::Now), Some(TimeSet::At(5)), Some(TimeSet::At(-7))])
        };
        let rng = &mut self.rng;
        SetAttr {
            perm: *rng.pick(&[None, Some(0o6755), Some(0o2745), Some(0o4711), Some(0o600), Some(0o1777)]),
            uid: *rng.pick(&[None, None, Some(0), Some(5)]),
            gid: *rng.pick(&[None, None, Some(0), Some(6)]),
            size: None,
            atime_ns: now_or_then(rng),
            mtime_ns: now_or_then(rng),
            ctime_ns: *rng.pick(&[None, None, None, Some(9)]),
            kill_set_id: rng.percent(20),
            outside_group: false,
        }
    }

    fn owner(&mut self, usual: u16) -> Owner {
        let perm = *self.rng.pick(&[usual, usual, usual, 0o6755, 0o2755]);
        Owner { perm, uid: *self.rng.pick(&[0, 1000]), gid: *self.rng.pick(&[0, 1000]) }
    }

    fn objects(&mut self) -> Objects {
        *self.rng.pick(&[Objects::None, Objects::Directories, Objects::All])
    }

    fn snapshot_name(&mut self) -> Vec<u8> {
        self.rng.pick(&[&b"s"[..], b"t"]).to_vec()
    }

    /// A directory and the name of a snapshot of it, mostly.
    fn a_snapshot(&mut self) -> (At, Vec<u8>) {
        let base = self.base();
        let mut dirs = self.paths(&base, false, &|is_dir| is_dir);
        dirs.push(base);
        let names_of = |at: &At| match self.state.resolve(at) {
            Ok(crate::model::Spot::Object(id)) => self.state.object(id).dir().map(|dir| &dir.snapshots),
            _ => None,
        };
        let of_dir = |at: At| {
            let names: Vec<_> = names_of(&at).into_iter().flatten().map(|(name, _)| name.clone()).collect();
            names.into_iter().map(move |name| (at.clone(), name))
        };
        let all: Vec<_> = dirs.into_iter().flat_map(of_dir).collect();
        if all.is_empty() { (self.dir(), self.snapshot_name()) } else { self.rng.pick(&all).clone() }
    }

    fn data(&mut self) -> Data {
        if self.has_large && self.rng.percent(10) {
            return self.data_of(1_200_000);
        }
        let most = *self.rng.pick(&[20, 5000, 20_000, 70_000]);
        self.data_of(most.min(self.offsets_max as usize))
    }

    fn data_of(&mut self, most: usize) -> Data {
        self.mark = self.mark.wrapping_add(2);
        Data { len: self.rng.below(most + 1), mark: self.mark }
    }

    fn offset(&mut self, at: &At) -> u64 {
        let size = match self.state.resolve(at) {
            Ok(crate::model::Spot::Object(id)) => self.state.object(id).size(),
            _ => 0,
        };
        match self.rng.below(7) {
            0 => 0,
            1 => size,
            2 => self.rng.below_u64(self.offsets_max / 4096 + 1) * 4096,
            3 => self.rng.below_u64(100),
            4 => self.rng.below_u64(size + 1),
            _ => self.rng.below_u64(self.offsets_max),
        }
    }

    fn name(&mut self) -> Vec<u8> {
        NAMES[self.rng.below(self.names.min(NAMES.len()))].to_vec()
    }

    /// A path that may exist: a few names, mostly below a directory.
    fn new_path(&mut self) -> At {
        let mut at = self.base();
        loop {
            let name = self.name();
            at = at.child(&name);
            let is_dir = match self.state.resolve(&at) {
                Ok(crate::model::Spot::Object(id)) => self.state.object(id).is_dir(),
                _ => false,
            };
            if at.names.len() >= DEPTH_MAX || !is_dir || self.rng.percent(30) {
                return at;
            }
        }
    }

    /// The root, or sometimes a directory that is held.
    fn base(&mut self) -> At {
        let dirs: Vec<SlotId> = self
            .state
            .slots()
            .iter()
            .filter(|(_, held)| self.state.object(held.id).is_dir())
            .map(|(slot, _)| *slot)
            .collect();
        if !dirs.is_empty() && self.rng.percent(25) { At::slot(*self.rng.pick(&dirs)) } else { At::ROOT }
    }

    /// An existing path, mostly.
    fn known_path(&mut self) -> At {
        if self.rng.percent(10) {
            return self.new_path();
        }
        let with_snapshots = self.rng.percent(15);
        let base = self.base();
        let paths = self.paths(&base, with_snapshots, &|_| true);
        if paths.is_empty() { self.new_path() } else { self.rng.pick(&paths).clone() }
    }

    /// A directory, mostly.
    fn dir(&mut self) -> At {
        if self.rng.percent(5) {
            return self.known_path();
        }
        let with_snapshots = self.rng.percent(10);
        let base = self.base();
        let mut paths = self.paths(&base, with_snapshots, &|is_dir| is_dir);
        paths.push(base);
        self.rng.pick(&paths).clone()
    }

    /// A file, mostly: by its path, or one that is held.
    fn file(&mut self) -> At {
        if self.rng.percent(30) && !self.state.slots().is_empty() {
            return At::slot(self.used_slot());
        }
        if self.rng.percent(5) {
            return self.known_path();
        }
        let with_snapshots = self.rng.percent(5);
        let base = self.base();
        let paths = self.paths(&base, with_snapshots, &|is_dir| !is_dir);
        if paths.is_empty() { self.known_path() } else { self.rng.pick(&paths).clone() }
    }

    /// An object, by its path or held, or the root.
    fn any(&mut self) -> At {
        match self.rng.below(10) {
            0 => At::ROOT,
            1 | 2 if !self.state.slots().is_empty() => At::slot(self.used_slot()),
            _ => self.known_path(),
        }
    }

    /// The source of a copy: often a directory.
    fn source(&mut self) -> At {
        if self.rng.percent(60) { self.dir() } else { self.any() }
    }

    fn free_slot(&mut self) -> SlotId {
        let free = (0..SLOTS).find(|slot| !self.state.slots().contains_key(slot));
        free.unwrap_or_else(|| self.rng.below(SLOTS.into()) as SlotId)
    }

    fn used_slot(&mut self) -> SlotId {
        let used: Vec<SlotId> = self.state.slots().keys().copied().collect();
        if used.is_empty() { 0 } else { *self.rng.pick(&used) }
    }

    /// All paths below a base, perhaps those in snapshots too.
    fn paths(&self, base: &At, with_snapshots: bool, fits: &dyn Fn(bool) -> bool) -> Vec<At> {
        let top = match base.base {
            Base::Root => Some(ROOT),
            Base::Slot(slot) => self.state.slots().get(&slot).map(|held| held.id),
        };
        let mut found = Vec::new();
        if let Some(top) = top {
            self.collect(top, base, with_snapshots, fits, &mut found);
        }
        found
    }

    fn collect(
        &self,
        id: ObjectId,
        at: &At,
        with_snapshots: bool,
        fits: &dyn Fn(bool) -> bool,
        found: &mut Vec<At>,
    ) {
        let Some(dir) = self.state.object(id).dir() else { return };
        let inside = at.child(SNAPSHOTS_NAME);
        let snapshots = dir.snapshots.iter().filter(|_| with_snapshots).map(|entry| (&inside, entry));
        for (above, (name, id)) in dir.entries.iter().map(|entry| (at, entry)).chain(snapshots) {
            let at = above.child(name);
            self.collect(*id, &at, with_snapshots, fits, found);
            if fits(self.state.object(*id).is_dir()) {
                found.push(at);
            }
        }
    }
}
