//! One entry of the kernel's queues: a thread's own io_uring with one command in flight, and the memory for a
//! request and its reply.
//!
//! A thread waits for a request with the call that sends its reply to the last one. The call returns when the
//! kernel is done with the memory, so between calls the memory is the thread's alone: the safety of this
//! module rests on that. An entry whose command is still with the kernel (the ring failed) leaks its memory.
#![allow(unsafe_code)] // Memory shared with the kernel, and the system calls that share it.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringOp, IoringSetupFlags,
    io_uring_cqe, io_uring_enter, io_uring_params, io_uring_setup, iovec,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use zerocopy::{FromBytes, IntoBytes};

use crate::wire::{InHeader, OutHeader, RingCommand, RingMessage};

/// The kernel's commands on a connection: the first hands an entry over to wait for a request, the second
/// also sends the reply to the last one.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Offsets of a request's parts in an entry's memory, as the kernel lays them out: header, structure, then
/// [`RingMessage`].
const STRUCTURE_AT: usize = 128;
const MESSAGE_AT: usize = 256;
const HEADERS_BYTES: usize = MESSAGE_AT + size_of::<RingMessage>();
/// Offset of the vectors that describe the memory to the kernel.
const VECTORS_AT: usize = 512;
/// Offset of the payload, which has whole pages.
const PAYLOAD_AT: usize = 4096;

/// A submission of 128 bytes, as far as these commands use it.
#[repr(C)]
struct Submission {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    command: u32,
    padding: u32,
    addr: u64,
    len: u32,
    command_flags: u32,
    user_data: u64,
    unused: u64,
    data: RingCommand,
    rest: [u8; 56],
}
const _: () = assert!(size_of::<Submission>() == 128);

/// Memory that is unmapped when it is dropped.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is plain memory, which any thread of the process may use and unmap.
unsafe impl Send for Mapping {}

impl Mapping {
    fn of_ring(fd: &OwnedFd, len: usize, offset: u64) -> io::Result<Mapping> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at a place of the kernel's choosing touches no other memory.
        let start = unsafe {
            mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, fd, offset)?
        };
        Mapping::at(start, len)
    }

    fn anonymous(len: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as above.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE)? };
        Mapping::at(start, len)
    }

    fn at(start: *mut c_void, len: usize) -> io::Result<Mapping> {
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, len })
    }

    /// The address of a `T` in it.
    fn place<T>(&self, offset: usize) -> *mut T {
        assert!(offset + size_of::<T>() <= self.len, "within the mapping");
        // SAFETY: within the mapping, as checked above.
        let place = unsafe { self.start.as_ptr().add(offset) }.cast::<T>();
        assert!(place.is_aligned(), "the kernel aligns what it shares");
        place
    }

    /// A counter that the kernel reads or writes too.
    fn counter(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: it is within the mapping and aligned (see `place`), lives as long as `self`, and
        // all accesses to it, the kernel's too, are atomic.
        unsafe { AtomicU32::from_ptr(self.place(offset as usize)) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives `self`.
        if let Err(errno) = unsafe { munmap(self.start.as_ptr().cast(), self.len) } {
            tracing::warn!("cannot unmap a ring: {errno}");
        }
    }
}

/// One entry: its ring, and a request or reply.
pub struct Entry {
    ring: OwnedFd,
    /// The heads and tails of both queues and the completions.
    queues: Mapping,
    submissions: Mapping,
    memory: Option<Mapping>,
    params: io_uring_params,
    device: Arc<OwnedFd>,
    qid: u16,
}

/// A request, or the place of its reply.
pub struct Message<'a> {
    headers: &'a mut [u8],
    /// The part after the structure; in a reply everything after the header.
    pub payload: &'a mut [u8],
}

