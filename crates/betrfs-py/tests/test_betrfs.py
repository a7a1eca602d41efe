"""The module betrfs: operations by paths, streams, errors."""

import errno
import io
import os
import signal
import subprocess
import sys
import threading
import time

import betrfs
import pytest

from conftest import VOLUME_BYTES


def test_what_is_written_is_there_when_it_is_opened_again(volume):
    with betrfs.open(volume) as fs:
        fs.create_dir_all("a/b")
        fs.write("a/b/file", b"text")
        fs.append("a/b/file", b" and more")
    assert fs.closed
    fs.close()
    with betrfs.open(volume, read_only=True) as fs:
        assert fs.read("a/b/file") == b"text and more"
        with pytest.raises(OSError) as error:
            fs.write("new", b"")
        assert error.value.errno == errno.EROFS


def test_a_closed_volume_says_so(fs):
    held = fs.open("file", "wb")
    held.close()
    fs.close()
    for call in [lambda: fs.read("file"), lambda: fs.sync(), lambda: fs.open("file"), lambda: held.write(b"x")]:
        with pytest.raises(ValueError):
            call()


def test_a_volume_is_opened_once(volume, fs):
    with pytest.raises(OSError) as error:
        betrfs.open(volume)
    assert error.value.errno == errno.EBUSY and error.value.filename == str(volume)
    with pytest.raises(FileExistsError):
        betrfs.create(volume, 64 << 20)
    with pytest.raises(FileNotFoundError):
        betrfs.open(str(volume) + "-missing")


def test_errors_are_those_of_the_system(fs):
    fs.create_dir("dir")
    fs.write("dir/file", b"")
    for kind, call in [
        (FileNotFoundError, lambda: fs.read("missing")),
        (IsADirectoryError, lambda: fs.read("dir")),
        (IsADirectoryError, lambda: fs.open("dir")),
        (IsADirectoryError, lambda: fs.open("dir", "rb", buffering=0)),
        (IsADirectoryError, lambda: fs.open("dir", "wb")),
        (NotADirectoryError, lambda: fs.read("dir/file/x")),
        (FileExistsError, lambda: fs.create_dir("dir")),
        (FileExistsError, lambda: fs.open("dir/file", "x")),
        (ValueError, lambda: fs.open("dir/file", "rw")),
        (ValueError, lambda: fs.open("dir/file", "z")),
        (ValueError, lambda: fs.open("dir/file", "rb", encoding="utf-8")),
        (TypeError, lambda: fs.read(5)),
    ]:
        with pytest.raises(kind):
            call()
    with pytest.raises(OSError) as error:
        fs.remove_dir("dir")
    assert error.value.errno == errno.ENOTEMPTY
    with pytest.raises(OSError) as error:
        fs.rename("missing", "other")
    assert (error.value.filename, error.value.filename2) == ("missing", "other")
    with pytest.raises(OSError) as error:
        fs.read("a\0b")
    assert error.value.errno == errno.EINVAL


def test_paths_are_text_bytes_and_path_objects(fs, tmp_path):
    fs.write(b"\xff\xfe", b"bytes")
    (entry,) = fs.read_dir("/")
    assert os.fsencode(entry.name) == b"\xff\xfe"
    assert fs.read(entry.name) == b"bytes"
    fs.write(type(tmp_path)("dir-less"), b"path")
    assert fs.read("/dir-less") == b"path"


