//! The sockets that may be those of a mount's server, and connections to them.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred};
use rustix::process::Uid;

use super::name_of;
use crate::mount_info::MountEntry;

/// Number of sockets with the right name that are tried: other users may have made some.
const SOCKETS_MAX: usize = 1000;

/// The names of all listening sockets, of any user, with the prefix of a mount.
pub(super) fn sockets(mount: &MountEntry) -> Vec<Vec<u8>> {
    let list = fs::read("/proc/self/net/unix").unwrap_or_default();
    let begin = format!("@{}", name_of(mount.device));
    let names = list.split(|byte| *byte == b'\n').filter_map(|line| {
        let fields: Vec<_> = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty()).collect();
        // The server's ends of connections have this name too.
        let listens = fields.get(3) == Some(&&b"00010000"[..]);
        let name = fields.last().filter(|name| listens && name.starts_with(begin.as_bytes()))?;
        Some(name.strip_prefix(b"@")?.to_vec())
    });
    names.take(SOCKETS_MAX).collect()
}

/// Whether a process of this user may be the server of a mount.
pub(super) fn may_serve(peer: Uid, mount: &MountEntry) -> bool {
    peer.is_root() || peer.as_raw() == mount.owner().0
}

/// Connects; `EAGAIN` at once if the socket's queue is full.
pub(super) fn connect(name: &[u8]) -> Result<(OwnedFd, UCred), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    let peer = socket_peercred(&socket)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok((socket, peer))
}