impl Message<'_> {
    /// The request's header.
    pub fn header(&self) -> Result<InHeader, Errno> {
        Ok(InHeader::read_from_prefix(self.headers).map_err(|_| Errno::INVAL)?.0)
    }

    /// The place of the request's structure, which is longer than most structures.
    pub fn structure(&self) -> &[u8] {
        self.headers.get(STRUCTURE_AT..MESSAGE_AT).unwrap_or_default()
    }

    /// The id for its reply, and the length of its payload.
    pub fn about(&self) -> Result<RingMessage, Errno> {
        let bytes = self.headers.get(MESSAGE_AT..).unwrap_or_default();
        Ok(RingMessage::read_from_prefix(bytes).map_err(|_| Errno::INVAL)?.0)
    }

    /// Puts the reply's header in the request's place; its payload is there already.
    pub fn reply(&mut self, unique: u64, answer: Result<usize, Errno>) -> Result<(), Errno> {
        let (len, error) = match answer {
            Ok(len) => (u32::try_from(len).map_err(|_| Errno::OVERFLOW)?, 0),
            Err(errno) => (0, -errno.raw_os_error()),
        };
        let header = OutHeader { len: size_of::<OutHeader>() as u32 + len, error, unique };
        let about = RingMessage { payload_len: len, ..self.about()? };
        let places = [(0, header.as_bytes()), (MESSAGE_AT, about.as_bytes())];
        for (at, bytes) in places {
            self.headers.get_mut(at..at + bytes.len()).ok_or(Errno::INVAL)?.copy_from_slice(bytes);
        }
        Ok(())
    }
}

impl Entry {
    /// An entry of the queue `qid` of the connection `device`, with room for payloads of `payload_bytes`. It
    /// belongs to the thread that makes it.
    ///
    /// # Errors
    /// The operating system's: io_uring may be missing or forbidden.
    pub fn new(device: Arc<OwnedFd>, qid: u16, payload_bytes: usize) -> io::Result<Entry> {
        let mut params = io_uring_params::default();
        params.flags = IoringSetupFlags::SQE128
            | IoringSetupFlags::NO_SQARRAY
            | IoringSetupFlags::SINGLE_ISSUER
            | IoringSetupFlags::DEFER_TASKRUN;
        // SAFETY: no flag makes the kernel take anything but values from the parameters.
        let ring = unsafe { io_uring_setup(1, &mut params)? };
        if !params.features.contains(IoringFeatureFlags::SINGLE_MMAP) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let completions_end =
            params.cq_off.cqes as usize + params.cq_entries as usize * size_of::<io_uring_cqe>();
        let queues = Mapping::of_ring(&ring, completions_end, IORING_OFF_SQ_RING)?;
        let submissions_len = params.sq_entries as usize * size_of::<Submission>();
        let submissions = Mapping::of_ring(&ring, submissions_len, IORING_OFF_SQES)?;
        let memory = Mapping::anonymous(PAYLOAD_AT + payload_bytes)?;
        let vectors = memory.place::<[iovec; 2]>(VECTORS_AT);
        let address = |at: usize| memory.place::<u8>(at).cast::<c_void>();
        let told = [
            iovec { iov_base: address(0), iov_len: HEADERS_BYTES },
            iovec { iov_base: address(PAYLOAD_AT), iov_len: payload_bytes },
        ];
        // SAFETY: `place` has checked bounds and alignment, and the kernel does not know the memory yet.
        unsafe { vectors.write(told) };
        Ok(Entry { ring, queues, submissions, memory: Some(memory), params, device, qid })
    }

    /// Runs a command that does nothing, to find out whether the kernel takes any before a mount depends on
    /// it.
    ///
    /// # Errors
    /// The operating system's: a sandbox may forbid it.
    pub fn try_out(&mut self) -> Result<(), Errno> {
        self.run(IoringOp::Nop, 0, 0, (0, 0), None)
    }

    /// Offers the entry to the kernel, calls `taken` once it has it, and waits for the first request.
    ///
    /// # Errors
    /// [`Errno::NOTCONN`] at the connection's end; else the kernel's reason to refuse it.
    pub fn register(&mut self, taken: impl FnOnce()) -> Result<(), Errno> {
        let vectors = self.memory.as_ref().ok_or(Errno::NOTCONN)?.place::<[iovec; 2]>(VECTORS_AT);
        let vectors = vectors.expose_provenance() as u64;
        let mut taken = Some(taken);
        let mut taken = || taken.take().into_iter().for_each(|taken| taken());
        self.run(IoringOp::UringCmd, REGISTER, 0, (vectors, 2), Some(&mut taken))
    }

    /// Sends the reply in the memory to the request `commit_id`, and waits for the next request.
    ///
    /// # Errors
    /// [`Errno::NOTCONN`] at the connection's end.
    pub fn commit(&mut self, commit_id: u64) -> Result<(), Errno> {
        self.run(IoringOp::UringCmd, COMMIT_AND_FETCH, commit_id, (0, 0), None)
    }

