//! The space on a volume: statfs(2), usage, and a full volume.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::io::Errno;

use crate::mounted::{Mounted, betrfs, ok};

/// Used blocks and inodes as in df(1), the inodes in millionths.
fn used(mounted: &Mounted) -> (u64, u64) {
    let stat = rustix::fs::statfs(&mounted.dir).unwrap();
    assert!(stat.f_bavail <= stat.f_bfree && stat.f_bfree <= stat.f_blocks);
    assert!(stat.f_ffree <= stat.f_files && stat.f_ffree > 0);
    let bytes = (stat.f_blocks - stat.f_bfree) * u64::try_from(stat.f_frsize).unwrap();
    (bytes, (stat.f_files - stat.f_ffree) * 1_000_000 / stat.f_files)
}

/// A file's stored bytes by `betrfs usage`.
fn usage(path: &Path) -> u64 {
    let output = betrfs().arg("usage").arg(path).args(["--format", "json"]).output().unwrap();
    ok(&output);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    told["stored_bytes"].as_u64().unwrap()
}

/// Incompressible bytes.
fn noise(len: usize) -> Vec<u8> {
    seeded::bytes(1, 0, len)
}

#[test]
fn used_space_is_the_space_of_files() {
    const MIB: u64 = 1 << 20;
    for size in ["256M", "1G", "8G"] {
        let mounted = Mounted::of_size(size);
        mounted.mount();
        let is_empty = |when: &str| {
            let (bytes, inodes) = used(&mounted);
            assert!(bytes < MIB && inodes < 1000, "{size}, {when}: {bytes} bytes, {inodes} ppm of inodes");
        };
        is_empty("new");
        for i in 0..10 {
            fs::write(mounted.path(format!("{i}")), b"x").unwrap();
        }
        is_empty("with ten files");
        mounted.remount();
        is_empty("with ten files, after a remount");
        let content = noise(20 << 20);
        let mut file = File::create(mounted.path("large")).unwrap();
        file.write_all(&content).unwrap();
        let is_there = |when: &str| {
            let (bytes, inodes) = used(&mounted);
            assert!((20 * MIB..23 * MIB).contains(&bytes), "{size}, {when}: {bytes} bytes");
            assert!(inodes < 1000, "{size}, {when}: {inodes} ppm of inodes");
        };
        is_there("not synced");
        file.sync_all().unwrap();
        is_there("synced");
        drop(file);
        mounted.remount();
        is_there("after a remount");
        fs::remove_file(mounted.path("large")).unwrap();
        is_empty("again");
    }
}

#[test]
fn usage_includes_data_just_written() {
    let mounted = Mounted::new();
    let path = mounted.path("d/f");
    fs::create_dir(mounted.path("d")).unwrap();
    let content = noise(20 << 20);
    let mut file = File::create(&path).unwrap();
    file.write_all(&content[..10 << 20]).unwrap();
    let is = |path: &Path, least: u64| {
        let told = usage(path);
        assert!((least..least + (1 << 20)).contains(&told), "{}: {told}", path.display());
    };
    is(&path, 10 << 20);
    file.write_all(&content[10 << 20..]).unwrap();
    file.sync_all().unwrap();
    is(&path, 20 << 20);
    is(&mounted.path("d"), 20 << 20);
    is(&mounted.dir, 20 << 20);
}

