//! Remounts, by mount(8) and by the command: each option of a mount is changed, with what the server does, or
//! is refused by its name.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output};

use serde_json::Value;

use crate::mounted::{Mounted, betrfs, ended_with, ok, refused};

/// What a remount comes to.
enum Comes {
    /// The kernel shows these options, and the server this setting.
    To(&'static str, (&'static str, Setting)),
    /// It is refused with this word, and nothing has changed.
    ToNothing(&'static str),
}
use Comes::{To, ToNothing};

#[derive(Clone, Copy)]
enum Setting {
    Is(bool),
    Text(&'static str),
    Number(u64),
}
use Setting::{Is, Number, Text};

const TIMES: &str = "access_times";
const RELATIVE: (&str, Setting) = (TIMES, Text("relative"));

/// The options of a mount, those of its remount, and what that comes to.
const CASES: &[(&str, &str, Comes)] = &[
    ("rw", "ro", To("ro", (TIMES, Text("none")))),
    ("rw", "rw", To("rw", RELATIVE)),
    ("ro", "rw", ToNothing("`rw`")),
    ("ro", "nodev", To("ro,nodev", ("read_only", Is(true)))),
    ("rw", "noatime", To("noatime", (TIMES, Text("none")))),
    ("noatime", "relatime", To("relatime", RELATIVE)),
    ("noatime", "atime", To("relatime", RELATIVE)),
    ("noatime", "strictatime", To("rw", (TIMES, Text("all")))),
    ("strictatime", "nosuid", To("nosuid", (TIMES, Text("all")))),
    ("strictatime,nodiratime", "relatime", To("relatime,nodiratime", RELATIVE)),
    ("rw", "nodiratime", To("nodiratime", ("listings_count", Is(false)))),
    ("nodiratime", "diratime", To("relatime", ("listings_count", Is(true)))),
    ("noatime", "nosuid", To("nosuid,noatime", (TIMES, Text("none")))),
    ("nosuid", "nodev", To("nosuid,nodev", RELATIVE)),
    ("nosuid", "suid,noexec", To("noexec", RELATIVE)),
    ("nodev,noexec", "dev,exec,nosuid", To("nosuid", RELATIVE)),
    ("nosymfollow", "symfollow", To("rw", RELATIVE)),
    ("sync", "async", To("rw", RELATIVE)),
    ("rw", "nosymfollow", To("nosymfollow", RELATIVE)),
    ("rw", "sync", To("sync", RELATIVE)),
    ("rw", "dirsync", ToNothing("`dirsync`")),
    ("dirsync", "dirsync,noatime", To("dirsync,noatime", (TIMES, Text("none")))),
    ("rw", "acl", To("rw", ("acl", Is(true)))),
    ("rw", "noacl", ToNothing("`noacl`")),
    ("noacl", "noacl,noexec", To("noexec", ("acl", Is(false)))),
    ("noacl", "acl", ToNothing("`acl`")),
    ("rw", "user_clone_allowed", To("rw", ("user_clone_allowed", Is(true)))),
    ("user_clone_allowed", "nouser_clone_allowed", To("rw", ("user_clone_allowed", Is(false)))),
    ("user_clone_allowed", "ro", To("ro", ("user_clone_allowed", Is(true)))),
    ("rw", "discard", ToNothing("`discard`")),
    ("discard", "discard,ro", To("ro", ("discard", Is(true)))),
    ("discard", "nodiscard", ToNothing("`nodiscard`")),
    ("rw", "cache_size=128M", ToNothing("`cache_size`")),
    ("cache_size=96M", "cache_size=96M,noexec", To("noexec", ("cache_bytes", Number(96 << 20)))),
    ("rw", "metrics=0", ToNothing("`metrics`")),
    ("metrics=0", "metrics=127.0.0.1:0,nodev", To("nodev", RELATIVE)),
    ("metrics=0", "metrics=[::1]:0", ToNothing("`metrics`")),
    ("rw", "users", To("nosuid,nodev,noexec", RELATIVE)),
    ("rw", "owner", To("nosuid,nodev", RELATIVE)),
    ("rw", "noauto,nofail,_netdev,x-systemd.automount", To("rw", RELATIVE)),
    ("rw", "loop,user_xattr,iversion,default_permissions,allow_other", To("rw", RELATIVE)),
    ("rw", "barrier,errors=remount-ro", To("rw", RELATIVE)),
    ("rw", "nonsense", ToNothing("`nonsense`")),
];

/// In a mount namespace with helpers in /sbin. For each case: mounts, remounts, and prints what the kernel
/// and the server have then.
const SCRIPT: &str = r#"
    betrfs=$1 volume=$2 dir=$3 how=$4
    shift 4
    layers=$(dirname "$volume")/layers-$how
    mkdir "$layers"
    mount -t tmpfs none "$layers"
    mkdir -p "$layers/upper" "$layers/work"
    mount -t overlay none -o "lowerdir=/usr/sbin,upperdir=$layers/upper,workdir=$layers/work" /usr/sbin
    for name in betrfs fuse.betrfs fuseblk.betrfs; do ln -s "$betrfs" "/usr/sbin/mount.$name"; done
    while [ $# -gt 0 ]; do
        "$betrfs" mount "$volume" "$dir" -o "$1" || echo "cannot mount"
        case $how in
            mount) said=$(mount -o "remount,$2" "$dir" 2>&1) ;;
            betrfs) said=$("$betrfs" mount "$volume" "$dir" -o "remount,$2" 2>&1) ;;
        esac
        echo "$?|$said|$(findmnt -n -o OPTIONS -M "$dir")|$("$betrfs" stats "$dir" --format json | tr -d '\n')"
        "$betrfs" umount "$dir" || echo "cannot unmount"
        shift 2
    done
