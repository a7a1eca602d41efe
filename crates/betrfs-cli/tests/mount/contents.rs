//! Reading and writing files.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::mapping::Mapping;
use crate::mounted::Mounted;

/// Reads past the kernel's pages.
fn cold(mounted: &Mounted, name: &str) -> Vec<u8> {
    let file = File::open(mounted.path(name)).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut contents = Vec::new();
    (&file).read_to_end(&mut contents).unwrap();
    contents
}

fn read_write(mounted: &Mounted, name: &str) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(mounted.path(name)).unwrap()
}

#[test]
fn any_offset_and_length_reads_as_written() {
    let mounted = Mounted::new();
    let file = read_write(&mounted, "f");
    let mut model = Vec::new();
    for (offset, len) in [
        (0, 1),
        (0, 4096),
        (100, 5000),
        (4095, 2),
        (12_288, 4096),
        (3_000_000, 7),
        (65_000, 2_500_000),
        (5, 5),
    ] {
        let data = seeded::bytes(offset as u64, 0, len);
        file.write_all_at(&data, offset as u64).unwrap();
        model.resize(model.len().max(offset + len), 0);
        model[offset..offset + len].copy_from_slice(&data);
        assert!(fs::read(mounted.path("f")).unwrap() == model, "warm, after {len} at {offset}");
        assert!(cold(&mounted, "f") == model, "cold, after {len} at {offset}");
    }
    file.sync_all().unwrap();
    drop(file);
    mounted.remount();
    assert!(fs::read(mounted.path("f")).unwrap() == model, "after a remount");
}

#[test]
fn append_goes_to_the_end_and_truncation_cuts() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"0123456789").unwrap();
    let mut appending = OpenOptions::new().append(true).open(mounted.path("f")).unwrap();
    appending.seek(SeekFrom::Start(2)).unwrap();
    appending.write_all(b"abc").unwrap();
    assert_eq!(cold(&mounted, "f"), b"0123456789abc");
    let file = read_write(&mounted, "f");
    file.set_len(5).unwrap();
    file.set_len(8).unwrap();
    assert_eq!(cold(&mounted, "f"), b"01234\0\0\0", "what was cut does not come back");
    drop(OpenOptions::new().write(true).truncate(true).open(mounted.path("f")).unwrap());
    assert_eq!(fs::metadata(mounted.path("f")).unwrap().len(), 0);
    assert_eq!(cold(&mounted, "f"), b"");
    file.write_all_at(b"x", 3).unwrap();
    assert_eq!(cold(&mounted, "f"), b"\0\0\0x");
}

#[test]
fn an_unlinked_file_lives_as_long_as_it_is_open() {
    let mounted = Mounted::new();
    let mut file = read_write(&mounted, "f");
    file.write_all(b"before").unwrap();
    fs::remove_file(mounted.path("f")).unwrap();
    assert!(!mounted.path("f").exists());
    file.write_all(b" and after").unwrap();
    let mut contents = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut contents).unwrap();
    assert_eq!(contents, "before and after");
    let seen = file.metadata().unwrap();
    assert_eq!((seen.nlink(), seen.len()), (0, 16));
    // A new file with that name is another file.
    fs::write(mounted.path("f"), b"new").unwrap();
    assert_ne!(fs::metadata(mounted.path("f")).unwrap().ino(), seen.ino());
    fs::rename(mounted.path("f"), mounted.path("g")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::read(mounted.path("g")).unwrap(), b"new");
}

#[test]
fn a_file_that_a_rename_replaces_lives_as_long_as_it_is_open() {
    let mounted = Mounted::new();
    fs::write(mounted.path("old"), b"old").unwrap();
    let mut old = File::open(mounted.path("old")).unwrap();
    fs::write(mounted.path("new"), b"new").unwrap();
    fs::rename(mounted.path("new"), mounted.path("old")).unwrap();
    let mut contents = Vec::new();
    old.read_to_end(&mut contents).unwrap();
    assert_eq!((contents.as_slice(), fs::read(mounted.path("old")).unwrap()), (&b"old"[..], b"new".to_vec()));
}

#[test]
fn fallocate_allocates_punches_and_zeroes() {
    let mounted = Mounted::new();
    let file = read_write(&mounted, "f");
    file.write_all_at(&vec![7; 20_000], 0).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, 30_000).unwrap();
    let mut model = vec![7; 20_000];
    model.resize(30_000, 0);
    assert!(cold(&mounted, "f") == model, "allocated");
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 30_000);
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4000, 9000).unwrap();
    model[4000..13_000].fill(0);
    assert!(cold(&mounted, "f") == model, "punched");
    fallocate(&file, FallocateFlags::ZERO_RANGE, 19_000, 21_000).unwrap();
    model[19_000..20_000].fill(0);
    model.resize(40_000, 0);
    assert!(cold(&mounted, "f") == model, "zeroed");
    let collapse = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(collapse, Err(Errno::OPNOTSUPP));
}

/// `stat` counts every block that an unaligned allocation touches (generic/568 of xfstests).
#[test]
fn allocated_blocks_are_in_use() {
    let mounted = Mounted::new();
    let file = read_write(&mounted, "f");
    let bytes_in_use = || file.metadata().unwrap().blocks() * 512;
    fallocate(&file, FallocateFlags::empty(), 2048, 4096).unwrap();
    assert_eq!((file.metadata().unwrap().len(), bytes_in_use()), (6144, 8192));
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(bytes_in_use(), 1 << 20);
    file.write_all_at(&[7; 10_000], 0).unwrap();
    file.sync_all().unwrap();
    assert!(bytes_in_use().abs_diff(1 << 20) < 4096, "{} bytes", bytes_in_use());
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(bytes_in_use(), 0);
}

