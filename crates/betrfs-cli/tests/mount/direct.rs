//! Reads through the kernel's pages beside writes past them: a write that has ended is seen.
#![allow(unsafe_code)] // io_submit(2) has no safe wrapper, and its buffer is the kernel's until it has ended.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::mounted::{Mounted, SetOnDrop};

const BYTES: usize = 256 << 10;
const ROUNDS: usize = 400;

/// The argument of io_submit(2), as in `linux/aio_abi.h`.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

#[repr(C)]
#[derive(Default)]
struct IoEvent {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

const PWRITE: u16 = 1;

/// A context of asynchronous writes.
struct Aio(usize);

impl Aio {
    fn new() -> Aio {
        let mut context = 0usize;
        // SAFETY: the call writes the context to a live variable.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        Aio(context)
    }

    /// Writes, and waits for io_getevents(2) to report the end.
    fn write(&self, file: &File, bytes: &[u8]) {
        let mut control = Iocb {
            opcode: PWRITE,
            fd: file.as_raw_fd() as u32,
            buffer: bytes.as_ptr() as u64,
            len: bytes.len() as u64,
            ..Iocb::default()
        };
        let mut list = [&raw mut control];
        let mut event = IoEvent::default();
        let none: *const libc::timespec = std::ptr::null();
        // SAFETY: the control block and the bytes live until the write has ended; the second call waits for
        // that.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_io_submit, self.0, 1, list.as_mut_ptr()), 1);
            assert_eq!(libc::syscall(libc::SYS_io_getevents, self.0, 1, 1, &raw mut event, none), 1);
        }
        assert_eq!(event.result, bytes.len() as i64);
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: no write is in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// Overwrites a file repeatedly, each time whole with another byte, while two threads read it through the
/// kernel's pages; after each write the next read must see it.
fn is_seen(path: &Path, write: impl Fn(&[u8])) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    fs::read(path).unwrap();
                }
            });
        }
        let (mut seen, reader) = (vec![0; BYTES], File::open(path).unwrap());
        for round in 0..ROUNDS {
            let bytes = vec![round as u8 | 1; BYTES];
            write(&bytes);
            let len = reader.read_at(&mut seen, 0).unwrap();
            assert!(seen[..len] == bytes, "in round {round} a read saw what was there before");
        }
    });
}

fn open(path: &Path, flags: i32) -> File {
    OpenOptions::new().write(true).custom_flags(flags).open(path).unwrap()
}

#[test]
fn an_ended_asynchronous_direct_write_is_read() {
    let mounted = Mounted::new();
    let path = mounted.path("f");
    fs::write(&path, vec![0; BYTES]).unwrap();
    let (aio, file) = (Aio::new(), open(&path, libc::O_DIRECT));
    is_seen(&path, |bytes| aio.write(&file, bytes));
}

#[test]
fn a_direct_write_is_read() {
    let mounted = Mounted::new();
    let path = mounted.path("f");
    fs::write(&path, vec![0; BYTES]).unwrap();
    let file = open(&path, libc::O_DIRECT);
    is_seen(&path, |bytes| file.write_all_at(bytes, 0).unwrap());
}

#[test]
fn writes_past_the_pages_of_a_new_file_are_read() {
    let mounted = Mounted::new();
    let path = mounted.path("new");
    // Created for writing alone, so that writes go past the pages.
    let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(&[0; BYTES], 0).unwrap();
    is_seen(&path, |bytes| file.write_all_at(bytes, 0).unwrap());
    let aio = Aio::new();
    is_seen(&path, |bytes| aio.write(&file, bytes));
}