"#;

#[test]
fn each_option_is_changed_by_a_remount_or_refused_by_its_name() {
    for how in ["betrfs", "mount"] {
        let mounted = Mounted::unmounted();
        let mut shell = Command::new("timeout");
        shell.args(["80", "unshare", "--mount", "bash", "-c", SCRIPT, "bash", env!("CARGO_BIN_EXE_betrfs")]);
        shell.arg(&mounted.volume).arg(&mounted.dir).arg(how);
        for (before, given, _) in CASES {
            shell.args([before, given]);
        }
        let output = shell.output().unwrap();
        ok(&output);
        let told = String::from_utf8(output.stdout).unwrap();
        assert_eq!(told.lines().count(), CASES.len(), "{how}: {told}");
        for (line, (before, given, comes)) in told.lines().zip(CASES) {
            let case = format!("{how}, {before} to {given}: {line}");
            let fields: Vec<&str> = line.splitn(4, '|').collect();
            let [code, said, kernel, server] = fields.as_slice() else { panic!("{case}") };
            let kernel: BTreeSet<&str> = kernel.split(',').collect();
            let server: Value = serde_json::from_str(server).unwrap();
            match comes {
                To(options, (name, setting)) => {
                    assert_eq!(*code, "0", "{case}");
                    assert!(options.split(',').all(|option| kernel.contains(option)), "{case}");
                    let opposites =
                        [("suid", "nosuid"), ("dev", "nodev"), ("exec", "noexec"), ("async", "sync")];
                    let opposites = opposites.into_iter().chain([("symfollow", "nosymfollow"), ("rw", "ro")]);
                    for (name, opposite) in
                        opposites.filter(|(name, _)| given.split(',').any(|one| one == *name))
                    {
                        assert!(!kernel.contains(opposite), "{name}: {case}");
                    }
                    let setting: Value = match *setting {
                        Is(is) => is.into(),
                        Text(text) => text.into(),
                        Number(number) => number.into(),
                    };
                    assert_eq!(server["settings"][name], setting, "{case}");
                    // What the kernel does not know of any more is not left behind.
                    let is_relative = server["settings"][TIMES] == "relative";
                    assert!(!is_relative || kernel.contains("relatime"), "{case}");
                }
                ToNothing(word) => {
                    assert!(*code != "0" && said.contains(word), "{case}");
                    let changed = ["noatime", "nodev", "nosuid", "dirsync", "sync"];
                    assert!(changed.iter().all(|option| !kernel.contains(option)), "{case}");
                    assert_eq!(kernel.contains("ro"), before.contains("ro"), "{case}");
                }
            }
        }
    }
}

