//! The kernel's own file systems.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use anyhow::Result;
use bench_harness::disk::Disk;
use bench_harness::teardown::{Teardown, detach};
use bench_harness::tool;
use clap::ValueEnum;

use super::{System, Work};

/// A file system of the kernel to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// ext4, its tables written when it is made instead of in the background
    Ext4,
    /// XFS
    Xfs,
    /// Btrfs
    Btrfs,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Peer::Ext4 => "ext4",
            Peer::Xfs => "XFS",
            Peer::Btrfs => "Btrfs",
        }
    }

    /// Its name in the kernel.
    fn kind(self) -> &'static str {
        match self {
            Peer::Ext4 => "ext4",
            Peer::Xfs => "xfs",
            Peer::Btrfs => "btrfs",
        }
    }

    /// The command that makes one with the distribution's defaults, over anything that is there.
    fn mkfs(self) -> Command {
        let (program, arguments): (_, &[&str]) = match self {
            Peer::Ext4 => {
                ("mkfs.ext4", &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"])
            }
            Peer::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
            Peer::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K"]),
        };
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }
}

/// A file system of the kernel with its defaults.
pub struct Kernel {
    peer: Peer,
    disk: Rc<Disk>,
    dir: PathBuf,
    teardown: Teardown,
}

impl Kernel {
    /// A file system on a disk, to be mounted below a directory.
    pub fn new(peer: Peer, scratch: &Path, disk: &Rc<Disk>, teardown: &Teardown) -> Result<Kernel> {
        let dir = scratch.join(peer.kind());
        std::fs::create_dir(&dir)?;
        Ok(Kernel { peer, disk: Rc::clone(disk), dir, teardown: teardown.clone() })
    }

    fn is_mounted(&self) -> Result<bool> {
        // Others' mount points have any names.
        let mounts = String::from_utf8_lossy(&std::fs::read("/proc/self/mounts")?).into_owned();
        Ok(mounts.lines().any(|line| line.split(' ').nth(1).map(Path::new) == Some(&self.dir)))
    }
}

impl System for Kernel {
    fn name(&self) -> &'static str {
        self.peer.name()
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn format(&self) -> Result<()> {
        tool::run(self.peer.mkfs().arg(self.disk.device())).map(drop)
    }

    fn mount(&self) -> Result<()> {
        self.teardown.will_mount(&self.dir);
        let mut mount = Command::new("mount");
        tool::run(mount.args(["-t", self.peer.kind()]).arg(self.disk.device()).arg(&self.dir)).map(drop)
    }

    fn unmount(&self) -> Result<()> {
        if self.is_mounted()? {
            tool::run(Command::new("umount").arg(&self.dir))?;
        }
        self.teardown.unmounted(&self.dir);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.dir)?)?)
    }

    fn work(&self) -> Result<Option<Work>> {
        Ok(None)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if self.unmount().is_err() {
            detach(&self.dir);
        }
    }
}
