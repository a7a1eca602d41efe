"""Views, transactions and backups."""

import os
import threading

import betree
import pytest


def test_a_view_shows_one_moment_until_it_ends(store, letters):
    with store.view() as view:
        letters[b"a"] = b"new"
        del letters[b"b"]
        store["later"]
        store.drop_dict("letters")
        then = view["letters"]
        assert list(view) == view.dicts() == ["letters"] and "later" not in view and len(view) == 1
        assert then == {letter.encode(): letter.upper().encode() for letter in "abcde"}
        assert then[b"a"] == b"A" and b"b" in then and then.get(b"z", 7) == 7 and then.name == "letters"
        assert then.get_many([b"c", b"z"]) == [b"C", None]
        assert [key for key, _ in then[b"b":b"d"]] == [b"b", b"c"]
        assert [key for key, _ in then.prefix(b"d", reverse=True)] == [b"d"]
        assert list(reversed(then))[0] == b"e" and list(then.values())[0] == b"A" and then
        assert then.first() == (b"a", b"A") and then.last() == (b"e", b"E")
        with pytest.raises(KeyError):
            then[b"z"]
        with pytest.raises(TypeError):
            then[b"a"] = b"x"
        with pytest.raises(betree.NoSuchDict):
            view["later"]
        pairs = then.range()
        assert next(pairs) == (b"a", b"A")
    for use in [lambda: then[b"a"], lambda: then.first(), lambda: view.dicts(), lambda: view["letters"]]:
        with pytest.raises(betree.ViewEnded):
            use()
    assert store.view().last_change > view.last_change


def test_a_with_block_commits_a_transaction_or_drops_it(store, letters):
    with store.transaction() as own:
        own.put(letters, b"a", b"1")
        own.delete(letters, b"b")
        own.delete_range(letters, b"c", b"d")
        own.delete_prefix(letters, b"d")
        assert own.get(letters, b"a") == b"1" and own.get(letters, b"b") is None and own.get(letters, b"b", 7) == 7
        assert own.get_many(letters, [b"e", b"b"]) == [b"E", None]
        assert own.contains(letters, b"e") and not own.contains(letters, b"d")
        assert list(own.range(letters)) == [(b"a", b"1"), (b"e", b"E")]
        assert list(own.range(letters, b"b", reverse=True)) == list(own.prefix(letters, b"e")) == [(b"e", b"E")]
        assert letters[b"a"] == b"A", "nobody else sees it"
    assert letters == {b"a": b"1", b"e": b"E"}
    with pytest.raises(ZeroDivisionError):
        with store.transaction("snapshot") as own:
            own.put(letters, b"a", b"2")
            1 // 0
    assert letters[b"a"] == b"1"
    for use in [lambda: own.put(letters, b"a", b""), lambda: own.commit(), lambda: own.get(letters, b"a")]:
        with pytest.raises(betree.TransactionEnded):
            use()
    own.abort()
    with store.transaction() as own:
        own.put(letters, b"a", b"3")
        own.abort()
    with store.transaction() as own:
        own.put(letters, b"e", b"4")
        own.commit()
    assert letters == {b"a": b"1", b"e": b"4"}
    with pytest.raises(ValueError):
        store.transaction("hopeful")


def test_a_conflict_names_dictionary_and_key(store, letters):
    with pytest.raises(betree.Conflict) as raised:
        with store.transaction("snapshot") as own:
            own.put(letters, b"a", b"own")
            letters[b"a"] = b"other"
    found = raised.value
    assert (found.dict, found.key) == ("letters", b"a") and found.by > 0 and "b'a'" in str(found)
    assert letters[b"a"] == b"other"
    # What was read counts too, in serializable ones: ranges with what was not there.
    with pytest.raises(betree.Conflict) as raised:
        with store.transaction() as own:
            own.put(letters, b"z", b"%d" % len(list(own.prefix(letters, b"b"))))
            letters[b"bb"] = b""
    assert raised.value.key is not None and raised.value.key.startswith(b"b")
    with pytest.raises(betree.Conflict) as raised:
        with store.transaction("snapshot") as own:
            own.put(letters, b"a", b"")
            store.drop_dict("letters")
    assert raised.value.key is None


