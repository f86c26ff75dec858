"""Exports of codes, read back by the program they are for."""

import numpy as np
import pytest
from store_contract import random_codes

import bitprint as bp
from bitprint.search.exporting import export_codes, export_to_milvus

IDS = [7, 2**40, 0, 31]
NAMES = ["a", "tab\there", "back\\slash", "caf\u00e9"]


@pytest.fixture
def make(tmp_path):
    opened = []

    def create(ids, bits=24, count=4):
        codes = random_codes(count, bits)
        index = bp.Index.create(tmp_path / f"{len(opened)}.bp", bits=bits)
        opened.append(index)
        index.add(["gone"] if isinstance(ids[0], str) else [-5], random_codes(1, bits, 9))
        index.add(ids, codes)
        index.remove(index.ids()[:1])
        return index, codes

    yield create
    for index in opened:
        index.close()


def test_faiss_reads_codes_and_ids(make, tmp_path):
    faiss = pytest.importorskip("faiss")
    index, codes = make(IDS)
    read = faiss.read_index_binary(str(export_codes(index, tmp_path / "a.faiss")))
    assert isinstance(read, faiss.IndexBinaryIDMap)
    assert faiss.vector_to_array(read.id_map).tolist() == IDS
    flat = faiss.downcast_IndexBinary(read.index)
    assert isinstance(flat, faiss.IndexBinaryFlat)
    stored = faiss.vector_to_array(flat.xb).reshape(4, 3)
    assert stored.tolist() == codes.packed.tolist()
    queries = random_codes(3, 24, seed=5)
    distances, ids = read.search(queries.packed, 4)
    ours = index.search(queries, k=4)
    assert distances.tolist() == ours.distances.tolist()
    assert [dict(zip(*row, strict=True)) for row in zip(ids, distances, strict=True)] == [
        dict(zip(*row, strict=True)) for row in zip(*ours, strict=True)
    ]


def test_usearch_reads_codes_and_ids(make, tmp_path):
    usearch = pytest.importorskip("usearch.index")
    index, codes = make(IDS)
    read = usearch.Index.restore(str(export_codes(index, tmp_path / "a.usearch")))
    assert (read.ndim, read.dtype, read.metric) == (
        24,
        usearch.ScalarKind.B1,
        usearch.MetricKind.Hamming,
    )
    assert sorted(np.asarray(read.keys).tolist()) == sorted(IDS)
    for key, packed in zip(IDS, codes.packed, strict=True):
        assert np.asarray(read[key]).view(np.uint8).tolist() == packed.tolist()
    found = read.search(codes.packed[1], 2)
    expected = index.search(codes[1], k=2)
    assert found.keys.tolist() == expected.ids[0].tolist()
    assert found.distances.astype(int).tolist() == expected.distances[0].tolist()


@pytest.mark.parametrize("ids", [IDS, NAMES], ids=["integers", "strings"])
@pytest.mark.parametrize("bits", [24, 13])
def test_parquet_has_codes_and_ids(make, tmp_path, ids, bits):
    parquet = pytest.importorskip("pyarrow.parquet")
    index, codes = make(ids, bits)
    table = parquet.read_table(export_codes(index, tmp_path / "a.parquet"))
    assert table["id"].to_pylist() == ids
    assert table["code"].to_pylist() == [packed.tobytes() for packed in codes.packed]
    assert table.schema.metadata[b"bits"] == str(bits).encode()


@pytest.mark.parametrize(("ids", "suffix"), [(IDS, ".ids.npy"), (NAMES, ".ids.txt")])
def test_npy_has_codes_and_a_file_of_ids(make, tmp_path, ids, suffix):
    index, codes = make(ids, 13)
    path = export_codes(index, tmp_path / "a.npy")
    assert bp.Codes.from_packed(np.load(path), bits=13) == codes
    if suffix == ".ids.npy":
        assert np.load(tmp_path / "a.ids.npy").tolist() == ids
    else:
        assert (tmp_path / "a.ids.txt").read_text("utf-8").split("\n") == [*ids, ""]


