//! Mounting, unmounting and death of servers, as other processes see them.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::block_device::LoopDevice;
use crate::mounted::{Mounted, betrfs, check_failed, ok, refused, told, wait_for_end, wait_for_mount};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::Signal;

fn mounts() -> String {
    // Some mounts have names that are not UTF-8.
    String::from_utf8_lossy(&fs::read("/proc/self/mountinfo").unwrap()).into_owned()
}

#[test]
fn a_mount_answers_when_the_command_returns_and_is_gone_after_umount() {
    let mounted = Mounted::new();
    let shown = mounted.dir.display().to_string();
    let line = mounts().lines().find(|line| line.contains(&shown)).unwrap().to_owned();
    assert!(line.contains(" fuseblk.betrfs /dev/loop"), "{line}");
    let stats = mounted.stats();
    assert_eq!(stats["volume"], mounted.volume.to_str().unwrap());
    assert_eq!((stats["label"].as_str(), stats["uuid"].as_str().map(str::len)), (Some(""), Some(36)));
    let root = rustix::fs::statfs(&mounted.dir).unwrap();
    assert!(root.f_blocks > 0 && root.f_bfree > 0 && root.f_namelen == 255);
    let server = mounted.server();
    mounted.umount();
    assert!(!mounts().contains(&shown));
    // At most a zombie is left, which nobody has waited for yet.
    let server = fs::read_to_string(format!("/proc/{}/status", server.as_raw_nonzero()));
    assert!(server.is_err() || server.is_ok_and(|status| status.contains("zombie")), "the server lives on");
    // The volume is closed: not locked, and clean.
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

#[test]
fn contents_survive_a_remount() {
    let mounted = Mounted::new();
    fs::create_dir_all(mounted.path("a/b")).unwrap();
    fs::write(mounted.path("a/b/f"), vec![7; 300_000]).unwrap();
    let before = fs::metadata(mounted.path("a/b/f")).unwrap();
    mounted.remount();
    assert!(fs::read(mounted.path("a/b/f")).unwrap() == vec![7; 300_000]);
    let after = fs::metadata(mounted.path("a/b/f")).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!(
        (before.ino(), before.mtime_nsec(), before.mode()),
        (after.ino(), after.mtime_nsec(), after.mode())
    );
}

#[test]
fn a_volume_in_use_is_refused() {
    let mounted = Mounted::new();
    let other = tempfile::tempdir().unwrap();
    let shown = mounted.volume.display().to_string();
    refused(
        &betrfs().arg("mount").arg(&mounted.volume).arg(other.path()).output().unwrap(),
        &[&shown, "in use"],
    );
    check_failed(&betrfs().arg("check").arg(&mounted.volume).output().unwrap(), &[&shown, "in use"]);
    for subcommand in ["super", "log", "nodes", "map"] {
        let debug = betrfs().args(["debug", subcommand]).arg(&mounted.volume).output().unwrap();
        refused(&debug, &[&shown, "in use"]);
    }
    let mkfs = betrfs().arg("mkfs").arg(&mounted.volume).args(["--size", "1G", "--force"]).output().unwrap();
    refused(&mkfs, &[&shown, "in use"]);
    fs::write(mounted.path("still"), b"alive").unwrap();
}

/// As in scripts that run umount(8) and mount at once.
#[test]
fn opening_waits_for_a_volume_that_is_still_being_closed() {
    let mounted = Mounted::new();
    for round in 0..3 {
        fs::write(mounted.path(round.to_string()), vec![round; 20 << 20]).unwrap();
        mounted.umount_plainly();
        mounted.mount();
        assert!(fs::read(mounted.path(round.to_string())).unwrap() == vec![round; 20 << 20]);
    }
    let taken = fs::File::open(&mounted.volume).unwrap();
    mounted.umount();
    taken.lock().unwrap();
    // The lock is released while check waits.
    let check = betrfs().arg("check").arg(&mounted.volume).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    drop(taken);
    ok(&check.wait_with_output().unwrap());
}

#[test]
fn a_live_mount_is_not_mounted_over() {
    let mounted = Mounted::new();
    let second = mounted.dir.with_file_name("second");
    let output =
        betrfs().arg("mount").arg(&second).arg(&mounted.dir).args(["--create", "256M"]).output().unwrap();
    refused(&output, &["is a mount of", "betrfs umount"]);
}

#[test]
fn the_mount_of_a_killed_server_is_replaced_by_the_next() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"before").unwrap();
    fs::File::open(mounted.path("f")).unwrap().sync_all().unwrap();
    mounted.kill_server();
    // A name that is not cached. While the server is dying, requests are cancelled.
    let answers = std::iter::repeat_with(|| rustix::fs::stat(mounted.path("absent")).unwrap_err());
    let last = answers.into_iter().find(|errno| ![Errno::CANCELED, Errno::CONNABORTED].contains(errno));
    assert_eq!(last, Some(Errno::NOTCONN));
    refused(
        &betrfs().arg("stats").arg(&mounted.dir).output().unwrap(),
        &["is dead", "mount the volume again"],
    );
    mounted.mount();
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"before");
    let shown = mounted.dir.display().to_string();
    assert_eq!(mounts().lines().filter(|line| line.contains(&shown)).count(), 1, "nothing is left below");
}

