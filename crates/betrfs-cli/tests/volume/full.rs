//! A volume that is filled completely, again and again.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::mounted::Mounted;
use crate::programs::{check_is_clean, noise};

const VOLUME_BYTES: u64 = 256 << 20;

/// The available space when all deletes have been carried out.
fn available(mounted: &Mounted) -> u64 {
    rustix::fs::syncfs(File::open(&mounted.dir).unwrap()).unwrap();
    let stat = rustix::fs::statvfs(&mounted.dir).unwrap();
    stat.f_bavail * stat.f_frsize
}

/// The size of a file: every eighth is large.
fn size_of(number: u64) -> usize {
    if number.is_multiple_of(8) { 3 << 20 } else { 5000 }
}

fn write(mounted: &Mounted, number: u64) -> io::Result<()> {
    File::create(mounted.path(format!("f{number}")))?.write_all(&noise(number, size_of(number)))
}

/// Writes files until there is no room for one, then makes directories until there is none for one of these;
/// returns the number of files written whole, and the directories.
fn fill(mounted: &Mounted) -> (u64, Vec<PathBuf>) {
    let failed = (0..).find_map(|number| Some((number, write(mounted, number).err()?)));
    let (whole, error) = failed.unwrap();
    assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{error}");
    let mut dirs = Vec::new();
    let error = loop {
        let dir = mounted.path(format!("d{}", dirs.len()));
        match fs::create_dir(&dir) {
            Ok(()) => dirs.push(dir),
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{error}");
    (whole, dirs)
}

fn assert_whole(mounted: &Mounted, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let contents = fs::read(mounted.path(format!("f{number}"))).unwrap();
        assert!(contents == noise(number, size_of(number)), "f{number} of {} bytes", contents.len());
    }
}

fn remove(mounted: &Mounted, numbers: impl Iterator<Item = u64>) {
    numbers.for_each(|number| fs::remove_file(mounted.path(format!("f{number}"))).unwrap());
}

/// Renames every other file there and back, and changes its attributes. That needs no room, as a directory
/// would.
fn rename_and_touch(mounted: &Mounted, whole: u64) {
    for number in (0..whole).step_by(2) {
        let (name, other) = (format!("f{number}"), format!("elsewhere/a longer name for {number}"));
        fs::rename(mounted.path(&name), mounted.path(&other)).unwrap_or_else(|e| panic!("{name}: {e}"));
        fs::set_permissions(mounted.path(&other), Permissions::from_mode(0o600)).unwrap();
        fs::rename(mounted.path(&other), mounted.path(&name)).unwrap_or_else(|e| panic!("{other}: {e}"));
    }
    fs::rename(mounted.path("elsewhere"), mounted.path("gone")).unwrap();
    fs::remove_dir(mounted.path("gone")).unwrap();
}

#[test]
fn fallocated_space_is_there_for_the_file_and_not_for_others() {
    let mounted = Mounted::of_size("256M");
    mounted.mount();
    let allocate = |name: &str, len| {
        let file = File::create(mounted.path(name)).unwrap();
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len).map(|()| file)
    };
    let free = available(&mounted);
    assert_eq!(allocate("too much", free + 1).unwrap_err(), Errno::NOSPC);
    assert_eq!(fs::metadata(mounted.path("too much")).unwrap().len(), 0);
    let mut file = allocate("half", free / 2).unwrap();
    assert_eq!(allocate("another half and more", free / 10 * 6).unwrap_err(), Errno::NOSPC);
    let now = available(&mounted);
    assert!(now < free / 2, "{free} bytes were free, {now} are left");
    fill(&mounted);
    let data = noise(1, free as usize / 2);
    file.write_all(&data).unwrap();
    file.sync_all().unwrap();
    assert!(fs::read(mounted.path("half")).unwrap() == data);
}

#[test]
fn a_full_volume_keeps_its_files_and_frees_deleted_space() {
    let mounted = Mounted::of_size("256M");
    mounted.mount();
    let empty = available(&mounted);
    let bytes_of = |files: u64| (0..files).map(|number| size_of(number) as u64).sum::<u64>();
    let mut first = 0;
    for round in 0..4 {
        fs::create_dir(mounted.path("elsewhere")).unwrap();
        let (whole, dirs) = fill(&mounted);
        let full = available(&mounted);
        let mib = bytes_of(whole) >> 20;
        println!("round {round}: {whole} files, {mib} MiB; {} directories; {full} bytes free", dirs.len());
        first = if round == 0 { whole } else { first };
        assert!(bytes_of(whole) > VOLUME_BYTES / 2, "{} bytes fill it", bytes_of(whole));
        assert!(bytes_of(whole) > bytes_of(first) / 10 * 9, "space is lost from round to round");
        rename_and_touch(&mounted, whole);
        assert_whole(&mounted, 0..whole);
        dirs.iter().for_each(|dir| fs::remove_dir(dir).unwrap());

        // Half of the files are deleted; the others stay whole, and half of the space is filled again.
        remove(&mounted, (0..whole).filter(|number| number % 16 < 8));
        let half = available(&mounted);
        assert!(half > full + bytes_of(whole) / 4, "{full} bytes were free and now {half} are");
        for number in (0..whole).filter(|number| number % 16 < 4) {
            write(&mounted, number).unwrap();
        }
        if round % 2 == 1 {
            mounted.remount();
        }
        assert_whole(&mounted, (0..whole).filter(|number| number % 16 < 4 || number % 16 >= 8));
        for entry in fs::read_dir(&mounted.dir).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let now = available(&mounted);
        assert!(now > empty / 10 * 9, "of {empty} bytes {now} came back");
    }
    mounted.umount();
    check_is_clean(&mounted.volume);
}
