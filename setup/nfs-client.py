#!/usr/bin/env python3
"""A client of NFS for setup/nfs, by libnfs: nfs-client.py URL

Reads steps from standard input, one a line: the names of the methods of `Steps`. It keeps its mount and its
open files between them, so that later steps use the handles of the first ones. Answers each step with a line:
`ok`, or the first wrong result.
"""
import ctypes
import errno
import os
import stat
import sys

lib = ctypes.CDLL("libnfs.so.13")
lib.nfs_init_context.restype = ctypes.c_void_p
lib.nfs_parse_url_dir.restype = ctypes.c_void_p
lib.nfs_get_error.restype = ctypes.c_char_p
lib.nfs_readdir.restype = ctypes.c_void_p
U64 = ctypes.c_uint64


class Url(ctypes.Structure):
    """What libnfs makes of a URL: `struct nfs_url`."""
    _fields_ = [("server", ctypes.c_char_p), ("path", ctypes.c_char_p), ("file", ctypes.c_char_p)]


class Entry(ctypes.Structure):
    """The beginning of an entry of a directory: `struct nfsdirent`."""
    _fields_ = [("next", ctypes.c_void_p), ("name", ctypes.c_char_p), ("inode", U64)]


class Stat(ctypes.Structure):
    """Attributes: `struct nfs_stat_64`."""
    _fields_ = [(name, U64) for name in (
        "dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks", "atime", "mtime",
        "ctime", "atime_nsec", "mtime_nsec", "ctime_nsec", "used")]


class Nfs:
    """A mount of the server. Its calls raise OSError with the errno of the answer."""

    def __init__(self, url):
        self.context = ctypes.c_void_p(lib.nfs_init_context())
        parsed = lib.nfs_parse_url_dir(self.context, url.encode())
        assert parsed, f"{url}: {lib.nfs_get_error(self.context)}"
        parsed = Url.from_address(parsed)
        # By version 4, libnfs 4.0 has room for 3 KiB in a request.
        self.write_bytes_max = 2 << 10 if "version=4" in url else 256 << 10
        lib.nfs_set_dircache(self.context, 0)
        self.call("mount", parsed.server, parsed.path)

    def call(self, name, *arguments):
        arguments = [each.encode() if isinstance(each, str) else each for each in arguments]
        done = getattr(lib, "nfs_" + name)(self.context, *arguments)
        if done < 0:
            told = lib.nfs_get_error(self.context).decode(errors="replace")
            raise OSError(-done, f"{name} {arguments[:2]}: {told}")
        return done

    def open(self, path, flags):
        file = ctypes.c_void_p()
        self.call("open", path, flags, ctypes.byref(file))
        return file

    def write(self, path, data):
        file = self.open(path, os.O_CREAT | os.O_WRONLY)
        self.pwrite(file, 0, data)
        self.call("fsync", file)
        self.call("close", file)

    def pwrite(self, file, offset, data):
        while data:
            count = self.call("pwrite", file, U64(offset), U64(min(len(data), self.write_bytes_max)), data)
            data, offset = data[count:], offset + count

    def read(self, file):
        """The contents of an open file."""
        data, buffer = b"", ctypes.create_string_buffer(1 << 18)
        while count := self.call("pread", file, U64(len(data)), U64(len(buffer)), buffer):
            data += buffer.raw[:count]
        return data

    def contents(self, path):
        file = self.open(path, os.O_RDONLY)
        data = self.read(file)
        self.call("close", file)
        return data

    def stat(self, path):
        result = Stat()
        self.call("lstat64", path, ctypes.byref(result))
        return result

    def names(self, path):
        opened, names = ctypes.c_void_p(), []
        self.call("opendir", path, ctypes.byref(opened))
        while entry := lib.nfs_readdir(self.context, opened):
            names.append(Entry.from_address(entry).name.decode())
        lib.nfs_closedir(self.context, opened)
        return sorted(name for name in names if name not in (".", ".."))


def noise(length):
    """Bytes that differ from place to place."""
    return b"".join(n.to_bytes(4, "big") for n in range(length // 4))


class Steps:
    """The steps, each with its asserted results."""

    def __init__(self, url):
        self.url, self.nfs, self.held = url, Nfs(url), {}

    def make(self):
        """Makes files, directories and links, changes them, and holds some open."""
        nfs, big = self.nfs, noise(5 << 20)
        for path in ("dir", "dir/below", "other"):
            nfs.call("mkdir", path)
        for path, data in (("dir/empty", b""), ("dir/small", b"small\n"), ("dir/big", big)):
            nfs.write(path, data)
            assert nfs.contents(path) == data, path
        for number in range(300):
            nfs.write(f"dir/below/file{number}", str(number).encode())
        assert len(nfs.names("dir/below")) == 300
        file = nfs.open("dir/big", os.O_RDWR)
        nfs.pwrite(file, 1000, b"changed")
        nfs.call("fsync", file)
        assert nfs.read(file) == big[:1000] + b"changed" + big[1007:]
        self.held["moved"], self.big = file, nfs.read(file)
        nfs.call("chmod", "dir/small", 0o640)
        nfs.call("symlink", "small", "dir/link")
        nfs.call("link", "dir/small", "other/second")
        found = nfs.stat("dir/small")
        assert (stat.S_IMODE(found.mode), found.nlink, found.size) == (0o640, 2, 6)
        assert stat.S_ISLNK(nfs.stat("dir/link").mode)
        nfs.call("rename", "dir/empty", "other/renamed")
        nfs.write("other/over", b"over")
        nfs.call("rename", "other/over", "other/renamed")
        assert nfs.contents("other/renamed") == b"over"
        nfs.call("truncate", "other/renamed", U64(2))
        nfs.write("other/left", b"left")
        nfs.call("unlink", "other/left")
        assert nfs.names("other") == ["renamed", "second"], nfs.names("other")
        self.held["removed"] = nfs.open("other/renamed", os.O_RDWR)
        self.rounds = 0

    def again(self):
        """Reads and writes by the handles of `make`, and by names below the old handle of the mount."""
        nfs, file = self.nfs, self.held["moved"]
        assert nfs.read(file) == self.big
        self.rounds += 1
        self.big = str(self.rounds).encode() + self.big[1:]
        nfs.pwrite(file, 0, self.big[:1])
        nfs.call("fsync", file)
        assert nfs.read(self.held["removed"]) == b"ov"
        assert nfs.contents("other/second") == b"small\n"
        assert nfs.contents("dir/below/file7") == b"7"
        nfs.write(f"dir/below/new{self.rounds}", b"new")
        assert len(nfs.names("dir/below")) == 300 + self.rounds

    def moved(self):
        """As `again`, when `dir/big` has moved to `elsewhere/deep/big` on the server."""
        assert "big" not in self.nfs.names("dir")
        assert self.nfs.contents("elsewhere/deep/big") == self.big
        self.again()

    def removed(self):
        """A removed file is stale, and the others are as they were."""
        try:
            self.nfs.call("fstat64", self.held["removed"], ctypes.byref(Stat()))
        except OSError as error:
            assert error.errno == errno.ESTALE, error
        else:
            raise AssertionError("the removed file is there")
        assert self.nfs.read(self.held["moved"]) == self.big


def main():
    """Takes the steps."""
    steps = Steps(sys.argv[1])
    for line in sys.stdin:
        try:
            getattr(steps, line.strip())()
            print("ok", flush=True)
        except (AssertionError, OSError) as error:
            place = error.__traceback__
            while place.tb_next:
                place = place.tb_next
            print(f"{type(error).__name__} {error} (line {place.tb_lineno})", flush=True)


main()