@pytest.mark.parametrize(
    "ids", [IDS, [*NAMES, "line\nbreak\r", "\\N"]], ids=["integers", "strings"]
)
def test_postgres_copies_codes_and_ids(make, tmp_path, admin, ids):
    index, codes = make(ids, 13, len(ids))
    path = export_codes(index, tmp_path / "a.copy")
    kind = "bigint" if ids is IDS else "text"
    admin.execute("CREATE EXTENSION IF NOT EXISTS vector")
    admin.execute(f"CREATE TEMPORARY TABLE exported (id {kind}, code bit(13))")
    with admin.cursor() as cursor, cursor.copy("COPY exported (id, code) FROM STDIN") as copy:
        copy.write(path.read_bytes())
    rows = dict(admin.execute("SELECT id, code::text FROM exported").fetchall())
    expected = ["".join("01"[int(sign > 0)] for sign in row) for row in codes.signs()]
    assert rows == dict(zip(ids, expected, strict=True))
    query = expected[0]
    near = admin.execute(
        "SELECT id, code <~> %s::bit(13) FROM exported ORDER BY 2, id LIMIT 3", (query,)
    ).fetchall()
    assert [away for _, away in near] == index.search(codes[0], k=3).distances[0].tolist()


@pytest.mark.parametrize("ids", [IDS, NAMES], ids=["integers", "strings"])
def test_milvus_has_codes_and_ids(make, tmp_path, ids):
    pymilvus = pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")
    index, codes = make(ids)
    uri = str(tmp_path / "milvus.db")
    export_to_milvus(index, uri, "photos")
    with pytest.raises(FileExistsError, match="a collection photos exists already"):
        export_to_milvus(index, uri, "photos")
    client = pymilvus.MilvusClient(uri)
    try:
        client.load_collection("photos")
        rows = client.query("photos", filter="", limit=10, output_fields=["id", "code"])
        found = {row["id"]: b"".join(row["code"]) for row in rows}
        assert found == dict(zip(ids, map(bytes, codes.packed), strict=True))
        (hits,) = client.search(
            "photos", [codes.packed[2].tobytes()], limit=2, search_params={"metric_type": "HAMMING"}
        )
        expected = index.search(codes[2], k=2)
        assert [hit["distance"] for hit in hits] == expected.distances[0].tolist()
    finally:
        client.close()


def test_file_is_replaced_only_by_a_complete_one(make, tmp_path):
    index, _ = make(NAMES)
    (tmp_path / "a.faiss").write_bytes(b"before")
    with pytest.raises(ValueError, match="faiss needs integer ids, this index has string ids"):
        export_codes(index, tmp_path / "a.faiss")
    assert (tmp_path / "a.faiss").read_bytes() == b"before"


@pytest.mark.parametrize(
    ("ids", "bits", "name", "message"),
    [
        (IDS, 13, "a.faiss", "multiple of 8, got 13"),
        (IDS, 13, "a.usearch", "multiple of 8, got 13"),
        ([-1], 24, "a.usearch", "integer ids of at least 0"),
        (NAMES, 24, "a.usearch", "integer ids of at least 0"),
        (["a\nb"], 24, "a.npy", "contains a line break"),
        (IDS, 24, "a.csv", r"unknown format; use a suffix of \.faiss, \.usearch"),
    ],
)
def test_export_that_is_not_possible_says_why(make, tmp_path, ids, bits, name, message):
    index, _ = make(ids, bits, len(ids))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=message):
        export_codes(index, tmp_path / name)
    assert sorted(tmp_path.iterdir()) == before


def test_empty_index_is_not_exported(tmp_path):
    with bp.Index.create(tmp_path / "a.bp", bits=8) as index:
        with pytest.raises(ValueError, match="the index is empty"):
            export_codes(index, tmp_path / "a.npy")
        if pytest.importorskip("pymilvus"):
            with pytest.raises(ValueError, match="the index is empty"):
                export_to_milvus(index, str(tmp_path / "milvus.db"), "a")


# ---- the table of bit orders in docs/embeddings.md


def test_bit_orders_of_the_page_are_those_of_the_programs():
    faiss = pytest.importorskip("faiss")
    values = np.full((1, 16), -1, np.float32)
    values[0, [0, 9]] = 1
    packed = np.zeros((1, 2), np.uint8)
    faiss.real_to_binary(16, faiss.swig_ptr(values), faiss.swig_ptr(packed))
    ours = bp.Codes.from_signs(values)
    assert packed.tolist() == [[0b00000001, 0b00000010]]
    assert ours.packed.tolist() == [[0b10000000, 0b01000000]]
    assert np.packbits(values > 0, axis=1, bitorder="little").tolist() == packed.tolist()
