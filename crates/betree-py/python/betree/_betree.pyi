import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, Optional, TypeVar, Union, final, overload

from typing_extensions import Self, disjoint_base

import betree

__all__ = ["Batch", "Dict", "Pairs", "Store", "Transaction", "View", "ViewDict"]

_T = TypeVar("_T")
# What keys, values and deltas may be; they are copied, unless they are `bytes`.
_Buffer = Union[bytes, bytearray, memoryview]
_Kind = Literal["add_u64", "add_i64", "max", "append", "union_set"]
_Function = Callable[[Optional[bytes], bytes], Optional[_Buffer]]
_Combine = Callable[[bytes, bytes], Optional[_Buffer]]
_Merge = Union[_Kind, _Function, tuple[_Function, _Combine]]
_Isolation = Literal["snapshot", "serializable"]

def _end() -> None: ...
@disjoint_base
class Store:
    """An open store, and a context manager that closes it."""

    def __new__(
        cls,
        path: Union[str, os.PathLike[str]],
        *,
        create: bool = True,
        read_only: bool = False,
        cache_bytes: Optional[int] = None,
        compression: Optional[Literal["none", "lz4", "zstd"]] = None,
        durability: Union[Literal["commit", "manual"], float, None] = None,
        merges: Optional[Mapping[str, _Merge]] = None,
        keep_missing_merges: bool = False,
    ) -> Self: ...
    @property
    def path(self) -> Path:
        """The path with which it was opened."""
    @property
    def closed(self) -> bool:
        """Whether it was closed."""
    def dicts(self) -> list[str]:
        """The names of all dictionaries, in order."""
    def rename_dict(self, name: str, to: str) -> None:
        """Renames a dictionary. Objects that stand for it stay good."""
    def drop_dict(self, name: str) -> None:
        """Removes a dictionary with all that it holds, at a cost that does not depend on that."""
    def batch(self) -> Batch:
        """An empty batch, for a `with` block."""
    def transaction(self, isolation: _Isolation = "serializable") -> Transaction:
        """Begins a transaction, for a `with` block, which commits it."""
    def run(self, function: Callable[[Transaction], _T], *, isolation: _Isolation = "serializable") -> _T:
        """Calls a function with a transaction, again after each conflict, until it commits, and returns its result."""
    def backup(
        self,
        path: Union[str, os.PathLike[str]],
        progress: Optional[Callable[[str, int, int], object]] = None,
    ) -> None:
        """Copies the store into a new file, as it is at this moment; writers go on meanwhile.

        The function is called with a dictionary's name, and the numbers of pairs and bytes that were copied so far; what
        it raises stops the copy. Where it fails, no file is left.
        """
    def sync(self) -> None:
        """Makes all changes durable that were made before the call."""
    def stats(self) -> dict[str, int]:
        """Counters of what it has done, and what it takes."""
    def check(self) -> list[str]:
        """Walks through everything in the file; what is wrong with it, a line each."""
    def close(self) -> None:
        """Makes everything durable, and releases the file, also where it fails.

        After `NoSpace` the store stays open, to be closed again once there is room, or abandoned; the end of a `with`
        block abandons it. Closed again, it does nothing.
        """
    def abandon(self) -> None:
        """Releases the file and writes nothing more to it: what is not durable is lost."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_raised: object) -> None: ...

@disjoint_base
class Dict:
    """A dictionary of a store: an ordered map from bytes to bytes."""

    def __new__(
        cls,
        store: Store,
        name: str,
        *,
        create: bool = True,
        merge: Optional[str] = None,
        expiring: bool = False,
        clone_of: Optional[str] = None,
        transaction: Optional[Transaction] = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """The name at the moment."""
    def __getitem__(self, key: _Buffer, /) -> bytes: ...
    def __setitem__(self, key: _Buffer, value: _Buffer, /) -> None: ...
    def __contains__(self, key: object, /) -> bool: ...
    @overload
    def get(self, key: _Buffer, default: None = None) -> Optional[bytes]: ...
    @overload
    def get(self, key: _Buffer, default: _T) -> Union[bytes, _T]: ...
    def get_many(self, keys: Sequence[_Buffer]) -> list[Optional[bytes]]:
        """The values of several keys, in the order of these; `None` for those that are not there."""
    def put(
        self, key: _Buffer, value: _Buffer, *, ttl: Optional[float] = None, until: Optional[float] = None
    ) -> None:
        """Sets the value of a key; with `ttl`, for that many seconds, with `until`, up to that time.

        The time is in seconds since 1970. From then on nobody sees the value.
        """
    def expires_at(self, key: _Buffer) -> Optional[float]:
        """The time at which the value of a key expires, in seconds since 1970; `None` if it never does, or there is none."""
    @property
    def expiring(self) -> bool:
        """Whether it was made for values that expire."""
    def remove_expired(self) -> int:
        """Removes what has expired, which nobody sees anyway, and returns how many pairs that were. It reads all pairs."""
    def delete(self, key: _Buffer) -> None:
        """Removes a key, if it is there, and does not read whether it is: so it is cheaper than `del`."""
    def upsert(self, key: _Buffer, delta: _Buffer) -> None:
        """Changes the value of a key by the dictionary's merge, without reading it."""
    def range(
        self, lo: Optional[_Buffer] = None, hi: Optional[_Buffer] = None, *, reverse: bool = False
    ) -> Pairs:
        """The pairs from the key `lo` on and before `hi`, in the order of the keys or against it."""
    def prefix(self, prefix: _Buffer, *, reverse: bool = False) -> Pairs:
        """The pairs whose keys begin with a prefix, in the order of the keys or against it."""
    def first(self) -> Optional[tuple[bytes, bytes]]:
        """The first pair, or `None`."""
    def last(self) -> Optional[tuple[bytes, bytes]]:
        """The last pair, or `None`."""
    def pop_first(self) -> Optional[tuple[bytes, bytes]]:
        """Takes the first pair out, or returns `None`. Of several threads, each gets another one."""
    def pop_last(self) -> Optional[tuple[bytes, bytes]]:
        """Takes the last pair out, or returns `None`. Of several threads, each gets another one."""
    def delete_range(self, lo: Optional[_Buffer] = None, hi: Optional[_Buffer] = None) -> None:
        """Removes every key from `lo` on and before `hi`, at a cost that does not depend on how many there are."""
    def delete_prefix(self, prefix: _Buffer) -> None:
        """Removes every key that begins with a prefix, at a cost that does not depend on how many there are."""
    def clear(self) -> None:
        """Removes every key, at a cost that does not depend on how many there are."""
    def clone_prefix(self, source: _Buffer, to: _Buffer) -> None:
        """Makes what begins with `to` what begins with `source`, at a cost that does not depend on how much it is."""
    def rename_prefix(self, source: _Buffer, to: _Buffer) -> None:
        """As `clone_prefix`, and what began with `source` is gone."""
    def compact(self, lo: Optional[_Buffer] = None, hi: Optional[_Buffer] = None) -> int:
        """Rewrites a range in the order of its keys and returns the bytes that it has written.

        It takes less of the file then, and a scan reads it in large pieces. What clones share is left as it is.
        """
    def estimate(self, lo: Optional[_Buffer] = None, hi: Optional[_Buffer] = None) -> tuple[int, int, int]:
        """The bytes that a range takes in the file, those of them that no clone shares, and about how many pairs it has."""

