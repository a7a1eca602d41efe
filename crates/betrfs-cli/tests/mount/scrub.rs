//! `betrfs scrub`.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::process::{Child, Output, Stdio};

use betree_sim::Rng;
use rustix::process::{Pid, Signal, kill_process};

use crate::mounted::{Mounted, betrfs, is_damaged, ok, run, soon};
use crate::schemas::valid;

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    std::iter::repeat_with(|| rng.next_u64()).take(len / 8).flat_map(u64::to_le_bytes).collect()
}

fn scrub(mounted: &Mounted, options: &[&str]) -> Output {
    let mut command = betrfs();
    command.arg("scrub").arg(&mounted.dir).args(["--format", "json"]).args(options).output().unwrap()
}

fn document(output: &Output) -> serde_json::Value {
    let document = serde_json::from_slice(&output.stdout).unwrap();
    valid("scrub", &document);
    document
}

/// A mount with two files of 1 MiB, which are on the disk.
fn with_files() -> Mounted {
    let mounted = Mounted::of_size("256M");
    mounted.mount();
    fs::create_dir(mounted.path("dir")).unwrap();
    fs::write(mounted.path("dir/good"), noise(2, 1 << 20)).unwrap();
    fs::write(mounted.path("dir/bad"), noise(1, 1 << 20)).unwrap();
    mounted.remount();
    mounted
}

#[test]
fn a_scrub_reads_all_that_is_stored_and_stats_have_its_record() {
    let mounted = with_files();
    assert_eq!(mounted.stats()["last_scrub"], serde_json::Value::Null);
    // Slow enough that there is something to tell.
    let output = scrub(&mounted, &["--rate", "8M", "--progress"]);
    ok(&output);
    assert!(String::from_utf8_lossy(&output.stderr).contains("scrubbed"), "{output:?}");
    let found = document(&output);
    assert_eq!((&found["schema_version"], &found["clean"]), (&1.into(), &true.into()));
    let read = found["scrub"]["read_bytes"].as_u64().unwrap();
    assert!(read > 2 << 20, "{found}");
    // It outlives the mount.
    let record = mounted.stats()["last_scrub"].clone();
    assert_eq!((&record, &record["state"]), (&found["scrub"], &"complete".into()));
    mounted.remount();
    assert_eq!(mounted.stats()["last_scrub"], record);
    let told = run(["stats".as_ref(), mounted.dir.as_os_str()]);
    assert!(String::from_utf8_lossy(&told.stdout).contains("last scrub   complete"), "{told:?}");
    let text = run(["scrub".as_ref(), mounted.dir.as_os_str()]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("no problem found in"), "{text:?}");
}

#[test]
fn a_scrub_of_a_client_that_goes_is_interrupted_and_the_next_one_goes_on() {
    let mounted = with_files();
    // So slow that it does not end by itself.
    let mut client = betrfs();
    let mut client = client.arg("scrub").arg(&mounted.dir).args(["--rate", "4K"]).spawn().unwrap();
    let state = || mounted.stats()["last_scrub"]["state"].as_str().map(ToOwned::to_owned);
    let reaches = |wanted: &str| {
        assert!(soon(|| state().as_deref() == Some(wanted)), "{:?} and not {wanted}", state());
    };
    reaches("under-way");
    client.kill().unwrap();
    client.wait().unwrap();
    reaches("interrupted");
    let began = mounted.stats()["last_scrub"]["began"].clone();
    mounted.remount();
    assert_eq!(state().as_deref(), Some("interrupted"));
    let resumed = scrub(&mounted, &["--resume", "--rate", "1G"]);
    ok(&resumed);
    assert_eq!(document(&resumed)["scrub"]["began"], began);
}

/// Begins a scrub that does not end by itself, and returns once it is under way.
fn begun(mounted: &Mounted, options: &[&str]) -> Child {
    let mut client = betrfs();
    client.arg("scrub").arg(&mounted.dir).args(["--rate", "4K"]).args(options);
    let client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(soon(|| mounted.stats()["last_scrub"]["state"] == "under-way"), "it does not begin");
    client
}

