//! The server through its protocol: requests and replies in bytes, without a kernel or a mount.

use std::io::IoSlice;
use std::sync::Arc;

use betree_platform::Device;
use betree_std::{FileDevice, StdPlatform, Workers, WorkersOptions};
use betrfs::{FormatOptions, OpenOptions, Volume};
use parking_lot::Mutex;
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::fetch_file::NOTIFY_REPLY;
use super::init::Agreement;
use super::{Answerer, Dispatch, NotifySink, Outcome};
use crate::closing::Closing;
use crate::server::{Acls, ProcTasks, Server};
use crate::status::Identity;
use crate::wire::{self, Body, InHeader, Opcode};

const ROOT: u64 = 1;
const OUT_BYTES: usize = 64 << 10;

/// Keeps the notices meant for the kernel.
#[derive(Default)]
struct Notices(Mutex<Vec<Vec<u8>>>);

impl NotifySink for Notices {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        self.0.lock().push(parts.iter().flat_map(|part| part.to_vec()).collect());
        Ok(())
    }
}

/// Takes the part of the kernel.
struct Client {
    dispatch: Dispatch,
    notices: Arc<Notices>,
    closing: Arc<Closing>,
    _dir: tempfile::TempDir,
}

impl Client {
    fn new() -> Client {
        Client::of_minor(wire::MINOR)
    }

    /// One that speaks this minor version of the protocol.
    fn of_minor(minor: u32) -> Client {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume");
        let device = Arc::new(FileDevice::create(&path, 64 << 20).unwrap());
        let platform = Arc::new(StdPlatform::new());
        Volume::format(device.clone(), &FormatOptions::default(), &*platform).unwrap();
        let opened: Arc<dyn Device> = device.clone();
        let volume = Arc::new(Volume::open(opened, OpenOptions::new(platform)).unwrap());
        let workers = Workers::start(Arc::clone(volume.env()), WorkersOptions::default()).unwrap();
        let closing = Arc::new(Closing::new(Arc::clone(&volume), device, workers));
        let identity = Identity { pid: 1, volume: path, mount_point: dir.path().to_path_buf() };
        let tasks = Arc::new(ProcTasks);
        let server = Arc::new(Server::new(volume, identity, false, Acls::Judge, Arc::clone(&closing), tasks));
        let notices = Arc::new(Notices::default());
        let dispatch =
            Dispatch::start(server, notices.clone(), Agreement::with(minor, u64::MAX, Acls::Judge)).unwrap();
        Client { dispatch, notices, closing, _dir: dir }
    }

    fn header(opcode: u32, nodeid: u64) -> InHeader {
        InHeader { opcode, nodeid, pid: std::process::id(), ..InHeader::default() }
    }

    /// Sends a request with this body and returns the bytes of its reply.
    fn send(&self, opcode: Opcode, nodeid: u64, body: &[u8]) -> Result<Vec<u8>, Errno> {
        self.send_with(&Self::header(opcode as u32, nodeid), body)
    }

    fn send_with(&self, header: &InHeader, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut out = vec![0; OUT_BYTES];
        match self.dispatch.answer(header, Body::Joined(body), &mut out) {
            Outcome::Reply(answer) => answer.map(|len| out[..len].to_vec()),
            Outcome::Silent => Ok(Vec::new()),
        }
    }

    fn ask<T: FromBytes + KnownLayout + Immutable>(
        &self,
        opcode: Opcode,
        nodeid: u64,
        body: &[u8],
    ) -> Result<T, Errno> {
        self.send(opcode, nodeid, body).map(|reply| T::read_from_prefix(&reply).unwrap().0)
    }

    fn create(&self, name: &[u8]) -> Result<wire::CreateOut, Errno> {
        let create = wire::CreateIn { flags: libc::O_RDWR as u32, mode: 0o100_644, ..Default::default() };
        self.ask(Opcode::Create, ROOT, &[create.as_bytes(), name, b"\0"].concat())
    }

    fn write(&self, nodeid: u64, offset: u64, data: &[u8], size: u32) -> Result<wire::WriteOut, Errno> {
        let write = wire::WriteIn { offset, size, ..Default::default() };
        self.ask(Opcode::Write, nodeid, &[write.as_bytes(), data].concat())
    }

    fn read(&self, nodeid: u64, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let read = wire::ReadIn { offset, size, ..Default::default() };
        self.send(Opcode::Read, nodeid, read.as_bytes())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.closing.close();
    }
}

