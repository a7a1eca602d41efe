"""Volumes for the tests, in folders of their own."""

import betrfs
import pytest

VOLUME_BYTES = 64 << 20


@pytest.fixture
def volume(tmp_path):
    """The path of a volume that is not open."""
    path = tmp_path / "volume"
    betrfs.create(path, VOLUME_BYTES).close()
    return path


@pytest.fixture
def fs(volume):
    with betrfs.open(volume) as opened:
        yield opened
