"""fsspec's own tests on a volume, and what is special about it."""

import errno

import betrfs
import fsspec
import numpy
import pandas
import pytest
import zarr
from fsspec.tests import abstract

VOLUME_BYTES = 64 << 20


class VolumeFixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    @classmethod
    def fs(cls, tmp_path_factory):
        volume = str(tmp_path_factory.mktemp("volume") / "volume")
        opened = fsspec.filesystem("betrfs", volume=volume, size=VOLUME_BYTES, auto_mkdir=True)
        yield opened
        opened.close()

    @pytest.fixture
    def fs_path(self):
        return "/tests/of/fsspec"


class TestCopy(abstract.AbstractCopyTests, VolumeFixtures):
    pass


class TestGet(abstract.AbstractGetTests, VolumeFixtures):
    pass


class TestPut(abstract.AbstractPutTests, VolumeFixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, VolumeFixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, VolumeFixtures):
    pass


@pytest.fixture
def spec(tmp_path):
    opened = fsspec.filesystem("betrfs", volume=str(tmp_path / "volume"), size=VOLUME_BYTES)
    yield opened
    opened.close()


def tree(spec):
    spec.makedirs("tree/deep")
    spec.pipe({"tree/file": b"1", "tree/deep/file": b"22"})


def test_a_volume_is_found_by_its_protocol_and_shared(tmp_path):
    volume = str(tmp_path / "volume")
    one = fsspec.filesystem("betrfs", volume=volume, size=VOLUME_BYTES)
    assert fsspec.filesystem("betrfs", volume=volume, size=VOLUME_BYTES) is one
    with fsspec.open("betrfs://dir-less", "wb", volume=volume, size=VOLUME_BYTES) as file:
        file.write(b"text")
    # Other options make another instance, of the same volume.
    two = fsspec.filesystem("betrfs", volume=volume)
    assert two is not one and two.cat("dir-less") == b"text"
    one.close()
    betrfs.open(volume).close()
    assert two.cat("dir-less") == b"text", "it is opened again"
    two.close()


def test_a_whole_directory_is_one_copy_and_one_rename(spec):
    tree(spec)
    spec.cp("tree", "copy", recursive=True)
    assert spec.find("copy") == ["/copy/deep/file", "/copy/file"]
    # What is shared takes no room.
    assert spec.fs.usage("copy").exclusive_bytes < 64 << 10
    spec.mkdir("into")
    spec.cp("tree", "into", recursive=True)
    spec.mv("copy", "moved", recursive=True)
    assert spec.find("/") == [
        "/into/tree/deep/file",
        "/into/tree/file",
        "/moved/deep/file",
        "/moved/file",
        "/tree/deep/file",
        "/tree/file",
    ]
    spec.rm("into", recursive=True)
    spec.rm("m*", recursive=True)
    assert spec.ls("/", detail=False) == ["/tree"]
    spec.cp("tree/", "new/", recursive=True)
    assert spec.cat("new/deep/file") == b"22"


def test_a_snapshot_is_read_as_any_directory(spec):
    tree(spec)
    spec.snapshot("tree", "one")
    spec.pipe_file("tree/file", b"changed")
    assert spec.cat("tree/.betrfs-snapshots/one/file") == b"1"
    assert spec.find("tree") == ["/tree/deep/file", "/tree/file"]
    with pytest.raises(OSError) as error:
        spec.rm("tree", recursive=True)
    assert error.value.errno == errno.EBUSY


def test_listings_tell_kinds_sizes_and_links(spec):
    tree(spec)
    spec.symlink("file", "tree/link")
    found = {info["name"]: (info["type"], info["size"]) for info in spec.ls("tree")}
    assert found == {"/tree/deep": ("directory", 0), "/tree/file": ("file", 1), "/tree/link": ("file", 1)}
    assert spec.info("tree/link")["destination"] == "file"
    assert spec.du("tree") == 4 and spec.glob("tree/**/f*") == ["/tree/deep/file", "/tree/file"]
    assert spec.created("tree/file") <= spec.modified("tree/file")
    with pytest.raises(FileNotFoundError):
        spec.info("missing")
    assert not spec.exists("tree/file/below")


def test_parts_of_files_are_read_and_written(spec):
    spec.pipe_file("file", b"0123456789")
    assert (spec.cat_file("file", 2, 5), spec.cat_file("file", -3), spec.head("file", 2)) == (b"234", b"789", b"01")
    with spec.open("file", "ab") as file:
        file.write(b"x")
    with spec.open("file", "r+b") as file:
        file.seek(4)
        file.write(b"--")
    assert spec.cat("file") == b"0123--6789x"
    spec.touch("file", truncate=False)
    assert spec.size("file") == 11
    spec.touch("file")
    assert spec.size("file") == 0


def test_pandas_reads_what_it_wrote(tmp_path):
    frame = pandas.DataFrame({"name": ["Ada", "Bob"], "count": [1, 2]})
    options = {"volume": str(tmp_path / "volume"), "size": VOLUME_BYTES}
    frame.to_csv("betrfs://tables.csv", index=False, storage_options=options)
    frame.to_json("betrfs://tables.json.gz", storage_options=options)
    pandas.testing.assert_frame_equal(pandas.read_csv("betrfs://tables.csv", storage_options=options), frame)
    pandas.testing.assert_frame_equal(pandas.read_json("betrfs://tables.json.gz", storage_options=options), frame)
    fsspec.filesystem("betrfs", **options).close()


def test_zarr_reads_what_it_wrote_and_a_branch_of_it(tmp_path):
    options = {"volume": str(tmp_path / "volume"), "size": VOLUME_BYTES, "auto_mkdir": True}
    numbers = numpy.arange(10_000).reshape(100, 100)

    def opened(path, **how):
        return zarr.open_array(f"betrfs://{path}", storage_options=options, **how)

    array = opened("data/one", mode="w", shape=numbers.shape, chunks=(10, 10), dtype=numbers.dtype)
    array[:] = numbers
    spec = fsspec.filesystem("betrfs", **options)
    # A branch of an array is a copy of its directory, which takes no room.
    spec.cp("data/one", "data/branch", recursive=True)
    opened("data/branch", mode="r+")[:50] = 0
    assert (opened("data/one", mode="r")[:] == numbers).all()
    branch = opened("data/branch", mode="r")[:]
    assert (branch[:50] == 0).all() and (branch[50:] == numbers[50:]).all()
    spec.close()