#[test]
fn one_that_is_interrupted_says_so() {
    let mounted = with_files();
    for options in [[].as_slice(), &["--format", "json"]] {
        for signal in [Signal::INT, Signal::TERM] {
            let client = begun(&mounted, options);
            kill_process(Pid::from_child(&client), signal).unwrap();
            let output = client.wait_with_output().unwrap();
            is_interrupted(&output);
            match options.is_empty() {
                true => assert!(output.stdout.is_empty(), "{output:?}"),
                false => {
                    let told = document(&output);
                    assert!(told["error"].as_str().unwrap().contains("interrupted"), "{told}");
                    assert_eq!(told["clean"], false);
                }
            }
            assert!(soon(|| mounted.stats()["last_scrub"]["state"] == "interrupted"), "the server goes on");
        }
    }
    // An unmount interrupts it too.
    let client = begun(&mounted, &["--format", "json"]);
    mounted.umount();
    let output = client.wait_with_output().unwrap();
    is_interrupted(&output);
    let told = document(&output);
    assert_eq!((&told["scrub"]["state"], &told["error"]), (&"interrupted".into(), &serde_json::Value::Null));
}

fn is_interrupted(output: &Output) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(32) && told.contains("`--resume` goes on from there"), "{output:?}");
}

#[test]
fn damage_is_found_with_its_file_and_exit_code() {
    let mounted = with_files();
    let contents = noise(1, 1 << 20);
    assert!(fs::read(mounted.path("dir/bad")).unwrap() == contents);
    let volume = OpenOptions::new().read(true).write(true).open(&mounted.volume).unwrap();
    let mut all = Vec::new();
    (&volume).seek(SeekFrom::Start(0)).unwrap();
    (&volume).read_to_end(&mut all).unwrap();
    let wanted = &contents[500_000..500_040];
    let at = all.windows(wanted.len()).position(|bytes| bytes == wanted).unwrap();
    volume.write_all_at(&[!contents[500_000]], at as u64).unwrap();
    volume.sync_all().unwrap();

    let output = scrub(&mounted, &[]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let found = document(&output);
    assert_eq!((&found["clean"], &found["files"]), (&false.into(), &serde_json::json!(["/dir/bad"])));
    let problem = &found["problems"][0];
    assert_eq!((&problem["code"], &problem["place"]), (&"bad-piece".into(), &"node".into()), "{found}");
    assert_eq!(mounted.stats()["last_scrub"]["problems"], 1);
    assert!(mounted.log().contains("a scrub found"), "{}", mounted.log());
    is_damaged(&run(["scrub".as_ref(), mounted.dir.as_os_str()]), &["is damaged (1 found)"]);
    // The mount goes on.
    fs::write(mounted.path("dir/new"), b"new").unwrap();
}

#[test]
fn what_is_no_mount_is_refused() {
    let mounted = Mounted::unmounted();
    let output = scrub(&mounted, &[]);
    assert_eq!(output.status.code(), Some(8), "{output:?}");
    let found = document(&output);
    assert_eq!(found["clean"], false);
    assert!(found["error"].as_str().unwrap().contains("no BetrFS volume is mounted"), "{found}");
}

#[test]
fn a_repair_writes_anew_what_has_a_good_copy() {
    let mounted = with_files();
    let volume = OpenOptions::new().read(true).write(true).open(&mounted.volume).unwrap();
    for copy in [0, 3] {
        volume.write_all_at(&[0xff; 8], copy * 4096 + 100).unwrap();
    }
    volume.sync_all().unwrap();
    let repaired = scrub(&mounted, &["--repair"]);
    assert_eq!(repaired.status.code(), Some(1), "{repaired:?}");
    let found = document(&repaired);
    let codes: Vec<_> = found["problems"].as_array().unwrap().iter().map(|p| p["code"].clone()).collect();
    assert_eq!(codes, ["bad-superblock", "bad-superblock"], "{found}");
    assert_eq!(document(&scrub(&mounted, &[]))["clean"], true);
    mounted.umount();
    ok(&run(["check".as_ref(), mounted.volume.as_os_str()]));
}