def test_names_are_a_part_of_a_transaction(store, letters):
    with store.transaction() as own:
        made = own.create_dict("made", merge="betree.append")
        assert isinstance(made, betree.Dict)
        own.upsert(made, b"k", b"a")
        own.upsert_blind(made, b"k", b"b")
        own.drop_dict("letters")
        own.rename_dict("made", "letters")
        assert own.dicts() == ["letters"] and own.dict("letters").name == "made"
        with pytest.raises(betree.NoSuchDict):
            made[b"k"]
    assert made[b"k"] == b"ab" and made.name == "letters" and store.dicts() == ["letters"]
    with pytest.raises(betree.DictDropped):
        letters[b"a"]


def test_clones_are_a_part_of_a_transaction(store, letters):
    with store.transaction() as own:
        clone = own.clone_dict("letters", "clone")
        own.clone_prefix(clone, b"a", b"x")
        own.rename_prefix(clone, b"b", b"y")
        assert own.get(clone, b"x") == b"A" and own.get(clone, b"b") is None and own.get(clone, b"y") == b"B"
    assert clone.name == "clone" and list(clone) == [b"a", b"c", b"d", b"e", b"x", b"y"] and len(letters) == 5


def test_savepoints_take_changes_back(store, letters):
    with store.transaction() as own:
        own.put(letters, b"a", b"1")
        first = own.savepoint()
        own.delete_range(letters)
        second = own.savepoint()
        own.put(letters, b"x", b"")
        own.roll_back(first)
        assert own.get(letters, b"b") == b"B"
        with pytest.raises(ValueError, match="no savepoint"):
            own.roll_back(second)
    assert letters[b"a"] == b"1" and len(letters) == 5


def test_an_expectation_stands_for_a_read(store):
    stock = store["stock"]

    def at_least_three(value):
        return value is not None and value >= b"3"

    for other, is_met in [(b"5", True), (b"2", False)]:
        stock[b"apples"] = b"9"
        own = store.transaction()
        assert own.expect(stock, b"apples", at_least_three) and not own.expect(stock, b"pears", at_least_three)
        own.put(stock, b"order", b"")
        stock[b"apples"] = other
        if is_met:
            own.commit()
        else:
            with pytest.raises(betree.Conflict):
                own.commit()
    with pytest.raises(ZeroDivisionError):
        store.transaction().expect(stock, b"apples", lambda _: 1 // 0)


def test_run_repeats_a_function_until_it_commits(store):
    counters = store["counters"]

    def count():
        for _ in range(50):
            store.run(lambda own: own.put(counters, b"k", b"%d" % (int(own.get(counters, b"k", b"0")) + 1)))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters[b"k"] == b"200"
    assert store.run(lambda own: own.get(counters, b"k"), isolation="snapshot") == b"200"
    tries = []

    def once_in_vain(own):
        tries.append(own)
        own.put(counters, b"l", b"")
        if len(tries) == 1:
            counters[b"l"] = b"other"
        return len(tries)

    assert store.run(once_in_vain, isolation="snapshot") == 2
    with pytest.raises(ZeroDivisionError):
        store.run(lambda own: own.put(counters, b"k", b"%d" % (1 // 0)))
    assert counters[b"k"] == b"200"


def test_a_backup_is_a_store_and_its_callback_can_stop_it(store, tmp_path):
    much = store["much"]
    for number in range(3000):
        much[b"%04d" % number] = os.urandom(1000)
    expected = dict(much)
    reports = []

    def report(dictionary, pairs, size):
        reports.append((dictionary, pairs, size))
        much[b"new"] = b""

    store.backup(tmp_path / "copy", report)
    assert [size for _, _, size in reports] == sorted(size for _, _, size in reports) and reports[0][0] == "much"
    with betree.open(tmp_path / "copy") as copy:
        assert dict(copy["much"]) == expected and copy.check() == []
    with pytest.raises(ZeroDivisionError):
        store.backup(tmp_path / "stopped", lambda *_: 1 // 0)
    assert not (tmp_path / "stopped").exists()
    with pytest.raises(betree.FileExists):
        store.backup(tmp_path / "copy")


def test_a_fork_is_refused_and_leaves_its_parent_s_store(path, store, letters):
    pid = os.fork()
    if pid == 0:
        # Nothing of pytest may run on: the child ends here.
        code = 1
        try:
            for use in [lambda: letters[b"a"], lambda: letters.__setitem__(b"a", b""), store.sync, store.close]:
                try:
                    use()
                except betree.Forked:
                    code = 0
                else:
                    code = 2
                    break
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    letters[b"a"] = b"parent"
    with pytest.raises(betree.InUse):
        betree.open(path)
