//! `betrfs check` of a mounted volume.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use betree_sim::Rng;

use crate::mounted::{Mounted, betrfs, check_failed, is_damaged, ok, refused, run};
use crate::schemas::valid;

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    std::iter::repeat_with(|| rng.next_u64()).take(len / 8).flat_map(u64::to_le_bytes).collect()
}

fn check(path: &Path) -> Output {
    betrfs().arg("check").arg(path).args(["--format", "json"]).output().unwrap()
}

fn document(output: &Output) -> serde_json::Value {
    let document = serde_json::from_slice(&output.stdout).unwrap();
    valid("check", &document);
    document
}

/// Makes, copies, changes and removes a tree.
fn busy_round(mounted: &Mounted, round: u64) {
    let dir = mounted.path(format!("dir{round}"));
    fs::create_dir_all(dir.join("inner")).unwrap();
    for file in 0..20 {
        fs::write(dir.join(format!("inner/{file}")), noise(round * 100 + file, 20_000)).unwrap();
    }
    fs::write(dir.join("large"), noise(round, 2 << 20)).unwrap();
    fs::hard_link(dir.join("inner/3"), mounted.path(format!("link{round}"))).unwrap();
    let copy = mounted.path(format!("copy{round}"));
    ok(&betrfs().arg("clone").arg(&dir).arg(&copy).output().unwrap());
    File::options().write(true).open(copy.join("large")).unwrap().write_all_at(&[7; 100_000], 5000).unwrap();
    fs::rename(copy.join("inner"), copy.join("renamed")).unwrap();
    if let Some(old) = round.checked_sub(2) {
        ok(&betrfs().arg("rm-tree").arg(mounted.path(format!("dir{old}"))).output().unwrap());
    }
}

/// Its server has locked the volume's file, not the loop device by which that is mounted.
#[test]
fn the_loop_device_of_a_mount_is_in_use_for_a_check_and_a_rescue() {
    let mounted = Mounted::new();
    let source =
        Command::new("findmnt").args(["-n", "-o", "SOURCE", "-M"]).arg(&mounted.dir).output().unwrap();
    let source = String::from_utf8(source.stdout).unwrap().trim().to_owned();
    assert!(source.starts_with("/dev/loop"), "{source}");
    check_failed(
        &run(["check", &source]),
        &[&source, "is in use by process", "(betrfs)", "it is mounted on"],
    );
    let target = mounted.volume.with_file_name("rescued");
    refused(&run(["rescue", &source, target.to_str().unwrap()]), &[&source, "is in use"]);
    assert!(!target.exists());
}

#[test]
fn a_check_beside_a_writer_with_clones_and_removals_finds_nothing_and_makes_no_checkpoint() {
    let mounted = Mounted::new();
    (0..3).for_each(|round| busy_round(&mounted, round));
    let checkpoints = || mounted.stats()["engine"]["checkpoints"].as_u64().unwrap();
    let before = checkpoints();
    let clean = |output: &Output| {
        ok(output);
        let document = document(output);
        assert_eq!((&document["clean"], &document["error"]), (&true.into(), &serde_json::Value::Null));
        assert!(document["notes"][0].as_str().unwrap().contains("the volume is in use"), "{document}");
    };
    clean(&check(&mounted.dir));
    // Those of the server's own: none is due after so little.
    assert!(checkpoints() <= before + 1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut round = 3;
            // One at least, also where it has no turn before the end.
            while round == 3 || !is_over.load(Ordering::Relaxed) && round < 40 {
                busy_round(&mounted, round);
                round += 1;
            }
            round
        });
        (0..5).for_each(|_| clean(&check(&mounted.dir)));
        is_over.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 3);
    });
    mounted.umount();
    ok(&check(&mounted.volume));
}

#[test]
fn a_repair_of_a_mount_is_refused_in_a_document_too() {
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    let output = betrfs().args(["check", "-y", "--format", "json"]).arg(&mounted.dir).output().unwrap();
    assert_eq!(output.status.code(), Some(8), "{output:?}");
    let told = document(&output);
    assert!(told["error"].as_str().unwrap().contains("unmount it"), "{told}");
    assert_eq!((&told["clean"], &told["repair"]), (&false.into(), &serde_json::Value::Null));
}

#[test]
fn damage_below_a_mount_is_found_with_its_file_and_exit_code() {
    let mounted = Mounted::of_size("256M");
    mounted.mount();
    fs::create_dir(mounted.path("dir")).unwrap();
    let contents = noise(1, 1 << 20);
    fs::write(mounted.path("dir/good"), noise(2, 1 << 20)).unwrap();
    fs::write(mounted.path("dir/bad"), &contents).unwrap();
    // Now it is on the disk.
    mounted.remount();
    assert!(fs::read(mounted.path("dir/bad")).unwrap() == contents);
    let volume = OpenOptions::new().read(true).write(true).open(&mounted.volume).unwrap();
    let mut all = Vec::new();
    (&volume).seek(SeekFrom::Start(0)).unwrap();
    (&volume).read_to_end(&mut all).unwrap();
    let wanted = &contents[500_000..500_040];
    let at = all.windows(wanted.len()).position(|bytes| bytes == wanted).unwrap();
    volume.write_all_at(&[!contents[500_000]], at as u64).unwrap();
    volume.sync_all().unwrap();

    let output = check(&mounted.dir);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let found = document(&output);
    assert_eq!((&found["clean"], &found["files"]), (&false.into(), &serde_json::json!(["/dir/bad"])));
    let problem = &found["problems"][0];
    assert_eq!((&problem["code"], &problem["place"]), (&"bad-piece".into(), &"node".into()), "{found}");
    assert!(problem["what"].as_str().unwrap().contains("/dir/bad"), "{found}");
    is_damaged(&run(["check".as_ref(), mounted.dir.as_os_str()]), &["is damaged (1 found)"]);
    // The mount goes on.
    fs::write(mounted.path("dir/new"), b"new").unwrap();
    mounted.umount();
    let offline = document(&check(&mounted.volume));
    assert_eq!(offline["problems"][0]["code"], problem["code"]);
    assert_eq!(offline["files"], found["files"]);
}
