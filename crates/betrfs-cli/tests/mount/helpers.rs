//! The names by which mount(8) and umount(8) call the program, their options, flags and exit codes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::changes::change;
use crate::mounted::{Mounted, betrfs, ok, refused, told};

/// The program under a helper's name.
fn helper(mounted: &Mounted, name: &str) -> PathBuf {
    let path = mounted.volume.with_file_name(name);
    if !path.exists() {
        symlink(env!("CARGO_BIN_EXE_betrfs"), &path).unwrap();
    }
    path
}

fn mount(mounted: &Mounted, arguments: &[&str]) -> Output {
    let mut command = Command::new(helper(mounted, "mount.betrfs"));
    command.arg(&mounted.volume).arg(&mounted.dir).args(arguments).output().unwrap()
}

fn options_of(mounted: &Mounted) -> String {
    let told = fs::read("/proc/self/mountinfo").unwrap();
    let told = String::from_utf8_lossy(&told).into_owned();
    let dir = mounted.dir.to_str().unwrap().to_owned();
    let line = told.lines().find(|line| line.contains(&dir)).unwrap_or_default().to_owned();
    line.split(' ').nth(5).unwrap_or_default().to_owned()
}

#[test]
fn options_of_fstab_and_flags_of_helpers_are_accepted() {
    let mounted = Mounted::unmounted();
    ok(&mount(&mounted, &["-f", "-o", "rw"]));
    assert_eq!(options_of(&mounted), "", "a fake mount mounts");
    for (arguments, option) in [
        (
            &["-n", "-v", "-o", "rw,users,lazytime,iversion,silent,discard,acl,errors=remount-ro,comment=x"]
                [..],
            "noexec",
        ),
        (&["-r", "-t", "fuse.betrfs"], "ro"),
        (&["-sn", "-w", "-o", "nonsense,nosymfollow"], "nosymfollow"),
        (&["-o", "nosuid", "-o", "suid,nodiratime"], "nodiratime"),
    ] {
        ok(&mount(&mounted, arguments));
        let options = options_of(&mounted);
        assert!(options.split(',').any(|given| given == option), "{arguments:?}: {options}");
        let umount = helper(&mounted, "umount.fuseblk.betrfs");
        ok(&Command::new(umount).arg(&mounted.dir).args(["-n", "-v"]).output().unwrap());
        assert_eq!(options_of(&mounted), "");
    }
}

/// `mount -a` at the start of a machine, with a disk that is not there.
#[test]
fn a_volume_that_is_not_there_is_no_failure_with_nofail() {
    let mut mounted = Mounted::unmounted();
    let volume = std::mem::replace(&mut mounted.volume, mounted.dir.join("missing"));
    assert_eq!(mount(&mounted, &["-o", "noatime"]).status.code(), Some(32));
    let output = mount(&mounted, &["-o", "nofail,noatime"]);
    ok(&output);
    assert_eq!((told(&output), options_of(&mounted)), (String::new(), String::new()));
    // What is there and no volume is a failure.
    fs::write(&mounted.volume, b"text").unwrap();
    assert_eq!(mount(&mounted, &["-o", "nofail"]).status.code(), Some(32));
    mounted.volume = volume;
    ok(&mount(&mounted, &["-o", "nofail"]));
    assert_ne!(options_of(&mounted), "");
    mounted.umount();
}

#[test]
fn exit_codes_are_those_of_mount_8() {
    let mounted = Mounted::unmounted();
    let code = |output: Output| (output.status.code(), told(&output));
    for (arguments, expected) in
        [(&["-o", "nonsense"][..], 1), (&["-o", "cache_size=lots"], 1), (&["--no"], 1)]
    {
        let (code, told) = code(mount(&mounted, arguments));
        assert_eq!(code, Some(expected), "{arguments:?}: {told}");
    }
    // With too few files the exit code is that of a lacking resource, whatever the limit.
    let with_files = |files_max: u32| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files_max} && exec \"$@\""), "sh"]);
        command.arg(helper(&mounted, "mount.betrfs")).args([&mounted.volume, &mounted.dir]).output().unwrap()
    };
    let codes = (6..30).map(|files_max| {
        let output = with_files(files_max);
        if output.status.success() {
            mounted.umount();
        }
        output.status.code()
    });
    assert!(codes.filter(|code| *code == Some(2)).count() > 0);
    mounted.mount();
    // Already mounted there.
    assert_eq!(code(mount(&mounted, &[])).0, Some(32));
    mounted.umount();
    let umount = Command::new(helper(&mounted, "umount.betrfs")).arg(&mounted.dir).output();
    assert_eq!(code(umount.unwrap()).0, Some(32));
    refused(&betrfs().arg("umount").arg(&mounted.dir).output().unwrap(), &["no BetrFS volume"]);
}

