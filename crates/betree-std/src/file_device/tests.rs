use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use tempfile::tempdir;

use super::*;

const MIB: u64 = 1 << 20;

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 7) as u8 ^ seed).collect()
}

#[test]
fn written_bytes_are_read_back_through_any_alignment() {
    let dir = tempdir().unwrap();
    let device = FileDevice::create(&dir.path().join("v"), 8 * MIB).unwrap();
    assert_eq!(device.len(), 8 * MIB);
    // One byte into an allocation is never aligned; more than a bounce buffer takes several rounds.
    for (len, offset) in [(4096, 0), (8192, 4096), (3 * MIB as usize + 4096, MIB)] {
        let data = pattern(len + 1, len as u8);
        device.write_at(offset, &data[1..]).unwrap();
        let mut back = vec![0; len + 1];
        device.read_at(offset, &mut back[1..]).unwrap();
        assert!(back[1..] == data[1..], "unaligned {len} at {offset}");
        let mut aligned = AlignedBuf::of_bytes(len).unwrap();
        device.read_at(offset, aligned.bytes_mut()).unwrap();
        assert!(aligned.bytes_mut() == &data[1..], "aligned {len} at {offset}");
    }
    device.sync().unwrap();
}

#[test]
fn contents_survive_close_and_open() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("v");
    let device = FileDevice::create(&path, MIB).unwrap();
    device.write_at(8192, &pattern(4096, 3)).unwrap();
    drop(device);
    let device = FileDevice::open(&path).unwrap();
    assert_eq!((device.len(), device.path()), (MIB, path.as_path()));
    let mut back = vec![0; 4096];
    device.read_at(8192, &mut back).unwrap();
    assert_eq!(back, pattern(4096, 3));
    device.read_at(0, &mut back).unwrap();
    assert!(back.iter().all(|b| *b == 0), "a hole reads as zeros");
}

#[test]
fn whoever_only_looks_is_refused_by_nobody_and_refuses_nobody() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("v");
    let owner = FileDevice::create(&path, MIB).unwrap();
    let looking = FileDevice::open_to_look(&path).unwrap();
    owner.write_at(4096, &pattern(4096, 5)).unwrap();
    let mut back = vec![0; 4096];
    looking.read_at(4096, &mut back).unwrap();
    assert_eq!(back, pattern(4096, 5));
    assert!(looking.write_at(0, &back).is_err());
    drop(owner);
    drop(FileDevice::open(&path).unwrap());
}

#[test]
fn calls_outside_its_range_or_off_its_blocks_are_errors() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("v");
    let device = FileDevice::create(&path, MIB).unwrap();
    let mut buf = vec![0; 8192];
    let past = device.read_at(MIB - 4096, &mut buf).unwrap_err();
    assert_eq!((past.op, past.offset, past.len), (DeviceOp::Read, MIB - 4096, 8192));
    assert!(device.read_at(u64::MAX - 4095, &mut buf).is_err());
    assert_eq!(device.write_at(MIB, &buf).unwrap_err().errno, Errno::NOSPC.raw_os_error());
    assert_eq!(device.write_at(512, &buf).unwrap_err().errno, Errno::INVAL.raw_os_error());
    assert_eq!(device.read_at(0, &mut buf[..100]).unwrap_err().errno, Errno::INVAL.raw_os_error());
    assert!(device.discard(MIB, 4096).is_err());
    assert_eq!(fs::metadata(&path).unwrap().len(), MIB, "the file did not grow");
}

#[test]
fn reads_made_together_each_have_their_result() {
    let dir = tempdir().unwrap();
    let device = FileDevice::create(&dir.path().join("v"), MIB).unwrap();
    let data = pattern(MIB as usize, 5);
    device.write_at(0, &data).unwrap();
    let mut buffers = vec![vec![0; 8192]; 40];
    // The last begins in the last block.
    let offset = |index: u64| if index < 39 { index * 20_480 } else { MIB - 4096 };
    let mut reads: Vec<Read<'_>> =
        (0..).zip(&mut buffers).map(|(index, buf)| Read::new(offset(index), buf)).collect();
    device.read_many(&mut reads);
    let results: Vec<_> = reads.into_iter().map(|read| read.result).collect();
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
    let past = results[39].unwrap_err();
    assert_eq!((past.op, past.offset, past.len), (DeviceOp::Read, MIB - 4096, 8192));
    for (index, buffer) in (0..39).zip(&buffers) {
        let at = offset(index) as usize;
        assert!(buffer[..] == data[at..at + 8192], "{index}");
    }
}

#[test]
fn a_file_that_shrank_under_it_is_an_error() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("v");
    let device = FileDevice::create(&path, MIB).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(4096 + 100).unwrap();
    let mut buf = vec![0; 4096];
    device.read_at(0, &mut buf).unwrap();
    assert_eq!(device.read_at(4096, &mut buf).unwrap_err().errno, Errno::IO.raw_os_error());
    assert_eq!(device.read_at(8192, &mut buf).unwrap_err().errno, Errno::IO.raw_os_error());
}

