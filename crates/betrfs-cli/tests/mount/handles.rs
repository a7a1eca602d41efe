//! Handles of files (name_to_handle_at(2)) and their opening: after the kernel has forgotten the objects,
//! after a remount, and through an overlay, which stores handles as an export by NFS does.

use std::ffi::CString;
use std::fs;
use std::io::{Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use crate::mounted::{Mounted, betrfs, ok, soon};

const BYTES_MAX: usize = 128;

/// A handle as the kernel gives it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handle {
    bytes: u32,
    kind: i32,
    text: [u8; BYTES_MAX],
}

impl Handle {
    /// The handle of an object.
    fn of(path: &Path) -> Handle {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let mut handle = Handle { bytes: BYTES_MAX as u32, kind: 0, text: [0; BYTES_MAX] };
        let mut mount_id = 0i32;
        // SAFETY: the path ends with a 0 byte; the handle has the room that it says; both live until then.
        let done = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                path.as_ptr(),
                &raw mut handle,
                &raw mut mount_id,
                0,
            )
        };
        assert_eq!(done, 0, "{path:?}: {}", std::io::Error::last_os_error());
        handle
    }

    /// Opens the object for reading.
    fn open(&self, mount: &Path) -> Result<fs::File, Errno> {
        let mount = fs::File::open(mount).unwrap();
        // SAFETY: the descriptor and the handle live until then; the handle has the bytes that it says.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_raw_fd(),
                &raw const *self,
                libc::O_RDONLY | libc::O_CLOEXEC,
            )
        };
        if opened < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap());
        }
        // SAFETY: the kernel has just opened this descriptor, and nobody else knows it.
        Ok(unsafe { fs::File::from_raw_fd(opened as i32) })
    }

    /// The contents of the file.
    fn read(&self, mount: &Path) -> Result<String, Errno> {
        let mut text = String::new();
        self.open(mount)?.read_to_string(&mut text).unwrap();
        Ok(text)
    }
}

/// Has the kernel forget what is not in use, on all mounts. Other tests count the requests that follow, so
/// these tests run alone: see .config/nextest.toml.
fn drop_caches() {
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

/// Whether a handle is stale once the kernel has forgotten its object, which it holds until the RELEASE of a
/// file that was closed is answered.
fn is_stale(mounted: &Mounted, handle: &Handle) -> bool {
    soon(|| {
        drop_caches();
        handle.open(&mounted.dir).err() == Some(Errno::STALE)
    })
}

/// Does it after dropping the kernel's caches, then after a remount.
fn forgotten_and_remounted(mounted: &Mounted, check: impl Fn(&str)) {
    drop_caches();
    check("forgotten");
    mounted.remount();
    check("remounted");
}

#[test]
fn handles_of_files_and_directories_outlive_the_kernels_memory_and_the_mount() {
    let mounted = Mounted::unmounted();
    mounted.mount();
    fs::create_dir_all(mounted.path("a/b/c")).unwrap();
    fs::write(mounted.path("a/b/c/file"), "text").unwrap();
    fs::write(mounted.path("linked"), "of two names").unwrap();
    fs::hard_link(mounted.path("linked"), mounted.path("a/b/other")).unwrap();
    let handle = |path: &str| Handle::of(&mounted.path(path));
    let (file, linked, dir, root) = (handle("a/b/c/file"), handle("linked"), handle("a/b/c"), handle(""));
    let ino = fs::metadata(mounted.path("a/b/c")).unwrap().ino();
    fs::remove_file(mounted.path("linked")).unwrap();
    forgotten_and_remounted(&mounted, |when| {
        assert_eq!(file.read(&mounted.dir).as_deref(), Ok("text"), "{when}");
        assert_eq!(linked.read(&mounted.dir).as_deref(), Ok("of two names"), "{when}");
        let opened = root.open(&mounted.dir).unwrap();
        assert_eq!(opened.metadata().unwrap().ino(), 1, "{when}");
        let opened = dir.open(&mounted.dir).unwrap();
        assert_eq!(opened.metadata().unwrap().ino(), ino, "{when}");
        // It has a path again.
        let path = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).unwrap();
        assert_eq!(path, mounted.path("a/b/c"), "{when}");
        let listed = rustix::fs::Dir::read_from(&opened).unwrap();
        let names: Vec<_> = listed.map(|entry| entry.unwrap().file_name().to_owned()).collect();
        assert!(names.contains(&c"file".to_owned()), "{when}: {names:?}");
    });
    assert_eq!(file.kind, handle("a/b/c/file").kind);
    assert_eq!(file.text, handle("a/b/c/file").text, "the handle is the same");
}

