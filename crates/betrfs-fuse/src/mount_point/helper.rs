//! fusermount3, which mounts and unmounts for users other than root.

use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use super::error::failed;
use super::{DEV_FUSE, FUSERMOUNT, MountPointError, printed};

/// Mounts by fusermount3, which is set-uid root; it sends the descriptor back over the socket that is its
/// standard input.
pub(super) fn mount(source: &Path, path: &Path, flags: MountFlags) -> Result<OwnedFd, MountPointError> {
    // The helper opens it with its own rights, but its message is useless if it is missing.
    std::fs::metadata(DEV_FUSE).map_err(|source| MountPointError::NoFuse { source })?;
    let refused = |source| failed("mount on", path, source);
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|e| refused(e.into()))?;
    let child = Command::new(FUSERMOUNT)
        .arg("-o")
        .arg(options_of(source, flags))
        .arg("--")
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| MountPointError::NoFusermount { source })?;
    let device = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(|source| MountPointError::NoFusermount { source })?;
    match device {
        Ok(Some(device)) if output.status.success() => Ok(device),
        Err(error) => Err(refused(error)),
        Ok(_) => Err(MountPointError::Fusermount { path: path.to_owned(), why: printed(&output.stderr) }),
    }
}

fn options_of(source: &Path, flags: MountFlags) -> OsString {
    let mut options = b"subtype=betrfs,default_permissions,fsname=".to_vec();
    for byte in source.as_os_str().as_bytes() {
        if matches!(byte, b',' | b'\\') {
            options.push(b'\\');
        }
        options.push(*byte);
    }
    // The helper itself sets nosuid and nodev.
    let names = [
        (MountFlags::RDONLY, ",ro"),
        (MountFlags::NOEXEC, ",noexec"),
        (MountFlags::NOATIME, ",noatime"),
        (MountFlags::SYNCHRONOUS, ",sync"),
        (MountFlags::DIRSYNC, ",dirsync"),
    ];
    for (_, name) in names.iter().filter(|(flag, _)| flags.contains(*flag)) {
        options.extend_from_slice(name.as_bytes());
    }
    std::os::unix::ffi::OsStringExt::from_vec(options)
}

fn receive_descriptor(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.flatten().next())
}

/// Unmounts by fusermount3 with these arguments.
pub(super) fn unmount(path: &Path, how: &[&str]) -> Result<(), MountPointError> {
    let output = Command::new(FUSERMOUNT)
        .args(how)
        .arg("--")
        .arg(path)
        .output()
        .map_err(|source| MountPointError::NoFusermount { source })?;
    let why = printed(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if why.contains("busy") => Err(MountPointError::Busy { path: path.to_owned() }),
        false => Err(MountPointError::Fusermount { path: path.to_owned(), why }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_in_the_volume_path_does_not_end_the_option() {
        let options = options_of(Path::new("/a,b\\c"), MountFlags::RDONLY | MountFlags::NOATIME);
        assert_eq!(options, "subtype=betrfs,default_permissions,fsname=/a\\,b\\\\c,ro,noatime");
    }

    #[test]
    fn sync_and_dirsync_reach_the_helper() {
        let options = options_of(Path::new("/v"), MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC);
        assert_eq!(options, "subtype=betrfs,default_permissions,fsname=/v,sync,dirsync");
    }
}
