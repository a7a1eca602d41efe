"""Merges that are functions of Python, which threads of the store call."""

import subprocess
import sys
import threading

import betree
import pytest

# A store whose threads call a merge all the time: the cache is small, and the values are not combined.
STORE = """
import betree, sys

def longest(old, delta):
    return delta if old is None or len(delta) > len(old) else old

store = betree.open(sys.argv[1], cache_bytes=1 << 20, merges={"longest": longest})
words = store.dict("words", merge="longest")

def write(turns):
    for turn in range(turns):
        for key in range(100):
            words.upsert(b"%d" % key, b"x" * (turn % 50 * 20))
"""


def run(path, code):
    """Runs a program, which must end: where it waits for itself, it does not."""
    ended = subprocess.run([sys.executable, "-c", STORE + code, str(path)], timeout=300, capture_output=True, text=True)
    assert ended.returncode == 0 and ended.stderr == "", ended.stderr
    return ended.stdout


def test_a_function_merges_in_all_threads(path):
    calls = set()

    def append(old, delta):
        calls.add(threading.current_thread().name)
        return (old or b"") + delta if delta else None

    with betree.open(path, cache_bytes=1 << 20, merges={"append": append}) as store:
        notes = store.dict("notes", merge="append")
        for number in range(3000):
            notes.upsert(b"%d" % (number % 300), b"%d," % (number // 300))
        assert notes[b"7"] == b"0,1,2,3,4,5,6,7,8,9,"
        store.check()
        with store.view() as view, store.transaction() as own:
            notes.upsert(b"7", b"")
            assert view["notes"][b"7"] == own.get(notes, b"7") == b"0,1,2,3,4,5,6,7,8,9,"
        assert b"7" not in notes
    assert len(calls) >= 1


def test_a_function_that_fails_hinders_nothing_else(path):
    def picky(old, delta):
        if delta == b"bad":
            raise ValueError("I do not like it")
        return "text" if delta == b"text" else delta

    with betree.open(path, cache_bytes=1 << 20, merges={"picky": picky}) as store:
        dictionary = store.dict("d", merge="picky")
        for delta in [b"good", b"bad", b"late"]:
            dictionary.upsert(b"k", delta)
        dictionary.upsert(b"l", b"text")
        assert store.check() == []
        with pytest.raises(betree.MergeError, match='"picky" failed: ValueError: I do not like it'):
            dictionary[b"k"]
        with pytest.raises(betree.MergeError, match="TypeError"):
            dictionary[b"l"]
    with betree.open(path, merges={"picky": lambda old, delta: (old or b"") + delta}) as store:
        assert store["d"][b"k"] == b"goodbadlate"


def test_a_second_function_combines_deltas(path):
    combined = []

    def add(old, delta):
        return b"%d" % (int(old or b"0") + int(delta))

    def combine(older, newer):
        combined.append(newer)
        return add(older, newer)

    with betree.open(path, merges={"add": (add, combine)}) as store:
        hits = store.dict("hits", merge="add")
        for _ in range(1000):
            hits.upsert(b"/", b"1")
        assert hits[b"/"] == b"1000"
    assert len(combined) > 900


def test_threads_that_use_the_store_while_it_merges_do_not_wait_for_themselves(path):
    assert run(path, """
import threading
stopped = threading.Event()

def use():
    while not stopped.is_set():
        view = store.view()
        words.get(b"1"); store.stats(); words.name; store.dicts(); list(view["words"].range())
        own = store.transaction("snapshot")
        own.upsert(words, b"1", b"y")
        del own
        view.end()

# A failure ends the program, and with it its threads.
threads = [threading.Thread(target=use, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
write(60)
stopped.set()
for thread in threads:
    thread.join()
store.sync()
print(len(words[b"1"]), store.check())
store.close()
""") == "980 []\n"


@pytest.mark.parametrize("ending", [
    "store.close()",
    # The last object that stands for the store closes it, whichever that is.
    "del store, words",
    "pairs = words.range(); next(pairs); del store, words; del pairs",
    "view = store.view(); then = view['words']; del store, words, view; del then",
    "own = store.transaction(); own.put(words, b'1', b''); del store, words; del own",
    "batch = store.batch(); del store, words; del batch",
    # The program ends with all of them.
    "",
    "keep = [store.view(), store.transaction(), words.range(), store.batch()]",
    "del store; keep = words",
])
def test_a_store_that_ends_while_merges_wait_does_not_wait_for_itself(path, ending):
    run(path, f"write(30)\n{ending}\n")
    longest = lambda old, delta: delta if old is None or len(delta) > len(old) else old
    with betree.open(path, merges={"longest": longest}) as store:
        assert len(store["words"][b"7"]) == 29 * 20


# A writer of one key whose merge makes no value, and of another dictionary.
WRITER = """
import betree, sys

def raises(old, delta):
    raise ValueError("I never do")

merges = {"lines": "append", "raises": raises}
store = betree.open(sys.argv[1], cache_bytes=1 << 20, merges=merges)
log, other = store.dict("log", merge=sys.argv[2]), store["other"]
for number in range(120):
    other[b"%04d" % number] = b"v"
    log.upsert(b"today", b"x" * 100_000)
    if number % 20 == 19:
        store.sync()
if sys.argv[3] == "crash":
    import os
    os._exit(0)
store.close()
"""


@pytest.mark.parametrize("merge", ["lines", "raises"])
@pytest.mark.parametrize("end", ["crash", "close"])
def test_a_key_without_a_value_affects_no_other(path, merge, end):
    ended = subprocess.run(
        [sys.executable, "-c", WRITER, str(path), merge, end], timeout=300, capture_output=True, text=True
    )
    assert ended.returncode == 0 and ended.stderr == "", ended.stderr
    merges = {"lines": "append", "raises": lambda old, delta: None}
    for read_only in (True, False):
        with betree.open(path, read_only=read_only, merges=merges) as store:
            assert len(store.open_dict("other")) == 120
            with pytest.raises(betree.MergeError, match="today.*dropped: put or delete the key"):
                store.open_dict("log")[b"today"]
    with betree.open(path, merges=merges) as store:
        log = store.open_dict("log")
        log[b"today"] = b"whole"
        assert log[b"today"] == b"whole"
        log.delete(b"today")
        assert b"today" not in log


def test_a_merge_of_another_kind_under_the_same_name_is_refused(path):
    with betree.open(path, merges={"m": "append"}) as store:
        store.dict("d", merge="m").upsert(b"k", b"a")
    for other in ("max", lambda old, delta: delta):
        with pytest.raises(betree.MergeError, match='dictionary "d" was used with a merge "m" of the kind "append"'):
            betree.open(path, merges={"m": other})
    with betree.open(path, merges={"m": "append"}) as store:
        assert store["d"][b"k"] == b"a"