#[test]
fn a_handle_leads_to_where_the_object_is_now() {
    let mounted = Mounted::unmounted();
    mounted.mount();
    for (path, text) in [("d/e/deep", "deep"), ("d/one", "one"), ("d/two", "two"), ("over", "over")] {
        fs::create_dir_all(mounted.path(path).parent().unwrap()).unwrap();
        fs::write(mounted.path(path), text).unwrap();
    }
    let handles = ["d/e/deep", "d/one", "d/two"].map(|path| (Handle::of(&mounted.path(path)), path));
    let replaced = Handle::of(&mounted.path("over"));
    let dir = Handle::of(&mounted.path("d/e"));
    // While the kernel knows the objects, and while it does not.
    fs::create_dir(mounted.path("n")).unwrap();
    fs::rename(mounted.path("d/e"), mounted.path("n/e")).unwrap();
    mounted.remount();
    fs::rename(mounted.path("n"), mounted.path("d/n")).unwrap();
    let (one, two) = (mounted.path("d/one"), mounted.path("d/two"));
    rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &two, RenameFlags::EXCHANGE).unwrap();
    fs::rename(mounted.path("d/one"), mounted.path("over")).unwrap();
    forgotten_and_remounted(&mounted, |when| {
        for (handle, path) in &handles {
            let name = Path::new(path).file_name().unwrap().to_str().unwrap();
            assert_eq!(handle.read(&mounted.dir).as_deref(), Ok(name), "{when}");
        }
        assert_eq!(replaced.read(&mounted.dir), Err(Errno::STALE), "{when}");
        let opened = dir.open(&mounted.dir).unwrap();
        let path = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).unwrap();
        assert_eq!(path, mounted.path("d/n/e"), "{when}");
    });
}

#[test]
fn the_handle_of_a_removed_object_is_stale() {
    let mounted = Mounted::unmounted();
    mounted.mount();
    fs::create_dir_all(mounted.path("d/inner")).unwrap();
    for name in ["plain", "open", "d/below", "d/inner/below"] {
        fs::write(mounted.path(name), name).unwrap();
    }
    let names = ["plain", "open", "d", "d/below", "d/inner", "d/inner/below"];
    let handles = names.map(|path| (Handle::of(&mounted.path(path)), path));
    let mut open = fs::File::open(mounted.path("open")).unwrap();
    fs::remove_file(mounted.path("plain")).unwrap();
    fs::remove_file(mounted.path("open")).unwrap();
    ok(&betrfs().arg("rm-tree").arg(mounted.path("d")).output().unwrap());
    // As long as it is open, the kernel knows the file.
    assert_eq!(handles[1].0.read(&mounted.dir).as_deref(), Ok("open"));
    open.rewind().unwrap();
    drop(open);
    // The kernel keeps it until the RELEASE is answered.
    assert!(soon(|| handles[1].0.open(&mounted.dir).err() == Some(Errno::STALE)));
    // New objects of the old names.
    fs::create_dir_all(mounted.path("d/inner")).unwrap();
    names.iter().filter(|name| !mounted.path(name).exists()).for_each(|name| {
        fs::write(mounted.path(name), "another").unwrap();
    });
    forgotten_and_remounted(&mounted, |when| {
        for (handle, path) in &handles {
            assert!(is_stale(&mounted, handle), "{path}, {when}");
        }
    });
}

