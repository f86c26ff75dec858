"""Files of vectors and ids: .npy, Parquet and safetensors, read in batches."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors
from vector_cases import clustered

from bitprint.vectors import VectorIndex, open_vectors, reading

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402


def write_parquet(path, vectors, fixed=False, **columns):
    rows = list(vectors)
    kind = pa.list_(pa.float32(), len(rows[0])) if fixed else pa.list_(pa.float32())
    table = pa.table({"embedding": pa.array(rows, kind), **columns})
    parquet.write_table(table, path, row_group_size=64)


def all_of(source):
    return np.concatenate(list(source.batches()))


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(reading, "_BATCH_ROWS", 32)


def write(path, vectors):
    if path.suffix == ".npy":
        np.save(path, vectors)
    elif path.suffix == ".safetensors":
        save_file({"vectors": vectors}, path)
    else:
        write_parquet(path, vectors, fixed=path.stem == "fixed")


FILES = ["a.npy", "a.safetensors", "lists.parquet", "fixed.parquet"]


@pytest.mark.parametrize("name", FILES)
def test_every_format_has_the_same_vectors(tmp_path, small_batches, name):
    vectors = clustered(150, 12)
    write(tmp_path / name, vectors)
    source = open_vectors(tmp_path / name)
    assert (source.count, source.width, source.ids) == (150, 12, None)
    batches = list(source.batches())
    assert max(map(len, batches)) <= 32
    assert np.concatenate(batches).tolist() == vectors.tolist()
    sample = source.sample(40, seed=3)
    rows = [vectors.tolist().index(row) for row in sample.tolist()]
    assert rows == sorted(set(rows))
    assert len(rows) == 40
    assert max(rows) > 75  # not the first rows
    assert source.sample(1000, seed=0).tolist() == vectors.tolist()


@pytest.mark.parametrize("name", FILES)
def test_index_of_a_file_equals_that_of_the_array(tmp_path, small_batches, name):
    vectors = clustered(150, 12)
    write(tmp_path / name, vectors)
    found = []
    for number, given in enumerate((vectors, tmp_path / name)):
        with VectorIndex.learn(tmp_path / f"{number}.bp", given, bits=12) as index:
            index.add(given)
            found.append((index.model.identity, index.search(given, k=5)))
    assert found[0][0] == found[1][0]
    assert found[0][1].ids.tolist() == found[1][1].ids.tolist()
    assert found[0][1].similarities.tolist() == found[1][1].similarities.tolist()


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<f2", "<i8", "i1", "u1"])
def test_other_types_of_numbers_are_read(tmp_path, dtype):
    vectors = np.arange(24).reshape(4, 6).astype(dtype)
    np.save(tmp_path / "a.npy", np.asfortranarray(vectors))
    source = open_vectors(tmp_path / "a.npy")
    assert all_of(source).tolist() == vectors.tolist()
    assert source.sample(9, 0).dtype == np.float32


def test_bfloat16_of_safetensors_is_read(tmp_path):
    tensor = torch.from_numpy(clustered(20, 6)).to(torch.bfloat16)
    save_tensors({"x": tensor}, tmp_path / "a.safetensors")
    assert np.array_equal(all_of(open_vectors(tmp_path / "a.safetensors")), tensor.float().numpy())


def test_several_files_are_one_source(tmp_path, small_batches):
    vectors = clustered(100, 6)
    np.save(tmp_path / "a.npy", vectors[:30])
    write_parquet(tmp_path / "b.parquet", vectors[30:])
    source = open_vectors(tmp_path / "a.npy", tmp_path / "b.parquet")
    assert all_of(source).tolist() == vectors.tolist()
    sample = source.sample(50, seed=0).tolist()
    assert [row for row in vectors.tolist() if row in sample] == sample
    np.save(tmp_path / "c.npy", np.ones((2, 7)))
    with pytest.raises(ValueError, match=r"c\.npy: vectors of length 7, but .*a\.npy has vectors"):
        open_vectors(tmp_path / "a.npy", tmp_path / "c.npy")


# ---- memory


def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch):
    """The same principle lets 10^7 vectors of length 768 fit: a batch has at most 64 MiB."""
    monkeypatch.setattr(reading, "_BATCH_BYTES", 1 << 18)
    width = 128
    peaks = []
    for number, count in enumerate((20_000, 80_000)):
        path = tmp_path / f"{number}.npy"
        array = np.lib.format.open_memmap(path, "w+", np.float32, (count, width))
        array[:] = np.random.default_rng(0).normal(size=(1000, width)).repeat(count // 1000, 0)
        del array
        with VectorIndex.learn(tmp_path / f"{number}.bp", path, bits=64, keep=None) as index:
            tracemalloc.start()
            index.add(path)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    added = 60_000
    assert added * width * 4 == 30_720_000  # bytes of the vectors
    assert peaks[1] - peaks[0] < 100 * added  # codes, ids, and the sort of their look-up
    assert peaks[0] < 5_000_000


def test_parquet_is_read_without_whole_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_BATCH_BYTES", 1 << 18)
    vectors = np.random.default_rng(0).normal(size=(40_000, 128)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 128)
    parquet.write_table(  # one row group of 20 MB
        pa.table({"e": column}), tmp_path / "a.parquet", use_dictionary=False
    )
    del column
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        total = sum(float(batch.sum()) for batch in open_vectors(tmp_path / "a.parquet").batches())
    finally:
        pa.set_memory_pool(before)
    assert total == pytest.approx(float(vectors.sum()), rel=1e-3)
    assert pool.max_memory() < 8_000_000


# ---- ids


def test_ids_come_from_text_npy_or_a_column(tmp_path):
    vectors = clustered(3, 4)
    np.save(tmp_path / "a.npy", vectors)
    (tmp_path / "ids.txt").write_text("ant\nb ee\r\ncät", "utf-8")
    np.save(tmp_path / "ids.npy", np.array([7, -1, 2**62]))
    np.save(tmp_path / "names.npy", np.array(["x", "yy", ""]))
    expected = {"ids.txt": ["ant", "b ee", "cät"], "ids.npy": [7, -1, 2**62]}
    expected["names.npy"] = ["x", "yy", ""]
    for name, ids in expected.items():
        assert open_vectors(tmp_path / "a.npy", ids=tmp_path / name).ids.tolist() == ids
    write_parquet(tmp_path / "a.parquet", vectors, key=["a", "b", "c"], number=[3, 1, 2])
    for column, ids in (("key", ["a", "b", "c"]), ("number", [3, 1, 2])):
        assert open_vectors(tmp_path / "a.parquet", id_column=column).ids.tolist() == ids
    both = open_vectors(tmp_path / "a.parquet", tmp_path / "a.parquet", id_column="number")
    assert both.ids.tolist() == [3, 1, 2, 3, 1, 2]
    with VectorIndex.learn(tmp_path / "a.bp", vectors, bits=4) as index:
        with pytest.raises(ValueError, match="duplicate id 1;"):
            index.add(both)
        index.add(open_vectors(tmp_path / "a.parquet", id_column="key"))
        assert index.index.ids().tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ids.txt", b"a\nb\n", "2 ids for 3 vectors"),
        ("ids.txt", b"a\nb\n\xff\xfe\n", "not a text file in UTF-8"),
        ("ids.txt", b"a\nb\0\nc\n", "contains a null character"),
        ("ids.npy", b"\x93NUMPY", r"not a \.npy file of ids, or truncated"),
        ("ids.npy", np.ones(3), "ids must be integers or strings of shape .N,., got float64"),
        ("ids.npy", np.ones((3, 1), int), "of shape .3, 1."),
        ("ids.npy", np.array([1, 2, 2**63], np.uint64), "between -2"),
    ],
)
def test_bad_ids_are_named(tmp_path, name, content, message):
    np.save(tmp_path / "a.npy", clustered(3, 4))
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        np.save(tmp_path / name, content)
    with pytest.raises(ValueError, match=message) as raised:
        open_vectors(tmp_path / "a.npy", ids=tmp_path / name)
    assert name in str(raised.value)


# ---- bad files


def damaged_files(folder):
    """Pairs of a file and a part of the message."""
    vectors = clustered(200, 12)
    for name in FILES:
        write(folder / name, vectors)
        content = (folder / name).read_bytes()
        for length in (0, 5, len(content) // 2, len(content) - 1):
            path = folder / f"{length}-{name}"
            path.write_bytes(content[:length])
            yield path, "truncated|damaged"
    np.save(folder / "objects.npy", np.array([[1, None]], object), allow_pickle=True)
    yield folder / "objects.npy", "not a .npy file of numbers, or truncated"
    np.savez(folder / "several.npz", vectors)
    (folder / "several.npz").rename(folder / "several.npy")
    yield folder / "several.npy", "contains several arrays; save one with np.save"
    np.save(folder / "flat.npy", np.ones(5))
    yield folder / "flat.npy", "must have shape"
    np.save(folder / "text.npy", np.array([["a"]]))
    yield folder / "text.npy", "must be real numbers, got <U1"
    (folder / "a.csv").write_text("1,2\n")
    yield folder / "a.csv", "are read from .npy, .parquet and .safetensors files"
    (folder / "folder.npy").mkdir()
    yield folder / "folder.npy", "is a folder; give its files"
    save_file({"a": np.ones((2, 3)), "b": np.ones((2, 3))}, folder / "two.safetensors")
    yield folder / "two.safetensors", r"choose one of a, b \(column\)"
    save_file({"a": np.ones(3)}, folder / "none.safetensors")
    yield folder / "none.safetensors", "contains no tensor with vectors"
    save_file({"a": np.ones((2, 3), bool)}, folder / "bool.safetensors")
    yield folder / "bool.safetensors", "must be real numbers, got BOOL"
    uneven = pa.table({"e": [[1.0, 2.0], [1.0, 2.0], [1.0]]})
    parquet.write_table(uneven, folder / "uneven.parquet")
    yield folder / "uneven.parquet", "row 2 has 1 numbers, others have 2"
    parquet.write_table(pa.table({"e": [[1.0, 2.0], None]}), folder / "null.parquet")
    yield folder / "null.parquet", "row 1 has no vector"
    parquet.write_table(pa.table({"e": [[1.0, 2.0], [1.0, None]]}), folder / "empty.parquet")
    yield folder / "empty.parquet", "row 1 contains an empty number"
    parquet.write_table(pa.table({"e": [["a", "b"]]}), folder / "words.parquet")
    yield folder / "words.parquet", "must be real numbers"
    parquet.write_table(pa.table({"e": [1.0]}), folder / "plain.parquet")
    yield folder / "plain.parquet", "contains no column of lists with vectors"


def test_bad_files_are_named_and_nothing_is_added(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    with VectorIndex.learn(tmp_path / "a.bp", clustered(200, 12), bits=12) as index:
        for path, message in damaged_files(folder):
            with pytest.raises(ValueError, match=message) as raised:
                index.add(path)
            assert str(path) in str(raised.value)
            assert "\n" not in str(raised.value)
            assert len(index) == 0, path


def test_file_of_vectors_with_bad_rows_is_named(tmp_path, small_batches):
    vectors = clustered(100, 6)
    vectors[77] = 0
    np.save(tmp_path / "a.npy", vectors)
    with VectorIndex.learn(tmp_path / "a.bp", clustered(100, 6), bits=6) as index:
        with pytest.raises(ValueError, match=r"a\.npy: row 77 contains only zeros"):
            index.add(tmp_path / "a.npy")
        assert len(index) == 0
    with pytest.raises(ValueError, match=r"a\.npy: row 77 contains only zeros"):
        VectorIndex.learn(tmp_path / "b.bp", tmp_path / "a.npy", bits=6)
    assert not Path(tmp_path / "b.bp").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column": "x"}, "there is none named 'x' of embedding"),
        ({"id_column": "x"}, "no column 'x'; its columns are embedding, ratio, gap"),
        ({"id_column": "ratio"}, "ids must be integers or strings, the column 'ratio' is double"),
        ({"id_column": "gap"}, "the column 'gap' has rows without an id"),
    ],
)
def test_wrong_columns_are_named(tmp_path, options, message):
    write_parquet(tmp_path / "a.parquet", clustered(2, 4), ratio=[0.5, 1.5], gap=["a", None])
    with pytest.raises(ValueError, match=message):
        open_vectors(tmp_path / "a.parquet", **options)


def test_options_that_do_not_fit_the_format_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", clustered(2, 4))
    with pytest.raises(ValueError, match="only Parquet files have columns of ids"):
        open_vectors(tmp_path / "a.npy", id_column="id")
    with pytest.raises(ValueError, match="has no columns"):
        open_vectors(tmp_path / "a.npy", column="id")
    with pytest.raises(FileNotFoundError, match=r"b\.npy: no such file"):
        open_vectors(tmp_path / "b.npy")
    with pytest.raises(ValueError, match="at least one file"):
        open_vectors()


def test_safetensors_header_with_a_false_offset_is_refused(tmp_path):
    entry = {"a": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 4096]}}
    header = json.dumps(entry).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(32)
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="not a safetensors file, or truncated"):
        open_vectors(tmp_path / "a.safetensors")
