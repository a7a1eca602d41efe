//! Volumes with damaged bytes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;

use betree_sim::Rng;
use rustix::process::{Signal, kill_process};

use crate::mounted::{Mounted, betrfs, check_failed, ended_with, ok, refused, told, wait_for_end};
use crate::programs::{noise, program, setting};

const BLOCK_BYTES: usize = 4096;
const SUPERBLOCKS: u64 = 4;
const FILES: u64 = 300;

/// The contents of a file, compressible in part.
fn contents(file: u64) -> Vec<u8> {
    let mut bytes = noise(file, (file as usize * 37) % 9000);
    bytes.extend(b"all alike ".repeat(file as usize % 700));
    bytes
}

fn write_files(mounted: &Mounted) {
    for dir in 0..10 {
        fs::create_dir(mounted.path(format!("d{dir}"))).unwrap();
    }
    for file in 0..FILES {
        fs::write(mounted.path(format!("d{}/{file}", file % 10)), contents(file)).unwrap();
    }
}

fn assert_files(mounted: &Mounted) {
    for file in 0..FILES {
        assert!(
            fs::read(mounted.path(format!("d{}/{file}", file % 10))).unwrap() == contents(file),
            "{file}"
        );
    }
}

fn check(volume: &Path) -> Output {
    let arguments = [env!("CARGO_BIN_EXE_betrfs").as_ref(), "check".as_ref(), volume.as_os_str()];
    program(20, arguments).output().unwrap()
}

/// Asserts that a check ended by itself, with a verdict in words; returns whether it is clean.
fn assert_verdict(output: &Output, place: usize) -> bool {
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), told(output));
    assert!(!said.contains("panicked"), "byte {place} flipped: {said}");
    match output.status.code() {
        Some(0) => assert!(said.contains("no problem found"), "byte {place} flipped: {said}"),
        // The verdict names a structure and a place: a byte of the volume, a block or a key.
        Some(4 | 8) => assert!(
            said.lines().any(|line| line.contains("volume") && line.contains(|c: char| c.is_ascii_digit())),
            "byte {place} flipped: {said}"
        ),
        code => panic!("byte {place} flipped: exit code {code:?}: {said}"),
    }
    output.status.success()
}

/// Flips a byte in each used block of a volume (or in some of these), one at a time, and passes the verdict
/// of `betrfs check` on each to `judge`.
fn flip_each(volume: &Path, seed: u64, blocks_max: usize, mut judge: impl FnMut(usize, bool)) {
    let whole = fs::read(volume).unwrap();
    let mut rng = Rng::new(seed);
    let blocks = whole.chunks(BLOCK_BYTES).enumerate().filter(|(_, block)| block.iter().any(|b| *b != 0));
    let mut blocks: Vec<usize> = blocks.map(|(index, _)| index).collect();
    while blocks.len() > blocks_max {
        blocks.swap_remove(rng.below(blocks.len()));
    }
    assert!(blocks.len() > 20, "{} blocks hold something", blocks.len());
    let file = OpenOptions::new().write(true).open(volume).unwrap();
    for block in blocks {
        let place = block * BLOCK_BYTES + rng.below(BLOCK_BYTES);
        file.write_all_at(&[whole[place] ^ (1 << rng.below(8))], place as u64).unwrap();
        let clean = assert_verdict(&check(volume), place);
        judge(place, clean);
        restore(volume, &file, &whole);
    }
}

/// Restores the volume, to which a check or a mount has also written.
fn restore(volume: &Path, file: &File, whole: &[u8]) {
    let now = fs::read(volume).unwrap();
    assert_eq!(now.len(), whole.len());
    let blocks = now.chunks(BLOCK_BYTES).zip(whole.chunks(BLOCK_BYTES)).enumerate();
    for (index, (_, block)) in blocks.filter(|(_, (now, whole))| now != whole) {
        file.write_all_at(block, (index * BLOCK_BYTES) as u64).unwrap();
    }
}

#[test]
fn a_flipped_byte_is_reported_or_does_no_harm() {
    let seed = setting("BETRFS_SEED", 1);
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    write_files(&mounted);
    mounted.umount();
    let (mut clean_count, mut damaged_count) = (0, 0);
    flip_each(&mounted.volume, seed, 400, |place, clean| {
        if clean {
            clean_count += 1;
            // Clean for check means readable.
            println!("byte {place} flipped: clean");
            mounted.mount();
            assert_files(&mounted);
            mounted.umount();
        } else {
            damaged_count += 1;
        }
    });
    println!("{damaged_count} flips reported, {clean_count} harmless");
    assert!(damaged_count > 0 && clean_count > 0, "each kind of place was tried");
    assert!(check(&mounted.volume).status.success(), "the volume is not what it was");
}

