import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, Optional, TypeVar, Union, final, overload

from typing_extensions import Self, disjoint_base

__all__ = ["Batch", "Dict", "Pairs", "Store"]

_T = TypeVar("_T")
_Merge = Literal["add_u64", "add_i64", "max", "append", "union_set"]

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
    def sync(self) -> None:
        """Makes all changes durable that were made before the call."""
    def stats(self) -> dict[str, int]:
        """Counters of what it has done, and what it takes."""
    def check(self) -> list[str]:
        """Walks through everything in the file; what is wrong with it, a line each."""
    def close(self) -> None:
        """Makes everything durable, and releases the file. Closed again, it does nothing."""
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
        clone_of: Optional[str] = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """The name at the moment."""
    def __getitem__(self, key: bytes, /) -> bytes: ...
    def __setitem__(self, key: bytes, value: bytes, /) -> None: ...
    def __contains__(self, key: object, /) -> bool: ...
    @overload
    def get(self, key: bytes, default: None = None) -> Optional[bytes]: ...
    @overload
    def get(self, key: bytes, default: _T) -> Union[bytes, _T]: ...
    def get_many(self, keys: list[bytes]) -> list[Optional[bytes]]:
        """The values of several keys, in the order of these; `None` for those that are not there."""
    def delete(self, key: bytes) -> None:
        """Removes a key, if it is there, and does not read whether it is: so it is cheaper than `del`."""
    def upsert(self, key: bytes, delta: bytes) -> None:
        """Changes the value of a key by the dictionary's merge, without reading it."""
    def range(
        self, lo: Optional[bytes] = None, hi: Optional[bytes] = None, *, reverse: bool = False
    ) -> Pairs:
        """The pairs from the key `lo` on and before `hi`, in the order of the keys or against it."""
    def prefix(self, prefix: bytes, *, reverse: bool = False) -> Pairs:
        """The pairs whose keys begin with a prefix, in the order of the keys or against it."""
    def first(self) -> Optional[tuple[bytes, bytes]]:
        """The first pair, or `None`."""
    def last(self) -> Optional[tuple[bytes, bytes]]:
        """The last pair, or `None`."""
    def pop_first(self) -> Optional[tuple[bytes, bytes]]:
        """Takes the first pair out, or returns `None`. Of several threads, each gets another one."""
    def pop_last(self) -> Optional[tuple[bytes, bytes]]:
        """Takes the last pair out, or returns `None`. Of several threads, each gets another one."""
    def delete_range(self, lo: Optional[bytes] = None, hi: Optional[bytes] = None) -> None:
        """Removes every key from `lo` on and before `hi`, at a cost that does not depend on how many there are."""
    def delete_prefix(self, prefix: bytes) -> None:
        """Removes every key that begins with a prefix, at a cost that does not depend on how many there are."""
    def clear(self) -> None:
        """Removes every key, at a cost that does not depend on how many there are."""
    def clone_prefix(self, source: bytes, to: bytes) -> None:
        """Makes what begins with `to` what begins with `source`, at a cost that does not depend on how much it is."""
    def rename_prefix(self, source: bytes, to: bytes) -> None:
        """As `clone_prefix`, and what began with `source` is gone."""
    def estimate(self, lo: Optional[bytes] = None, hi: Optional[bytes] = None) -> tuple[int, int]:
        """The bytes that a range takes in the file, and those of them that no clone shares."""

@final
class Batch:
    """Changes of any dictionaries of one store, made as one.

    They are made by `commit`, or at the end of a `with` block, which makes none where it ends with an exception.
    """

    def put(self, dict: Dict, key: bytes, value: bytes) -> None:
        """Sets the value of a key."""
    def delete(self, dict: Dict, key: bytes) -> None:
        """Removes a key, if it is there."""
    def upsert(self, dict: Dict, key: bytes, delta: bytes) -> None:
        """Changes the value of a key by the dictionary's merge."""
    def delete_range(self, dict: Dict, lo: Optional[bytes] = None, hi: Optional[bytes] = None) -> None:
        """Removes every key from `lo` on and before `hi`."""
    def delete_prefix(self, dict: Dict, prefix: bytes) -> None:
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