/// The options that betrfs(5) has are those of the cases.
#[test]
fn each_option_of_the_manual_has_a_case() {
    let pages = tempfile::tempdir().unwrap();
    ok(&betrfs().arg("manual").arg(pages.path()).output().unwrap());
    let page = fs::read_to_string(pages.path().join("man5/betrfs.5")).unwrap().replace("\\-", "-");
    let (_, options) = page.split_once("MOUNT OPTIONS").unwrap();
    let (options, _) = options.split_once(".SH FSTAB").unwrap();
    let lines: Vec<&str> = options.lines().collect();
    let named = lines.windows(2).filter(|two| two[0].starts_with(".TP")).flat_map(|two| {
        two[1].trim_start_matches("\\fB").trim_end_matches("\\fR").split(", ").collect::<Vec<_>>()
    });
    let given: Vec<&str> = CASES.iter().flat_map(|(_, given, _)| given.split(',')).collect();
    let named: Vec<&str> = named.collect();
    assert!(named.len() > 25, "{named:?}");
    for name in named.into_iter().filter(|name| !["remount", "user", "group", "async"].contains(name)) {
        let name = name.trim_end_matches('*').split('=').next().unwrap();
        assert!(given.iter().any(|given| given.starts_with(name)), "{name} has no case");
    }
}

/// The server is told of it: a read after the remount moves no time, and after the next one does.
#[test]
fn times_of_access_are_moved_as_the_last_remount_says() {
    let mounted = Mounted::new();
    let file = mounted.path("f");
    fs::write(&file, b"text").unwrap();
    let remount = |options: &str| {
        betrfs().arg("mount").arg(&mounted.volume).arg(&mounted.dir).args(["-o", options]).output().unwrap()
    };
    let times_move = || {
        // As if the last read were long ago.
        let times = fs::FileTimes::new().set_accessed(std::time::SystemTime::UNIX_EPOCH);
        fs::File::options().write(true).open(&file).unwrap().set_times(times).unwrap();
        fs::read(&file).unwrap();
        fs::metadata(&file).unwrap().atime() > 0
    };
    assert!(times_move());
    for (options, move_) in [
        ("remount,noatime", false),
        ("remount,relatime", true),
        ("remount,noatime", false),
        ("remount,strictatime", true),
    ] {
        ok(&remount(options));
        assert_eq!(times_move(), move_, "{options}");
    }
}

#[test]
fn a_remount_has_no_use_for_what_makes_or_serves_a_volume() {
    let mounted = Mounted::new();
    for more in [&["--create", "1G"][..], &["--foreground"], &["--log", "/tmp/log"], &["--accept-log-loss"]] {
        let mut command = betrfs();
        command.arg("mount").arg(&mounted.volume).arg(&mounted.dir).args(["-o", "remount,ro"]).args(more);
        ended_with(&command.output().unwrap(), 2, &["a remount has no use for", more[0]]);
    }
    let by_option = |more: &[&str]| -> Output {
        let mut command = betrfs();
        command
            .arg("mount")
            .arg(&mounted.volume)
            .arg(&mounted.dir)
            .args(["-o", "remount"])
            .args(more)
            .output()
            .unwrap()
    };
    refused(&by_option(&["--cache-size", "77M"]), &["`cache_size`"]);
    refused(&by_option(&["--metrics", "0"]), &["`metrics`"]);
}
