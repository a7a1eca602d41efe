#!/usr/bin/env python3
"""The flags immutable (chattr +i) and append-only (+a): each operation on a file and on a directory, against ext4.
A FUSE mount cannot do the same everywhere, as its kernel does not know the flags: the outcomes that are right there,
and only there, stand behind a slash. A write to a mapping right after the flag was set may be taken or refused there.
Run as root."""
import ctypes, errno, fcntl, mmap, os, shutil, struct, sys

GET, SET = 0x80086601, 0x40086602
IMMUTABLE, APPEND, NODUMP = 0x10, 0x20, 0x40
R, W, RW, AP, T, C, X = (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_APPEND, os.O_TRUNC, os.O_CREAT, os.O_EXCL)
KEEP, PUNCH, ZERO = 1, 3, 16
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
libc = ctypes.CDLL(None, use_errno=True)
mount = sys.argv[1]
stage = f"{mount}/inode-flags.{os.getpid()}"


def call(result):
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

def with_open(path, how, act):
    fd = os.open(path, how)
    try: return act(fd)
    finally: os.close(fd)

def flags(path): return with_open(path, R, lambda fd: struct.unpack("I", fcntl.ioctl(fd, GET, bytes(4)))[0])
def set_flags(path, to): with_open(path, R, lambda fd: fcntl.ioctl(fd, SET, struct.pack("I", to)))
def open_(path, how): with_open(path, how, lambda fd: None)
def allocate(fd, mode, offset, length): call(libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)))
def copy(source, to): call(libc.copy_file_range(source, None, to, None, ctypes.c_size_t(100), 0))
def rename2(old, new, how): call(libc.renameat2(-100, old.encode(), -100, new.encode(), how))
def times(path): os.utime(path, (5, 5))

def map_(path, how):
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    with_open(path, how, lambda fd: mmap.mmap(fd, 4096, mmap.MAP_SHARED, protection).close())

def write_mapped(h):
    """Another process does, which a signal may end."""
    pid = os.fork()
    if pid == 0:
        try: h.map[0:1] = b"m"; h.map.flush()
        except OSError as error: os._exit(error.errno)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status): raise OSError(0, f"signal {os.WTERMSIG(status)}")
    if status: raise OSError(os.WEXITSTATUS(status), "")