#[test]
fn a_second_open_is_refused_as_in_use() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("v");
    let device = FileDevice::create(&path, MIB).unwrap();
    device.write_at(0, &pattern(4096, 1)).unwrap();
    assert!(matches!(FileDevice::open(&path), Err(OpenError::InUse { .. })));
    let start = Instant::now();
    let refused = FileDevice::open_waiting(&path, Duration::from_millis(60), || true);
    assert!(matches!(refused, Err(OpenError::InUse { .. })));
    assert!(start.elapsed() >= Duration::from_millis(60));
    let refused = FileDevice::open_waiting(&path, Duration::MAX, || false);
    assert!(matches!(refused, Err(OpenError::InUse { .. })));
    drop(device);
    FileDevice::open(&path).unwrap();
}

/// A child that is being started has all open files until it runs its own program.
#[test]
fn a_device_is_free_when_it_was_dropped_even_if_a_child_being_started_has_its_file() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("v");
    let device = FileDevice::create(&path, MIB).unwrap();
    let of_the_child = device.descriptor().unwrap();
    drop(device);
    FileDevice::open(&path).unwrap();
    drop(of_the_child);
}

#[test]
fn a_waiting_open_gets_the_device_once_it_is_free() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("v");
    let device = FileDevice::create(&path, MIB).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| FileDevice::open_waiting(&path, Duration::from_secs(30), || true));
        std::thread::sleep(Duration::from_millis(50));
        drop(device);
        assert_eq!(waiting.join().unwrap().unwrap().len(), MIB);
    });
}

#[test]
fn an_existing_file_is_emptied_only_on_demand_and_keeps_its_mode() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("v");
    fs::write(&path, b"precious").unwrap();
    assert!(matches!(FileDevice::create(&path, MIB), Err(OpenError::Exists { .. })));
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let mut device = FileDevice::open(&path).unwrap();
    assert_eq!((device.len(), device.head(8192).unwrap()), (0, b"precious".to_vec()));
    device.clear(MIB + 5).unwrap();
    assert_eq!(device.len(), MIB, "whole blocks only");
    assert_eq!(device.head(8192).unwrap(), [0; 8192], "nothing of the old file is left");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
}

#[test]
fn unmake_removes_the_made_file_and_nothing_in_its_place() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("v");
    let device = FileDevice::create(&path, MIB).unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, b"precious").unwrap();
    fs::rename(&path, dir.path().join("away")).unwrap();
    for by_link in [false, true] {
        if by_link {
            std::os::unix::fs::symlink(&victim, &path).unwrap();
        } else {
            fs::hard_link(&victim, &path).unwrap();
        }
        device.unmake();
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
    }
    fs::rename(dir.path().join("away"), &path).unwrap();
    device.unmake();
    assert!(!path.exists());
    // A failure in between leaves no file either.
    assert!(FileDevice::create(&path, u64::MAX).is_err());
    assert!(!path.exists());
}

/// The path is a link that another thread keeps switching between two files.
#[test]
fn the_file_that_is_examined_is_the_file_that_is_opened() {
    let dir = tempdir().unwrap();
    let (path, ours, victim) = (dir.path().join("v"), dir.path().join("ours"), dir.path().join("victim"));
    fs::write(&ours, b"").unwrap();
    fs::write(&victim, b"precious").unwrap();
    let swap = dir.path().join("swap");
    std::os::unix::fs::symlink(&ours, &path).unwrap();
    std::os::unix::fs::symlink(&victim, &swap).unwrap();
    let (go_on, is_over) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        // Dropped at the end, also where this fails: the scope waits for the other thread.
        let _go_on = go_on;
        let (path, swap) = (&path, &swap);
        scope.spawn(move || {
            while is_over.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, path, rustix::fs::CWD, swap, exchange).unwrap();
            }
        });
        for _ in 0..2000 {
            let mut device = FileDevice::open(path).unwrap();
            if device.head(4096).unwrap().is_empty() {
                device.clear(0).unwrap();
            }
        }
    });
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn refusals_name_the_path_and_the_way_out() {
    let dir = tempdir().unwrap();
    let told = FileDevice::open(dir.path()).unwrap_err().to_string();
    assert!(told.contains(&dir.path().display().to_string()) && told.contains("a directory"), "{told}");
    let missing = dir.path().join("no").join("such");
    let told = FileDevice::open(&missing).unwrap_err().to_string();
    assert!(told.contains("no/such") && told.contains("is the path right?"), "{told}");
    let told = FileDevice::create(&missing, MIB).unwrap_err().to_string();
    assert!(told.contains("cannot create"), "{told}");
    let told = FileDevice::open(Path::new("/dev/null")).unwrap_err().to_string();
    assert!(told.contains("a character device"), "{told}");
}

