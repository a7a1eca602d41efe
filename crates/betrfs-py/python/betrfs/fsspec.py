"""BetrFS as a file system of fsspec: `fsspec.filesystem("betrfs", volume="data.betrfs")`.

Paths begin at the root of the volume. A process opens a volume once, with the options of whoever comes first, and
all instances that name it share it. `close` closes it for all; the next use opens it again.

A transaction (`with fs.transaction:`) covers the contents of files: what `open`, `pipe`, `put` and `touch` write. Each
file is written under a temporary name in the directory of its target and renamed there when the transaction ends, one
file after the other. Until then readers find the old contents. If an exception ends the transaction, all of it is
removed. Everything else (`mkdir`, `cp`, `mv`, `rm`, links, permissions, snapshots) takes effect at once.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import stat
import threading
import uuid
from collections import deque
from datetime import datetime, timezone

from fsspec.spec import AbstractFileSystem
from fsspec.transaction import Transaction

from . import Fs

_TYPES = {"symlink": ("link", stat.S_IFLNK), "directory": ("directory", stat.S_IFDIR), "file": ("file", stat.S_IFREG)}

_LINKS_MAX = 40

_logger = logging.getLogger("betrfs")
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


class _Deferred:
    """The new contents of a file, under a temporary name until they are committed or discarded."""

    def __init__(self, fs, path, mode, new_dirs):
        self._fs = fs
        self._new_dirs = new_dirs
        self._streams = []
        self._is_done = False
        self._target = path
        try:
            self._must_not_exist = "x" in mode
            self._target, found = (path, _found(fs, path)) if self._must_not_exist else _followed(fs, path)
            self._temporary = f"{self._target.rpartition('/')[0]}/.betrfs-transaction-{uuid.uuid4().hex}"
            if found is None:
                if "r" in mode:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            elif self._must_not_exist:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            elif found.is_dir:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            else:
                # Shares the contents and keeps owner, permissions and attributes.
                fs.clone_tree(self._target, self._temporary)
        except BaseException:
            self._remove_new_dirs()
            raise

    def open(self, mode):
        """Opens the new contents."""
        stream = self._fs.open(self._temporary, mode)
        self._streams.append(stream)
        return stream

    def is_wrapped_by(self, stream):
        """Notes a stream that writes to the last one: it is closed first."""
        if stream is not self._streams[-1]:
            self._streams.append(stream)

    def commit(self):
        """Gives the file its new contents."""
        if self._is_done:
            return
        try:
            # What wraps a stream may not close it.
            while self._streams:
                self._streams.pop().close()
            rename = self._fs.rename_no_replace if self._must_not_exist else self._fs.rename
            rename(self._temporary, self._target)
        except BaseException:
            self.discard()
            raise
        self._is_done = True

    def discard(self):
        """Removes the new contents. Raises nothing: an exception of the program may be on its way."""
        if self._is_done:
            return
        self._is_done = True
        for stream in reversed(self._streams):
            try:
                stream.close()
            except Exception:
                _logger.debug("cannot close %s", self._target, exc_info=True)
        try:
            self._fs.remove_file(self._temporary)
        except FileNotFoundError:
            pass
        except Exception as error:
            _logger.warning("cannot remove %s, left by an abandoned transaction: %s", self._temporary, error)
        self._remove_new_dirs()

    def _remove_new_dirs(self):
        for path in reversed(self._new_dirs):
            try:
                self._fs.remove_dir(path)
            except Exception:
                # Something else is in it by now.
                break


class _Transaction(Transaction):
    """The files that are written in a transaction, by path."""

    def __init__(self, fs, **kwargs):
        super().__init__(fs, **kwargs)
        self.deferred = {}

    def start(self):
        super().start()
        self.deferred = {}

    def complete(self, commit=True):
        # fsspec has collected streams, some of them twice, and none that updates a file.
        self.files = deque(self.deferred.values())
        self.deferred = {}
        super().complete(commit)


def _found(fs, path):
    """What is at a path; `None` if nothing is."""
    try:
        return fs.symlink_metadata(path)
    except FileNotFoundError:
        return None


def _followed(fs, path):
    """The path that a write to `path` goes to, as links at its end are followed, and what is there."""
    for _ in range(_LINKS_MAX):
        found = _found(fs, path)
        if found is None or not found.is_symlink:
            return path, found
        path = os.path.join(path.rpartition("/")[0] or "/", fs.read_link(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


class BetrFileSystem(AbstractFileSystem):
    """A volume. `size` makes it where there is none; `auto_mkdir` makes directories for what is written."""

    protocol = "betrfs"
    root_marker = "/"
    transaction_type = _Transaction

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

    def open(self, path, mode="rb", *args, **kwargs):
        stream = super().open(path, mode, *args, **kwargs)
        if self._intrans and not kwargs.get("autocommit") and _writes(mode):
            self.transaction.deferred[self._strip_protocol(path)].is_wrapped_by(stream)
        return stream

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **kwargs):
        path = self._strip_protocol(path)
        if autocommit or not _writes(mode):
            self._make_parents(path, mode)
            return self.fs.open(path, mode)
        known = self.transaction.deferred.get(path) if self._intrans else None
        if known is not None and "x" in mode:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        deferred = known or _Deferred(self.fs, path, mode, self._make_parents(path, mode))
        try:
            stream = deferred.open(mode)
        except BaseException:
            if known is None:
                deferred.discard()
            raise
        if self._intrans:
            self.transaction.deferred[path] = deferred
        # For a caller that asks for `autocommit=False` itself.
        stream.commit, stream.discard = deferred.commit, deferred.discard
        return stream

    def _make_parents(self, path, mode):
        """Makes the directories for what is written; returns the new ones."""
        new = []
        if self.auto_mkdir and "r" not in mode:
            parent = self._parent(path)
            while not self.exists(parent):
                new.insert(0, parent)
                parent = self._parent(parent)
            self.makedirs(self._parent(path), exist_ok=True)
        return new

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
        if truncate or not self.exists(path):
            self.open(path, "wb").close()
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


def _writes(mode):
    return any(letter in mode for letter in "wax+")


def _has_magic(path):
    return any(letter in path for letter in "*?[")
