"""Values that expire."""

import time

import betree
import pytest


def test_a_value_is_there_until_its_time(store):
    sessions = store.dict("sessions", expiring=True)
    assert sessions.expiring and not store["plain"].expiring
    now = time.time()
    sessions.put(b"past", b"v", until=now - 1)
    sessions.put(b"far", b"v", until=now + 3600)
    sessions.put(b"ttl", b"v", ttl=3600)
    sessions.put(b"stays", b"v")
    assert list(sessions) == [b"far", b"stays", b"ttl"]
    assert sessions.expires_at(b"far") == pytest.approx(now + 3600, abs=1e-3)
    assert now + 3600 <= sessions.expires_at(b"ttl") + 1e-3
    assert sessions.expires_at(b"stays") is sessions.expires_at(b"past") is None
    # A plain put has no time.
    sessions[b"far"] = b"w"
    assert sessions.expires_at(b"far") is None
    sessions.remove_expired()
    assert sessions.remove_expired() == 0


def test_a_view_keeps_what_expires_behind_its_beginning(store):
    sessions = store.dict("sessions", expiring=True)
    sessions.put(b"k", b"v", ttl=0.5)
    with store.view() as view:
        seen = b"k" in view["sessions"]
        while b"k" in sessions:
            time.sleep(0.01)
        # It began before or after, and stays with that.
        assert (b"k" in view["sessions"]) == seen
    assert sessions.get(b"k") is None


def test_what_cannot_be_is_refused(store):
    with pytest.raises(betree.NoExpiry):
        store["plain"].put(b"k", b"v", ttl=1)
    with pytest.raises(betree.NoExpiry):
        store.dict("plain", expiring=True)
    sessions = store.dict("sessions", expiring=True)
    for wrong in [{"ttl": -1.0}, {"ttl": float("nan")}, {"until": float("inf")}, {"ttl": 1.0, "until": 1.0}]:
        with pytest.raises(ValueError):
            sessions.put(b"k", b"v", **wrong)
    assert not sessions