#[test]
fn discarding_frees_blocks_and_keeps_the_rest() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("v");
    let device = FileDevice::create(&path, 4 * MIB).unwrap();
    let data = pattern(4 * MIB as usize, 9);
    device.write_at(0, &data).unwrap();
    device.sync().unwrap();
    let before = fs::metadata(&path).unwrap().blocks();
    device.discard(MIB, 2 * MIB).unwrap();
    device.discard(0, 0).unwrap();
    device.sync().unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() < before);
    let mut back = vec![0; MIB as usize];
    device.read_at(0, &mut back).unwrap();
    assert!(back == data[..MIB as usize]);
    device.read_at(3 * MIB, &mut back).unwrap();
    assert!(back == data[3 * MIB as usize..]);
}

#[test]
fn a_file_system_without_direct_io_is_used_through_the_page_cache() {
    // tmpfs supports direct I/O only in recent kernels; both ways must work.
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    let device = FileDevice::create(&dir.path().join("v"), MIB).unwrap();
    device.write_at(4096, &pattern(4096, 5)).unwrap();
    device.sync().unwrap();
    let mut back = vec![0; 4096];
    device.read_at(4096, &mut back).unwrap();
    assert_eq!(back, pattern(4096, 5));
}

#[test]
fn a_file_grows_and_a_file_that_has_grown_is_used_whole() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("v");
    let device = FileDevice::create(&path, MIB).unwrap();
    device.write_at(0, &pattern(4096, 5)).unwrap();
    assert!(device.write_at(MIB, &pattern(4096, 6)).is_err());
    assert_eq!((device.grow(3 * MIB), device.len()), (Ok(3 * MIB), 3 * MIB));
    assert_eq!(fs::metadata(&path).unwrap().len(), 3 * MIB);
    device.write_at(3 * MIB - 4096, &pattern(4096, 6)).unwrap();
    // Never shorter, and no more than it is asked for.
    assert_eq!(device.grow(MIB), Ok(3 * MIB));
    fs::File::options().write(true).open(&path).unwrap().set_len(4 * MIB + 100).unwrap();
    assert_eq!(device.len(), 3 * MIB);
    assert_eq!((device.grow(0), device.len()), (Ok(4 * MIB), 4 * MIB));
    let mut back = vec![0; 4096];
    for (offset, seed) in [(0, 5), (3 * MIB - 4096, 6)] {
        device.read_at(offset, &mut back).unwrap();
        assert_eq!(back, pattern(4096, seed));
    }
    let refused = device.grow(u64::MAX - 4095).unwrap_err();
    assert_eq!((refused.op, device.len()), (DeviceOp::Grow, 4 * MIB));
    device.release();
    assert!(device.grow(8 * MIB).is_err());
}

#[test]
fn a_file_has_storage_where_it_was_written_or_allocated() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("v");
    let device = FileDevice::create(&path, 16 * MIB).unwrap();
    if !device.is_sparse() {
        // A file system without fallocate(2).
        return;
    }
    let stored = || fs::metadata(&path).unwrap().blocks() * 512;
    assert!(stored() < MIB);
    device.write_at(4 * MIB, &pattern(MIB as usize, 5)).unwrap();
    assert_eq!(device.next_allocated(MIB, 15 * MIB), Some((4 * MIB, MIB)));
    assert_eq!(device.next_allocated(4 * MIB + 4096, 8192), Some((4 * MIB + 4096, 8192)));
    assert_eq!(device.next_allocated(6 * MIB, 10 * MIB), None);
    device.allocate(4 * MIB, 2 * MIB).unwrap();
    assert!(stored() >= 2 * MIB);
    let mut back = vec![0; MIB as usize];
    device.read_at(4 * MIB, &mut back).unwrap();
    assert!(back == pattern(MIB as usize, 5));
    let before = stored();
    device.write_at(5 * MIB, &back).unwrap();
    assert!(stored() <= before + 65_536);
    let refused = device.allocate(16 * MIB, 4096).unwrap_err();
    assert!(refused.is_full() && refused.op == DeviceOp::Allocate, "{refused}");
    assert!(!FileDevice::open_to_look(&path).unwrap().is_sparse());
}

#[test]
fn an_open_ended_file_reads_as_zeros_behind_its_end_and_grows_by_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let device = FileDevice::create(&path, 2 * BLOCK_BYTES as u64).unwrap();
    let mut read = vec![1; 3 * BLOCK_BYTES];
    assert!(device.read_at(0, &mut read).is_err());
    device.open_end(1 << 40);
    assert_eq!((device.len(), device.is_open_ended()), (1 << 40, true));
    device.write_at(BLOCK_BYTES as u64, &[7; BLOCK_BYTES]).unwrap();
    device.read_at(0, &mut read).unwrap();
    assert_eq!((read[0], read[BLOCK_BYTES], read[2 * BLOCK_BYTES]), (0, 7, 0));
    device.read_at(1 << 30, &mut read).unwrap();
    assert!(read.iter().all(|byte| *byte == 0));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 * BLOCK_BYTES as u64);
    device.write_at(9 * BLOCK_BYTES as u64, &[7; BLOCK_BYTES]).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 10 * BLOCK_BYTES as u64);
    assert!(device.write_at(1 << 40, &[7; BLOCK_BYTES]).is_err());
}
