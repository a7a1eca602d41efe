//! The server's memory under load.

use std::fs::File;
use std::io::{Read, Write};
use std::time::Instant;

use crate::mounted::Mounted;
use crate::programs::{check_is_clean, noise, setting, source_tar, unpack};

const FILE_MIB: u64 = 64;

/// 1 MiB of a file's contents.
fn block(file: u64, index: u64) -> Vec<u8> {
    noise(file << 32 | index, 1 << 20)
}

#[test]
fn the_servers_memory_stays_small_under_load() {
    let gib = setting("BETRFS_MEMORY_GIB", 8);
    let mounted = Mounted::of_size(&format!("{}G", gib + gib / 4 + 4));
    mounted.mount_with_cache("256M");
    let start = Instant::now();
    let lap = |what: &str| {
        let kib = mounted.server_memory_kib_max();
        println!("{:6.1} s: {what}; {} MiB resident at most", start.elapsed().as_secs_f64(), kib >> 10);
        assert!(kib < 512 << 10, "{kib} KiB with a cache of 256 MiB");
    };
    let files = gib * 1024 / FILE_MIB;
    for number in 0..files {
        let mut file = File::create(mounted.path(format!("noise{number}"))).unwrap();
        (0..FILE_MIB).for_each(|index| file.write_all(&block(number, index)).unwrap());
    }
    lap("noise written");
    let mut read = vec![0; 1 << 20];
    for number in 0..files {
        let mut file = File::open(mounted.path(format!("noise{number}"))).unwrap();
        for index in 0..FILE_MIB {
            file.read_exact(&mut read).unwrap();
            assert!(read == block(number, index), "MiB {index} of noise{number} is not what was written");
        }
        assert_eq!(file.read(&mut read).unwrap(), 0);
    }
    lap("noise read");
    unpack(&source_tar(), &mounted.dir);
    lap("a tree of small files unpacked");
    mounted.umount();
    check_is_clean(&mounted.volume);
}

/// Numbers of directories and of files in each: just after the doubling of tables that double.
const DIRS: u64 = 2500;
const FILES_EACH: u64 = 120;

#[test]
fn names_and_files_that_the_kernel_holds_take_little_memory() {
    let mounted = Mounted::of_size("4G");
    mounted.mount_with_cache("64M");
    let dir = |number: u64| mounted.path(format!("directory{number:04}"));
    (0..DIRS).for_each(|number| std::fs::create_dir(dir(number)).unwrap());
    // All directories grow at the same time, as when files are spread by a hash.
    for file in 0..FILES_EACH {
        for number in 0..DIRS {
            File::create_new(dir(number).join(format!("{:016x}", number << 32 | file))).unwrap();
        }
    }
    let kib = mounted.server_memory_kib_max();
    println!("{} names in {DIRS} directories: {} MiB resident at most", DIRS * FILES_EACH, kib >> 10);
    assert!(kib < 288 << 10, "{kib} KiB with a cache of 64 MiB");
    mounted.umount();
    check_is_clean(&mounted.volume);
}