@final
class Batch:
    """Changes of any dictionaries of one store, made as one.

    They are made by `commit`, or at the end of a `with` block, which makes none where it ends with an exception.
    """

    def put(self, dict: Dict, key: _Buffer, value: _Buffer) -> None:
        """Sets the value of a key."""
    def delete(self, dict: Dict, key: _Buffer) -> None:
        """Removes a key, if it is there."""
    def upsert(self, dict: Dict, key: _Buffer, delta: _Buffer) -> None:
        """Changes the value of a key by the dictionary's merge."""
    def delete_range(self, dict: Dict, lo: Optional[_Buffer] = None, hi: Optional[_Buffer] = None) -> None:
        """Removes every key from `lo` on and before `hi`."""
    def delete_prefix(self, dict: Dict, prefix: _Buffer) -> None:
        """Removes every key that begins with a prefix."""
    def commit(self) -> None:
        """Makes the changes, and empties the batch. Where it fails, the batch stays as it is."""
    def clear(self) -> None:
        """Forgets the changes."""
    def __len__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, exception: object, *_raised: object) -> None: ...

@final
class Pairs(Iterator[tuple[bytes, bytes]]):
    """An iterator over keys and values, in their order or from the last to the first."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> tuple[bytes, bytes]: ...

@disjoint_base
class View:
    """One moment of a store, and a context manager that ends it."""

    def __new__(cls, store: Store) -> Self: ...
    def dicts(self) -> list[str]:
        """The names of all dictionaries that there were, in order."""
    @property
    def last_change(self) -> int:
        """The number of the last change that it sees."""
    def end(self) -> None:
        """Ends it: reads of its dictionaries fail from then on, and the space of what it held comes back."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_raised: object) -> None: ...

