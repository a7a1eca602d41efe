//! The kernel as a client of the server, without a kernel: each operation as the requests that Linux sends
//! for it, with a memory for what the server has allowed it to keep.
//!
//! - [`connection`] has the server of a simulated volume, and takes requests to it;
//! - [`cache`] is the kernel's memory: names, attributes, pages, listings, with their lifetimes;
//! - [`coherence`] compares all of it with the model, after each operation: what a server should have told
//!   the kernel and did not is found there;
//! - [`hostile`] and [`harmless`] draw requests that no sound kernel sends.

pub mod cache;
pub mod coherence;
pub mod connection;
mod files;
pub mod harmless;
pub mod hostile;
mod listings;
pub mod manner;
mod names;
mod perform;
pub mod whole;

use std::collections::BTreeMap;
use std::sync::Arc;

use betrfs::{InodeId, Volume};
use betrfs_fuse::Errno;
use betrfs_fuse::wire::{self, EntryOut, Opcode};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::at::SlotId;
use crate::client::{Client, Failed, Parts};
use crate::compare::Inos;
use crate::model::State;
use crate::op::Op;
use crate::perform::Answer;
use crate::platform::SimPlatform;
use crate::reached::Reached;
use crate::step::Act;
use cache::{Shared, until};
use connection::{Connection, Request, Travel};
use manner::Manner;

/// A file that the kernel has open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    node: u64,
    fh: u64,
    flags: u32,
    is_past_pages: bool,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    node: u64,
    open: Option<Open>,
}

/// The kernel.
pub struct Kernel {
    volume: Arc<Volume>,
    connection: Connection,
    caches: Arc<Shared>,
    platform: Arc<SimPlatform>,
    seed: u64,
    held: BTreeMap<SlotId, Held>,
    /// Inodes that are gone here and still to be forgotten, with their lookups.
    to_forget: Vec<(u64, u64)>,
    /// How the present operation is done.
    manner: Manner,
    /// The file that the present operation has made and still writes.
    made: Option<Open>,
    /// Whether the present operation writes the file that it makes.
    made_is_written: bool,
}

impl Open {
    /// A file as a reply opens it.
    fn of(node: u64, out: &wire::OpenOut, flags: u32) -> Open {
        Open { node, fh: out.fh, flags, is_past_pages: out.open_flags & wire::fopen::DIRECT_IO != 0 }
    }
}

impl Kernel {
    /// The kernel of a new mount of a volume; `seed` decides what the operations leave open.
    pub fn new(volume: Arc<Volume>, platform: Arc<SimPlatform>, seed: u64) -> Kernel {
        let caches = Arc::new(Shared::default());
        let connection = Connection::new(Arc::clone(&volume), caches.clone(), wire::MINOR);
        let manner = Manner::default();
        let (held, to_forget) = (BTreeMap::new(), Vec::new());
        Kernel {
            volume,
            connection,
            caches,
            platform,
            seed,
            held,
            to_forget,
            manner,
            made: None,
            made_is_written: false,
        }
    }

    fn now_ns(&self) -> i64 {
        self.platform.pass(0)
    }

    /// Sends a request with a structure and what follows it.
    fn send<T: IntoBytes + Immutable>(
        &self,
        opcode: Opcode,
        nodeid: u64,
        structure: &T,
        rest: &[u8],
    ) -> Result<Vec<u8>, Failed> {
        let mut request = Request::new(opcode, nodeid);
        request.header.pid = self.manner.task();
        request.structure = structure.as_bytes().to_vec();
        request.rest = rest.to_vec();
        self.deliver(request)
    }

    fn deliver(&self, mut request: Request) -> Result<Vec<u8>, Failed> {
        request.travel = if self.manner.by_ring { Travel::Ring } else { Travel::Device };
        if self.manner.has_more {
            request.rest.extend_from_slice(b"more than there should be");
        }
        Ok(self.connection.send(&request)?)
    }

    /// The structure of a reply.
    fn parse<T: FromBytes + KnownLayout + Immutable>(reply: &[u8]) -> Result<T, Failed> {
        let (value, rest) = T::read_from_prefix(reply)
            .map_err(|_| Failed::Wrong(format!("a reply has {} bytes, which is too short", reply.len())))?;
        if rest.is_empty() { Ok(value) } else { Err(Failed::Wrong("a reply is too long".into())) }
    }

    /// Takes the reply about an object under a name.
    fn entered(&self, dir: u64, name: &[u8], entry: &EntryOut) -> Result<(), Failed> {
        let now_ns = self.now_ns();
        let mut caches = self.caches.lock();
        caches.enter(dir, name, entry, now_ns);
        if entry.nodeid == 0 {
            return Ok(());
        }
        caches.take(entry, now_ns).map_err(Failed::Wrong)
    }