#[test]
fn a_file_is_made_written_read_and_found() {
    let client = Client::new();
    let made = client.create(b"f").unwrap();
    let node = made.entry.nodeid;
    assert_eq!((made.entry.attr.mode, made.entry.attr.size), (0o100_644, 0));
    assert_eq!(client.write(node, 0, b"hello", 5).unwrap().size, 5);
    assert_eq!(client.read(node, 1, 100).unwrap(), b"ello");

    let found: wire::EntryOut = client.ask(Opcode::Lookup, ROOT, b"f\0").unwrap();
    assert_eq!((found.nodeid, found.attr.size), (node, 5));
    let attr: wire::AttrOut = client.ask(Opcode::Getattr, node, &[]).unwrap();
    assert_eq!((attr.attr.size, attr.attr.ino), (5, found.attr.ino));
    let absent: wire::EntryOut = client.ask(Opcode::Lookup, ROOT, b"g\0").unwrap();
    assert_eq!(absent.nodeid, 0, "the kernel is told to remember that it is absent");
}

#[test]
fn the_attributes_of_the_snapshots_entry_are_not_cached() {
    let client = Client::new();
    let found: wire::EntryOut = client.ask(Opcode::Lookup, ROOT, b".betrfs-snapshots\0").unwrap();
    assert_eq!((found.entry_valid, found.attr_valid), (0, 0));
    let seconds = |node| {
        let attr: wire::AttrOut = client.ask(Opcode::Getattr, node, &[]).unwrap();
        let statx: wire::StatxOut = client.ask(Opcode::Statx, node, &[]).unwrap();
        (attr.attr_valid, statx.attr_valid)
    };
    assert_eq!(seconds(found.nodeid), (0, 0), "they follow those of the directory");
    assert_eq!(seconds(ROOT), (24 * 60 * 60, 24 * 60 * 60));
}

#[test]
fn an_unlinked_file_lives_until_the_kernel_has_forgotten_each_lookup() {
    let client = Client::new();
    let node = client.create(b"f").unwrap().entry.nodeid;
    client.ask::<wire::EntryOut>(Opcode::Lookup, ROOT, b"f\0").unwrap();
    let release = wire::ReleaseIn { flags: libc::O_RDWR as u32, ..Default::default() };
    client.send(Opcode::Release, node, release.as_bytes()).unwrap();
    client.send(Opcode::Unlink, ROOT, b"f\0").unwrap();
    let forget = |lookups| {
        let forget = wire::ForgetIn { lookups };
        assert_eq!(client.send(Opcode::Forget, node, forget.as_bytes()).unwrap(), b"");
    };
    let nlink = || client.ask::<wire::AttrOut>(Opcode::Getattr, node, &[]).map(|attr| attr.attr.nlink);
    // It counts two lookups: CREATE and LOOKUP.
    forget(1);
    assert_eq!(nlink(), Ok(0));
    forget(1);
    assert_eq!(nlink(), Err(Errno::STALE));
}

#[test]
fn cleared_set_id_bits_are_notified_before_the_write_is_answered() {
    let client = Client::new();
    let node = client.create(b"f").unwrap().entry.nodeid;
    let set = wire::SetattrIn { valid: wire::fattr::MODE, mode: 0o4755, ..Default::default() };
    client.send(Opcode::Setattr, node, set.as_bytes()).unwrap();
    let write = wire::WriteIn { size: 1, write_flags: wire::WRITE_KILL_SUIDGID, ..wire::WriteIn::default() };
    client.send(Opcode::Write, node, &[write.as_bytes(), b"x"].concat()).unwrap();
    let notices = client.notices.0.lock();
    let [notice] = notices.as_slice() else { panic!("{} notices", notices.len()) };
    let (header, rest) = wire::OutHeader::read_from_prefix(notice).unwrap();
    let (what, _) = wire::NotifyInvalInode::read_from_prefix(rest).unwrap();
    assert_eq!((header.unique, header.len as usize), (0, notice.len()));
    assert_eq!((what.nodeid, what.offset), (node, -1), "its attributes, and no pages");
}

#[test]
fn an_unknown_task_sets_no_flag_that_needs_a_capability() {
    const NODUMP: u32 = 0x40;
    for (minor, as_owner) in [(33, Err(Errno::PERM)), (34, Ok(NODUMP))] {
        let client = Client::of_minor(minor);
        let node = client.create(b"f").unwrap().entry.nodeid;
        let ioctl = |cmd, data: &[u8]| {
            let ioctl = wire::IoctlIn { cmd, in_size: data.len() as u32, out_size: 4, ..Default::default() };
            // The caller's task is in another PID namespace.
            let header = InHeader { pid: 0, ..Client::header(Opcode::Ioctl as u32, node) };
            client.send_with(&header, &[ioctl.as_bytes(), data].concat())
        };
        let set = |flags: u32| ioctl(wire::ioctl::SET_FLAGS, flags.as_bytes()).map(drop);
        let flags = || {
            let reply = ioctl(wire::ioctl::GET_FLAGS, &[]).unwrap();
            assert_eq!(reply.len(), size_of::<wire::IoctlOut>() + 4);
            u32::from_ne_bytes(*reply.last_chunk().unwrap())
        };
        // From minor version 34 on, the kernel has checked the owner.
        assert_eq!(set(NODUMP), as_owner.map(drop));
        for protects in [0x10, 0x20, 0x30 | NODUMP] {
            assert_eq!(set(protects), Err(Errno::PERM), "{protects:#x}");
        }
        assert_eq!(flags(), as_owner.unwrap_or(0));
        assert_eq!(ioctl(wire::ioctl::SET_XATTR, &[0xff; 28]), Err(Errno::OPNOTSUPP));
        assert_eq!(ioctl(wire::ioctl::SET_XATTR, &[0; 27]), Err(Errno::INVAL));
        assert_eq!(set(8), as_owner.and(Err(Errno::OPNOTSUPP)));
    }
}

