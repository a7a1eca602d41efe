#!/usr/bin/env python3
"""mapping-full.py VOLUME: makes that volume, fills it, and stores into mappings of its files. What replaces
blocks that a file has must be kept, and close(2) must return the error of what found no room. BETRFS is the
command."""

import ctypes
import errno
import mmap
import os
import random
import subprocess
import sys

MIB = 1 << 20


def opened(name, flags=0):
    return os.open(name, os.O_RDWR | os.O_CLOEXEC | flags)


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def store(fd, bytes):
    """Not by a mmap.mmap: that has a descriptor of its own, and ignores the error of its close(2)."""
    pages = LIBC.mmap(None, len(bytes), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    assert pages != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
    ctypes.memmove(pages, bytes, len(bytes))
    assert LIBC.munmap(pages, len(bytes)) == 0


def betrfs(*arguments):
    subprocess.run(["timeout", "60", os.environ.get("BETRFS", "betrfs"), *arguments], check=True)


def run():
    fd = opened("kept", os.O_CREAT)
    assert os.pwrite(fd, random.Random(1).randbytes(4 * MIB), 0) == 4 * MIB
    os.fsync(fd)
    os.close(fd)
    hole = opened("hole", os.O_CREAT)
    os.ftruncate(hole, MIB)

    full = opened("full", os.O_CREAT)
    for size in [MIB, 64 << 10]:
        try:
            while True:
                os.write(full, random.randbytes(size))
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
    os.close(full)

    fd = opened("kept")
    store(fd, random.Random(2).randbytes(4 * MIB))
    os.close(fd)

    store(hole, b"x" * MIB)
    try:
        os.close(hole)
    except OSError as error:
        assert error.errno in (errno.ENOSPC, errno.EIO), error
    else:
        raise AssertionError("close(2) says nothing of pages that found no room")

    # It is told once, as on other file systems.
    os.close(opened("hole"))


volume = sys.argv[1]
folder = volume + ".mnt"
betrfs("mkfs", volume, "64M")
os.mkdir(folder)
betrfs("mount", volume, folder)
try:
    os.chdir(folder)
    run()
    os.chdir("/")
    # What the kernel has in memory says nothing.
    betrfs("umount", folder)
    betrfs("mount", volume, folder)
    with open(folder + "/kept", "rb") as kept:
        assert kept.read() == random.Random(2).randbytes(4 * MIB), "the stores have vanished"
finally:
    os.chdir("/")
    betrfs("umount", folder)
betrfs("check", volume)
