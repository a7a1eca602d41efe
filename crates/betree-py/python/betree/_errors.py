"""Exceptions of the store."""


class Error(Exception):
    """What a store can fail with."""

    def __str__(self) -> str:
        # KeyError would show it as a key.
        return str(self.args[-1]) if self.args else ""


class SystemFailed(Error, OSError):
    """The operating system refused; with its number and the path."""

    def __str__(self) -> str:
        return str(self.strerror)


class InUse(Error):
    """Another process has the store open, or this one has it open already."""


class NoSuchStore(Error):
    """There is no such file, and none was to be made."""


class NotAStore(Error):
    """The file holds something else than a store."""


class NewerStore(Error):
    """The store was made by a later version of the library."""


class NoSpace(Error):
    """There is no room, in the store or on its disk. The store goes on once there is."""


class ReadOnly(Error):
    """The store takes no changes: a write failed, or it was opened for reading."""


class Closed(Error):
    """The store was closed."""


class NoSuchDict(Error, KeyError):
    """The store has no dictionary of that name."""


class DictExists(Error):
    """The store has a dictionary of that name."""


class DictDropped(Error):
    """The dictionary was dropped after the object for it was made."""


class BadName(Error, ValueError):
    """No dictionary can have that name."""


class TooLarge(Error, ValueError):
    """A key, a value or a batch is larger than the store takes."""


class OtherStore(Error, ValueError):
    """A batch and a dictionary belong to different stores."""


class MergeError(Error):
    """A merge is not registered, is another one than the dictionary's, or has failed."""


class Damaged(Error):
    """The store's file is damaged."""