def test_streams_are_those_of_the_built_in_open(fs):
    with fs.open("text", "w", encoding="utf-8") as file:
        file.write("Grüße\nzwei\n")
    with fs.open("text", encoding="utf-8") as file:
        assert list(file) == ["Grüße\n", "zwei\n"]
    with fs.open("text", "rb") as file:
        assert isinstance(file, io.BufferedReader) and file.name == "text"
        file.seek(-5, os.SEEK_END)
        assert file.read() == b"zwei\n"
    with fs.open("text", "r+b") as file:
        file.write(b"XX")
        file.seek(0, os.SEEK_END)
        file.write(memoryview(b"drei\n"))
        file.truncate()
        file.seek(0)
        assert file.read(4) == b"XX\xc3\xbc"
    with fs.open("text", "ab") as file:
        assert file.tell() == fs.metadata("text").size
        file.write(b"end")
    assert fs.read("text").endswith(b"drei\nend")
    with fs.open("text", "rb", buffering=0) as file:
        buffer = bytearray(4)
        assert file.readinto(buffer) == 4 and bytes(buffer) == b"XX\xc3\xbc"
        assert file.read(1 << 40) == fs.read("text")[4:]
        file.metadata(), file.sync()
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
        with pytest.raises(OSError):
            file.seek(-1)
    with pytest.raises(io.UnsupportedOperation):
        fs.open("text", "wb").read()
    with pytest.raises(ValueError):
        file.read()


def test_failures_of_streams_have_the_number_of_the_system(volume):
    with betrfs.open(volume) as fs:
        fs.write("full", b"")
        with fs.open("full", "wb", buffering=0) as file:
            noise = os.urandom(1 << 20)
            with pytest.raises(OSError) as full:
                for _ in range(VOLUME_BYTES >> 20):
                    file.write(noise)
        assert full.value.errno == errno.ENOSPC and full.value.strerror == os.strerror(errno.ENOSPC)
        stream = fs.open("full", "ab")
        with pytest.raises(OSError) as full:
            for _ in range(VOLUME_BYTES >> 20):
                stream.write(noise)
                stream.flush()
        assert full.value.errno == errno.ENOSPC
        with pytest.raises(OSError) as negative:
            stream.raw.seek(-1)
        assert negative.value.errno == errno.EINVAL


def test_objects_with_a_buffer_are_contents(fs):
    fs.write("file", bytearray(b"one "))
    fs.append("file", memoryview(b"two"))
    fs.set_xattr("file", "user.note", memoryview(b"xthreex")[1:-1])
    assert fs.read("file") == b"one two" and fs.get_xattr("file", "user.note") == b"three"
    with pytest.raises(TypeError, match="a bytes-like object is required, not 'str'"):
        fs.write("file", "text")


def test_streams_know_the_size_of_their_file(fs):
    fs.write("file", b"x" * 10)
    for mode in ("rb", "r+b", "ab"):
        with fs.open("file", mode) as file:
            assert file.size == file.raw.size == 10
    with fs.open("file", "wb") as file:
        assert file.size == 0
        file.write(b"in the buffer")
        assert file.size == 13


def test_an_unlinked_file_lives_until_it_is_closed(fs):
    with fs.open("file", "w+b") as file:
        file.write(b"text")
        fs.remove_file("file")
        file.seek(0)
        assert file.read() == b"text" and not fs.exists("file")


def test_whole_directories_are_copied_and_removed(fs):
    fs.create_dir_all("tree/deep")
    fs.write("tree/deep/file", b"text")
    fs.clone_tree("tree", "copy")
    fs.write("copy/deep/file", b"other")
    assert [entry.path for entry in fs.walk("tree")] == ["tree", "tree/deep", "tree/deep/file"]
    assert [entry.name for entry in fs.walk("copy", min_depth=2, max_depth=2)] == ["file"]
    fs.snapshot("tree", "one")
    fs.rename_exchange("tree/deep", "copy/deep")
    assert fs.read("tree/deep/file") == b"other"
    assert fs.read("tree/.betrfs-snapshots/one/deep/file") == b"text"
    with pytest.raises(OSError) as error:
        fs.rm_tree("tree")
    assert error.value.errno == errno.EBUSY
    assert fs.snapshots("tree") == ["one"]
    fs.remove_snapshot("tree", "one")
    fs.rm_tree("tree")
    assert not fs.exists("tree") and fs.usage("copy").stored_bytes > 0
    assert fs.statfs().available_bytes < fs.statfs().total_bytes