#[test]
fn requests_with_wrong_lengths_get_an_error_and_change_nothing() {
    let client = Client::new();
    let node = client.create(b"f").unwrap().entry.nodeid;
    client.write(node, 0, b"kept", 4).unwrap();
    // A size greater than the data, and replies greater than the buffer.
    assert_eq!(client.write(node, 0, b"abc", 1 << 20).err(), Some(Errno::INVAL));
    assert_eq!(client.read(node, 0, u32::MAX).err(), Some(Errno::INVAL));
    assert_eq!(client.read(node, 0, OUT_BYTES as u32 + 1).err(), Some(Errno::INVAL));
    // Names without a zero byte.
    for opcode in [Opcode::Lookup, Opcode::Unlink, Opcode::Rmdir, Opcode::Removexattr] {
        assert_eq!(client.send(opcode, ROOT, b"f").err(), Some(Errno::INVAL), "{opcode:?}");
    }
    // Structures cut short, in a joined body as /dev/fuse sends it.
    for (opcode, bytes) in [
        (Opcode::Setattr, size_of::<wire::SetattrIn>()),
        (Opcode::Mknod, size_of::<wire::MknodIn>()),
        (Opcode::Mkdir, size_of::<wire::MkdirIn>()),
        (Opcode::Rename, size_of::<wire::RenameIn>()),
        (Opcode::Rename2, size_of::<wire::Rename2In>()),
        (Opcode::Link, size_of::<wire::LinkIn>()),
        (Opcode::Create, size_of::<wire::CreateIn>()),
        (Opcode::Tmpfile, size_of::<wire::CreateIn>()),
        (Opcode::Open, size_of::<wire::OpenIn>()),
        (Opcode::Release, size_of::<wire::ReleaseIn>()),
        (Opcode::Read, size_of::<wire::ReadIn>()),
        (Opcode::Write, size_of::<wire::WriteIn>()),
        (Opcode::Readdir, size_of::<wire::ReadIn>()),
        (Opcode::Readdirplus, size_of::<wire::ReadIn>()),
        (Opcode::Setxattr, size_of::<wire::SetxattrIn>()),
        (Opcode::Getxattr, size_of::<wire::GetxattrIn>()),
        (Opcode::Listxattr, size_of::<wire::GetxattrIn>()),
        (Opcode::Fallocate, size_of::<wire::FallocateIn>()),
        (Opcode::Lseek, size_of::<wire::LseekIn>()),
        (Opcode::CopyFileRange, size_of::<wire::CopyFileRangeIn>()),
        (Opcode::CopyFileRange64, size_of::<wire::CopyFileRangeIn>()),
        (Opcode::Ioctl, size_of::<wire::IoctlIn>()),
    ] {
        for (len, byte) in (0..bytes).flat_map(|len| [(len, 0), (len, 0xff)]) {
            let answer = client.send(opcode, node, &vec![byte; len]);
            assert_eq!(answer, Err(Errno::INVAL), "{opcode:?} of {len} bytes {byte:#x}");
        }
    }
    // FORGETs have no reply: one with a count of nodes that do not follow, and one cut short.
    let batch = wire::BatchForgetIn { count: u32::MAX, dummy: 0 };
    for (opcode, body) in [(Opcode::BatchForget, batch.as_bytes()), (Opcode::Forget, &[1; 7])] {
        assert_eq!(client.send(opcode, node, body), Ok(Vec::new()));
    }
    let attr: wire::AttrOut = client.ask(Opcode::Getattr, node, &[]).unwrap();
    assert_eq!((attr.attr.mode, attr.attr.nlink, attr.attr.size), (0o100_644, 1, 4));
    assert_eq!(client.read(node, 0, 10).unwrap(), b"kept");
}

#[test]
fn an_unknown_request_is_not_implemented_and_one_that_was_asked_for_wants_no_answer() {
    let client = Client::new();
    let answer = |code| {
        let mut out = [0; 16];
        client.dispatch.answer(&Client::header(code, ROOT), Body::Joined(&[]), &mut out)
    };
    let unknown = (0..5000).filter(|code| Opcode::of(*code).is_none() && *code != NOTIFY_REPLY);
    for code in unknown {
        assert_eq!(answer(code), Outcome::Reply(Err(Errno::NOSYS)), "{code}");
    }
    assert_eq!(answer(NOTIFY_REPLY), Outcome::Silent);
}
