//! A loop device that stands for a volume's file while it is mounted.
//!
//! Only for a mount of a block device does the kernel send syncfs(2) and make umount(2) wait for the close,
//! and only such a mount is seen by programs that look for block devices. No data goes through this device:
//! the server uses the file itself. The kernel removes the device at its last close, which is the mount's.
#![allow(unsafe_code)] // ioctl(2), whose argument only its number describes.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

const CONTROL: &str = "/dev/loop-control";
/// The kernel's LOOP_CTL_GET_FREE.
const GET_FREE: libc::Ioctl = 0x4c82;
const CONFIGURE: libc::Ioctl = 0x4c0a;
const SET_CAPACITY: libc::Ioctl = 0x4c07;
/// LO_FLAGS_AUTOCLEAR: the last close frees the device.
const AUTOCLEAR: u32 = 4;
/// Attempts, as other processes may take the free device first.
const TRIES: usize = 16;

/// `struct loop_config` of `linux/loop.h`, Linux 5.8 and later.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}
const _: () = assert!(size_of::<Config>() == 304);

/// `struct loop_info64`.
#[repr(C)]
struct Info {
    unused: [u64; 5],
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    file_name: [u8; 64],
    encryption_name: [u8; 64],
    encryption_key: [u8; 32],
    init: [u64; 2],
}

/// A loop device kept open, so that the kernel does not free it before it is mounted.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _open: File,
}

impl LoopDevice {
    /// Attaches a file to a free loop device.
    ///
    /// # Errors
    /// The operating system's: there may be no loop devices, or no permission.
    pub fn attach(file: BorrowedFd<'_>, block_bytes: u32) -> io::Result<LoopDevice> {
        let read_write = OFlags::RDWR | OFlags::CLOEXEC;
        // A lock belongs to an open file description: with its own one, the device does not hold the lock.
        // A device on a file that is open for reading is read-only.
        let own_way = format!("/proc/self/fd/{}", file.as_raw_fd());
        let access = rustix::fs::fcntl_getfl(file)? & OFlags::RWMODE;
        let backing = rustix::fs::open(own_way, access | OFlags::CLOEXEC, Mode::empty())?;
        let control = rustix::fs::open(CONTROL, read_write, Mode::empty())?;
        let mut config = Config {
            fd: backing.as_raw_fd().cast_unsigned(),
            block_size: block_bytes,
            info: Info {
                unused: [0; 5],
                number: 0,
                encryption: [0; 2],
                flags: AUTOCLEAR,
                file_name: [0; 64],
                encryption_name: [0; 64],
                encryption_key: [0; 32],
                init: [0; 2],
            },
            reserved: [0; 8],
        };
        for _ in 0..TRIES {
            // SAFETY: the ioctl takes no argument and returns a number.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
            if number < 0 {
                return Err(io::Error::last_os_error());
            }
            let path = Path::new("/dev").join(format!("loop{number}"));
            let open = File::from(rustix::fs::open(&path, read_write, Mode::empty())?);
            // SAFETY: the ioctl reads a `loop_config`, and the argument is one.
            if unsafe { libc::ioctl(open.as_fd().as_raw_fd(), CONFIGURE, &raw mut config) } == 0 {
                return Ok(LoopDevice { path, _open: open });
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(Errno::BUSY.raw_os_error()) {
                return Err(error);
            }
        }
        Err(Errno::BUSY.into())
    }

    /// Its path in /dev.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Has a loop device take the size that its file has by now.
///
/// # Errors
/// The operating system's.
pub fn take_size(path: &Path) -> io::Result<()> {
    let open = File::from(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    // SAFETY: the ioctl takes no argument.
    if unsafe { libc::ioctl(open.as_raw_fd(), SET_CAPACITY) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
