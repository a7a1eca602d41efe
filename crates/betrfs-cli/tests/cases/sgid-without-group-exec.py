#!/usr/bin/env python3
"""A change of contents or owner by a user outside of a file's group, without CAP_FSETID, clears set-group-id even if
the group has no execute permission; a member of the group keeps the bit (setattr_should_drop_sgid of Linux 6.2 and
later; xfstests generic/683 to 685). A store to a mapping clears nothing, as on ext4. Run as root."""
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
top = os.path.join(sys.argv[1], f"sgid.{os.getpid()}")
os.mkdir(top); os.chmod(top, 0o777)
path, source = os.path.join(top, "file"), os.path.join(top, "source")
OWNER, USER, GROUP = 1, 65534, 50

def make(name, mode, uid):
    with open(name, "wb") as f: f.write(b"a" * 200000)
    os.chown(name, uid, GROUP); os.chmod(name, mode)

def on_open(op, flags=os.O_RDWR):
    def run():
        fd = os.open(path, flags)
        op(fd)
    return run
def fallocate(mode):
    def run(fd):
        if libc.fallocate(fd, mode, 65536, 65536) != 0: raise OSError(ctypes.get_errno(), "fallocate")
    return on_open(run)
def copy(fd): os.copy_file_range(os.open(source, os.O_RDONLY), fd, 4096, 0, 0)
def store(fd):
    with mmap.mmap(fd, 4096) as m: m[0:1] = b"q"; m.flush()
ways = {
    "write": on_open(lambda fd: os.pwrite(fd, b"x", 0)), "truncate": lambda: os.truncate(path, 100),
    "ftruncate": on_open(lambda fd: os.ftruncate(fd, 100)), "O_TRUNC": on_open(lambda fd: None, os.O_WRONLY | os.O_TRUNC),
    "fallocate": fallocate(0), "keep-size": fallocate(1), "punch": fallocate(3), "zero": fallocate(16),
    "copy_file_range": on_open(copy), "mapping": on_open(store),
    "chown to its owner": lambda: os.chown(path, USER, -1), "chgrp": lambda: os.chown(path, -1, USER),
}

def child(groups, way):
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups(groups); os.setgid(USER); os.setuid(USER); way()
        except BaseException as error:
            print("failed:", error); os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0: sys.exit(2)

bad = 0
make(source, 0o644, OWNER)
for mode in (0o6666, 0o2666, 0o6766, 0o6776):
    for name, way in ways.items():
        for groups in ([], [GROUP]):
            make(path, mode, USER if name.startswith("ch") else OWNER)
            os.stat(path)                       # the kernel knows the mode
            child(groups, way)
            keeps_group = bool(groups) and not mode & 0o010
            want = mode if name == "mapping" else mode & (0o2777 if keeps_group else 0o777)
            got = os.stat(path).st_mode & 0o7777
            if got != want: bad += 1; print(f"{name} on {mode:o} by a user with groups {groups}: {got:o}, expected {want:o}")
            os.unlink(path)
# Root keeps them when it writes; its chown clears only what the group can execute.
for mode, name, want in ((0o6666, "write", 0o6666), (0o6666, "chgrp", 0o2666), (0o6776, "chgrp", 0o776)):
    make(path, mode, OWNER); ways[name]()
    got = os.stat(path).st_mode & 0o7777
    if got != want: bad += 1; print(f"{name} on {mode:o} by root: {got:o}, expected {want:o}")
    os.unlink(path)
os.unlink(source); os.rmdir(top)
sys.exit(bad > 0)
