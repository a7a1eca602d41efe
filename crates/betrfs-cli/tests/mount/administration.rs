//! An administrator's verbs: label, uuid, list, info, doctor, df, usage of several paths, trim.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::mounted::{Mounted, betrfs, ended_with, ok, refused, soon};
use crate::program::program_beside;
use crate::schemas::valid;

const UUID: &str = "6ba7b813-9dad-11d1-80b4-00c04fd430c8";
pub const MIB: usize = 1 << 20;

/// Runs a command with a path and more behind it.
pub fn run(command: &str, path: &Path, more: &[&str]) -> Output {
    betrfs().arg(command).arg(path).args(more).output().unwrap()
}

/// What a command that succeeded has printed.
pub fn said(output: &Output) -> String {
    ok(output);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The document that a command prints.
pub fn json(command: &str, path: &Path, more: &[&str]) -> Value {
    let told: Value =
        serde_json::from_str(&said(&run(command, path, &[more, &["--format", "json"]].concat()))).unwrap();
    assert_eq!(told["schema_version"], 1, "{command}");
    let schema = match command {
        "usage" if told.get("paths").is_some() => "usage-paths",
        "info" if told.get("kind").is_none() => "info-volume",
        _ => command,
    };
    valid(schema, &told);
    told
}

/// Bytes that do not compress.
pub fn noise(len: usize) -> Vec<u8> {
    let mut rng = betree_sim::Rng::new(len as u64);
    std::iter::repeat_with(|| rng.next_u64().to_le_bytes()).flatten().take(len).collect()
}

#[test]
fn label_and_uuid_change_on_a_closed_volume_and_on_a_mounted_one() {
    let mounted = Mounted::of_size("64M");
    let volume = &mounted.volume;
    assert_eq!(said(&run("label", volume, &[])), "\n");
    ok(&run("label", volume, &["photos"]));
    assert_eq!(said(&run("uuid", volume, &[UUID])), format!("{UUID}\n"));
    assert_eq!(
        (said(&run("label", volume, &[])), said(&run("uuid", volume, &[]))),
        ("photos\n".into(), format!("{UUID}\n"))
    );
    mounted.mount();
    assert_eq!(json("label", &mounted.dir, &[])["label"], "photos");
    // By the directory, and by the volume, of which the mount is found.
    ok(&run("label", &mounted.dir, &["Bücher \"2\""]));
    assert_eq!(said(&run("label", volume, &[])), "Bücher \"2\"\n");
    let random = said(&run("uuid", volume, &["random"]));
    assert_eq!(mounted.stats()["uuid"], random.trim());
    assert_ne!(random.trim(), UUID);
    // Durable at once: a probe reads the superblock on the disk.
    let probed = json("probe", volume, &[]);
    assert_eq!((&probed["label"], &probed["uuid"]), (&"Bücher \"2\"".into(), &random.trim().into()));
    // What cannot be is refused, and changes nothing.
    for (command, wrong) in [("label", "x".repeat(256)), ("label", "a\nb".into()), ("uuid", "12".into())] {
        ended_with(&run(command, &mounted.dir, &[&wrong]), 2, &["invalid value"]);
    }
    mounted.umount();
    assert_eq!(said(&run("label", volume, &[])), "Bücher \"2\"\n");
    ok(&run("label", volume, &[""]));
    assert_eq!(json("label", volume, &[])["label"], "");
    ok(&betrfs().arg("check").arg(volume).output().unwrap());
    refused(&run("label", Path::new("/dev/null"), &["x"]), &["/dev/null", "character device"]);
    refused(&run("uuid", &mounted.dir, &["random"]), &["is a directory"]);
}

#[test]
fn a_mount_opened_for_reading_keeps_its_label_and_its_space() {
    let mounted = Mounted::of_size("64M");
    ok(&mounted.try_mount(&["-o", "ro"]));
    let before = fs::read(&mounted.volume).unwrap();
    refused(&run("label", &mounted.dir, &["x"]), &[mounted.dir.to_str().unwrap()]);
    refused(&run("trim", &mounted.dir, &[]), &[mounted.dir.to_str().unwrap()]);
    mounted.umount();
    assert!(fs::read(&mounted.volume).unwrap() == before);
}

#[test]
fn other_users_are_told_who_may() {
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    fs::set_permissions(mounted.volume.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = program_beside(&mounted);
    let as_nobody =
        |arguments: &[&OsStr]| Command::new(&program).args(arguments).uid(65_534).output().unwrap();
    for command in ["label", "uuid", "trim", "df", "image", "info", "usage", "resize"] {
        let more: &[&OsStr] = match command {
            "resize" => &["1G".as_ref()],
            "image" => &["/dev/null/x".as_ref()],
            _ => &[],
        };
        let output = as_nobody(&[&[command.as_ref(), mounted.dir.as_os_str()], more].concat());
        refused(&output, &["only root and the user who mounted the volume may"]);
    }
    let output = as_nobody(&["list".as_ref(), "--format=json".as_ref()]);
    let told: Value = serde_json::from_str(&said(&output)).unwrap();
    let dir = mounted.dir.to_str().unwrap();
    let own = told["mounts"].as_array().unwrap().iter().find(|mount| mount["dir"] == dir).unwrap();
    assert!(own["state"].as_str().unwrap().contains("only root"), "{own}");
    assert_eq!(own["used_bytes"], Value::Null);
}

#[test]
fn list_info_doctor_and_df_tell_of_a_mount() {
    let mounted = Mounted::of_size("64M");
    ok(&run("label", &mounted.volume, &["photos"]));
    mounted.mount();
    fs::create_dir(mounted.path("dir")).unwrap();
    fs::write(mounted.path("dir/f"), noise(4 * MIB)).unwrap();
    let (dir, volume) = (mounted.dir.to_str().unwrap(), mounted.volume.to_str().unwrap());

    let df = json("df", &mounted.dir, &[]);
    let bytes = |field: &str| df[field].as_u64().unwrap();
    assert_eq!(bytes("total_bytes"), bytes("used_bytes") + bytes("reserve_bytes") + bytes("available_bytes"));
    // All but 16 KiB of superblocks.
    assert_eq!(bytes("total_bytes") + bytes("log_bytes") + (16 << 10), 64 << 20);
    assert!(bytes("used_bytes") >= 4 << 20 && bytes("used_bytes") < 12 << 20, "{df}");
    let lines = said(&run("df", &mounted.dir, &[]));
    for word in ["used", "reserve", "available", "log"] {
        assert!(lines.lines().any(|line| line.trim().starts_with(word)), "{lines}");
    }

    let list: Value =
        serde_json::from_str(&said(&betrfs().args(["list", "--format", "json"]).output().unwrap())).unwrap();
    valid("list", &list);
    let own = list["mounts"].as_array().unwrap().iter().find(|mount| mount["dir"] == dir).unwrap().clone();
    assert_eq!(
        (&own["volume"], &own["label"], &own["state"]),
        (&volume.into(), &"photos".into(), &"writable".into())
    );
    assert_eq!((&own["pid"], &own["size_bytes"]), (&mounted.stats()["pid"], &df["total_bytes"]));
    let made = fs::metadata(&mounted.volume).unwrap().mtime();
    assert!((own["since"].as_i64().unwrap() - made).abs() < 100, "{own}");
    let text = said(&betrfs().arg("list").output().unwrap());
    assert!(text.lines().any(|line| line.ends_with(&format!("writable  {volume} on {dir}"))), "{text}");

    let info = json("info", &mounted.path("dir/f"), &[]);
    assert_eq!(
        (&info["dir"], &info["label"], &info["kind"]),
        (&dir.into(), &"photos".into(), &"file".into())
    );
    assert_eq!(info["size_bytes"], 4 * MIB);
    ok(&betrfs().args(["snapshot", "create"]).arg(mounted.path("dir")).arg("one").output().unwrap());
    let info = json("info", &mounted.path("dir"), &[]);
    assert_eq!((&info["kind"], &info["snapshots"]), (&"directory".into(), &1.into()));
    assert!(said(&run("info", &mounted.path("dir"), &[])).contains("snapshots  1\n"));
    refused(&run("info", Path::new("/proc/self"), &[]), &["no BetrFS mount"]);
    refused(&run("info", &mounted.path("no"), &[]), &["No such file"]);
    let on_mount = format!("it is on the mount on {dir}");
    for command in ["df", "trim"] {
        let output = run(command, &mounted.path("dir"), &[]);
        refused(&output, &["no BetrFS volume is mounted on", &on_mount]);
    }
    let mounted_on = format!("it is the volume that is mounted on {dir}");
    refused(&run("umount", &mounted.volume, &[]), &["no BetrFS volume is mounted on", &mounted_on]);

    let doctor: Value =
        serde_json::from_str(&said(&betrfs().args(["doctor", "--format", "json"]).output().unwrap()))
            .unwrap();
    valid("doctor", &doctor);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!((&doctor["kernel"], &doctor["schema_version"]), (&kernel.trim().into(), &1.into()));
    assert_eq!((&doctor["dev_fuse"], &doctor["format_version"]), (&true.into(), &6.into()));
    assert!(doctor["mounts"].as_array().unwrap().iter().any(|mount| mount["dir"] == dir), "{doctor}");
    let text = said(&betrfs().arg("doctor").output().unwrap());
    assert!(text.contains(&format!("kernel        {}", kernel.trim())) && text.contains(dir), "{text}");
}

#[test]
fn usage_of_several_paths_and_levels_has_a_line_for_each() {
    let mounted = Mounted::of_size("256M");
    mounted.mount();
    for name in ["a/b/c", "a/d"] {
        fs::create_dir_all(mounted.path(name)).unwrap();
        fs::write(mounted.path(name).join("f"), noise(MIB)).unwrap();
    }
    let paths = |more: &[&str]| -> Vec<String> {
        let told = json("usage", &mounted.dir, more);
        let lines = told["paths"].as_array().unwrap();
        assert!(lines.iter().all(|line| line["stored_bytes"].as_u64().unwrap() >= MIB as u64), "{told}");
        let shown = |line: &Value| line["path"].as_str().unwrap().replace(mounted.dir.to_str().unwrap(), "");
        lines.iter().map(shown).collect()
    };
    assert_eq!(paths(&["-d", "2"]), ["/a/b", "/a/d", "/a", ""]);
    assert_eq!(paths(&["-d", "0"]), [""]);
    let (b, d) = (mounted.path("a/b"), mounted.path("a/d"));
    assert_eq!(paths(&["-s", b.to_str().unwrap(), d.to_str().unwrap()]), ["", "/a/b", "/a/d"]);
    let text = said(&run("usage", &mounted.dir, &["-d", "1"]));
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.lines().nth(1).unwrap().ends_with(mounted.path("a").to_str().unwrap()), "{text}");
    // One path alone is told as ever.
    assert!(json("usage", &mounted.dir, &[])["stored_bytes"].as_u64().unwrap() >= 2 * MIB as u64);
    refused(&run("usage", &b, &["/proc"]), &["/proc", "no BetrFS mount"]);
    ended_with(&run("usage", &b, &["-s", "-d", "1"]), 2, &["cannot be used with"]);
}

/// The bytes that a volume's file takes.
fn taken_bytes(volume: &Path) -> u64 {
    fs::metadata(volume).unwrap().blocks() * 512
}

#[test]
fn a_trim_gives_what_was_deleted_back_to_the_disk() {
    let mounted = Mounted::of_size("256M");
    mounted.mount();
    fs::write(mounted.path("kept"), noise(4 * MIB)).unwrap();
    fs::write(mounted.path("gone"), noise(64 * MIB)).unwrap();
    ok(&run("sync", &mounted.dir, &[]));
    fs::remove_file(mounted.path("gone")).unwrap();
    assert!(soon(|| json("df", &mounted.dir, &[])["used_bytes"].as_u64().unwrap() < 8 << 20));
    let trimmed = json("trim", &mounted.dir, &[])["trimmed_bytes"].as_u64().unwrap();
    assert!(trimmed > 200 << 20, "{trimmed}");
    assert!(taken_bytes(&mounted.volume) < 48 << 20, "{}", taken_bytes(&mounted.volume));
    assert!(said(&run("trim", &mounted.dir, &[])).contains(" bytes) trimmed"));
    let fstrim =
        |more: &[&str]| Command::new("fstrim").arg("-v").args(more).arg(&mounted.dir).output().unwrap();
    let by_fstrim = said(&fstrim(&[]));
    assert!(by_fstrim.contains(" bytes) trimmed") && !by_fstrim.contains("(0 bytes)"), "{by_fstrim}");
    let trimmed_of = |more: &[&str]| -> u64 {
        let told = said(&fstrim(more));
        let (_, bytes) = told.rsplit_once('(').unwrap();
        bytes.split_once(' ').unwrap().0.parse().unwrap()
    };
    let all = trimmed_of(&[]);
    let volume_bytes = fs::metadata(&mounted.volume).unwrap().len();
    // The whole by its bounds, its end clipped (xfstests generic/260 and 288).
    assert_eq!(trimmed_of(&["-o", "0", "-l", &(volume_bytes * 2).to_string()]), all);
    let first = trimmed_of(&["-l", &(volume_bytes / 2).to_string()]);
    let second = trimmed_of(&["-o", &(volume_bytes / 2).to_string()]);
    assert!(first <= volume_bytes / 2 && second <= volume_bytes / 2, "{first} and {second}");
    assert_eq!(first + second, all);
    assert!(trimmed_of(&["-o", "64M", "-l", "1M"]) <= 1 << 20);
    assert_eq!(trimmed_of(&["-m", &volume_bytes.to_string()]), 0, "no free range is as long as the volume");
    for beyond in [volume_bytes, volume_bytes * 2, u64::MAX] {
        let refused = fstrim(&["-o", &beyond.to_string()]);
        assert!(String::from_utf8_lossy(&refused.stderr).contains("Invalid argument"), "{refused:?}");
    }
    mounted.remount();
    assert!(fs::read(mounted.path("kept")).unwrap() == noise(4 * MIB));
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
    refused(&run("trim", &mounted.dir, &[]), &["no BetrFS volume is mounted on"]);
}

#[test]
fn the_option_discard_does_so_after_each_checkpoint() {
    let taken = |option: &str| {
        let mounted = Mounted::of_size("256M");
        ok(&mounted.try_mount(&["-o", option]));
        fs::write(mounted.path("gone"), noise(64 * MIB)).unwrap();
        ok(&run("sync", &mounted.dir, &[]));
        fs::remove_file(mounted.path("gone")).unwrap();
        // It carries the removal out; a change of the label is a checkpoint.
        assert!(soon(|| json("df", &mounted.dir, &[])["used_bytes"].as_u64().unwrap() < 8 << 20));
        ok(&run("label", &mounted.dir, &["one"]));
        mounted.umount();
        taken_bytes(&mounted.volume)
    };
    let (with, without) = (taken("discard"), taken("nodiscard"));
    assert!(with < 48 << 20 && without >= 64 << 20, "{with} and {without}");
}

/// Of each of these commands, and on nothing that could be changed.
#[test]
fn helps_have_examples_and_say_who_may() {
    for command in [
        "label",
        "uuid",
        "list",
        "info",
        "doctor",
        "df",
        "map",
        "image",
        "trim",
        "usage",
        "probe",
        "mkfs",
        "resize",
        "recompress",
    ] {
        let text = said(&betrfs().args([OsStr::new(command), "--help".as_ref()]).output().unwrap());
        assert!(text.contains(&format!("  betrfs {command}")), "{text}");
        // The width of the terminal breaks lines.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_free = ["doctor", "probe", "mkfs", "recompress"].contains(&command);
        assert!(is_free || text.contains("user who mounted"), "{command} does not say who may: {text}");
    }
}

#[test]
fn a_mount_that_was_made_one_for_reading_lets_nobody_change_the_volume() {
    let mounted = Mounted::new();
    let remount = |option: &str| {
        let mut command = betrfs();
        command.arg("mount").args([&mounted.volume, &mounted.dir]).args(["-o", option]).output().unwrap()
    };
    ok(&remount("remount,ro"));
    let before = said(&run("label", &mounted.dir, &[]));
    for (command, more) in [
        ("label", &["other"][..]),
        ("uuid", &["random"]),
        ("resize", &["+16M"]),
        ("metadata-copies", &["2"]),
        ("trim", &[]),
    ] {
        refused(&run(command, &mounted.dir, more), &["read-only", "remounted so"]);
    }
    assert_eq!(said(&run("label", &mounted.dir, &[])), before);
    ok(&remount("remount,rw"));
    ok(&run("label", &mounted.dir, &["other"]));
    mounted.umount();
}

/// It would end the program by default, which then removes nothing.
#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_leaves_no_file() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), vec![7; 4 * MIB]).unwrap();
    let made = mounted.volume.with_file_name("made");
    for (command, from) in [("mkfs --size 64M", None), ("backup", Some(&mounted.dir))] {
        let script = format!("ulimit -f 512; exec \"$0\" {command} \"$@\"");
        let mut shell = Command::new("bash");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_betrfs")]).args(from).arg(&made);
        ended_with(&shell.output().unwrap(), 1, &["File too large"]);
        assert!(!made.exists(), "{command}");
    }
    mounted.umount();
}