#[test]
fn a_flipped_byte_of_a_volume_that_was_not_closed_gets_a_verdict() {
    let seed = setting("BETRFS_SEED", 1);
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    write_files(&mounted);
    File::open(&mounted.dir).unwrap().sync_all().unwrap();
    let server = mounted.server();
    kill_process(server, Signal::KILL).unwrap();
    wait_for_end(server);
    // The dead mount is not needed any more.
    let _ = betrfs().arg("umount").arg(&mounted.dir).output().unwrap();
    let mut verdicts = 0;
    flip_each(&mounted.volume, seed, 200, |_, _| verdicts += 1);
    assert!(verdicts > 20);
    mounted.mount();
    assert_files(&mounted);
    mounted.umount();
}

#[test]
fn a_volume_of_a_later_format_is_refused_and_named_so() {
    let mounted = Mounted::unmounted();
    let file = OpenOptions::new().read(true).write(true).open(&mounted.volume).unwrap();
    for slot in 0..SUPERBLOCKS {
        let mut block = vec![0; BLOCK_BYTES];
        let offset = slot * BLOCK_BYTES as u64;
        file.read_exact_at(&mut block, offset).unwrap();
        let version = u32::from_le_bytes(block[8..12].try_into().unwrap());
        block[8..12].copy_from_slice(&(version + 1).to_le_bytes());
        let checksum = xxhash_rust::xxh3::xxh3_64(&block[..BLOCK_BYTES - 8]);
        block[BLOCK_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
        file.write_all_at(&block, offset).unwrap();
    }
    let shown = mounted.volume.to_str().unwrap();
    refused(&mounted.try_mount(&[]), &[shown, "format version"]);
    check_failed(&check(&mounted.volume), &[shown, "format version"]);
}

#[test]
fn a_volume_cut_anywhere_is_refused_and_not_changed() {
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    write_files(&mounted);
    mounted.umount();
    let whole = fs::read(&mounted.volume).unwrap();
    let half = whole.len() / 2;
    for len in [1, 4095, 4096, 4 * BLOCK_BYTES, 100_000, half, whole.len() - BLOCK_BYTES, whole.len() - 1] {
        fs::write(&mounted.volume, &whole[..len]).unwrap();
        refused(&mounted.try_mount(&[]), &[mounted.volume.to_str().unwrap()]);
        // A part of the superblocks tells no size.
        let code = if len < 4 * BLOCK_BYTES { 8 } else { 4 };
        ended_with(&check(&mounted.volume), code, &[mounted.volume.to_str().unwrap()]);
        assert!(fs::read(&mounted.volume).unwrap() == whole[..len], "{len} bytes of it were changed");
    }
    fs::write(&mounted.volume, &whole).unwrap();
    ok(&check(&mounted.volume));
}

/// Every file that cannot be read on a mount is listed, whatever the number of damaged places.
#[test]
fn every_file_that_cannot_be_read_is_listed_by_the_check() {
    let seed = setting("BETRFS_SEED", 1);
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    write_files(&mounted);
    mounted.umount();
    let whole = fs::read(&mounted.volume).unwrap();
    let mut rng = Rng::new(seed);
    let used = |block: &usize| whole[block * BLOCK_BYTES..][..BLOCK_BYTES].iter().any(|b| *b != 0);
    let blocks: Vec<usize> = (SUPERBLOCKS as usize..whole.len() / BLOCK_BYTES).filter(used).collect();
    let file = OpenOptions::new().write(true).open(&mounted.volume).unwrap();
    let (mut listed_count, mut several) = (0, 0);
    for round in 0..12 {
        for _ in 0..1 + round % 4 {
            let place = *rng.pick(&blocks) * BLOCK_BYTES + rng.below(BLOCK_BYTES - 16);
            file.write_all_at(&[0x5a; 16], place as u64).unwrap();
        }
        let arguments = ["check".as_ref(), "--format".as_ref(), "json".as_ref(), mounted.volume.as_os_str()];
        let output = betrfs().args(arguments).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let problems = report["problems"].as_array().unwrap().len();
        assert_eq!(output.status.success(), problems == 0, "{report:#}");
        several += usize::from(problems > 1);
        let files = report["files"].as_array().unwrap();
        let files: Vec<&str> = files.iter().map(|path| path.as_str().unwrap()).collect();
        if report["error"].is_null() {
            mounted.mount();
            for number in 0..FILES {
                let name = format!("d{}/{number}", number % 10);
                let path = format!("/{name}");
                let is_listed =
                    files.iter().any(|file| path == *file || path.starts_with(&format!("{file}/")));
                match fs::read(mounted.path(&name)) {
                    Ok(bytes) => assert!(bytes == contents(number), "{name}"),
                    Err(error) => assert!(is_listed, "{name}: {error}: {report:#}"),
                }
                listed_count += usize::from(is_listed);
            }
            mounted.umount();
        }
        restore(&mounted.volume, &file, &whole);
    }
    println!("{listed_count} files were listed, several problems {several} times");
    assert!(listed_count > 0 && several > 0);
}
