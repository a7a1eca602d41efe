"""The module betree: stores, mappings, ranges, batches, failures, threads."""

import array
import errno
import gc
import mmap
import subprocess
import sys
import threading
import time
from collections.abc import MutableMapping

import betree
import pytest


def keys(pairs):
    return b"".join(key for key, _ in pairs)


def test_what_was_put_is_there_when_it_is_opened_again(path):
    with betree.open(str(path), compression="zstd", durability="commit") as store:
        store["users"][b"ada"] = b"1815"
        assert not store.closed
    assert store.closed
    store.close()
    with betree.open(path, read_only=True) as store, betree.open(path, read_only=True) as second:
        assert store["users"][b"ada"] == second["users"][b"ada"] == b"1815"
        with pytest.raises(betree.ReadOnly):
            store["users"][b"ada"] = b"1816"


def test_what_is_synced_survives_the_end_of_the_program(path):
    code = f"""
import betree, os
store = betree.open({str(path)!r}, durability="manual")
store["d"][b"synced"] = b""
store.sync()
store["d"][b"later"] = b""
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    with betree.open(path) as store:
        assert list(store["d"])[-1:] == [b"synced"]


def test_a_dictionary_is_a_mapping(letters):
    assert isinstance(letters, MutableMapping)
    assert letters[b"a"] == b"A" and b"a" in letters and b"z" not in letters
    assert letters.get(b"z") is None and letters.get(b"z", 7) == 7 and letters.get(b"a", 7) == b"A"
    with pytest.raises(KeyError) as absent:
        letters[b"z"]
    assert absent.value.args == (b"z",)
    with pytest.raises(KeyError):
        del letters[b"z"]
    del letters[b"c"]
    letters.delete(b"z")
    assert list(letters) == list(letters.keys()) == [b"a", b"b", b"d", b"e"]
    assert list(reversed(letters)) == [b"e", b"d", b"b", b"a"]
    assert list(letters.values()) == [b"A", b"B", b"D", b"E"]
    assert list(letters.items())[0] == (b"a", b"A") and list(reversed(letters.items()))[0] == (b"e", b"E")
    assert len(letters) == 4 and letters
    assert letters == {b"e": b"E", b"d": b"D", b"b": b"B", b"a": b"A"} and letters != {}
    assert letters.pop(b"a") == b"A" and letters.pop(b"a", None) is None
    assert letters.setdefault(b"a", b"new") == b"new" and letters.setdefault(b"a", b"x") == b"new"
    letters.update({b"f": b"F"})
    assert letters.popitem() == (b"f", b"F")
    assert letters.pop_first() == (b"a", b"new") and letters.pop_last() == (b"e", b"E")
    assert letters.first() == (b"b", b"B") and letters.last() == (b"d", b"D")
    assert letters.get_many([b"d", b"z", b"d"]) == [b"D", None, b"D"]
    letters.clear()
    assert not letters and letters.first() is None and letters.pop_first() is None
    with pytest.raises(KeyError):
        letters.popitem()
    with pytest.raises(TypeError):
        hash(letters)


def test_keys_and_values_are_bytes(letters):
    for wrong in ["a", 1, None]:
        for use in [lambda: letters[wrong], lambda: letters.__setitem__(b"a", wrong), lambda: wrong in letters]:
            with pytest.raises(TypeError):
                use()
    letters[b""] = b"\0\xff"
    assert letters[b""] == b"\0\xff" and letters.first()[0] == b""


def test_ranges_and_prefixes_from_both_ends(letters):
    letters[b"bb"] = letters[b"b\xff"] = b""
    assert keys(letters.range(b"b", b"d")) == b"bbbb\xffc"
    assert keys(letters.range(b"c")) == b"cde" and keys(letters.range(hi=b"b")) == b"a"
    assert keys(letters.range(b"c", reverse=True)) == b"edc"
    assert keys(letters.prefix(b"b")) == b"bbbb\xff" and keys(letters.prefix(b"b", reverse=True)) == b"b\xffbbb"
    assert keys(letters[b"d":]) == b"de" and keys(letters[:]) == keys(letters.items())
    with pytest.raises(ValueError):
        letters[b"a":b"b":b"c"]
    del letters[b"b":b"d"]
    assert list(letters) == [b"a", b"d", b"e"]
    letters.delete_prefix(b"a")
    letters.delete_range(hi=b"e")
    assert list(letters) == [b"e"]


def test_an_iterator_keeps_its_store_and_meets_a_long_range_once(path):
    count = 5000
    store = betree.open(path, cache_bytes=4 << 20)
    with store.batch() as batch:
        for number in range(count):
            batch.put(store["d"], b"%05d" % number, b"v" * 100)
    pairs = store["d"].range(reverse=True)
    del store, batch
    gc.collect()
    assert [key for key, _ in pairs] == [b"%05d" % number for number in reversed(range(count))]


def test_prefixes_are_cloned_and_renamed(store):
    pages = store["pages"]
    pages[b"draft/1"] = b"text"
    pages.clone_prefix(b"draft/", b"public/")
    pages.rename_prefix(b"draft/", b"old/")
    assert list(pages) == [b"old/1", b"public/1"]
    pages[b"big"] = bytes(100_000)
    assert store.check() == []
    stored, exclusive, pairs = pages.estimate(b"b", b"c")
    assert pairs == 1 and pages.estimate()[2] == 3
    assert 0 < exclusive <= stored
    assert pages.estimate(b"x") == (0, 0, 0)
    before = list(pages)
    assert pages.compact() > 0 and pages.compact(b"x", b"y") == 0
    assert list(pages) == before and store.check() == []


def test_dictionaries_come_and_go(store, letters):
    clone = store.clone_dict("letters", "clone")
    clone.clear()
    assert len(letters) == 5 and not clone
    store.rename_dict("letters", "renamed")
    assert letters.name == "renamed" and store.dicts() == list(store) == ["clone", "renamed"]
    assert "clone" in store and "letters" not in store and len(store) == 2
    store.drop_dict("clone")
    del store["renamed"]
    assert store.dicts() == []
    with pytest.raises(betree.DictDropped):
        letters[b"a"]
    with pytest.raises(betree.NoSuchDict) as error:
        store.open_dict("letters")
    assert isinstance(error.value, KeyError) and str(error.value) == 'there is no dictionary "letters"'


def test_a_batch_is_made_whole_or_not_at_all(store, letters):
    others = store["others"]
    with store.batch() as batch:
        batch.put(others, b"x", b"X")
        batch.delete(letters, b"a")
        batch.delete_range(letters, b"b", b"c")
        batch.delete_prefix(letters, b"c")
        assert len(batch) == 4 and b"x" not in others
    assert others == {b"x": b"X"} and list(letters) == [b"d", b"e"] and len(batch) == 0
    with pytest.raises(ZeroDivisionError):
        with store.batch() as batch:
            batch.put(others, b"y", b"Y")
            batch.put(others, b"z", b"%d" % (1 // 0))
    assert list(others) == [b"x"]
    batch.commit()
    assert list(others) == [b"x"], "what was dropped is not made later"
    # One that fails can be repeated.
    batch.put(others, b"y", b"Y")
    store.drop_dict("others")
    with pytest.raises(betree.DictDropped):
        batch.commit()
    assert len(batch) == 1


def test_merges_change_values_without_reading(path):
    options = {"merges": {"hits": "add_u64", "log": "append"}, "cache_bytes": 4 << 20}
    with betree.open(path, **options) as store:
        hits = store.dict("hits", merge="hits")
        for _ in range(3):
            hits.upsert(b"/", (2).to_bytes(8, "little"))
        with store.batch() as batch:
            batch.upsert(hits, b"/", (1).to_bytes(8, "little"))
        assert int.from_bytes(hits[b"/"], "little") == 7
        with pytest.raises(betree.MergeError):
            store["plain"].upsert(b"k", b"d")
        with pytest.raises(betree.MergeError):
            store.dict("hits", merge="log")
        own = store.dict("own", merge="betree.append")
        own.upsert(b"k", b"a")
        own.upsert(b"k", b"b")
        assert own[b"k"] == b"ab"
    with pytest.raises(betree.MergeError):
        betree.open(path)
    with betree.open(path, keep_missing_merges=True) as store:
        store["hits"].upsert(b"/", (1).to_bytes(8, "little"))
        with pytest.raises(betree.MergeError, match='"hits": the merge "hits" is not registered'):
            store["hits"][b"/"]
    with betree.open(path, **options) as store:
        assert int.from_bytes(store["hits"][b"/"], "little") == 8


def test_failures_have_their_class(path, store, tmp_path):
    assert issubclass(betree.InUse, betree.Error)
    with pytest.raises(betree.InUse, match="open already"):
        betree.open(path)
    with pytest.raises(betree.NoSuchStore):
        betree.open(tmp_path / "none", create=False)
    (tmp_path / "text").write_bytes(b"text" * 10_000)
    with pytest.raises(betree.NotAStore):
        betree.open(tmp_path / "text")
    with pytest.raises(OSError) as error:
        betree.open(tmp_path / "nowhere" / "store")
    assert isinstance(error.value, betree.SystemFailed) and error.value.errno == errno.ENOENT
    assert error.value.filename == str(tmp_path / "nowhere" / "store") and "nowhere" in str(error.value)
    for name in ["", "x" * 256]:
        with pytest.raises(betree.BadName):
            store[name]
    store["d"][b"k"] = b""
    with pytest.raises(betree.DictExists):
        store.clone_dict("d", "d")
    with pytest.raises(betree.TooLarge):
        store["d"][b"k" * 100_000] = b""
    with pytest.raises(betree.TooLarge):
        store["d"][b"k"] = bytes((64 << 20) + 1)
    with betree.open(tmp_path / "other") as other, pytest.raises(betree.OtherStore):
        store.batch().put(other["d"], b"k", b"v")
    for wrong in [{"compression": "lzma"}, {"durability": "never"}, {"durability": -1.0}, {"durability": 0},
                  {"merges": {"m": "divide"}}]:
        with pytest.raises(ValueError):
            betree.open(tmp_path / "wrong", **wrong)
    assert not (tmp_path / "wrong").exists()


def test_a_closed_store_says_so(store, letters):
    pairs, batch = letters.range(), store.batch()
    batch.put(letters, b"a", b"")
    store.close()
    for use in [lambda: letters[b"a"], lambda: next(pairs), lambda: batch.commit(), lambda: store.sync(),
                lambda: store["letters"]]:
        with pytest.raises(betree.Closed):
            use()
    assert repr(store).endswith("closed>") and repr(letters) == "<betree.Dict 'letters'>"


def test_statistics_are_numbers_by_name(store, letters):
    stats = store.stats()
    assert stats["dicts"] == 1 and stats["used_bytes"] > 0 and "device_reads" in stats


def test_threads_pop_each_job_once(store):
    jobs = store["jobs"]
    with store.batch() as batch:
        for number in range(400):
            batch.put(jobs, b"%03d" % number, b"")
    taken = [[] for _ in range(4)]

    def work(mine):
        while (job := jobs.pop_first()) is not None:
            mine.append(job[0])

    threads = [threading.Thread(target=work, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sum(taken, [])) == [b"%03d" % number for number in range(400)]


def test_other_threads_run_while_the_store_works(store):
    """Python's lock is free meanwhile: otherwise no line of this program would run between start and end."""
    dictionary, value, span = store["d"], bytes(60 << 20), []

    def put():
        start = time.monotonic()
        dictionary[b"k"] = value
        span.extend([start, time.monotonic()])

    # A thread that waits for Python's lock gets it by force after this time: never, here.
    usual = sys.getswitchinterval()
    sys.setswitchinterval(100)
    try:
        thread = threading.Thread(target=put)
        thread.start()
        ticks = []
        while thread.is_alive():
            ticks.append(time.monotonic())
            time.sleep(0)
        thread.join()
    finally:
        sys.setswitchinterval(usual)
    start, end = span
    assert any(start < tick < end for tick in ticks)


