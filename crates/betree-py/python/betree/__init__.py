"""An embedded key-value store: named dictionaries of bytes in one file.

    import betree

    with betree.open("events.betree") as store:
        users = store["users"]                       # made if there is none
        users[b"ada"] = b"1815"
        for name, born in users.prefix(b"a"):
            print(name, born)
        with store.batch() as batch:                 # all changes or none
            batch.put(users, b"alan", b"1912")
            batch.put(store["by year"], b"1912/alan", b"")
        sessions = store.dict("sessions", expiring=True)
        sessions.put(b"ada", b"token", ttl=1800)     # gone in half an hour
        trial = store.clone_dict("users", "trial")   # costs the same whatever it holds
        del trial[b"a":b"b"]
        with store.view() as view:                   # one moment of all dictionaries
            print(len(view["users"]))
        with store.transaction() as own:             # commits, or raises Conflict; store.run(function) tries again
            own.put(users, b"ada", own.get(users, b"ada", b"") + b"!")

Keys and values are `bytes`, and keys are in the order of their bytes. Where they are given, any object with a buffer
will do (`bytearray`, `memoryview`). Changes are durable after `sync` and `close`, and
by the store's durability: when a call returns ("commit"), some seconds later (a number; 1.0 is usual), or then only
("manual"). All objects can be used by many threads at once, and no call holds Python's lock while it works. Failures
are subclasses of `betree.Error`; a key that is absent is a `KeyError`.
"""

from __future__ import annotations

import abc
import atexit
import os
import weakref
from collections.abc import Callable, ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from typing import Literal, Optional, Union, overload

from . import _betree
from ._betree import Batch, Pairs, Transaction
from ._errors import (
    BadName,
    Closed,
    Conflict,
    Damaged,
    DictDropped,
    DictExists,
    Error,
    FileExists,
    Forked,
    InUse,
    MergeError,
    NewerStore,
    NoExpiry,
    NoSpace,
    NoSuchDict,
    NoSuchStore,
    NotAStore,
    OtherStore,
    ReadOnly,
    SystemFailed,
    TooLarge,
    TransactionEnded,
    ViewEnded,
)

__all__ = [
    "BadName",
    "Batch",
    "Closed",
    "Conflict",
    "Damaged",
    "Dict",
    "DictDropped",
    "DictExists",
    "Error",
    "FileExists",
    "Forked",
    "InUse",
    "MergeError",
    "NewerStore",
    "NoExpiry",
    "NoSpace",
    "NoSuchDict",
    "NoSuchStore",
    "NotAStore",
    "OtherStore",
    "Pairs",
    "ReadOnly",
    "Store",
    "SystemFailed",
    "TooLarge",
    "Transaction",
    "TransactionEnded",
    "View",
    "ViewDict",
    "ViewEnded",
    "open",
]


# The kinds of the store's own merges.
_Kind = Literal["add_u64", "add_i64", "max", "append", "union_set"]
# What keys and values may be.
_Buffer = Union[bytes, bytearray, memoryview]
# Makes a value of the old one, or of none, and a delta; `None` removes the key.
_Function = Callable[[Optional[bytes], bytes], Optional[_Buffer]]
# Makes one delta of an older and a newer one, or none.
_Combine = Callable[[bytes, bytes], Optional[_Buffer]]


