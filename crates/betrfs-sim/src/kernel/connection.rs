//! A mount without a kernel: the server of a simulated volume, and the way of requests to it.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;

use betrfs::{User, Volume};
use betrfs_fuse::protocol::init::{Agreement, PAYLOAD_BYTES_MAX};
use betrfs_fuse::protocol::{Answerer, Dispatch, LateNotices, NotifySink, Outcome, SHORT_REPLY_BYTES_MAX};
use betrfs_fuse::wire::{Body, InHeader, Opcode};
use betrfs_fuse::{Acls, Closing, Errno, Identity, Server, Tasks};

/// A task with all rights.
pub const ROOT_TASK: u32 = 1;
/// A task of [`PLAIN_USER`] without capabilities.
pub const PLAIN_TASK: u32 = 2;
/// A user without rights of its own.
pub const PLAIN_USER: u32 = 1000;

/// The bytes that io_uring has for the structure of a request.
const RING_STRUCTURE_BYTES: usize = 128;

/// The tasks of the simulation.
struct SimTasks;

impl Tasks for SimTasks {
    fn user(&self, task: u32) -> Option<u32> {
        match task {
            ROOT_TASK => Some(0),
            PLAIN_TASK => Some(PLAIN_USER),
            _ => None,
        }
    }

    fn user_and_groups(&self, task: u32) -> Option<User> {
        let uid = self.user(task)?;
        Some(User { uid, groups: vec![uid] })
    }

    fn capabilities(&self, task: u32) -> u64 {
        if task == ROOT_TASK { u64::MAX } else { 0 }
    }

    fn mounted_by(&self) -> u32 {
        0
    }
}

/// How a request travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Travel {
    /// In one piece, by /dev/fuse.
    Device,
    /// In two, by io_uring; the place of the structure is longer than it.
    Ring,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its header; the length is filled in when it is sent.
    pub header: InHeader,
    /// The structure of its opcode, or nothing.
    pub structure: Vec<u8>,
    /// Names or data.
    pub rest: Vec<u8>,
    /// How it travels.
    pub travel: Travel,
}

impl Request {
    /// A request about a node by the task with all rights.
    pub fn new(opcode: Opcode, nodeid: u64) -> Request {
        let header = InHeader { opcode: opcode as u32, nodeid, pid: ROOT_TASK, ..InHeader::default() };
        Request { header, structure: Vec::new(), rest: Vec::new(), travel: Travel::Device }
    }
}

/// A server and the way to it.
pub struct Connection {
    dispatch: Dispatch,
    late: LateNotices,
    closing: Arc<Closing>,
    /// The room for replies.
    out: RefCell<Vec<u8>>,
}

impl Connection {
    /// Serves a volume to a kernel that speaks this minor version of the protocol and takes notices.
    pub fn new(volume: Arc<Volume>, sink: Arc<dyn NotifySink>, minor: u32) -> Connection {
        let closing = Arc::new(Closing::of(Arc::clone(&volume)));
        let identity =
            Identity { pid: 1, volume: PathBuf::from("simulated"), mount_point: PathBuf::from("nowhere") };
        let server =
            Server::new(volume, identity, false, Acls::Judge, Arc::clone(&closing), Arc::new(SimTasks));
        let agreed = Agreement::with(minor, u64::MAX, Acls::Judge);
        let (dispatch, late) = Dispatch::new(Arc::new(server), sink, agreed);
        Connection { dispatch, late, closing, out: RefCell::new(vec![0; PAYLOAD_BYTES_MAX]) }
    }

    /// Sends a request; returns its reply, which is empty where none is sent.
    ///
    /// # Errors
    /// The error number of the reply.
    pub fn send(&self, request: &Request) -> Result<Vec<u8>, Errno> {
        let Request { structure, rest, travel, .. } = request;
        let len = size_of::<InHeader>() + structure.len() + rest.len();
        let header = InHeader { len: u32::try_from(len).unwrap_or(u32::MAX), ..request.header };
        let joined;
        let mut place;
        let body = match travel {
            Travel::Device => {
                joined = [structure.as_slice(), rest].concat();
                Body::Joined(&joined)
            }
            Travel::Ring => {
                // What an earlier request has left there.
                place = vec![0xa5; RING_STRUCTURE_BYTES];
                let len = structure.len().min(place.len());
                place[..len].copy_from_slice(&structure[..len]);
                Body::Split { structure: &place, rest }
            }
        };
        let mut out = self.out.borrow_mut();
        let room = if header.opcode == Opcode::Write as u32 { SHORT_REPLY_BYTES_MAX } else { out.len() };
        match self.dispatch.answer(&header, body, &mut out[..room]) {
            Outcome::Reply(Ok(len)) => Ok(out[..len].to_vec()),
            Outcome::Reply(Err(errno)) => Err(errno),
            Outcome::Silent => Ok(Vec::new()),
        }
    }

    /// Sends the notices that wait for a thread of their own on a mount.
    pub fn send_late_notices(&self) {
        self.late.send_due();
    }

    /// Closes the volume, as at the end of a mount.
    ///
    /// # Errors
    /// The library's.
    pub fn close(&self) -> Result<(), betrfs::Error> {
        self.closing.outcome()
    }
}
