"""What the tests of the module share."""

import betree
import pytest


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(path):
    with betree.open(path, cache_bytes=4 << 20, durability="manual") as opened:
        yield opened


@pytest.fixture
def letters(store):
    dictionary = store["letters"]
    for letter in "edcba":
        dictionary[letter.encode()] = letter.upper().encode()
    return dictionary