def test_a_close_that_fails_releases_the_file(path):
    code = f"""
import betree, errno, resource
path = {str(path)!r}
store = betree.open(path, durability="manual")
kept = store["d"]
kept[b"synced"] = b""
store.sync()
kept[b"lost"] = b""
# Every write beyond the first block fails from here on.
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
try:
    store.close()
except betree.Error as error:
    print(type(error).__name__)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(store.closed)
with betree.open(path) as again:
    print(list(again["d"]))
try:
    kept[b"synced"]
except betree.Closed:
    print("closed")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split("\n")[1:] == ["True", "[b'synced']", "closed", ""], ended.stdout


def test_objects_with_a_buffer_are_keys_and_values(store):
    letters = store["letters"]
    for number, buffer in enumerate([bytes, bytearray, memoryview, lambda b: array.array("B", b), mmap_of]):
        key, value = buffer(b"key %d" % number), buffer(b"value %d" % number)
        letters[key] = value
        assert letters[key] == letters[b"key %d" % number] == b"value %d" % number
        assert key in letters and letters.get(key) == letters.get_many([key])[0]
    wide = memoryview(array.array("H", [1, 2]))
    letters.put(b"wide", wide)
    assert letters[b"wide"] == wide.tobytes()
    with store.batch() as batch:
        batch.put(letters, bytearray(b"b"), memoryview(b"batch"))
    with store.transaction() as own:
        assert own.get(letters, bytearray(b"b")) == b"batch"
        own.put(letters, bytearray(b"t"), memoryview(b"transaction"))
    with store.view() as view:
        assert view["letters"][bytearray(b"t")] == b"transaction"
    assert [key for key, _ in letters[bytearray(b"b") : memoryview(b"c")]] == [b"b"]
    del letters[bytearray(b"b")]
    assert b"b" not in letters
    for wrong in ("text", 7, None):
        with pytest.raises(TypeError, match="a bytes-like object is required, not "):
            letters[b"k"] = wrong
        with pytest.raises(TypeError, match="a bytes-like object is required, not "):
            letters[wrong] = b"v"


def mmap_of(contents):
    mapped = mmap.mmap(-1, len(contents))
    mapped[:] = contents
    return mapped


@pytest.mark.parametrize("turn", range(5))
def test_a_program_ends_while_daemon_threads_are_in_calls(path, turn):
    code = f"""
import betree, threading
store = betree.open({str(path)!r}, cache_bytes=1 << 20, durability="commit")
letters = store["letters"]
began = threading.Barrier(9)

def write(number):
    began.wait()
    while True:
        try:
            letters[b"%d" % number] = b"x" * 1000
            list(letters.values())
        except betree.Closed:
            pass

for number in range(8):
    threading.Thread(target=write, args=(number,), daemon=True).start()
began.wait()
letters[b"main"] = b"done"
"""
    ended = subprocess.run([sys.executable, "-c", code], timeout=120, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    with betree.open(path) as store:
        assert store["letters"][b"main"] == b"done"


def test_an_empty_file_becomes_a_store(path):
    path.touch(0o640)
    with pytest.raises(betree.NotAStore, match="it is empty"):
        betree.open(path, read_only=True)
    with betree.open(path) as store:
        store["d"][b"k"] = b"v"
    assert path.stat().st_mode & 0o777 == 0o640
    with betree.open(path, create=False) as store:
        assert store["d"][b"k"] == b"v"