def test_links_attributes_and_extended_attributes(fs):
    fs.write("file", b"12345")
    fs.hard_link("file", "other")
    fs.symlink("file", "link")
    fs.set_permissions("link", 0o600)
    fs.set_times("file", modified_ns=-5, accessed_ns=7)
    found = fs.metadata("link")
    assert (found.size, found.mode, found.nlink, found.modified_ns, found.accessed_ns) == (5, 0o600, 2, -5, 7)
    assert found == fs.metadata("other") and found.is_file and not found.is_dir
    assert fs.symlink_metadata("link").is_symlink and fs.read_link("link") == "file"
    assert fs.canonicalize("./link") == "/file"
    fs.set_xattr("file", "user.a", b"\0value")
    assert (fs.list_xattrs("other"), fs.get_xattr("other", "user.a")) == (["user.a"], b"\0value")
    fs.remove_xattr("file", "user.a")
    with pytest.raises(OSError) as error:
        fs.get_xattr("file", "user.a")
    assert error.value.errno == errno.ENODATA


def test_a_directory_handle_goes_along_with_renames(fs):
    fs.create_dir("one")
    held = fs.open_dir("one")
    fs.rename("one", "two")
    held.write("file", b"text")
    assert (held.path(), fs.read("two/file")) == ("/two", b"text")
    assert [entry.metadata().size for entry in held.read_dir()] == [4]


def test_another_user_is_refused(volume):
    with betrfs.open(volume, uid=0, gid=0) as fs:
        fs.write("file", b"text")
        fs.set_permissions("file", 0o600)
        fs.set_permissions("/", 0o755)
    with betrfs.open(volume, uid=1234, gid=1234) as fs:
        with pytest.raises(PermissionError):
            fs.read("file")
        with pytest.raises(PermissionError):
            fs.write("new", b"")


def test_other_threads_run_while_one_waits(fs):
    """A call that takes long holds up no other thread of Python."""
    data = os.urandom(4 << 20)
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        meanwhile, spent = 0, 0.0
        while spent < 0.5:
            before, began = counted[0], time.monotonic()
            fs.write("file", data)
            spent += time.monotonic() - began
            meanwhile += counted[0] - before
    finally:
        # Python does not end before its threads do.
        done.set()
        thread.join()
    assert meanwhile > 50, f"another thread ran {meanwhile} times within {spent} s of writes"
    assert fs.read("file") == data


def test_a_fork_is_refused_and_leaves_its_parent_s_volume(volume, fs):
    fs.write("base", b"b" * 20_000)
    fs.sync()
    held = fs.open("base", "rb")
    pid = os.fork()
    if pid == 0:
        # Nothing of pytest may run on: the child ends here.
        code = 1
        try:
            signal.alarm(20)
            uses = [lambda: fs.write("child", b""), lambda: fs.read("base"), lambda: held.read(1), fs.sync, fs.close]
            for code, use in enumerate(uses, 2):
                try:
                    use()
                except OSError as error:
                    if error.errno != errno.EBADF or f"process {os.getppid()}" not in str(error):
                        break
                else:
                    break
            else:
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    held.close()
    fs.write("after", b"parent")
    fs.sync()
    with pytest.raises(OSError) as error:
        betrfs.open(volume)
    assert error.value.errno == errno.EBUSY
    assert fs.read("base") == b"b" * 20_000 and fs.read("after") == b"parent"


@pytest.mark.parametrize("turn", range(5))
def test_a_program_ends_while_daemon_threads_are_in_calls(volume, turn):
    code = f"""
import betrfs, threading
fs = betrfs.open({str(volume)!r})
began = threading.Barrier(9)

def write(number):
    began.wait()
    while True:
        fs.write(f"file{{number}}", b"x" * 100_000)
        fs.read_dir("/")

for number in range(8):
    threading.Thread(target=write, args=(number,), daemon=True).start()
began.wait()
fs.write("main", b"done")
fs.sync()
"""
    ended = subprocess.run([sys.executable, "-c", code], timeout=120, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    with betrfs.open(volume) as fs:
        assert fs.read("main") == b"done"
