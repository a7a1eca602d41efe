"""A file system in a file or a block device, by paths and without a mount.

    import betrfs

    with betrfs.create("data.betrfs", 64 << 20) as fs:
        fs.create_dir_all("project/src")
        with fs.open("project/src/main.py", "w") as file:
            file.write("print('hello')\\n")
        fs.clone_tree("project", "experiment")  # costs the same whatever the directory holds

What was changed is durable after `sync`, after `close`, and within five seconds by itself. All can be used by many
threads at once; no call holds Python's lock while it waits. A fork of the process (`os.fork`, or `multiprocessing` with
that start method) cannot use a volume that it inherits: its calls fail with `EBADF`. Failures are `OSError`, with the system's numbers.
"""

import atexit

from ._betrfs import Dir, DirEntry, File, Fs, Metadata, StatFs, Usage, Walk, _end

# Threads that are in a call when the program ends must not return to an interpreter that is gone.
atexit.register(_end)

__all__ = ["Dir", "DirEntry", "File", "Fs", "Metadata", "StatFs", "Usage", "Walk", "create", "open"]


def open(volume, **options):
    """Opens a volume. Options: cache_bytes, read_only, and uid, gid and umask of who acts."""
    return Fs(volume, **options)


def create(volume, size, **options):
    """Makes a new file of `size` bytes with an empty volume, and opens that."""
    return Fs(volume, size=size, **options)
