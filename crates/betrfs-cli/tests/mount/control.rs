//! Asking and ending a server that does not answer, is another user's, or is disturbed by other users.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Gid, Uid};

use crate::mounted::{Mounted, betrfs, ok, refused, told, wait_for_end};
use crate::program::program_beside;

/// A user without rights.
const NOBODY: u32 = 65_534;

fn become_nobody() {
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    rustix::thread::set_thread_groups(&[group]).unwrap();
    rustix::thread::set_thread_res_gid(group, group, group).unwrap();
    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
}

fn is_mounted(mounted: &Mounted) -> bool {
    let told = fs::read("/proc/self/mountinfo").unwrap();
    String::from_utf8_lossy(&told).contains(mounted.dir.to_str().unwrap())
}

/// The listening abstract sockets of a mount.
fn sockets(mounted: &Mounted) -> Vec<String> {
    let number = rustix::fs::stat(&mounted.dir).unwrap().st_dev;
    let begin = format!("@betrfs-{}:{}-", rustix::fs::major(number), rustix::fs::minor(number));
    let list = fs::read_to_string("/proc/net/unix").unwrap();
    let listening = list.lines().filter(|line| line.contains(" 00010000 "));
    let names =
        listening.filter_map(|line| line.split(' ').next_back().filter(|name| name.starts_with(&begin)));
    names.map(|name| name[1..].to_owned()).collect()
}

#[test]
fn commands_report_a_stopped_server_before_long_and_lazy_umount_frees_the_directory() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    let stopped = mounted.stop_server();
    let server = stopped.0;
    let (dir, inside) = (mounted.dir.clone(), mounted.path("d"));
    let start = |arguments: &[&str], path: &std::path::Path| -> Child {
        let mut command = betrfs();
        command.args(arguments).arg(path).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut mount = betrfs();
    let mount =
        mount.arg("mount").arg(mounted.volume.with_file_name("v2")).arg(&dir).args(["--create", "64M"]);
    let mount = mount.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let asked = [
        start(&["stats"], &dir),
        start(&["umount"], &dir),
        start(&["usage"], &inside),
        start(&["sync"], &inside),
        start(&["rm-tree"], &inside),
        start(&["snapshot", "list"], &inside),
        start(&["clone", mounted.path("d").to_str().unwrap()], &mounted.path("e")),
    ];
    refused(&mount.wait_with_output().unwrap(), &["is a mount of"]);
    for child in asked {
        let process = format!("process {}", server.as_raw_nonzero());
        refused(&child.wait_with_output().unwrap(), &["stopped, or hangs", &process, "--lazy"]);
    }
    assert!(is_mounted(&mounted));
    ok(&betrfs().args(["umount", "--lazy"]).arg(&mounted.dir).output().unwrap());
    assert!(!is_mounted(&mounted));
    drop(stopped);
    wait_for_end(server);
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

#[test]
fn a_lazy_umount_does_not_disturb_users_of_the_mount() {
    let mounted = Mounted::new();
    let server = mounted.server();
    let file = fs::File::create(mounted.path("open")).unwrap();
    ok(&betrfs().args(["umount", "--lazy"]).arg(&mounted.dir).output().unwrap());
    assert!(!is_mounted(&mounted));
    std::os::unix::fs::FileExt::write_all_at(&file, b"still", 0).unwrap();
    drop(file);
    wait_for_end(server);
    mounted.mount();
    assert_eq!(fs::read(mounted.path("open")).unwrap(), b"still");
}

/// Another user makes sockets with the same name, and silent connections until no more are accepted.
#[test]
fn other_users_are_neither_believed_nor_in_the_way() {
    let mounted = Mounted::unmounted();
    // On such a mount any user may connect.
    ok(&mounted.try_mount(&["-o", "users"]));
    let copy = program_beside(&mounted);
    fs::set_permissions(mounted.dir.parent().unwrap(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let name = sockets(&mounted).remove(0);
    let in_the_way = thread::spawn({
        let name = name.clone();
        move || {
            become_nobody();
            let begin = name.rsplit_once('-').unwrap().0;
            let bind = |end: u32| {
                UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("{begin}-{end}")).unwrap())
            };
            let false_ones: Vec<_> = (0..20).map(|end| bind(end).unwrap()).collect();
            let connect = || {
                let flags = SocketFlags::NONBLOCK;
                let socket =
                    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
                let to = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
                rustix::net::connect(&socket, &to).is_ok().then_some(socket)
            };
            let silent: Vec<_> = std::iter::repeat_with(connect).take(300).flatten().collect();
            (false_ones, silent)
        }
    });
    let (false_ones, silent) = in_the_way.join().unwrap();
    assert!(silent.len() > 60);
    assert_eq!(sockets(&mounted).len(), 1 + false_ones.len());
    let start = Instant::now();
    let server = mounted.server();
    // Another user finds the server among them, and is heard.
    let umount = Command::new(copy).arg("umount").arg(&mounted.dir).uid(5001).gid(5001).output().unwrap();
    ok(&umount);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert!(!is_mounted(&mounted));
    wait_for_end(server);
    drop((false_ones, silent));
}

/// The socket of root's server is where nobody else can go, and goes with the server; what a killed server
/// leaves there is removed by the next.
#[test]
fn the_socket_of_roots_server_is_roots_alone() {
    let own = |mounted: &Mounted| {
        let number = rustix::fs::stat(&mounted.dir).unwrap().st_dev;
        let begin = format!("{}:{}-", rustix::fs::major(number), rustix::fs::minor(number));
        let names = fs::read_dir("/run/betrfs").unwrap().map(|entry| entry.unwrap().path());
        let is_own = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().contains(&begin);
        names.filter(is_own).collect::<Vec<_>>()
    };
    let mounted = Mounted::new();
    assert_eq!(fs::metadata("/run/betrfs").unwrap().permissions().mode() & 0o7777, 0o700);
    assert_eq!(sockets(&mounted), Vec::<String>::new());
    let before = own(&mounted);
    assert_eq!(before.len(), 1, "{before:?}");
    mounted.kill_server();
    mounted.mount();
    assert!(!before[0].exists(), "it is of a server that was killed");
    let after = own(&mounted);
    let server = mounted.server();
    mounted.umount();
    wait_for_end(server);
    assert!(!after[0].exists());
}

/// As in a container that shares the sockets of the system: root's number alone gives no rights.
#[test]
fn root_without_the_capability_administers_nothing() {
    let mounted = Mounted::new();
    let bare = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-all", "--inh-caps", "-all", env!("CARGO_BIN_EXE_betrfs")]);
        command.args(arguments).arg(&mounted.dir).output().unwrap()
    };
    for arguments in [&["label", "--help"][..], &["stats"]] {
        ok(&bare(arguments));
    }
    for arguments in
        [&["check"][..], &["trim"], &["freeze", "--for", "1"], &["thaw"], &["stats", "--reset-errors"]]
    {
        let output = bare(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(told(&output).contains("only root"), "{arguments:?}: {}", told(&output));
    }
}

#[test]
fn other_users_than_root_and_the_owner_get_no_answer() {
    let mounted = Mounted::new();
    let copy = program_beside(&mounted);
    fs::set_permissions(mounted.dir.parent().unwrap(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let as_nobody = |arguments: &[&str]| -> Output {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(&copy).args(arguments).arg(&mounted.dir).output().unwrap()
    };
    let outputs = [as_nobody(&["stats"]), as_nobody(&["umount"])];
    for output in outputs {
        refused(&output, &["only root and the user who mounted the volume"]);
    }
    assert!(is_mounted(&mounted));
}