#[test]
fn umount_of_a_killed_server_frees_the_directory_and_says_so() {
    let mounted = Mounted::new();
    mounted.kill_server();
    refused(&betrfs().arg("umount").arg(&mounted.dir).output().unwrap(), &["had died", "recovers"]);
    assert!(fs::read_dir(&mounted.dir).unwrap().next().is_none());
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

#[test]
fn a_busy_mount_is_not_unmounted() {
    let mounted = Mounted::new();
    let file = fs::File::create(mounted.path("open")).unwrap();
    refused(&betrfs().arg("umount").arg(&mounted.dir).output().unwrap(), &["in use"]);
    assert!(mounted.path("open").exists());
    drop(file);
    mounted.umount();
}

#[test]
fn a_mount_with_another_on_it_is_not_unmounted_and_the_other_is_named() {
    let mounted = Mounted::new();
    let other = mounted.path("other place");
    fs::create_dir(&other).unwrap();
    rustix::mount::mount_bind(&mounted.dir, &other).unwrap();
    let refusal = betrfs().arg("umount").arg(&mounted.dir).output().unwrap();
    rustix::mount::unmount(&other, rustix::mount::UnmountFlags::DETACH).unwrap();
    refused(&refusal, &["in use", "other place is mounted on it", "findmnt"]);
    mounted.umount();
}

/// Unmounts by the command, which must not wait for other mounts of the volume.
fn umount_in_time(dir: &Path) -> std::process::Output {
    let mut command = Command::new("timeout");
    command.args(["30", env!("CARGO_BIN_EXE_betrfs"), "umount"]).arg(dir).output().unwrap()
}

#[test]
fn an_unmount_of_one_of_two_mounts_waits_for_nothing_and_names_the_other() {
    let mounted = Mounted::new();
    let bound = mounted.dir.with_file_name("bound");
    fs::create_dir(&bound).unwrap();
    rustix::mount::mount_bind(&mounted.dir, &bound).unwrap();
    ok(&betrfs().arg("freeze").arg(&mounted.dir).output().unwrap());
    let output = umount_in_time(&bound);
    let _ = rustix::mount::unmount(&bound, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    ok(&output);
    assert!(told(&output).contains("stays mounted on"), "{}", told(&output));
    assert!(told(&output).contains(mounted.dir.to_str().unwrap()), "{}", told(&output));
    assert_eq!(mounted.stats()["state"]["is"], "frozen", "others go on with what they asked for");
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

#[test]
fn an_unmount_does_not_wait_for_another_mount_name_space() {
    let mounted = Mounted::new();
    let server = mounted.server();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", "echo there; read end"]);
    let mut elsewhere = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(elsewhere.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let output = umount_in_time(&mounted.dir);
    ok(&output);
    assert!(told(&output).contains("in another mount name space"), "{}", told(&output));
    check_failed(&betrfs().arg("check").arg(&mounted.volume).output().unwrap(), &["in use"]);
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
    wait_for_end(server);
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

#[test]
fn a_server_in_the_background_keeps_no_descriptor_of_its_starter() {
    use rustix::fs::{Mode, OFlags};
    let mounted = Mounted::unmounted();
    let lock = mounted.dir.with_file_name("lock");
    // As a shell opens it: what it executes gets the descriptor.
    let flags = OFlags::CREATE | OFlags::RDWR;
    let inherited = rustix::fs::open(&lock, flags, Mode::RUSR | Mode::WUSR).unwrap();
    mounted.mount();
    drop(inherited);
    let descriptors = fs::read_dir(format!("/proc/{}/fd", mounted.server().as_raw_nonzero())).unwrap();
    let open: Vec<_> =
        descriptors.filter_map(|descriptor| fs::read_link(descriptor.unwrap().path()).ok()).collect();
    assert!(open.contains(&mounted.volume), "{open:?}");
    assert!(!open.contains(&lock), "{open:?}");
}

#[test]
fn sigterm_unmounts_and_closes() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"x").unwrap();
    let server = mounted.server();
    rustix::process::kill_process(server, Signal::TERM).unwrap();
    wait_for_end(server);
    assert!(!mounts().contains(mounted.dir.to_str().unwrap()));
    mounted.mount();
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"x");
}

#[test]
fn a_signal_unmounts_nothing_but_the_servers_own_mount() {
    let mounted = Mounted::new();
    let server = mounted.server();
    let file = fs::File::create(mounted.path("open")).unwrap();
    rustix::mount::unmount(&mounted.dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).unwrap();
    let second = mounted.volume.with_file_name("second");
    ok(&betrfs().arg("mount").arg(&second).arg(&mounted.dir).args(["--create", "256M"]).output().unwrap());
    fs::write(mounted.path("alive"), b"").unwrap();
    rustix::process::kill_process(server, Signal::TERM).unwrap();
    let start = Instant::now();
    while !mounted.log().contains("no longer what is mounted") {
        assert!(mounted.path("alive").exists(), "the other volume was unmounted");
        assert!(start.elapsed() < Duration::from_secs(30), "the signal is not taken note of");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(mounted.path("alive").exists());
    // The server ends with the mount's last user.
    drop(file);
    wait_for_end(server);
    assert!(mounted.path("alive").exists());
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

/// For every resource, and however far the mount has come.
#[test]
fn a_failed_mount_leaves_nothing_mounted_and_names_the_lacking_resource() {
    let mounted = Mounted::unmounted();
    let mut failed = 0;
    for files_max in 4..60 {
        let mut mount = Command::new("sh");
        mount.args(["-c", &format!("ulimit -n {files_max} && exec \"$@\""), "sh"]);
        mount.arg(env!("CARGO_BIN_EXE_betrfs")).arg("mount").arg(&mounted.volume).arg(&mounted.dir);
        let mut output = mount.output().unwrap();
        // The server of the attempt before may not have ended yet.
        for _ in 0..500 {
            if !told(&output).contains("is in use") {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            output = mount.output().unwrap();
        }
        if output.status.success() {
            mounted.umount();
            continue;
        }
        failed += 1;
        assert!(!mounts().contains(mounted.dir.to_str().unwrap()), "{files_max}: {}", told(&output));
        // With fewer, the program or its server does not start.
        if files_max >= 12 {
            refused(&output, &["ulimit -n"]);
        }
    }
    assert!(failed > 2, "{failed} failed");
    mounted.mount();
}

fn has_the_lines_of_a_life(log: &str) {
    for line in [" 0 batches of its log replayed, in", "mounted on", "requests by", "unmounted and closed"] {
        assert!(log.contains(line), "`{line}` is not in: {log}");
    }
}

#[test]
fn the_log_has_a_mounts_life() {
    let mounted = Mounted::new();
    mounted.umount();
    has_the_lines_of_a_life(&mounted.log());
    mounted.mount();
    fs::File::create(mounted.path("f")).unwrap().sync_all().unwrap();
    mounted.kill_server();
    mounted.mount();
    let log = mounted.log();
    let last = log.lines().rfind(|line| line.contains("batches of its log replayed")).unwrap();
    assert!(!last.contains(" 0 batches"), "{last}");
}

/// In a mount namespace of its own, where the test receives the system's log.
#[test]
fn without_a_file_the_log_goes_to_the_system() {
    let mounted = Mounted::unmounted();
    let path = mounted.volume.with_file_name("system-log");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let script =
        "touch /dev/log; mount --bind \"$1\" /dev/log; \"$2\" mount \"$3\" \"$4\" && \"$2\" umount \"$4\"";
    let mut command = Command::new("timeout");
    command.args(["60", "unshare", "--mount", "sh", "-c", script, "sh"]);
    command.arg(&path).arg(env!("CARGO_BIN_EXE_betrfs")).arg(&mounted.volume).arg(&mounted.dir);
    let had_one = Path::new("/dev/log").exists();
    let output = command.output().unwrap();
    if !had_one {
        // The file that was made as a mount point.
        fs::remove_file("/dev/log").unwrap();
    }
    ok(&output);
    socket.set_nonblocking(true).unwrap();
    let mut line = vec![0; 4096];
    let receive =
        || socket.recv(&mut line).ok().map(|len| String::from_utf8_lossy(&line[..len]).into_owned());
    let log: Vec<String> = std::iter::from_fn(receive).collect();
    assert!(log.iter().all(|line| line.contains("betrfs[")), "{log:?}");
    has_the_lines_of_a_life(&log.join("\n"));
}

#[test]
fn a_log_has_the_events_of_the_engine_if_they_are_asked_for() {
    let mounted = Mounted::unmounted();
    let log_of_a_life = |asked: &str| {
        let log = mounted.volume.with_file_name(format!("log of {asked}"));
        let mut mount = betrfs();
        mount.env("BETRFS_LOG", asked).arg("mount").arg(&mounted.volume).arg(&mounted.dir);
        ok(&mount.arg("--log").arg(&log).output().unwrap());
        fs::write(mounted.path("f"), b"kept").unwrap();
        mounted.umount();
        fs::read_to_string(log).unwrap()
    };
    let usual = log_of_a_life("");
    assert!(!usual.contains("betree::") && usual.contains("INFO"), "{usual}");
    let with_engine = log_of_a_life("betree=info");
    for event in ["betree::recover: the volume is open", "betree::checkpoint: a checkpoint is committed"] {
        assert!(with_engine.contains(event), "{with_engine}");
    }
    assert!(with_engine.contains("duration_ns=") && !with_engine.contains("betree::commit"), "{with_engine}");
    let refused = log_of_a_life("betree=loud");
    assert!(refused.contains("BETRFS_LOG is not used") && !refused.contains("betree::"), "{refused}");
}

/// Whatever name either has, and whether the volume is there as a file or as a device that shows it.
#[test]
fn a_log_is_not_written_to_the_volume_or_to_a_device() {
    let mounted = Mounted::unmounted();
    let device = LoopDevice::on(&mounted.volume);
    let part = ["--offset", "1M", "--find", "--show"];
    let part = Command::new("losetup").args(part).arg(&mounted.volume).output().unwrap();
    let part = LoopDevice(String::from_utf8(part.stdout).unwrap().trim().into());
    let before = fs::read(&mounted.volume).unwrap();
    let log_to = |volume: &Path, log: &Path| {
        let output =
            betrfs().arg("mount").arg(volume).arg(&mounted.dir).arg("--log").arg(log).output().unwrap();
        if output.status.success() {
            mounted.umount();
        }
        let said = told(&output);
        let shown = format!("{} with the log {}: {said}", volume.display(), log.display());
        assert!(!output.status.success() && said.contains("cannot write the log"), "{shown}");
        assert!(fs::read(&mounted.volume).unwrap() == before, "{shown}");
        said
    };
    for volume in [&mounted.volume, &device.0, &part.0] {
        assert!(log_to(volume, &mounted.volume).contains("it is the volume"));
        for log in [&device.0, &part.0] {
            assert!(log_to(volume, log).contains("a block device"));
        }
    }
    // Another file is appended to.
    let log = mounted.volume.with_file_name("log");
    fs::write(&log, "earlier\n").unwrap();
    ok(&betrfs().arg("mount").arg(&device.0).arg(&mounted.dir).arg("--log").arg(&log).output().unwrap());
    mounted.umount();
    assert!(fs::read_to_string(&log).unwrap().starts_with("earlier\n"));
}

#[test]
fn a_full_log_does_not_end_the_server() {
    let mounted = Mounted::unmounted();
    let mut mount = betrfs();
    ok(&mount
        .arg("mount")
        .arg(&mounted.volume)
        .arg(&mounted.dir)
        .args(["-v", "--log", "/dev/full"])
        .output()
        .unwrap());
    fs::write(mounted.path("f"), b"kept").unwrap();
    let server = mounted.server();
    rustix::process::kill_process(server, Signal::TERM).unwrap();
    wait_for_end(server);
    assert!(!mounts().contains(mounted.dir.to_str().unwrap()), "it died");
    mounted.mount();
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"kept");
}

#[test]
fn a_foreground_server_outlives_the_reader_of_its_log() {
    let mounted = Mounted::unmounted();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut server = in_the_foreground(&mounted, writer.into());
    rustix::process::kill_process(mounted.server(), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    assert!(!mounts().contains(mounted.dir.to_str().unwrap()));
}

/// A panic of a thread with such a name ends the server, so that nobody waits for the thread's work.
#[test]
fn every_thread_of_a_server_is_named_as_one() {
    let mounted = Mounted::new();
    let server = mounted.server().as_raw_nonzero();
    let tasks = fs::read_dir(format!("/proc/{server}/task")).unwrap().map(|task| task.unwrap());
    let others = tasks.filter(|task| task.file_name() != OsStr::new(&server.to_string()));
    // A thread may have ended meanwhile.
    let names: Vec<_> = others.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(name.starts_with("betrfs-") || name.starts_with("jemalloc"), "{name}");
    }
}

#[test]
fn a_volume_may_have_any_name() {
    let mut mounted = Mounted::unmounted();
    let volume = mounted.volume.with_file_name(OsStr::from_bytes(b"v\xff"));
    fs::rename(&mounted.volume, &volume).unwrap();
    mounted.volume = volume;
    mounted.mount();
    fs::write(mounted.path("f"), b"x").unwrap();
    let told = mounted.stats()["volume"].as_str().unwrap().to_owned();
    assert!(told.ends_with("/v\u{fffd}"), "{told}");
    let second = mounted.dir.with_file_name("second");
    let output =
        betrfs().arg("mount").arg(&second).arg(&mounted.dir).args(["--create", "256M"]).output().unwrap();
    refused(&output, &["is a mount of", "betrfs umount"]);
    mounted.umount();
    for command in [&["check"][..], &["mkfs", "--force"]] {
        let output = betrfs().args(command).args(["--format", "json"]).arg(&mounted.volume).output().unwrap();
        ok(&output);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(told["volume"].as_str().unwrap().ends_with("/v\u{fffd}"), "{told}");
    }
}

/// Mounts a volume in a child of this process.
fn in_the_foreground(mounted: &Mounted, log: Stdio) -> Child {
    let server = betrfs()
        .args(["mount", "--foreground", "-v"])
        .arg(&mounted.volume)
        .arg(&mounted.dir)
        .stderr(log)
        .spawn()
        .unwrap();
    wait_for_mount(&mounted.dir, &server);
    server
}

#[test]
fn a_foreground_server_stays_until_the_unmount() {
    let mounted = Mounted::unmounted();
    let mut server = in_the_foreground(&mounted, Stdio::piped());
    assert_eq!(mounted.stats()["pid"].as_i64(), Some(i64::from(server.id())));
    mounted.umount();
    assert!(server.wait().unwrap().success());
    let said: Vec<String> =
        BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok).collect();
    assert!(!said.iter().any(|line| line.contains("ERROR")), "{said:?}");
}

#[test]
fn the_server_keeps_below_its_memory_limit() {
    let mounted = Mounted::of_size("4G");
    mounted.mount_with_cache("256M");
    let block = vec![0x5c; 1 << 20];
    for i in 0..4 {
        let mut file = fs::File::create(mounted.path(format!("big{i}"))).unwrap();
        for _ in 0..200 {
            std::io::Write::write_all(&mut file, &block).unwrap();
        }
    }
    for i in 0..4 {
        assert_eq!(fs::read(mounted.path(format!("big{i}"))).unwrap().len(), 200 << 20);
    }
    let kib = mounted.server_memory_kib_max();
    assert!(kib < 512 << 10, "peak resident memory {kib} KiB with a cache of 256 MiB");
}
