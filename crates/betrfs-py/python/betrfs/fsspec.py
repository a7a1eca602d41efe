"""BetrFS as a file system of fsspec: `fsspec.filesystem("betrfs", volume="data.betrfs")`.

Paths begin at the root of the volume. A process opens a volume once, with the options of whoever comes first, and
all instances that name it share it. `close` closes it for all; the next use opens it again.
"""

from __future__ import annotations

import atexit
import os
import stat
import threading
from datetime import datetime, timezone

from fsspec.spec import AbstractFileSystem

from . import Fs

_TYPES = {"symlink": ("link", stat.S_IFLNK), "directory": ("directory", stat.S_IFDIR), "file": ("file", stat.S_IFREG)}

_volumes = {}
_volumes_lock = threading.Lock()


def _shared(volume, size, read_only, cache_bytes):
    """The open volume of a path."""
    with _volumes_lock:
        fs = _volumes.get(volume)
        if fs is None or fs.closed:
            size = None if os.path.exists(volume) else size
            fs = _volumes[volume] = Fs(volume, size=size, read_only=read_only, cache_bytes=cache_bytes)
        return fs


@atexit.register
def _close_all():
    for fs in _volumes.values():
        fs.close()


class BetrFileSystem(AbstractFileSystem):
    """A volume. `size` makes it where there is none; `auto_mkdir` makes directories for what is written."""

    protocol = "betrfs"
    root_marker = "/"

    def __init__(self, volume, size=None, read_only=False, cache_bytes=None, auto_mkdir=False, **kwargs):
        super().__init__(**kwargs)
        self._options = (os.path.realpath(volume), size, read_only, cache_bytes)
        self.auto_mkdir = auto_mkdir

    @property
    def fs(self):
        """The volume itself, with all that fsspec has no word for."""
        return _shared(*self._options)

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        if path.startswith("betrfs://"):
            path = path[len("betrfs://") :]
        return "/" + path.strip("/")

    def unstrip_protocol(self, name):
        return "betrfs://" + self._strip_protocol(name)

    @property
    def fsid(self):
        return f"betrfs-{self._options[0]}"

    def close(self):
        """Makes all durable and closes the volume, for all instances."""
        with _volumes_lock:
            fs = _volumes.pop(self._options[0], None)
        if fs is not None:
            fs.close()

    def sync(self):
        """Makes all that was changed durable."""
        self.fs.sync()

    def _info(self, path, found):
        kind, bits = _TYPES.get(found.file_type, ("other", 0))
        info = {
            "name": path,
            "size": found.size,
            "type": kind,
            "mode": bits | found.mode,
            "uid": found.uid,
            "gid": found.gid,
            "ino": found.ino,
            "nlink": found.nlink,
            "mtime": found.modified_ns / 1e9,
            "created": found.created_ns / 1e9,
            "islink": found.is_symlink,
        }
        if found.is_symlink:
            info["destination"] = self.fs.read_link(path)
            try:
                target = self.fs.metadata(path)
                info["size"], info["type"] = target.size, _TYPES.get(target.file_type, ("other", 0))[0]
            except OSError:
                pass
        return info

    def info(self, path, **kwargs):
        path = self._strip_protocol(path)
        return self._info(path, self.fs.symlink_metadata(path))

    def ls(self, path, detail=True, **kwargs):
        path = self._strip_protocol(path)
        info = self.info(path)
        if info["type"] != "directory":
            return [info] if detail else [path]
        entries = self.fs.read_dir(path)
        if not detail:
            return [entry.path for entry in entries]
        return [self._info(entry.path, entry.metadata()) for entry in entries]

    def exists(self, path, **kwargs):
        try:
            return self.fs.exists(self._strip_protocol(path))
        except NotADirectoryError:
            return False

    def mkdir(self, path, create_parents=True, **kwargs):
        path = self._strip_protocol(path)
        if create_parents:
            self.makedirs(self._parent(path), exist_ok=True)
        self.fs.create_dir(path)

    def makedirs(self, path, exist_ok=False):
        path = self._strip_protocol(path)
        if not exist_ok and self.exists(path):
            raise FileExistsError(path)
        self.fs.create_dir_all(path)

    def rmdir(self, path):
        self.fs.remove_dir(self._strip_protocol(path))

    def rm_file(self, path):
        self.fs.remove_file(self._strip_protocol(path))

    def _rm(self, path):
        self.rm_file(path)

    def rm(self, path, recursive=False, maxdepth=None):
        if recursive and maxdepth is None:
            for one in path if isinstance(path, list) else [path]:
                for found in self.expand_path(one) if _has_magic(one) else [self._strip_protocol(one)]:
                    if self.isdir(found):
                        self.fs.rm_tree(found)
                    else:
                        self.fs.remove_file(found)
            return
        super().rm(path, recursive=recursive, maxdepth=maxdepth)

    def cp_file(self, path1, path2, **kwargs):
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.auto_mkdir:
            self.makedirs(self._parent(path2), exist_ok=True)
        if self.isfile(path1):
            self.fs.copy(path1, path2)
        elif self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
        else:
            raise FileNotFoundError(path1)

    def copy(self, path1, path2, recursive=False, maxdepth=None, on_error=None, **kwargs):
        """Copies; a whole directory to where nothing is, at a cost that does not depend on what it holds."""
        if recursive and maxdepth is None and isinstance(path1, str) and isinstance(path2, str):
            target = self._whole_target(path1, path2)
            if target is not None:
                if self.auto_mkdir:
                    self.makedirs(self._parent(target), exist_ok=True)
                return self.fs.clone_tree(self._strip_protocol(path1), target)
        return super().copy(path1, path2, recursive=recursive, maxdepth=maxdepth, on_error=on_error, **kwargs)

    def _whole_target(self, path1, path2):
        """Where a copy of a whole directory goes, if it is one and nothing is there."""
        if _has_magic(path1) or not self.isdir(path1):
            return None
        target = self._strip_protocol(path2)
        if self.isdir(target):
            if path1.endswith("/"):
                return None
            target = target.rstrip("/") + "/" + self._strip_protocol(path1).rsplit("/", 1)[-1]
        if self.exists(target) or not (self.auto_mkdir or self.isdir(self._parent(target))):
            return None
        return target

    def mv(self, path1, path2, recursive=False, maxdepth=None, **kwargs):
        """Renames, at a cost that does not depend on what is renamed."""
        if maxdepth is None and isinstance(path1, str) and isinstance(path2, str) and not _has_magic(path1):
            source, target = self._strip_protocol(path1), self._strip_protocol(path2)
            if self.isdir(target) and not (self.isdir(source) and path1.endswith("/")):
                target = target.rstrip("/") + "/" + source.rsplit("/", 1)[-1]
            if self.auto_mkdir:
                self.makedirs(self._parent(target), exist_ok=True)
            return self.fs.rename(source, target)
        return super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)

    def snapshot(self, path, name):
        """Makes a snapshot of a directory, at a cost that does not depend on what it holds."""
        self.fs.snapshot(self._strip_protocol(path), name)

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **kwargs):
        path = self._strip_protocol(path)
        if self.auto_mkdir and "r" not in mode:
            self.makedirs(self._parent(path), exist_ok=True)
        return self.fs.open(path, mode)

    def cat_file(self, path, start=None, end=None, **kwargs):
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self.fs.read(path)
        with self.fs.open(path, "rb", 0) as file:
            start, end, _ = slice(start, end).indices(file.metadata().size)
            file.seek(start)
            return file.read(max(end - start, 0))

    def touch(self, path, truncate=True, **kwargs):
        path = self._strip_protocol(path)
        if self.auto_mkdir:
            self.makedirs(self._parent(path), exist_ok=True)
        if truncate or not self.exists(path):
            self.fs.write(path, b"")
        else:
            now = int(datetime.now(timezone.utc).timestamp() * 1e9)
            self.fs.set_times(path, accessed_ns=now, modified_ns=now)

    def created(self, path):
        return self._time(self.fs.metadata(self._strip_protocol(path)).created_ns)

    def modified(self, path):
        return self._time(self.fs.metadata(self._strip_protocol(path)).modified_ns)

    @staticmethod
    def _time(ns):
        return datetime.fromtimestamp(ns / 1e9, tz=timezone.utc)

    def chmod(self, path, mode):
        """Sets the permissions."""
        self.fs.set_permissions(self._strip_protocol(path), mode)

    def link(self, src, dst):
        """Gives a file one more name."""
        self.fs.hard_link(self._strip_protocol(src), self._strip_protocol(dst))

    def symlink(self, src, dst):
        """Makes a symbolic link."""
        self.fs.symlink(src, self._strip_protocol(dst))


def _has_magic(path):
    return any(letter in path for letter in "*?[")