/// While the server waits for a volume that another process has locked.
#[test]
fn an_interrupted_mount_mounts_nothing_and_its_code_is_8() {
    let mounted = Mounted::unmounted();
    let taken = fs::File::open(&mounted.volume).unwrap();
    taken.lock().unwrap();
    let mut command = Command::new(helper(&mounted, "mount.betrfs"));
    let mut mount = command.arg(&mounted.volume).arg(&mounted.dir).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", mount.id());
    // The signal thread starts after the server.
    let threads = format!("/proc/{}/task", mount.id());
    while fs::read_to_string(&children).unwrap().is_empty()
        || !fs::read_dir(&threads).unwrap().any(|task| {
            let name = fs::read_to_string(task.unwrap().path().join("comm"));
            name.is_ok_and(|name| name.starts_with("betrfs-signals"))
        })
    {
        assert!(mount.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&mount), rustix::process::Signal::INT)
        .unwrap();
    assert_eq!(mount.wait().unwrap().code(), Some(8));
    drop(taken);
    assert_eq!(options_of(&mounted), "");
    mounted.mount();
}

#[test]
fn a_remount_changes_the_named_options_and_the_server_heeds_it() {
    use rustix::io::Errno;
    use rustix::ioctl::opcode;
    const EMPTY: u32 = opcode::none(b'B', 3);
    let mounted = Mounted::unmounted();
    ok(&mounted.try_mount(&["-o", "nodev"]));
    fs::create_dir_all(mounted.path("d/e")).unwrap();
    let dir = fs::File::open(mounted.path("d")).unwrap();
    let remount = |options: &str| {
        let mut command = Command::new(helper(&mounted, "mount.fuse.betrfs"));
        command.arg(&mounted.volume).arg(&mounted.dir).args(["-o", options]).output().unwrap()
    };
    let empty = || change(&dir, EMPTY, &[]);
    ok(&remount("remount,ro"));
    let options = options_of(&mounted);
    assert!(options.starts_with("ro,") && options.contains("nodev"), "{options}");
    assert_eq!(
        fs::write(mounted.path("f"), b"x").unwrap_err().kind(),
        std::io::ErrorKind::ReadOnlyFilesystem
    );
    assert_eq!(empty(), Err(Errno::ROFS));
    ok(&remount("remount,rw"));
    assert!(options_of(&mounted).starts_with("rw,"));
    fs::write(mounted.path("f"), b"x").unwrap();
    assert_eq!(empty(), Ok(()));
    assert!(!mounted.path("d/e").exists());
    // By mount(8) itself.
    let by_mount =
        |options: &str| Command::new("mount").args(["-i", "-o", options]).arg(&mounted.dir).output();
    ok(&by_mount("remount,ro").unwrap());
    assert!(options_of(&mounted).starts_with("ro,"));
}

/// In a mount namespace with a /sbin and an /etc that the test may write to.
#[test]
fn installed_helpers_let_mount_find_the_type_of_a_file() {
    let mounted = Mounted::unmounted();
    let script = r#"
        set -e
        layers=$(dirname "$2")/layers
        mkdir "$layers"
        mount -t tmpfs none "$layers"
        for dir in usr/sbin etc; do
            mkdir -p "$layers/$dir/upper" "$layers/$dir/work"
            mount -t overlay none -o "lowerdir=/$dir,upperdir=$layers/$dir/upper,workdir=$layers/$dir/work" "/$dir"
        done
        rm -f /etc/filesystems
        "$1" install-helpers
        "$1" install-helpers
        mount "$2" "$3"
        findmnt -n -o FSTYPE "$3"
        echo data > "$3/f"
        umount "$3"
        mount -t betrfs -o ro "$2" "$3"
        cat "$3/f"
        umount "$3"
        fsck -t betrfs "$2"
        echo "fsck ends with $?"
        "$1" install-helpers --remove
        ls /usr/sbin | grep betrfs || echo no links
        ls /etc/filesystems 2>/dev/null || echo no list
    "#;
    let mut shell = Command::new("timeout");
    shell.args(["60", "unshare", "--mount", "bash", "-c", script, "bash", env!("CARGO_BIN_EXE_betrfs")]);
    let output = shell.arg(&mounted.volume).arg(&mounted.dir).output().unwrap();
    ok(&output);
    let told = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    let links = lines.iter().filter(|line| line.contains(" -> ")).count();
    assert_eq!(links, 8, "each link is made once: {told}");
    let after = |line: &str| lines.iter().position(|found| *found == line).expect(&told);
    assert!(after("fuseblk.betrfs") < after("data") && after("data") < after("fsck ends with 0"), "{told}");
    assert!(after("no links") < after("no list"), "{told}");
}