@disjoint_base
class ViewDict:
    """A dictionary as it was when a view began."""

    def __new__(cls, view: View, name: str) -> Self: ...
    @property
    def name(self) -> str:
        """The name that it had."""
    def __getitem__(self, key: _Buffer, /) -> bytes: ...
    def __contains__(self, key: object, /) -> bool: ...
    @overload
    def get(self, key: _Buffer, default: None = None) -> Optional[bytes]: ...
    @overload
    def get(self, key: _Buffer, default: _T) -> Union[bytes, _T]: ...
    def get_many(self, keys: Sequence[_Buffer]) -> list[Optional[bytes]]:
        """The values of several keys, in the order of these; `None` for those that were not there."""
    def range(
        self, lo: Optional[_Buffer] = None, hi: Optional[_Buffer] = None, *, reverse: bool = False
    ) -> Pairs:
        """The pairs from the key `lo` on and before `hi`, in the order of the keys or against it."""
    def prefix(self, prefix: _Buffer, *, reverse: bool = False) -> Pairs:
        """The pairs whose keys begin with a prefix, in the order of the keys or against it."""
    def first(self) -> Optional[tuple[bytes, bytes]]:
        """The first pair, or `None`."""
    def last(self) -> Optional[tuple[bytes, bytes]]:
        """The last pair, or `None`."""

@final
class Transaction:
    """Reads of one moment of a store, and changes that nobody else sees before the commit.

    A `with` block commits at its end, and drops the changes where it ends with an exception.
    """

    def dict(self, name: str) -> betree.Dict:
        """The dictionary of a name, as of the beginning and with the transaction's own changes."""
    def create_dict(self, name: str, *, merge: Optional[str] = None) -> betree.Dict:
        """Makes a dictionary. It is good for this transaction, and everywhere once that has committed."""
    def clone_dict(self, name: str, to: str) -> betree.Dict:
        """Makes a dictionary that holds what another one holds, as the transaction sees it."""
    def dicts(self) -> list[str]:
        """The names of all dictionaries, in order."""
    def rename_dict(self, name: str, to: str) -> None:
        """Renames a dictionary."""
    def drop_dict(self, name: str) -> None:
        """Removes a dictionary with all that it holds."""
    @overload
    def get(self, dict: Dict, key: _Buffer, default: None = None) -> Optional[bytes]: ...
    @overload
    def get(self, dict: Dict, key: _Buffer, default: _T) -> Union[bytes, _T]: ...
    def get_many(self, dict: Dict, keys: Sequence[_Buffer]) -> list[Optional[bytes]]:
        """The values of several keys, in the order of these; `None` for those that are not there."""
    def contains(self, dict: Dict, key: _Buffer) -> bool:
        """Whether there is a value of a key."""
    def put(self, dict: Dict, key: _Buffer, value: _Buffer) -> None:
        """Sets the value of a key."""
    def delete(self, dict: Dict, key: _Buffer) -> None:
        """Removes a key, if it is there."""
    def upsert(self, dict: Dict, key: _Buffer, delta: _Buffer) -> None:
        """Changes the value of a key by the dictionary's merge."""
    def upsert_blind(self, dict: Dict, key: _Buffer, delta: _Buffer) -> None:
        """As `upsert`, for a delta that depends on nothing that was read: it conflicts with no change of the key."""
    def delete_range(self, dict: Dict, lo: Optional[_Buffer] = None, hi: Optional[_Buffer] = None) -> None:
        """Removes every key from `lo` on and before `hi`."""
    def delete_prefix(self, dict: Dict, prefix: _Buffer) -> None:
        """Removes every key that begins with a prefix."""
    def clone_prefix(self, dict: Dict, source: _Buffer, to: _Buffer) -> None:
        """Makes what begins with `to` what begins with `source`."""
    def rename_prefix(self, dict: Dict, source: _Buffer, to: _Buffer) -> None:
        """As `clone_prefix`, and what began with `source` is gone."""
    def range(
        self, dict: Dict, lo: Optional[_Buffer] = None, hi: Optional[_Buffer] = None, *, reverse: bool = False
    ) -> Pairs:
        """The pairs from the key `lo` on and before `hi`, with the transaction's own changes."""
    def prefix(self, dict: Dict, prefix: _Buffer, *, reverse: bool = False) -> Pairs:
        """The pairs whose keys begin with a prefix, with the transaction's own changes."""
    def expect(self, dict: Dict, key: _Buffer, holds: Callable[[Optional[bytes]], object]) -> bool:
        """Makes the commit depend on a condition of a value in place of the value; whether it holds now.

        The function gets the value or `None`. It is called again by the commit, if the key has changed by then; there an
        exception counts as a condition that does not hold.
        """
    def savepoint(self) -> int:
        """A place to which `roll_back` returns."""
    def roll_back(self, savepoint: int) -> None:
        """Drops the changes since a savepoint, which stays; those behind it end."""
    def commit(self) -> None:
        """Makes the changes seen, all or none, and ends the transaction: `Conflict` if another change came first."""
    def abort(self) -> None:
        """Ends the transaction, and drops its changes. Ended again, it does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(self, exception: object, *_raised: object) -> None: ...