class _Sorted(Mapping[bytes, bytes]):
    """What mappings in the order of their keys have, by walks through their ranges."""

    # A mapping is compared by what it holds.
    __hash__ = None  # type: ignore[assignment]

    @abc.abstractmethod
    def range(
        self, lo: Optional[bytes] = None, hi: Optional[bytes] = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...

    @abc.abstractmethod
    def first(self) -> Optional[tuple[bytes, bytes]]: ...

    def __iter__(self) -> Iterator[bytes]:
        return (key for key, _ in self.range())

    def __reversed__(self) -> Iterator[bytes]:
        return (key for key, _ in self.range(reverse=True))

    def __len__(self) -> int:
        return sum(1 for _ in self.range())

    def __bool__(self) -> bool:
        return self.first() is not None

    def items(self) -> ItemsView[bytes, bytes]:
        """The pairs, in the order of the keys."""
        return _Items(self)

    def values(self) -> ValuesView[bytes]:
        """The values, in the order of the keys."""
        return _Values(self)


class _Items(ItemsView[bytes, bytes]):
    """Pairs, which one walk reads."""

    _mapping: _Sorted

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self._mapping.range()

    def __reversed__(self) -> Iterator[tuple[bytes, bytes]]:
        return self._mapping.range(reverse=True)


class _Values(ValuesView[bytes]):
    """Values, which one walk reads."""

    _mapping: _Sorted

    def __iter__(self) -> Iterator[bytes]:
        return (value for _, value in self._mapping.range())

    def __reversed__(self) -> Iterator[bytes]:
        return (value for _, value in self._mapping.range(reverse=True))


def _bounds(keys: slice) -> tuple[Optional[_Buffer], Optional[_Buffer]]:
    """The bounds of a slice."""
    if keys.step is not None:
        raise ValueError("a slice of keys has no step; range() has `reverse`")
    return keys.start, keys.stop


class Dict(_betree.Dict, _Sorted, MutableMapping[bytes, bytes]):
    """A dictionary of a store: a mapping from bytes to bytes, in the order of the keys.

    `dict[lo:hi]` iterates over the pairs from `lo` on and before `hi`, and `del dict[lo:hi]` removes them at a cost that
    does not depend on how many there are. Iterators are no snapshots: they read some pairs at a time, and meet what is
    changed behind those. `len` counts by a walk through all keys, and `==` compares all pairs. Of methods that read and
    then change (`del`, `pop`, `setdefault`), others may come between; `delete`, `pop_first` and `pop_last` are one step.
    """

    @overload
    def __getitem__(self, key: _Buffer, /) -> bytes: ...
    @overload
    def __getitem__(self, key: slice, /) -> Pairs: ...
    def __getitem__(self, key: Union[_Buffer, slice], /) -> Union[bytes, Pairs]:
        if isinstance(key, slice):
            return self.range(*_bounds(key))
        return super().__getitem__(key)

    def __delitem__(self, key: Union[_Buffer, slice], /) -> None:
        if isinstance(key, slice):
            self.delete_range(*_bounds(key))
        elif key in self:
            self.delete(key)
        else:
            raise KeyError(key)

    def popitem(self) -> tuple[bytes, bytes]:
        """Takes the last pair out, in one step."""
        pair = self.pop_last()
        if pair is None:
            raise KeyError("the dictionary is empty")
        return pair

    def __repr__(self) -> str:
        return f"<betree.Dict {self.name!r}>"


class ViewDict(_betree.ViewDict, _Sorted):
    """A dictionary as it was when a view began: a mapping from bytes to bytes that does not change."""

    @overload
    def __getitem__(self, key: _Buffer, /) -> bytes: ...
    @overload
    def __getitem__(self, key: slice, /) -> Pairs: ...
    def __getitem__(self, key: Union[_Buffer, slice], /) -> Union[bytes, Pairs]:
        if isinstance(key, slice):
            return self.range(*_bounds(key))
        return super().__getitem__(key)

    def __repr__(self) -> str:
        return f"<betree.ViewDict {self.name!r}>"


class View(_betree.View):
    """One moment of a store, and a context manager that ends it. `view[name]` is the dictionary that had the name.

    What was changed before it began is seen, and nothing later, in all dictionaries and with their names of then. It
    hinders nobody. The space of what is overwritten meanwhile comes back when it ends. Where space is short, the store
    ends the oldest view: its reads then raise `ViewEnded`.
    """

    def __getitem__(self, name: str, /) -> ViewDict:
        return ViewDict(self, name)

    def __contains__(self, name: object, /) -> bool:
        return name in self.dicts()

    def __iter__(self) -> Iterator[str]:
        return iter(self.dicts())

    def __len__(self) -> int:
        return len(self.dicts())

    def __bool__(self) -> bool:
        return True


# Stores that are open when the program ends are closed while functions can still be called for merges.
_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _close_all() -> None:
    for store in list(_open_stores):
        try:
            store.close()
        except Error:
            # Nobody is there to be told; what is durable stays.
            pass
    _betree._end()


atexit.register(_close_all)


class Store(_betree.Store):
    """An open store, and a context manager that closes it. `store[name]` is the dictionary of a name."""

    def dict(self, name: str, *, merge: Union[str, None] = None, expiring: bool = False) -> Dict:
        """The dictionary of a name, which is made if there is none; with a merge that was named in `open`.

        With `expiring`, its values may expire: see `Dict.put`.
        """
        return Dict(self, name, merge=merge, expiring=expiring)

    def open_dict(self, name: str) -> Dict:
        """The dictionary of a name, which is there: `NoSuchDict` if it is not."""
        return Dict(self, name, create=False)

    def clone_dict(self, name: str, to: str) -> Dict:
        """Makes a dictionary that holds what another one holds now, at a cost that does not depend on how much it is."""
        return Dict(self, to, clone_of=name)

    def view(self) -> View:
        """Begins a view of this moment, for a `with` block, which ends it."""
        return View(self)

    def __getitem__(self, name: str, /) -> Dict:
        return self.dict(name)

    def __delitem__(self, name: str, /) -> None:
        self.drop_dict(name)

    def __contains__(self, name: object, /) -> bool:
        return name in self.dicts()

    def __iter__(self) -> Iterator[str]:
        return iter(self.dicts())

    def __len__(self) -> int:
        return len(self.dicts())

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<betree.Store {os.fspath(self.path)!r}{' closed' if self.closed else ''}>"


def open(
    path: Union[str, os.PathLike[str]],
    *,
    create: bool = True,
    read_only: bool = False,
    cache_bytes: Union[int, None] = None,
    compression: Union[Literal["none", "lz4", "zstd"], None] = None,
    durability: Union[Literal["commit", "manual"], float, None] = None,
    merges: Union[Mapping[str, Union[_Kind, _Function, tuple[_Function, _Combine]]], None] = None,
    keep_missing_merges: bool = False,
) -> Store:
    """Opens the store in a file, or makes one.

    - `create`: whether one is made where there is no file.
    - `read_only`: nothing is written, and others may have the store open for reading too.
    - `cache_bytes`: memory for what was read and what is not written yet; usually 64 MiB.
    - `compression`: of what is written from now on; usually "lz4".
    - `durability`: when changes survive a crash, see above.
    - `merges`: names of merges, which dictionaries are bound to, and their kinds or functions. A function gets the old
      value, or `None`, and a delta, and returns the new value, or `None` to remove the key; in a pair with it stands one
      that makes one delta of two, or returns `None`. Functions must depend on their arguments alone, and must not use
      the store: threads of the store call them. Where one raises, or makes a value above 4 MiB, that key cannot be read
      (`MergeError`) before it is set or deleted. The old value and its deltas are kept up to 6 MiB; the error reports
      how many deltas were dropped above that.
    - `keep_missing_merges`: whether it is opened though a merge of its dictionaries is not named.
    """
    store = Store(
        path,
        create=create,
        read_only=read_only,
        cache_bytes=cache_bytes,
        compression=compression,
        durability=durability,
        merges=merges,
        keep_missing_merges=keep_missing_merges,
    )
    _open_stores.add(store)
    return store
