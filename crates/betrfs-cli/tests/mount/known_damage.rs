//! Known damage through a mount: programs see an error, the log names the file, and writes are refused that
//! nobody could read.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use betree::debug::{Inspector, Owner};
use betree_sim::Rng;
use betree_std::FileDevice;
use betrfs::Volume;
use rustix::io::Errno;

use crate::mounted::{Mounted, run};

/// The dictionary of contents.
const DATA: u8 = 1;
const BLOCK_BYTES: u64 = 4096;
const FILE_BYTES: usize = 20_000;

/// Writes over all that nodes have of the contents of files, behind their headers.
fn lose_contents(volume: &Path) {
    let device = Arc::new(FileDevice::open(volume).unwrap());
    let options = Volume::engine_options(16 << 20);
    let inspector = Inspector::open(device, options, &mut |_| ()).unwrap();
    let is_one = |id| {
        let header = inspector.node(id, &mut |_| ()).and_then(|node| node.header);
        header.is_some_and(|header| header.origin.dict == DATA)
    };
    let lost: Vec<u64> = inspector
        .map()
        .into_iter()
        .filter(|owned| matches!(owned.owner, Owner::Node(id) if is_one(id)))
        .flat_map(|owned| (1..owned.blocks.len_blocks).map(move |block| owned.blocks.start_block + block))
        .map(|block| block * BLOCK_BYTES)
        .collect();
    assert!(!lost.is_empty());
    let file = OpenOptions::new().write(true).open(volume).unwrap();
    lost.iter().for_each(|at| file.write_all_at(&[7; 512], *at).unwrap());
}

/// Bytes that do not compress.
fn noise(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..FILE_BYTES).map(|_| rng.below(256) as u8).collect()
}

fn is_io_error<T: std::fmt::Debug>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.raw_os_error() == Some(Errno::IO.raw_os_error()))
}

#[test]
fn the_log_names_files_with_known_damage_and_parts_of_lost_blocks_cannot_be_written() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("dir")).unwrap();
    // More than waits above the leaves.
    for file in 0..20 {
        fs::write(mounted.path(file.to_string()), noise(file)).unwrap();
    }
    for name in ["single", "line\nend", "linked"] {
        fs::write(mounted.path("dir").join(name), noise(100)).unwrap();
    }
    fs::hard_link(mounted.path("dir/linked"), mounted.path("dir/other")).unwrap();
    mounted.umount();
    lose_contents(&mounted.volume);
    let repaired = run(["check".as_ref(), "-y".as_ref(), mounted.volume.as_os_str()]);
    assert_eq!(repaired.status.code(), Some(1), "{repaired:?}");
    mounted.mount();

    for (name, shown) in [
        ("dir/single", &["/dir/single: known damage"][..]),
        ("dir/line\nend", &["/dir/line?end: known damage"]),
        ("dir/linked", &["/dir/linked: known damage", "/dir/other: known damage"]),
    ] {
        assert!(is_io_error(fs::read(mounted.path(name))), "{name}");
        let log = mounted.log();
        assert!(shown.iter().any(|shown| log.contains(shown)), "{name}: {log}");
    }

    let file = OpenOptions::new().read(true).write(true).open(mounted.path("dir/single")).unwrap();
    assert!(is_io_error(file.write_all_at(b"part", 100)));
    assert!(is_io_error(
        OpenOptions::new().append(true).open(mounted.path("dir/single")).unwrap().write(b"line")
    ));
    // On the heap, whose pages are present: if a page of the buffer had to be read first, the kernel would
    // split the write, and a write of part of a damaged block fails.
    file.write_all_at(&vec![3; BLOCK_BYTES as usize], BLOCK_BYTES).unwrap();
    file.write_all_at(b"part", BLOCK_BYTES + 5).unwrap();
    let mut bytes = [0; 12];
    file.read_exact_at(&mut bytes, BLOCK_BYTES).unwrap();
    assert_eq!(&bytes, b"\x03\x03\x03\x03\x03part\x03\x03\x03");
    drop(file);
    File::create(mounted.path("dir/single")).unwrap().write_all(b"new").unwrap();
    assert_eq!(fs::read(mounted.path("dir/single")).unwrap(), b"new");
    for entry in fs::read_dir(&mounted.dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { fs::remove_dir_all(entry).unwrap() } else { fs::remove_file(entry).unwrap() }
    }
    mounted.umount();
    let left = run(["check".as_ref(), mounted.volume.as_os_str()]);
    assert!(left.status.success() && left.stdout.ends_with(b"no problem found\n"), "{left:?}");
}
