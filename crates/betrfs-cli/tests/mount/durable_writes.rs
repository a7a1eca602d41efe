//! Synchronous writes: on the disk when the write returns.

use std::fs;
use std::io::IoSlice;

use rustix::fs::{Mode, OFlags};
use rustix::io::ReadWriteFlags;
use rustix::process::{Signal, kill_process};

use crate::mounted::{Mounted, ok, wait_for_end};

/// The kernel's O_DSYNC; in `OFlags` this name has the bits of O_SYNC.
const O_DSYNC: OFlags = OFlags::from_bits_retain(0o10_000);

/// Writes two bytes to a new file, one at a time, with these open flags and write flags, and kills the
/// server. Returns the contents afterwards and the number of device syncs.
fn written(options: &[&str], flags: OFlags, way: ReadWriteFlags) -> (Vec<u8>, u64) {
    let mounted = Mounted::unmounted();
    ok(&mounted.try_mount(options));
    let server = mounted.server();
    let syncs = || mounted.stats()["engine"]["device_syncs"].as_u64().unwrap();
    let file = rustix::fs::open(
        mounted.path("f"),
        flags | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC,
        Mode::RWXU,
    )
    .unwrap();
    let before = syncs();
    for (at, byte) in b"ab".iter().enumerate() {
        assert_eq!(rustix::io::pwritev2(&file, &[IoSlice::new(&[*byte])], at as u64, way), Ok(1));
    }
    let synced = syncs() - before;
    kill_process(server, Signal::KILL).unwrap();
    wait_for_end(server);
    drop(file);
    mounted.mount();
    (fs::read(mounted.path("f")).unwrap_or_default(), synced)
}

#[test]
fn synchronous_writes_survive_the_server() {
    let (none, usual) = (OFlags::empty(), ReadWriteFlags::empty());
    let ways: [(&str, &[&str], OFlags, ReadWriteFlags); 4] = [
        ("O_DSYNC", &[], O_DSYNC, usual),
        ("O_SYNC", &[], OFlags::SYNC, usual),
        ("RWF_DSYNC", &[], none, ReadWriteFlags::DSYNC),
        ("sync", &["-o", "sync"], none, usual),
    ];
    for access in [OFlags::WRONLY, OFlags::RDWR] {
        for (name, options, flags, way) in ways {
            let (bytes, synced) = written(options, access | flags, way);
            assert_eq!(bytes, b"ab", "{name}, {access:?}");
            assert!(synced >= 2, "{name}, {access:?}: {synced} syncs of the device");
        }
    }
}
