//! Each command, and its messages for bad input.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::mounted::{Mounted, betrfs, check_failed, is_damaged, ok, refused, run, told};
use crate::schemas::valid;

#[test]
fn every_help_teaches_by_example_and_names_the_exit_codes() {
    let help = |arguments: &[&str]| {
        let output = run(arguments);
        ok(&output);
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(help(&["--help"]).contains("Exit codes:"));
    for command in [
        "mkfs", "mount", "umount", "check", "debug", "clone", "rm-tree", "snapshot", "stats", "top", "tree",
        "usage", "set", "get",
    ] {
        let text = help(&[command, "--help"]);
        assert!(text.contains(&format!("  betrfs {command} ")), "{command}: no example in\n{text}");
    }
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    for arguments in [&["frobnicate"][..], &["mkfs"], &["mkfs", "v", "--size", "lots"], &["mount", "v"]] {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn mkfs_makes_a_file_of_the_size_and_prints_it() {
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("v");
    let output =
        betrfs().arg("mkfs").arg(&volume).args(["--size", "256M", "--format", "json"]).output().unwrap();
    ok(&output);
    let made: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("mkfs", &made);
    assert_eq!(made["size_bytes"], 256 << 20);
    assert_eq!(fs::metadata(&volume).unwrap().len(), 256 << 20);
}

#[test]
fn mkfs_does_not_overwrite_without_force() {
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("v");
    let mkfs = |more: &[&str]| betrfs().arg("mkfs").arg(&volume).args(more).output().unwrap();
    refused(&mkfs(&[]), &["does not exist", "--size"]);
    ok(&mkfs(&["--size", "256M"]));
    refused(&mkfs(&["--size", "512M"]), &["BetrFS volume already", "--force"]);
    refused(&mkfs(&[]), &["BetrFS volume already", "--force"]);
    assert_eq!(fs::metadata(&volume).unwrap().len(), 256 << 20);
    ok(&mkfs(&["--size", "512M", "--force"]));
    assert_eq!(fs::metadata(&volume).unwrap().len(), 512 << 20);
    fs::write(&volume, b"a letter").unwrap();
    refused(&mkfs(&["--size", "256M"]), &["is not empty", "--force"]);
    assert_eq!(fs::read(&volume).unwrap(), b"a letter");
}

/// A user who can read the file reads all files of all users in it.
#[test]
fn a_new_volume_is_for_its_owner_alone_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for umask in ["000", "022", "777"] {
        let volume = dir.path().join(umask);
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("umask {umask} && exec \"$@\"")).arg("sh");
        let made = command.arg(env!("CARGO_BIN_EXE_betrfs")).arg("mkfs").arg(&volume).args(["--size", "64M"]);
        let made = made.output().unwrap();
        ok(&made);
        assert_eq!((mode(&volume), told(&made).as_str()), (0o600, ""), "umask {umask}");
    }
    // An existing file keeps its mode, with a warning.
    let volume = dir.path().join("022");
    for (kept, is_told) in [(0o640, true), (0o602, true), (0o600, false)] {
        fs::set_permissions(&volume, fs::Permissions::from_mode(kept)).unwrap();
        let made = betrfs().arg("mkfs").arg(&volume).args(["--size", "64M", "--force"]).output().unwrap();
        ok(&made);
        assert_eq!((mode(&volume), told(&made).contains("others can read or write")), (kept, is_told));
    }
}

#[test]
fn mkfs_makes_no_file_among_the_devices() {
    for more in [&[][..], &["--size", "64M"]] {
        let path = Path::new("/dev/no-such-disk");
        let output = betrfs().arg("mkfs").arg(path).args(more).output().unwrap();
        refused(&output, &["there is no device /dev/no-such-disk"]);
        assert!(!path.exists());
    }
}

#[test]
fn output_may_go_unread_but_not_be_lost() {
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("v");
    ok(&betrfs().arg("mkfs").arg(&volume).args(["--size", "256M"]).output().unwrap());
    let check = |out: Stdio| {
        let mut check = betrfs();
        check.arg("check").arg(&volume).stdout(out).stderr(Stdio::piped());
        check.spawn().unwrap().wait_with_output().unwrap()
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    ok(&check(writer.into()));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    check_failed(&check(full.into()), &["standard output", "No space left"]);
}

#[test]
fn mkfs_refuses_places_that_cannot_hold_a_volume() {
    let dir = tempfile::tempdir().unwrap();
    let mkfs = |path: &std::path::Path, size: &str| {
        betrfs().arg("mkfs").arg(path).args(["--size", size]).output().unwrap()
    };
    refused(&mkfs(dir.path(), "1G"), &["is a directory"]);
    refused(&mkfs(&dir.path().join("no/such"), "1G"), &["no/such"]);
    refused(&mkfs(&dir.path().join("small"), "4K"), &["small", "4.0 KiB"]);
    // An existing file stays, a new one does not.
    assert!(!dir.path().join("small").exists());
    let empty = dir.path().join("empty");
    fs::write(&empty, b"").unwrap();
    refused(&mkfs(&empty, "4K"), &["empty", "4.0 KiB"]);
    assert!(empty.exists());
}

#[test]
fn check_finds_a_new_volume_clean() {
    let mounted = Mounted::unmounted();
    let output = betrfs().arg("check").arg(&mounted.volume).args(["--format", "json"]).output().unwrap();
    ok(&output);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["clean"], true);
    assert_eq!(report["problems"].as_array().unwrap().len(), 0);
}

#[test]
fn mount_and_check_refuse_files_that_are_no_volumes() {
    let mounted = Mounted::unmounted();
    for contents in [Vec::new(), b"a letter".to_vec(), vec![0; 1 << 20], vec![0xa5; 1 << 20]] {
        fs::write(&mounted.volume, contents).unwrap();
        let shown = mounted.volume.display().to_string();
        refused(&mounted.try_mount(&[]), &[&shown, "not a BetrFS volume"]);
        check_failed(
            &betrfs().arg("check").arg(&mounted.volume).output().unwrap(),
            &[&shown, "not a BetrFS volume"],
        );
    }
    fs::remove_file(&mounted.volume).unwrap();
    refused(&mounted.try_mount(&[]), &["No such file", "is the path right?"]);
    check_failed(&betrfs().arg("check").arg(&mounted.volume).output().unwrap(), &["No such file"]);
}

#[test]
fn a_truncated_volume_is_refused_and_said_to_be_one() {
    let mounted = Mounted::unmounted();
    let whole = fs::metadata(&mounted.volume).unwrap().len();
    fs::OpenOptions::new().write(true).open(&mounted.volume).unwrap().set_len(whole / 2).unwrap();
    let shown = mounted.volume.display().to_string();
    let output = mounted.try_mount(&[]);
    refused(&output, &[&shown]);
    let output = betrfs().arg("check").arg(&mounted.volume).output().unwrap();
    is_damaged(&output, &[&shown]);
    assert!(told(&output).contains("bytes"), "{}", told(&output));
}

#[test]
fn a_volume_whose_head_is_overwritten_is_reported_with_the_place() {
    let mounted = Mounted::unmounted();
    let file = fs::OpenOptions::new().write(true).open(&mounted.volume).unwrap();
    // The four superblocks, after magic and version.
    for slot in 0..4 {
        file.write_all_at(&[0x5a; 2048], slot * 4096 + 64).unwrap();
    }
    refused(&mounted.try_mount(&[]), &[mounted.volume.to_str().unwrap()]);
    is_damaged(
        &betrfs().arg("check").arg(&mounted.volume).output().unwrap(),
        &[mounted.volume.to_str().unwrap()],
    );
}

#[test]
fn unfit_mount_points_are_named_with_the_way_out() {
    let mounted = Mounted::unmounted();
    let mount = |dir: &std::path::Path| betrfs().arg("mount").arg(&mounted.volume).arg(dir).output().unwrap();
    let missing = mounted.dir.join("no");
    refused(&mount(&missing), &["does not exist", &format!("mkdir -p {}", missing.display())]);
    let file = mounted.dir.join("file");
    fs::write(&file, b"").unwrap();
    refused(&mount(&file), &["is not a directory"]);
    // A directory that is not empty is fit.
    mounted.mount();
    assert!(!file.exists());
    mounted.umount();
    assert!(file.exists());
}

#[test]
fn stats_and_umount_refuse_directories_without_a_mount() {
    let dir = tempfile::tempdir().unwrap();
    for command in ["stats", "umount"] {
        let on = |path: &std::path::Path| betrfs().arg(command).arg(path).output().unwrap();
        refused(&on(dir.path()), &["no BetrFS volume is mounted on"]);
        refused(&on(&dir.path().join("no")), &["No such file"]);
    }
}

#[test]
fn mount_with_create_makes_the_volume() {
    let mounted = Mounted::unmounted();
    fs::remove_file(&mounted.volume).unwrap();
    let create = |size: &str| {
        betrfs()
            .arg("mount")
            .arg(&mounted.volume)
            .arg(&mounted.dir)
            .args(["--create", size])
            .output()
            .unwrap()
    };
    // No volume is made for a missing directory.
    let missing = mounted.dir.join("missing");
    let output =
        betrfs().arg("mount").arg(&mounted.volume).arg(&missing).args(["--create", "64M"]).output().unwrap();
    refused(&output, &["does not exist", "mkdir -p"]);
    assert!(!mounted.volume.exists());
    // A failed attempt leaves no file that would be taken for a volume.
    refused(&create("4K"), &["4.0 KiB"]);
    ok(&create("512M"));
    fs::write(mounted.path("kept"), b"x").unwrap();
    mounted.umount();
    // Only if it does not exist.
    ok(&create("256M"));
    assert_eq!(fs::read(mounted.path("kept")).unwrap(), b"x");
    let made = fs::metadata(&mounted.volume).unwrap();
    assert_eq!((made.len(), made.permissions().mode() & 0o7777), (512 << 20, 0o600));
    mounted.umount();
    fs::set_permissions(&mounted.volume, fs::Permissions::from_mode(0o644)).unwrap();
    let output = create("512M");
    ok(&output);
    assert!(told(&output).contains("others can read or write"), "{}", told(&output));
}

/// As root, in a directory where others may change names.
#[test]
fn a_log_is_written_to_no_file_of_anothers_choice() {
    let mounted = Mounted::unmounted();
    let (log, victim) = (mounted.volume.with_file_name("l"), mounted.volume.with_file_name("victim"));
    fs::write(&victim, b"precious").unwrap();
    let mut mount = betrfs();
    mount.arg("mount").arg(&mounted.volume).arg(&mounted.dir).arg("--log").arg(&log);
    std::os::unix::fs::symlink(&victim, &log).unwrap();
    refused(&mount.output().unwrap(), &["is a symbolic link"]);
    fs::remove_file(&log).unwrap();
    fs::hard_link(&victim, &log).unwrap();
    refused(&mount.output().unwrap(), &["has other names"]);
    fs::remove_file(&log).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &log, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    refused(&mount.output().unwrap(), &["cannot write the log"]);
    fs::remove_file(&log).unwrap();
    ok(&mount.output().unwrap());
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn fsck_tells_damage_from_failure_by_its_exit_code() {
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    let fsck = mounted.volume.with_file_name("fsck.betrfs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_betrfs"), &fsck).unwrap();
    let code = |argument: &OsStr| {
        Command::new(&fsck).args(["-a", "-f"]).arg(argument).output().unwrap().status.code()
    };
    let volume = mounted.volume.as_os_str();
    let mut noise = betree_sim::Rng::new(3);
    let noise: Vec<u8> = (0..100_000).flat_map(|_| noise.next_u64().to_le_bytes()).collect();
    fs::write(mounted.path("noise"), &noise).unwrap();
    assert_eq!(code(volume), Some(8), "it is mounted");
    mounted.umount();
    assert_eq!(code(volume), Some(0));
    assert_eq!(code("--help".as_ref()), Some(0));
    assert_eq!(code("--nonsense".as_ref()), Some(16));
    assert_eq!(code("no such volume".as_ref()), Some(8));
    // A byte of the file, and then one of each block after the superblocks.
    let stored = fs::read(volume).unwrap();
    let at = stored.windows(16).position(|bytes| *bytes == noise[400_000..400_016]).unwrap();
    let file = fs::OpenOptions::new().write(true).open(volume).unwrap();
    file.write_all_at(&[!stored[at]], at as u64).unwrap();
    assert_eq!(code(volume), Some(4), "a file is damaged");
    for (at, block) in stored.chunks(4096).enumerate().skip(4).filter(|(_, block)| block[100] != 0) {
        file.write_all_at(&[!block[100]], at as u64 * 4096 + 100).unwrap();
    }
    assert_eq!(code(volume), Some(4), "all of it is damaged");
    assert_eq!(betrfs().arg("check").arg(volume).output().unwrap().status.code(), Some(4));
}

/// In a mount namespace of its own, with a `/dev` that has nothing but `null`.
#[test]
fn a_missing_dev_fuse_is_reported_with_the_way_out() {
    let mounted = Mounted::unmounted();
    let script = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec \"$@\"";
    let mut command = Command::new("timeout");
    command.args([
        "60",
        "unshare",
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
        env!("CARGO_BIN_EXE_betrfs"),
        "mount",
    ]);
    let output = command.arg(&mounted.volume).arg(&mounted.dir).output().unwrap();
    refused(&output, &["cannot open /dev/fuse", "modprobe fuse"]);
    // Nothing is left behind: with a device it can be mounted.
    mounted.mount();
    mounted.umount();
}

#[test]
fn symbolic_link_loops_are_reported_in_a_sentence() {
    let mounted = Mounted::new();
    std::os::unix::fs::symlink("two", mounted.path("one")).unwrap();
    std::os::unix::fs::symlink("one", mounted.path("two")).unwrap();
    fs::create_dir(mounted.path("dir")).unwrap();
    std::os::unix::fs::symlink("dir", mounted.path("link")).unwrap();
    let one = mounted.path("one");
    for command in [&["usage"][..], &["sync"], &["snapshot", "create"], &["snapshot", "list"], &["get"]] {
        let name: &[&str] = if command.last() == Some(&"create") { &["name"] } else { &[] };
        let output = betrfs().args(command).arg(&one).args(name).output().unwrap();
        refused(&output, &["one", "a symbolic link on the way leads back to itself"]);
    }
    for name in ["one", "link"] {
        let output = betrfs().arg("rm-tree").arg(mounted.path(name)).output().unwrap();
        refused(&output, &[name, "it is no directory", "is not followed"]);
    }
    assert!(mounted.path("dir").is_dir() && mounted.path("link").exists());
}
