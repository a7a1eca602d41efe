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


def test_streams_have_a_size(spec):
    spec.pipe_file("file", b"x" * 1000)
    with spec.open("file") as file:
        assert file.size == 1000
    with fsspec.open("betrfs://file", volume=spec._options[0]) as file:
        assert file.size == 1000
    with pytest.raises(IsADirectoryError):
        spec.mkdir("dir")
        spec.open("dir")


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


class Abandoned(Exception):
    pass


def abandon(spec, work):
    """Does something in a transaction that an exception of the program ends."""
    with pytest.raises(Abandoned):
        with spec.transaction:
            work()
            raise Abandoned


def write_in_all_ways(spec):
    """Writes to files in the ways that a transaction covers."""
    spec.pipe_file("tree/file", b"new")
    with spec.open("tree/text", "w") as file:
        file.write("new text")
    with spec.open("tree/deep/file", "ab") as file:
        file.write(b"+")
    with spec.open("tree/whole", "r+b") as file:
        file.write(b"W")
    with spec.open("tree/exclusive", "xb") as file:
        file.write(b"x")
    with spec.open("tree/packed.gz", "wt", compression="infer") as file:
        file.write("packed")
    spec.touch("tree/touched")


ALL_WAYS = {"file": b"new", "text": b"new text", "deep/file": b"22+", "whole": b"Whole", "exclusive": b"x", "touched": b""}


def test_a_transaction_writes_all_when_it_ends(spec):
    tree(spec)
    spec.pipe_file("tree/whole", b"whole")
    spec.pipe_file("tree/touched", b"old")
    spec.chmod("tree/file", 0o640)
    with spec.transaction:
        write_in_all_ways(spec)
        assert spec.cat("tree/file") == b"1" and spec.cat("tree/touched") == b"old", "readers find the old contents"
        assert not spec.exists("tree/exclusive")
    for name, contents in ALL_WAYS.items():
        assert spec.cat(f"tree/{name}") == contents, name
    with spec.open("tree/packed.gz", "rt", compression="infer") as file:
        assert file.read() == "packed"
    assert spec.info("tree/file")["mode"] & 0o777 == 0o640, "a file keeps its permissions"
    assert len(spec.find("tree")) == len(ALL_WAYS) + 1, "no temporary file is left"
    spec.pipe_file("tree/file", b"after")
    assert spec.cat("tree/file") == b"after", "later writes are no part of it"


def test_an_abandoned_transaction_leaves_nothing(spec):
    tree(spec)
    spec.pipe_file("tree/whole", b"whole")
    spec.pipe_file("tree/touched", b"old")
    before = {path: spec.cat(path) for path in spec.find("/")}
    abandon(spec, lambda: write_in_all_ways(spec))
    assert {path: spec.cat(path) for path in spec.find("/")} == before
    spec.pipe_file("tree/file", b"after")
    assert spec.cat("tree/file") == b"after"


def test_an_abandoned_transaction_leaves_no_directory_and_no_open_file(tmp_path):
    made = fsspec.filesystem("betrfs", volume=str(tmp_path / "volume"), size=VOLUME_BYTES, auto_mkdir=True)
    made.pipe_file("kept/file", b"1")
    streams = []

    def work():
        made.pipe_file("new/deep/file", b"2")
        streams.append(made.open("kept/new/file", "w"))
        streams[-1].write("text")

    abandon(made, work)
    assert made.find("/", withdirs=True) == ["/", "/kept", "/kept/file"]
    assert streams[0].closed
    with made.transaction:
        work()
    assert made.cat("new/deep/file") == b"2"
    assert made.cat("kept/new/file") == b"text", "a stream that is still open is closed by the commit"
    made.close()


def test_a_file_written_twice_in_a_transaction_has_both(spec):
    with spec.transaction:
        spec.pipe_file("file", b"one")
        with spec.open("file", "ab") as file:
            file.write(b" two")
        with pytest.raises(FileExistsError):
            spec.open("file", "xb")
    assert spec.cat("file") == b"one two" and spec.find("/") == ["/file"]


def test_a_transaction_writes_where_links_lead(spec):
    tree(spec)
    spec.symlink("deep/file", "tree/link")
    spec.symlink("/tree/new", "tree/dangling")
    with spec.transaction:
        spec.pipe_file("tree/link", b"through")
        spec.pipe_file("tree/dangling", b"made")
    assert spec.cat("tree/deep/file") == b"through" and spec.cat("tree/new") == b"made"
    assert spec.info("tree/link")["islink"] and spec.info("tree/dangling")["islink"]


def test_a_transaction_refuses_what_a_write_refuses(spec):
    tree(spec)
    for path, mode, error in [
        ("tree", "wb", IsADirectoryError),
        ("tree/file", "xb", FileExistsError),
        ("tree/missing", "r+b", FileNotFoundError),
        ("missing/file", "wb", FileNotFoundError),
        ("tree/file/below", "wb", NotADirectoryError),
    ]:
        with pytest.raises(error):
            with spec.transaction:
                spec.open(path, mode)
        assert spec.find("/") == ["/tree/deep/file", "/tree/file"]


def test_a_commit_that_fails_discards_the_rest(spec):
    tree(spec)
    with pytest.raises(FileExistsError):
        with spec.transaction:
            with spec.open("tree/new", "xb") as file:
                file.write(b"x")
            spec.pipe_file("tree/file", b"never")
            spec.mkdir("tree/new")
    assert spec.find("/") == ["/tree/deep/file", "/tree/file"] and spec.cat("tree/file") == b"1"


def test_a_single_file_is_committed_or_discarded(spec):
    for end, contents in [("discard", b"old"), ("commit", b"new")]:
        spec.pipe_file("file", b"old")
        file = spec.open("file", "wb", autocommit=False)
        file.write(b"new")
        file.close()
        assert spec.cat("file") == b"old"
        getattr(file, end)()
        assert spec.cat("file") == contents and spec.find("/") == ["/file"]
