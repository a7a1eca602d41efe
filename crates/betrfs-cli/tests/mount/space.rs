//! A volume that is full.

use std::fs::{self, File};
use std::io::Write;

use rustix::io::Errno;

use crate::mounted::Mounted;

#[test]
fn a_full_volume_says_so_and_deleting_makes_room() {
    let mounted = Mounted::of_size("256M");
    mounted.mount();
    let block = vec![0xee; 1 << 20];
    let full = (0..).find_map(|i| {
        let written = File::create(mounted.path(format!("f{i}"))).and_then(|mut f| {
            // Noise, so that no compression stretches the volume.
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

/// A request may be carried out in part: what a program is told that it wrote is what the file has.
#[test]
fn a_write_that_meets_the_end_of_space_tells_how_much_was_written() {
    let mounted = Mounted::of_size("256M");
    mounted.mount();
    let mut file = File::create(mounted.path("f")).unwrap();
    let mut state = 1u64;
    let mut written = 0;
    let error = loop {
        // Noise; most requests reach across a border of what one batch takes, the one that meets the end too.
        let noise: Vec<u8> = (0..700_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
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