    /// The attributes of a node, asked for where any is stale.
    fn attributes(&self, node: u64) -> Result<wire::Attr, Failed> {
        let now_ns = self.now_ns();
        let known =
            self.caches.lock().inodes.get(&node).filter(|inode| inode.stale_at(now_ns) == 0).map(|i| i.attr);
        match known {
            Some(attr) => Ok(attr),
            None => self.ask_attributes(node),
        }
    }

    fn ask_attributes(&self, node: u64) -> Result<wire::Attr, Failed> {
        let reply = self.send(Opcode::Getattr, node, &[0_u8; 16], b"")?;
        let out: wire::AttrOut = Self::parse(&reply)?;
        self.told(node, &out);
        Ok(out.attr)
    }

    /// Takes a reply with all attributes.
    fn told(&self, node: u64, out: &wire::AttrOut) {
        let until_ns = until(self.now_ns(), out.attr_valid, out.attr_valid_nsec);
        if let Some(inode) = self.caches.lock().inodes.get_mut(&node) {
            inode.told(&out.attr, until_ns);
        }
    }

    /// Forgets what nothing leads to, now or later.
    fn forget_unused(&mut self) {
        let held: Vec<u64> = self.held.values().map(|held| held.node).collect();
        let unused = self.caches.lock().take_unused(&held);
        self.to_forget.extend(unused);
        if !self.manner.forgets_later {
            self.send_forgets();
        }
    }

    /// Sends the FORGETs that wait.
    pub(crate) fn send_forgets(&mut self) {
        let due = std::mem::take(&mut self.to_forget);
        self.caches.lock().counts.forgets += due.len() as u64;
        let (alone, together) = due.split_at(due.len() % 3);
        for (nodeid, lookups) in alone {
            let forget = wire::ForgetIn { lookups: *lookups };
            // It has no reply.
            let _ = self.send(Opcode::Forget, *nodeid, &forget, b"");
        }
        if !together.is_empty() {
            let batch = wire::BatchForgetIn { count: together.len() as u32, dummy: 0 };
            let one = |(nodeid, lookups): &(u64, u64)| wire::ForgetOne { nodeid: *nodeid, lookups: *lookups };
            let all: Vec<u8> = together.iter().flat_map(|it| one(it).as_bytes().to_vec()).collect();
            let _ = self.send(Opcode::BatchForget, 0, &batch, &all);
        }
    }
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Failed {
        Failed::Request(errno)
    }
}

impl Client for Kernel {
    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn parts(&mut self, op: &Op, state: &State) -> Option<Parts> {
        self.manner = Manner::of(op, self.seed, state);
        self.made_is_written = matches!(op, Op::CreateWith { data, .. } if data.len > 0);
        whole::parts(op, state)
    }

    fn sets_id_aside(&self) -> bool {
        self.manner.is_plain
    }

    fn perform(&mut self, op: &Op, cookie: u64) -> Result<Answer, Failed> {
        let result = self.do_requests(op, cookie);
        self.connection.send_late_notices();
        self.forget_unused();
        result
    }

    fn close_slot(&mut self, slot: SlotId, _is_open: bool) {
        if let Some(held) = self.held.remove(&slot)
            && let Some(open) = held.open
        {
            self.release(open);
        }
    }

    fn node_of(&self, slot: SlotId) -> Option<InodeId> {
        self.held.get(&slot).map(|held| InodeId(held.node))
    }

    fn check_memory(&mut self, state: &State, inos: &mut Inos) -> Result<(), String> {
        self.compare_with(state, inos)
    }

    fn take(&mut self, act: Act) -> Result<(), Failed> {
        self.manner = Manner::default();
        match act {
            Act::Shrink(seed) => self.shrink(seed),
            Act::Forget => self.send_forgets(),
            Act::Provoke(seed) => drop(self.provoke(seed)?),
        }
        Ok(())
    }

    fn count(&mut self, reached: &mut Reached) {
        for (what, count) in self.caches.lock().counts.take() {
            reached.add(what, count);
        }
    }

    fn leave(&mut self) -> Result<(), Failed> {
        self.manner = Manner::default();
        for held in std::mem::take(&mut self.held).into_values() {
            held.open.into_iter().for_each(|open| self.release(open));
        }
        self.caches.lock().names.clear();
        self.forget_unused();
        match self.volume.inodes_held() {
            0 => Ok(()),
            held => Err(Failed::Wrong(format!("the kernel has forgotten all, and {held} inodes are held"))),
        }
    }

    fn close(&mut self) -> Result<(), Failed> {
        let reply = self.send(Opcode::Destroy, 0, &[0_u8; 0], b"")?;
        if !reply.is_empty() {
            return Err(Failed::Wrong("DESTROY has a reply with contents".into()));
        }
        Ok(self.connection.close()?)
    }
}
