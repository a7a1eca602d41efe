//! The scripts of `tests/cases`: actions of programs and administrators on a mount, with the expected
//! results. Each can be run by hand on a mount of any file system (`CASE MOUNT`, or as its head says); exit
//! code 0 is right.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::mounted::{Mounted, told};

/// The argument of a script.
enum On {
    /// A mount.
    Mount,
    /// The path of a volume that does not exist.
    NewVolume,
    /// An empty directory.
    Directory,
}

fn scripts() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"))
}

fn run(name: &str, on: On) {
    let mounted = Mounted::of_size("4G");
    let mut script = Command::new(scripts().join(name));
    script.env("BETRFS", env!("CARGO_BIN_EXE_betrfs"));
    match on {
        On::Mount => {
            mounted.mount();
            // Users other than root must reach it too.
            let open = |mode| <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(mode);
            fs::set_permissions(mounted.dir.parent().unwrap(), open(0o755)).unwrap();
            script.arg(&mounted.dir);
        }
        On::NewVolume => {
            script.arg(mounted.dir.with_file_name("new"));
        }
        On::Directory => {
            let dir = mounted.dir.with_file_name("directory");
            fs::create_dir(&dir).unwrap();
            script.arg(dir);
        }
    }
    let output = script.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{name}: {}\n{said}{}", output.status, told(&output));
}

macro_rules! cases {
    ($($test:ident: $name:literal, $on:ident;)*) => {
        $(
            #[test]
            fn $test() {
                run($name, On::$on);
            }
        )*

        #[test]
        fn every_script_is_run() {
            let names = fs::read_dir(scripts()).unwrap().map(|entry| entry.unwrap().file_name());
            let mut found: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
            found.retain(|name| name != "lib.sh");
            found.sort();
            assert_eq!(found, [$($name),*]);
        }
    };
}

cases! {
    acl_tools: "acl-tools.sh", Mount;
    acls: "acls.py", Mount;
    aio_stale_read: "aio-stale-read.py", Mount;
    atime_remount: "atime-remount.sh", Mount;
    chattr: "chattr.sh", Mount;
    deep_tree_stalls_all: "deep-tree-stalls-all.sh", Mount;
    failed_mount_leaves_dead_mount: "failed-mount-leaves-dead-mount.sh", Mount;
    fallocate_enospc: "fallocate-enospc.py", Mount;
    file_handle_stale: "file-handle-stale.sh", Mount;
    idmapped_mount: "idmapped-mount.sh", Mount;
    inode_flags: "inode-flags.py", Mount;
    mapping_full: "mapping-full.py", NewVolume;
    mount_options: "mount-options.sh", Mount;
    remount_ro: "remount-ro.sh", Mount;
    seek_negative: "seek-negative.py", Mount;
    sgid_without_group_exec: "sgid-without-group-exec.py", Mount;
    sparse_blocks: "sparse-blocks.sh", Mount;
    suid_after_write: "suid-after-write.py", Mount;
    sync_is_not_durable: "sync-is-not-durable.sh", Mount;
    tree_with_dot_snapshots: "tree-with-dot-snapshots.sh", Mount;
    truncate_by_root_keeps_set_id: "truncate-by-root-keeps-set-id.sh", Mount;
    umount_bind_mounts: "umount-bind-mounts.sh", Directory;
    umount_then_mount: "umount-then-mount.sh", Mount;
    volume_file_mode: "volume-file-mode.sh", NewVolume;
}