class Held:
    """A file of 8 KiB with a second name, what holds it open, and another file beside it."""
    def __init__(self, path):
        for name, byte in ((path, b"x"), (path + ".other", b"y")):
            with open(name, "wb") as file: file.write(byte * 8192)
        os.link(path, path + ".hard"); os.setxattr(path, "user.a", b"v")
        self.w, self.a = os.open(path, RW), os.open(path, W | AP)
        self.other, self.other_w = os.open(path + ".other", R), os.open(path + ".other", W)
        self.map = mmap.mmap(self.w, 8192, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

    def close(self):
        self.map.close()
        for fd in (self.w, self.a, self.other, self.other_w): os.close(fd)


# Name, what it does with a file, and its outcome without flags, by `i` and by `a`.
FILE = [
    ("read", lambda p, h: open_(p, R), "ok ok ok"),
    ("write", lambda p, h: open_(p, W), "ok EPERM EPERM"),
    ("append", lambda p, h: open_(p, W | AP), "ok EPERM ok"),
    ("read and append", lambda p, h: open_(p, RW | AP), "ok EPERM ok"),
    ("read and empty", lambda p, h: open_(p, R | T), "ok EPERM EPERM"),
    ("append and empty", lambda p, h: open_(p, W | AP | T), "ok EPERM EPERM"),
    ("create or append", lambda p, h: open_(p, W | C | AP), "ok EPERM ok"),
    ("create alone", lambda p, h: open_(p, W | C | X), "EEXIST EEXIST EEXIST"),
    ("held write before the end", lambda p, h: os.pwrite(h.w, b"x", 0), "ok EPERM ok/EPERM"),
    ("held write at the end", lambda p, h: os.pwrite(h.w, b"x", 8192), "ok EPERM ok"),
    ("held append", lambda p, h: os.write(h.a, b"x"), "ok EPERM ok"),
    ("held write to a mapping", lambda p, h: write_mapped(h), "ok SIGBUS/EPERM/ok ok/EPERM/ok"),
    ("map", lambda p, h: map_(p, RW), "ok EPERM EPERM"),
    ("map to append", lambda p, h: map_(p, RW | AP), "ok EPERM EACCES/ENODEV"),
    ("shorten", lambda p, h: os.truncate(p, 1), "ok EPERM EPERM"),
    ("lengthen", lambda p, h: os.truncate(p, 10000), "ok EPERM EPERM"),
    ("held shorten", lambda p, h: os.ftruncate(h.w, 1), "ok EPERM EPERM"),
    ("held lengthen", lambda p, h: os.ftruncate(h.a, 10000), "ok EPERM EPERM"),
    ("held allocate", lambda p, h: allocate(h.w, 0, 0, 20000), "ok EPERM ok"),
    ("held allocate, same size", lambda p, h: allocate(h.a, KEEP, 0, 20000), "ok EPERM ok"),
    ("held punch", lambda p, h: allocate(h.w, PUNCH, 0, 4096), "ok EPERM EPERM"),
    ("held zero", lambda p, h: allocate(h.w, ZERO, 8192, 4096), "ok EPERM EPERM"),
    ("held copy into", lambda p, h: copy(h.other, h.w), "ok EPERM ok/EPERM"),
    ("copy out of", lambda p, h: with_open(p, R, lambda fd: copy(fd, h.other_w)), "ok ok ok"),
    ("chmod", lambda p, h: os.chmod(p, 0o600), "ok EPERM EPERM"),
    ("held chmod", lambda p, h: os.fchmod(h.w, 0o600), "ok EPERM EPERM"),
    ("chown", lambda p, h: os.chown(p, 5, -1), "ok EPERM EPERM"),
    ("chgrp", lambda p, h: os.chown(p, -1, 5), "ok EPERM EPERM"),
    ("times of now", lambda p, h: os.utime(p), "ok EPERM ok"),
    ("times", lambda p, h: times(p), "ok EPERM EPERM"),
    ("held times", lambda p, h: times(h.w), "ok EPERM EPERM"),
    ("set attribute", lambda p, h: os.setxattr(p, "user.b", b"v"), "ok EPERM EPERM"),
    ("set security attribute", lambda p, h: os.setxattr(p, "security.b", b"v"), "ok EPERM EPERM"),
    ("remove attribute", lambda p, h: os.removexattr(p, "user.a"), "ok EPERM EPERM"),
    ("get attribute", lambda p, h: os.getxattr(p, "user.a"), "ok ok ok"),
    ("link", lambda p, h: os.link(p, p + "l"), "ok EPERM EPERM"),
    ("unlink", lambda p, h: os.unlink(p), "ok EPERM EPERM"),
    ("unlink another name", lambda p, h: os.unlink(p + ".hard"), "ok EPERM EPERM"),
    ("rename", lambda p, h: os.rename(p, p + "r"), "ok EPERM EPERM"),
    ("rename another name", lambda p, h: os.rename(p + ".hard", p + "r"), "ok EPERM EPERM"),
    ("rename over", lambda p, h: os.rename(p + ".other", p), "ok EPERM EPERM"),
    ("rename onto itself", lambda p, h: os.rename(p, p + ".hard"), "ok ok ok"),
    ("rename, not over", lambda p, h: rename2(p + ".other", p, NOREPLACE), "EEXIST EEXIST EEXIST"),
    ("exchange", lambda p, h: rename2(p + ".other", p, EXCHANGE), "ok EPERM EPERM"),
    ("rename with a whiteout", lambda p, h: rename2(p, p + "w", WHITEOUT), "ok EPERM EPERM"),
    ("access", lambda p, h: None if os.access(p, os.W_OK) else call(-1), "ok EACCES/ok ok"),
    ("set another flag", lambda p, h: set_flags(p, flags(p) | NODUMP), "ok EPERM ok"),
    ("set no other flag", lambda p, h: set_flags(p, flags(p)), "ok ok ok"),
    ("clear and set another", lambda p, h: set_flags(p, flags(p) & ~(IMMUTABLE | APPEND) | NODUMP), "ok ok ok"),
]
# The same with a directory that has a file `f` and a directory `s`, beside a file and a directory.
DIRECTORY = [
    ("create", lambda p, h: open_(p + "/n", W | C), "ok EPERM ok"),
    ("create alone", lambda p, h: open_(p + "/f", W | C | X), "EEXIST EEXIST EEXIST"),
    ("write to a file in it", lambda p, h: open_(p + "/f", W | C), "ok ok ok"),
    ("chmod in it", lambda p, h: os.chmod(p + "/f", 0o600), "ok ok ok"),
    ("mkdir", lambda p, h: os.mkdir(p + "/n"), "ok EPERM ok"),
    ("symlink", lambda p, h: os.symlink("x", p + "/n"), "ok EPERM ok"),
    ("mkfifo", lambda p, h: os.mkfifo(p + "/n"), "ok EPERM ok"),
    ("link into", lambda p, h: os.link(p + ".other", p + "/n"), "ok EPERM ok"),
    ("link out of", lambda p, h: os.link(p + "/f", p + ".n"), "ok ok ok"),
    ("file without a name", lambda p, h: open_(p, RW | os.O_TMPFILE), "ok EPERM ok"),
    ("unlink", lambda p, h: os.unlink(p + "/f"), "ok EPERM EPERM"),
    ("unlink nothing", lambda p, h: os.unlink(p + "/none"), "ENOENT ENOENT ENOENT"),
    ("rmdir", lambda p, h: os.rmdir(p + "/s"), "ok EPERM EPERM"),
    ("rename within", lambda p, h: os.rename(p + "/f", p + "/n"), "ok EPERM EPERM"),
    ("rename out of", lambda p, h: os.rename(p + "/f", p + ".n"), "ok EPERM EPERM"),
    ("rename into", lambda p, h: os.rename(p + ".other", p + "/n"), "ok EPERM ok"),
    ("rename a directory into", lambda p, h: os.rename(p + ".dir", p + "/n"), "ok EPERM ok"),
    ("rename over what is in it", lambda p, h: os.rename(p + ".other", p + "/f"), "ok EPERM EPERM"),
    ("exchange", lambda p, h: rename2(p + ".other", p + "/f", EXCHANGE), "ok EPERM EPERM"),
    ("chmod", lambda p, h: os.chmod(p, 0o700), "ok EPERM EPERM"),
    ("times of now", lambda p, h: os.utime(p), "ok EPERM ok"),
    ("times", lambda p, h: times(p), "ok EPERM EPERM"),
    ("set attribute", lambda p, h: os.setxattr(p, "user.b", b"v"), "ok EPERM EPERM"),
    ("list", lambda p, h: os.listdir(p), "ok ok ok"),
    ("remove all", lambda p, h: shutil.rmtree(p), "ok EPERM EPERM"),
    ("rename itself", lambda p, h: os.rename(p, p + "r"), "ok EPERM EPERM"),
]
EMPTY = [
    ("rmdir itself", lambda p, h: os.rmdir(p), "ok EPERM EPERM"),
    ("rename over it", lambda p, h: os.rename(p + ".dir", p), "ok EPERM EPERM"),
]


def clear():
    for dir, _, files in os.walk(stage):
        for path in [dir] + [f"{dir}/{name}" for name in files]:
            if os.path.isfile(path) or os.path.isdir(path): set_flags(path, flags(path) & ~(IMMUTABLE | APPEND))
    shutil.rmtree(stage)

def outcome(kind, act, flag):
    os.mkdir(stage); path = stage + "/t"; held = None
    if kind == "file":
        held = Held(path)
    else:
        os.mkdir(path); open(path + ".other", "w").close()
        if kind == "directory": open(path + "/f", "w").close(); os.mkdir(path + "/s")
    os.mkdir(path + ".dir")
    if flag: set_flags(path, flags(path) | flag)
    try: act(path, held); got = "ok"
    except OSError as error: got = errno.errorcode.get(error.errno, "SIGBUS")
    if held: held.close()
    clear()
    return got


with open("/proc/self/mounts") as mounts:
    kinds = {line.split()[1]: line.split()[2] for line in mounts}
is_fuse = kinds.get(os.path.realpath(mount), "").startswith("fuse")
wrong = 0
for kind, rows in (("file", FILE), ("directory", DIRECTORY), ("empty", EMPTY)):
    for name, act, expected in rows:
        for flag, right in zip((0, IMMUTABLE, APPEND), expected.split()):
            ctypes.set_errno(errno.EACCES)
            got = outcome(kind, act, flag)
            alternatives = right.split("/")
            if got not in (alternatives[1:] or alternatives if is_fuse else alternatives[:1]):
                print(f"{kind}, {name}, flag {flag:#x}: {got}, not {right}"); wrong += 1
sys.exit(1 if wrong else 0)
