//! The sockets that may be those of a mount's server, and connections to them.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred};
use rustix::process::Uid;

use super::{name_of, private};
use crate::mount_info::MountEntry;

/// Number of sockets with the right name that are tried: other users may have made some.
const SOCKETS_MAX: usize = 1000;

/// Where a socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// In the directory of root's sockets.
    Private(PathBuf),
    /// Anywhere, by the name of an abstract socket.
    Abstract(Vec<u8>),
}

/// The sockets that may be those of a mount's server, the most trusted first.
pub(super) fn sockets(mount: &MountEntry) -> Vec<Address> {
    let private = match mount.owner() {
        (0, _) => private::sockets(&name_of(mount.device)),
        _ => Vec::new(),
    };
    let private = private.into_iter().map(Address::Private);
    private.chain(abstract_sockets(mount).into_iter().map(Address::Abstract)).collect()
}

/// Whether the socket of a mount's server may be in the directory of root's sockets, and this user not.
pub(super) fn is_private(mount: &MountEntry) -> bool {
    mount.owner().0 == 0 && !rustix::process::geteuid().is_root()
}

/// The names of all listening abstract sockets, of any user, with the prefix of a mount.
fn abstract_sockets(mount: &MountEntry) -> Vec<Vec<u8>> {
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
pub(super) fn connect(to: &Address) -> Result<(OwnedFd, UCred), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let to = match to {
        Address::Private(path) => SocketAddrUnix::new(path)?,
        Address::Abstract(name) => SocketAddrUnix::new_abstract_name(name)?,
    };
    rustix::net::connect(&socket, &to)?;
    let peer = socket_peercred(&socket)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok((socket, peer))
}