    /// The request that came last, or the reply to it.
    ///
    /// # Errors
    /// [`Errno::NOTCONN`] after an error.
    pub fn message(&mut self) -> Result<Message<'_>, Errno> {
        let memory = self.memory.as_mut().ok_or(Errno::NOTCONN)?;
        let (start, payload_len) = (memory.start.as_ptr(), memory.len - PAYLOAD_AT);
        // SAFETY: the memory is mapped, is ours as no command is in flight (`run` takes it away while one
        // is), and stays borrowed by `self`; the two slices do not overlap.
        let (headers, payload) = unsafe {
            (
                std::slice::from_raw_parts_mut(start, HEADERS_BYTES),
                std::slice::from_raw_parts_mut(start.add(PAYLOAD_AT), payload_len),
            )
        };
        Ok(Message { headers, payload })
    }

    /// Gives the kernel a command, with an address and a length, and waits until it is complete. Calls
    /// `taken` once the kernel has it, which takes one system call more.
    fn run(
        &mut self,
        opcode: IoringOp,
        command: u32,
        commit_id: u64,
        (addr, len): (u64, u32),
        mut taken: Option<&mut dyn FnMut()>,
    ) -> Result<(), Errno> {
        let submission = Submission {
            opcode: opcode as u8,
            flags: 0,
            priority: 0,
            fd: self.device.as_raw_fd(),
            command,
            padding: 0,
            addr,
            len,
            command_flags: 0,
            user_data: 0,
            unused: 0,
            data: RingCommand { flags: 0, commit_id, qid: self.qid, padding: [0; 6] },
            rest: [0; 56],
        };
        // The memory is the kernel's from here until the completion, and is put back only then.
        let memory = self.memory.take().ok_or(Errno::NOTCONN)?;
        let (sq, cq) = (&self.params.sq_off, &self.params.cq_off);
        let tail = self.queues.counter(sq.tail);
        let at = tail.load(Ordering::Relaxed);
        let slot = (at & (self.params.sq_entries - 1)) as usize * size_of::<Submission>();
        // SAFETY: `place` has checked bounds and alignment; the kernel reads the slot only once the
        // tail has passed it, and has read what was there before.
        unsafe { self.submissions.place::<Submission>(slot).write(submission) };
        tail.store(at.wrapping_add(1), Ordering::Release);
        let (head, ready) = (self.queues.counter(cq.head), self.queues.counter(cq.tail));
        let seen = head.load(Ordering::Relaxed);
        let left = || at.wrapping_add(1).wrapping_sub(self.queues.counter(sq.head).load(Ordering::Acquire));
        while ready.load(Ordering::Acquire) == seen {
            let (left_before, complete_min) = (left(), u32::from(taken.is_none()));
            // SAFETY: the only submission is the one above; it points to the entry's memory, which `memory`
            // keeps mapped, and which is leaked below if the kernel keeps it.
            let entered = unsafe {
                io_uring_enter(self.ring.as_fd(), left_before, complete_min, IoringEnterFlags::GETEVENTS)
            };
            match entered {
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => {
                    std::mem::forget(memory);
                    return Err(errno);
                }
            }
            if left() == 0
                && let Some(taken) = taken.take()
            {
                taken();
            }
        }
        let slot = (seen & (self.params.cq_entries - 1)) as usize * size_of::<io_uring_cqe>();
        let completion = self.queues.place::<io_uring_cqe>(cq.cqes as usize + slot);
        // SAFETY: `place` has checked bounds and alignment; the kernel has written it before it
        // moved the tail, which was seen, and writes it again only once the head has passed it.
        let result = unsafe { (*completion).res };
        head.store(seen.wrapping_add(1), Ordering::Release);
        self.memory = Some(memory);
        if result < 0 { Err(Errno::from_raw_os_error(-result)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_connection_takes_no_entry_and_does_not_block() {
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let mut entry = Entry::new(Arc::new(file), 0, 4096).unwrap();
        entry.try_out().unwrap();
        assert!(entry.message().is_ok(), "it is the thread's again");
        let mut has_taken = false;
        entry.register(|| has_taken = true).unwrap_err();
        assert!(has_taken);
    }
}