#[test]
fn copies_and_snapshots_have_handles_of_their_own() {
    let mounted = Mounted::unmounted();
    mounted.mount();
    fs::create_dir_all(mounted.path("d/inner")).unwrap();
    fs::write(mounted.path("d/inner/file"), "old").unwrap();
    ok(&betrfs().arg("clone").args([mounted.path("d"), mounted.path("copy")]).output().unwrap());
    ok(&betrfs().args(["snapshot", "create"]).arg(mounted.path("d")).arg("monday").output().unwrap());
    let handle = |path: &str| Handle::of(&mounted.path(path));
    let (copy, in_snapshot) = (handle("copy/inner/file"), handle("d/.betrfs-snapshots/monday/inner/file"));
    let (original, copied_dir) = (handle("d/inner/file"), handle("copy"));
    fs::write(mounted.path("d/inner/file"), "new").unwrap();
    fs::write(mounted.path("copy/inner/file"), "copied").unwrap();
    fs::rename(mounted.path("copy"), mounted.path("moved")).unwrap();
    forgotten_and_remounted(&mounted, |when| {
        let read = |handle: &Handle| handle.read(&mounted.dir);
        assert_eq!(read(&original).as_deref(), Ok("new"), "{when}");
        assert_eq!(read(&copy).as_deref(), Ok("copied"), "{when}");
        assert_eq!(read(&in_snapshot).as_deref(), Ok("old"), "{when}");
        let opened = copied_dir.open(&mounted.dir).unwrap();
        let path = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).unwrap();
        assert_eq!(path, mounted.path("moved"), "{when}");
    });
    // A snapshot brought back is a copy: handles of what it replaces are stale.
    ok(&betrfs().arg("rm-tree").arg("--snapshots").arg(mounted.path("d")).output().unwrap());
    for handle in [original, in_snapshot] {
        assert!(is_stale(&mounted, &handle));
    }
}

#[test]
fn handles_cost_nothing_until_they_are_used_and_then_one_search() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    let path = |i: u32| mounted.path(format!("d/file{i:03}"));
    (0..300).for_each(|i| fs::write(path(i), format!("{i}")).unwrap());
    let mut handles = Vec::new();
    let taken = mounted.requests_of(|| handles = (0..300).map(|i| Handle::of(&path(i))).collect());
    assert_eq!(taken.get("lookup"), None, "{taken:?}");
    mounted.remount();
    let read = |i: usize| assert_eq!(handles[i].read(&mounted.dir), Ok(format!("{i}")));
    // Three scans for all names, two look-ups on the way, and the contents.
    assert_eq!(mounted.tree_queries_of(|| read(7)), 3 + 2 + 1);
    // The map leads to some hundred names, one of them the file's.
    assert_eq!(mounted.tree_queries_of(|| read(280)), 1 + 1 + 1);
    let again = mounted.requests_of(|| (0..300).for_each(read));
    // A file without a name in the kernel's cache is forgotten when it is closed.
    assert_eq!(again.get("lookup"), Some(&300), "{again:?}");
}

/// An overlay with `index` and `nfs_export` decodes the lower file system's handles to open its own.
#[test]
fn an_overlay_finds_its_lower_files_by_handles() {
    let mounted = Mounted::new();
    fs::create_dir_all(mounted.path("lower/sub")).unwrap();
    fs::write(mounted.path("lower/sub/file"), "below").unwrap();
    let temp = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new("timeout").args(["60", program]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    };
    let (upper, merged) = (temp.path().join("upper"), temp.path().join("merged"));
    fs::create_dir(&upper).unwrap();
    fs::create_dir(&merged).unwrap();
    run("mount", &["-t", "tmpfs", "tmpfs", upper.to_str().unwrap()]);
    fs::create_dir(upper.join("data")).unwrap();
    fs::create_dir(upper.join("work")).unwrap();
    let options = format!(
        "lowerdir={},upperdir={},workdir={},index=on,nfs_export=on",
        mounted.path("lower").display(),
        upper.join("data").display(),
        upper.join("work").display()
    );
    let mount = || run("mount", &["-t", "overlay", "overlay", "-o", &options, merged.to_str().unwrap()]);
    let unmount = || run("umount", &[merged.to_str().unwrap()]);
    mount();
    let shown = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let shown = shown.lines().find(|line| line.contains(merged.to_str().unwrap())).unwrap().to_owned();
    let (file, dir) = (Handle::of(&merged.join("sub/file")), Handle::of(&merged.join("sub")));
    unmount();
    mounted.remount();
    mount();
    let (read, opened) = (file.read(&merged), dir.open(&merged).map(|_| ()));
    unmount();
    run("umount", &[upper.to_str().unwrap()]);
    assert!(shown.contains("nfs_export=on"), "{shown}");
    assert_eq!((read.as_deref(), opened), (Ok("below"), Ok(())));
}
