"""Open files as Python's streams."""

import io
import os


class RawFile(io.RawIOBase):
    """An unbuffered stream of bytes."""

    def __init__(self, file, name, mode):
        self._file = file
        self.name = name
        self.mode = mode
        self._reads = "r" in mode or "+" in mode
        self._writes = any(letter in mode for letter in "wax+")
        if "a" in mode:
            file.seek(0, os.SEEK_END)

    def readable(self):
        self._check()
        return self._reads

    def writable(self):
        self._check()
        return self._writes

    def seekable(self):
        self._check()
        return True

    def read(self, size=-1):
        self._check_readable()
        return self._file.readall() if size is None or size < 0 else self._file.read(size)

    def readall(self):
        self._check_readable()
        return self._file.readall()

    def readinto(self, buffer):
        self._check_readable()
        with memoryview(buffer).cast("B") as view:
            data = self._file.read(len(view))
            view[: len(data)] = data
        return len(data)

    def write(self, data):
        if not self.writable():
            raise io.UnsupportedOperation("not writable")
        with memoryview(data).cast("B") as view:
            return self._file.write(view.obj if type(view.obj) is bytes and len(view.obj) == len(view) else bytes(view))

    def seek(self, offset, whence=os.SEEK_SET):
        self._check()
        return self._file.seek(offset, whence)

    def truncate(self, size=None):
        if not self.writable():
            raise io.UnsupportedOperation("not writable")
        size = self.tell() if size is None else size
        self._file.truncate(size)
        return size

    def sync(self):
        """Makes the file durable. Flush a stream with a buffer before."""
        self._check()
        self._file.sync()

    def metadata(self):
        """The attributes of the file, also of one without a name."""
        self._check()
        return self._file.metadata()

    @property
    def size(self):
        """The size of the file in bytes."""
        return self.metadata().size

    def allocate(self, offset, length):
        """Makes sure that there is room for a range."""
        self._check()
        self._file.allocate(offset, length)

    def punch_hole(self, offset, length):
        """Makes a range a hole, which takes no room."""
        self._check()
        self._file.punch_hole(offset, length)

    def close(self):
        if not self.closed:
            try:
                super().close()
            finally:
                self._file.close()

    def _check(self):
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _check_readable(self):
        if not self.readable():
            raise io.UnsupportedOperation("not readable")


class _Sized:
    """What streams with a buffer have beside those of `io`."""

    @property
    def size(self):
        """The size of the file in bytes, with what is still in the buffer."""
        stored = self.raw.metadata().size
        return max(stored, self.tell()) if self.writable() else stored


class BufferedReader(_Sized, io.BufferedReader):
    """A stream of bytes that is read."""


class BufferedWriter(_Sized, io.BufferedWriter):
    """A stream of bytes that is written."""


class BufferedRandom(_Sized, io.BufferedRandom):
    """A stream of bytes that is read and written."""


def wrap(file, name, mode, buffering, encoding, errors, newline):
    """The stream that the built-in `open` would return for these arguments."""
    binary = "b" in mode
    try:
        if binary and (encoding is not None or errors is not None or newline is not None):
            raise ValueError("binary mode takes no encoding, errors or newline")
        if not binary and buffering == 0:
            raise ValueError("can't have unbuffered text I/O")
        raw = RawFile(file, name, mode)
    except BaseException:
        file.close()
        raise
    if buffering == 0:
        return raw
    size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
    if "+" in mode:
        stream = BufferedRandom(raw, size)
    elif raw.readable():
        stream = BufferedReader(raw, size)
    else:
        stream = BufferedWriter(raw, size)
    if binary:
        return stream
    text = io.TextIOWrapper(stream, encoding, errors, newline, line_buffering=buffering == 1)
    text.mode = mode
    return text