#[test]
fn a_full_volume_says_so_and_deleting_makes_room() {
    let mounted = Mounted::of_size("256M");
    mounted.mount();
    let block = vec![0xee; 1 << 20];
    let full = (0..).find_map(|i| {
        let written = File::create(mounted.path(format!("f{i}"))).and_then(|mut f| {
            // Noise, which does not compress.
            let block: Vec<u8> = block
                .iter()
                .zip(0u64..)
                .map(|(b, n)| b ^ ((n.wrapping_mul(n).wrapping_mul(2_654_435_761) + i) >> 13) as u8)
                .collect();
            (0..8).try_for_each(|_| f.write_all(&block))
        });
        assert!(i < 1000, "a volume of 256 MiB took 8 GB");
        written.err()
    });
    assert_eq!(full.unwrap().raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    let stat = rustix::fs::statfs(&mounted.dir).unwrap();
    assert!(stat.f_bavail * 10 < stat.f_blocks, "statfs: {} of {} are free", stat.f_bavail, stat.f_blocks);
    for entry in fs::read_dir(&mounted.dir).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    mounted.remount();
    fs::write(mounted.path("again"), vec![1; 32 << 20]).unwrap();
    assert_eq!(fs::read(mounted.path("again")).unwrap().len(), 32 << 20);
}

/// A request may be carried out in part: the file holds as many bytes as write(2) returned.
#[test]
fn a_write_at_the_end_of_space_returns_the_number_of_bytes_written() {
    let mounted = Mounted::of_size("256M");
    mounted.mount();
    let mut file = File::create(mounted.path("f")).unwrap();
    let mut written = 0;
    let error = loop {
        // Noise; most requests need more than one batch, the last one too.
        let noise = seeded::bytes(1, written, 700_000);
        match file.write(&noise) {
            Ok(0) => panic!("nothing was written, and no error was told"),
            Ok(bytes) => written += bytes as u64,
            Err(error) => break error,
        }
        assert!(written < 1 << 30, "a volume of 256 MiB took 1 GiB");
    };
    assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    assert_eq!(file.metadata().unwrap().len(), written);
    drop(file);
    mounted.remount();
    assert_eq!(fs::metadata(mounted.path("f")).unwrap().len(), written);
}

/// By st_blocks, as in du(1) and archivers.
#[test]
fn a_sparse_file_takes_space_for_its_data_only() {
    let mounted = Mounted::new();
    let path = mounted.path("f");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    let blocks = || fs::metadata(&path).unwrap().blocks();
    file.set_len(1 << 30).unwrap();
    assert!(blocks() <= 1);
    file.write_all_at(b"x", 1 << 30).unwrap();
    file.sync_all().unwrap();
    assert_eq!(blocks(), 8);
    file.write_all_at(&[1; 100_000], 500 << 20).unwrap();
    assert_eq!(blocks(), 8 + 25 * 8);
    let (punch, zero) = (rustix::fs::FallocateFlags::PUNCH_HOLE, rustix::fs::FallocateFlags::ZERO_RANGE);
    let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch | keep, 500 << 20, 40_960).unwrap();
    assert_eq!(blocks(), 8 + 15 * 8);
    rustix::fs::fallocate(&file, zero, 500 << 20, 61_440).unwrap();
    assert_eq!(blocks(), 8 + 20 * 8, "ten blocks of holes are set aside, five stored ones have become holes");
    let copy = mounted.path("copy");
    let script = "cp --sparse=always \"$1\" \"$2\" && cmp \"$1\" \"$2\"";
    let status =
        std::process::Command::new("sh").arg("-c").arg(script).arg("sh").arg(&path).arg(&copy).status();
    assert!(status.unwrap().success());
    assert!(fs::metadata(&copy).unwrap().blocks() <= blocks());
    rustix::fs::fallocate(&file, keep, 600 << 20, 1 << 20).unwrap();
    assert_eq!(blocks(), 8 + 20 * 8 + 2048);
    drop(file);
    mounted.remount();
    assert_eq!(blocks(), 8 + 10 * 8);
    File::options().write(true).open(&path).unwrap().set_len(500 << 20).unwrap();
    assert!(blocks() <= 1);
    // As many holes as a disk image has.
    let file = File::options().write(true).open(&path).unwrap();
    for i in 0..3000 {
        file.write_all_at(&[1; 4096], i * 3 * 4096).unwrap();
    }
    assert_eq!(blocks(), 3000 * 8);
    drop(file);
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}