#[test]
fn data_and_holes_are_found() {
    use rustix::fs::{SeekFrom, seek};
    let mounted = Mounted::new();
    let file = File::create(mounted.path("f")).unwrap();
    file.write_all_at(b"far", 1 << 20).unwrap();
    drop(file);
    let file = File::open(mounted.path("f")).unwrap();
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(0));
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(1 << 20));
    assert_eq!(seek(&file, SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 3));
    assert_eq!(seek(&file, SeekFrom::Data((1 << 20) + 3)), Err(Errno::NXIO));
    assert!(file.metadata().unwrap().blocks() * 512 < 1 << 20, "a hole takes no blocks");
}

#[test]
fn data_written_to_a_mapping_is_in_no_hole() {
    use rustix::fs::{SeekFrom, seek};
    const AT: usize = 512 << 10;
    const BYTES: usize = 1 << 20;
    let mounted = Mounted::new();
    let file = read_write(&mounted, "f");
    file.set_len(BYTES as u64).unwrap();
    let other = File::open(mounted.path("f")).unwrap();
    let mut mapping = Mapping::of(&file, BYTES);
    // The mapping keeps the file open.
    drop(file);
    mapping[AT..AT + 4].copy_from_slice(b"data");
    let data = seek(&other, SeekFrom::Data(0)).unwrap();
    assert!(data <= AT as u64, "data at {data}");
    assert_eq!(seek(&other, SeekFrom::Hole(AT as u64)), Ok(BYTES as u64));
    assert_eq!(seek(&other, SeekFrom::Data(BYTES as u64)), Err(Errno::NXIO));
    let mut copy = std::process::Command::new("cp");
    assert!(copy.args([mounted.path("f"), mounted.path("copy")]).status().unwrap().success());
    assert!(fs::read(mounted.path("copy")).unwrap() == *mapping);
    drop(mapping);
    // The kernel sends the RELEASE later.
    let holes = || seek(&other, SeekFrom::Hole(0)).unwrap() == 0;
    let start = std::time::Instant::now();
    while !holes() {
        assert!(start.elapsed().as_secs() < 30, "what nobody has mapped is known");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let data = seek(&other, SeekFrom::Data(0)).unwrap();
    assert!((1..=AT as u64).contains(&data), "data at {data}");
}

#[test]
fn ranges_are_copied() {
    let mounted = Mounted::new();
    let data = seeded::bytes(1, 0, 3_000_000);
    fs::write(mounted.path("from"), &data).unwrap();
    let (from, to) = (File::open(mounted.path("from")).unwrap(), File::create(mounted.path("to")).unwrap());
    let (mut source, mut target) = (1000, 10);
    let copied =
        rustix::fs::copy_file_range(&from, Some(&mut source), &to, Some(&mut target), 2_500_000).unwrap();
    assert!(copied > 0);
    assert!(cold(&mounted, "to")[10..10 + copied] == data[1000..1000 + copied]);
    fs::copy(mounted.path("from"), mounted.path("whole")).unwrap();
    assert!(cold(&mounted, "whole") == data);
    let same = read_write(&mounted, "from");
    let (mut source, mut target) = (0, 100);
    let overlap = rustix::fs::copy_file_range(&same, Some(&mut source), &same, Some(&mut target), 4096);
    assert_eq!(overlap, Err(Errno::INVAL));
}

#[test]
fn programs_run_from_a_mount() {
    // Running one maps it into memory, shared libraries and all.
    let mounted = Mounted::new();
    let program = mounted.path("true");
    // Copied by another process: a child that another test starts inherits a descriptor open for writing
    // here, and then the program is "busy" for execve(2).
    let mut copy = std::process::Command::new("cp");
    assert!(copy.arg("/bin/true").arg(&program).status().unwrap().success());
    assert!(std::process::Command::new(&program).status().unwrap().success());
}

#[test]
fn a_mapping_reads_and_writes_the_file() {
    // By Python, so that this test needs no unsafe code.
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), seeded::bytes(3, 0, 100_000)).unwrap();
    let script = "
import mmap, sys
with open(sys.argv[1], 'r+b') as f, mmap.mmap(f.fileno(), 0) as m:
    before = bytes(m[50000:50010])
    f.seek(50000)
    assert f.read(10) == before
    m[50000:50005] = b'mmap!'
    m[99999:] = b'Z'
    m.flush()
";
    let status =
        std::process::Command::new("python3").arg("-c").arg(script).arg(mounted.path("f")).status().unwrap();
    assert!(status.success());
    let mut model = seeded::bytes(3, 0, 100_000);
    model[50_000..50_005].copy_from_slice(b"mmap!");
    model[99_999] = b'Z';
    assert!(cold(&mounted, "f") == model);
    mounted.remount();
    assert!(fs::read(mounted.path("f")).unwrap() == model);
}

#[test]
fn direct_io_goes_past_the_pages() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), seeded::bytes(5, 0, 8192)).unwrap();
    let flags = rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::DIRECT;
    let file = File::from(rustix::fs::open(mounted.path("f"), flags, rustix::fs::Mode::empty()).unwrap());
    let mut contents = vec![0; 8192];
    file.read_exact_at(&mut contents, 0).unwrap();
    assert!(contents == seeded::bytes(5, 0, 8192));
}
