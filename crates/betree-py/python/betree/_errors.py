"""Exceptions of the store."""

from typing import Union


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
    """A key, a value, a batch or a transaction is larger than the store takes."""


class OtherStore(Error, ValueError):
    """A batch or a transaction and a dictionary belong to different stores."""


class MergeError(Error):
    """A merge is not registered, is another one than the dictionary's, or has failed."""


class FileExists(Error):
    """There is a file already where one is to be made."""


class Conflict(Error):
    """Another change came first, and the transaction has changed nothing: it is to be tried again.

    `dict` is the name of the dictionary; `key` is the key, or the place where the changed range begins, or `None` if
    the dictionary itself was made, renamed or dropped; `by` is the number of the other change, or of one behind it.
    """

    def __init__(self, dict: str, key: Union[bytes, None], by: int) -> None:
        super().__init__(dict, key, by)
        self.dict = dict
        self.key = key
        self.by = by

    def __str__(self) -> str:
        what = f"the dictionary {self.dict!r}"
        if self.key is not None:
            what = f"the key {self.key!r} of {what}"
        return f"another change of {what} came first"


class ViewEnded(Error):
    """The view, or that of the transaction, has ended: it was ended, or the store needed the space of what it held."""


class TransactionEnded(Error):
    """The transaction was committed or aborted."""


class Forked(Error):
    """The store was opened by another process, of which this one is a fork."""


class NoExpiry(Error, ValueError):
    """A value is to expire in a dictionary that was not made for that."""


class Damaged(Error):
    """The store's file is damaged."""