#[test]
fn other_programs_helpers_are_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let install = |more: &[&str]| {
        betrfs().arg("install-helpers").arg("--root").arg(root.path()).args(more).output().unwrap()
    };
    fs::create_dir(at("sbin")).unwrap();
    symlink("/somebody/else", at("sbin/umount.betrfs")).unwrap();
    refused(&install(&[]), &["umount.betrfs", "a link to /somebody/else"]);
    let nothing_is_done = || !at("sbin/mount.betrfs").exists() && !at("etc/filesystems").exists();
    assert!(nothing_is_done());
    fs::remove_file(at("sbin/umount.betrfs")).unwrap();
    fs::create_dir_all(at("etc/udev/rules.d")).unwrap();
    let rule = at("etc/udev/rules.d/65-betrfs.rules");
    fs::write(&rule, "# theirs\n").unwrap();
    refused(&install(&[]), &["65-betrfs.rules is another's"]);
    assert!(nothing_is_done());
    ok(&install(&["--remove"]));
    assert_eq!(fs::read_to_string(&rule).unwrap(), "# theirs\n");
    fs::remove_file(&rule).unwrap();
    fs::write(at("etc/filesystems"), "vfat\n*\n").unwrap();
    ok(&install(&[]));
    assert_eq!(fs::read_to_string(at("etc/filesystems")).unwrap(), "vfat\nbetrfs\n*\n");
    assert_eq!(
        fs::read_link(at("sbin/fsck.betrfs")).unwrap(),
        PathBuf::from(env!("CARGO_BIN_EXE_betrfs")).canonicalize().unwrap()
    );
    let program = env!("CARGO_BIN_EXE_betrfs");
    assert!(fs::read_to_string(&rule).unwrap().contains(&format!("\"{program} probe --udev $devnode\"")));
    // Another program's file stays.
    fs::remove_file(at("sbin/mkfs.betrfs")).unwrap();
    fs::write(at("sbin/mkfs.betrfs"), "theirs").unwrap();
    ok(&install(&["--remove"]));
    assert_eq!(fs::read_dir(at("sbin")).unwrap().count(), 1);
    assert!(!rule.exists());
    assert_eq!(fs::read_to_string(at("sbin/mkfs.betrfs")).unwrap(), "theirs");
    assert_eq!(fs::read_to_string(at("etc/filesystems")).unwrap(), "vfat\n*\n");
}

/// By umount(8) and by the program, as another user than the one who mounted it; in a mount namespace with
/// /sbin, /etc and /run of its own.
#[test]
fn a_mount_with_users_is_unmounted_by_anybody_and_no_other_is() {
    let mounted = Mounted::unmounted();
    let script = r#"
        set -e
        volume=$2
        mount -t tmpfs -o mode=755 none /run
        for own in usr/sbin etc; do
            layers=/run/layers/$own
            mkdir -p "$layers/upper" "$layers/work"
            mount -t overlay none -o "lowerdir=/$own,upperdir=$layers/upper,workdir=$layers/work" "/$own"
        done
        cp "$1" /run/betrfs
        mkdir /run/mnt
        /run/betrfs install-helpers > /run/installed
        as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
        tried() {
            if as_nobody $1 /run/mnt 2> /run/told; then echo "$options, $1: unmounted"; else
                echo "$options, $1: refused"
                sed "s/^/told: /" /run/told
            fi
        }
        for options in noauto noauto,users noauto,users,nousers; do
            echo "$volume /run/mnt betrfs $options 0 0" > /etc/fstab
            for umount in umount "/run/betrfs umount"; do
                mount /run/mnt
                echo kept > /run/mnt/file
                exec 3< /run/mnt/file
                echo "in use: $(tried "$umount" | head -n 1)"
                exec 3<&-
                tried "$umount"
                ! mountpoint -q /run/mnt || umount /run/mnt
                /run/betrfs check "$volume" > /run/checked
            done
        done
        mount -o users "$volume" /run/mnt
        options=frozen
        /run/betrfs freeze /run/mnt > /run/froze
        tried "/run/betrfs umount"
        /run/betrfs thaw /run/mnt
        # Nobody else has anything to say about it.
        as_nobody /run/betrfs freeze /run/mnt 2> /run/told || echo "a freeze: refused"
        as_nobody /run/betrfs stats /run/mnt 2> /run/told || echo "stats: refused"
        umount /run/mnt
    "#;
    let mut shell = Command::new("timeout");
    shell.args(["60", "unshare", "--mount", "bash", "-c", script, "bash", env!("CARGO_BIN_EXE_betrfs")]);
    let output = shell.arg(&mounted.volume).output().unwrap();
    ok(&output);
    let told = String::from_utf8(output.stdout).unwrap();
    let outcomes: Vec<&str> = told.lines().filter(|line| !line.starts_with("told: ")).collect();
    let mut expected = Vec::new();
    for options in ["noauto", "noauto,users", "noauto,users,nousers"] {
        for umount in ["umount", "/run/betrfs umount"] {
            expected.push(format!("in use: {options}, {umount}: refused"));
            let outcome = if options == "noauto,users" { "unmounted" } else { "refused" };
            expected.push(format!("{options}, {umount}: {outcome}"));
        }
    }
    let others = ["frozen, /run/betrfs umount: refused", "a freeze: refused", "stats: refused"];
    expected.extend(others.map(str::to_owned));
    assert_eq!(outcomes, expected, "{told}");
}
