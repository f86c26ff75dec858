"""QuantisedCodes: distances compared with explicit vectors, and the file format."""

import numpy as np
import pytest

from bitprint import Codes, Index, evaluate
from bitprint.quantised import QuantisedCodes


def example(count=20, books=3, entries=16, width=5, seed=0):
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, entries, (count, books))
    return QuantisedCodes(indices, rng.standard_normal((books, entries, width)))


def test_distances_equal_those_of_the_vectors():
    codes = example()
    queries = np.random.default_rng(1).standard_normal((7, 15)).astype(np.float32)
    found = codes.distances(queries)
    vectors = codes.reconstruct()
    for q, i in np.ndindex(7, 20):
        explicit = sum((float(queries[q, k]) - float(vectors[i, k])) ** 2 for k in range(15))
        assert found[q, i] == pytest.approx(explicit, rel=1e-5)


def test_reconstruction_joins_the_entries():
    codes = example()
    for i, k in np.ndindex(20, 15):
        book, place = divmod(k, 5)
        assert codes.reconstruct()[i, k] == codes.codebooks[book, codes.indices[i, book], place]


def test_equal_items_are_tied_exactly():
    codes = example()[[3, 8, 3, 3]]
    queries = np.random.default_rng(2).standard_normal((5, 15))
    distances = codes.distances(queries)
    np.testing.assert_array_equal(distances[:, 0], distances[:, 2])
    np.testing.assert_array_equal(distances[:, 0], distances[:, 3])


def test_items_as_queries_are_replaced_by_their_vectors():
    codes = example()
    distances = codes.distances(codes[:4])
    np.testing.assert_array_equal(distances, codes.distances(codes.reconstruct()[:4]))
    assert np.all(np.diagonal(distances) == 0)


@pytest.mark.parametrize(("books", "entries", "bits"), [(1, 2, 1), (3, 256, 24), (2, 64, 12)])
def test_bits(books, entries, bits):
    codes = example(books=books, entries=entries)
    assert codes.bits == bits
    assert f"20 x {bits} bits, {books} codebooks of {entries}" in repr(codes)


def test_selecting_and_comparing():
    codes = example()
    assert (len(codes), len(codes[3:7]), len(codes[2]), len(codes[:0])) == (20, 4, 1, 0)
    assert codes[:0].reconstruct().shape == (0, 15)
    assert codes[:0].distances(codes).shape == (20, 0)
    np.testing.assert_array_equal(codes[[5, 1]].indices, codes.indices[[5, 1]])
    assert codes == example()
    assert codes != example(seed=1)
    assert codes != QuantisedCodes(codes.indices, codes.codebooks + 1)
    assert codes != "codes"


def test_evaluation_ranks_by_their_distance():
    codes = example(count=60, seed=3)
    queries = np.random.default_rng(4).standard_normal((5, 15)).astype(np.float32)
    labels = np.arange(60) % 4
    report = evaluate(queries, [0, 1, 2, 3, 0], codes, labels, ties="stable")
    for q, label in enumerate([0, 1, 2, 3, 0]):
        flags = labels[np.argsort(codes.distances(queries)[q], kind="stable")] == label
        ranks = np.flatnonzero(flags) + 1
        expected = np.mean(np.arange(1, len(ranks) + 1) / ranks)
        assert report.average_precision[q] == pytest.approx(expected, rel=1e-12)


def test_quantised_codes_have_no_hamming_distance(tmp_path):
    codes = example(books=1, entries=16)
    binary = Codes.from_signs(np.ones((3, 4)))
    assert not isinstance(codes, Codes)
    assert not hasattr(codes, "packed")
    with pytest.raises(ValueError, match=r"query codes must be Codes .*got QuantisedCodes"):
        evaluate(codes[:3], [0, 0, 0], binary, [0, 0, 1])
    with Index.create(tmp_path / "photos.bp", bits=4) as index:
        message = r"photos.bp: expected Codes, got QuantisedCodes"
        with pytest.raises(ValueError, match=message):
            index.add(range(20), codes)
        index.add(range(3), binary)
        for search in (index.search, index.within):
            with pytest.raises(ValueError, match=message):
                search(codes)
        assert len(index) == 3


def test_saved_and_loaded(tmp_path):
    codes = example()
    codes.save(tmp_path / "codes")
    assert QuantisedCodes.load(tmp_path / "codes") == codes
    assert [path.name for path in tmp_path.iterdir()] == ["codes"]
    with pytest.raises(ValueError, match="not a codes file"):
        Codes.load(tmp_path / "codes")


def test_foreign_and_damaged_files_are_refused(tmp_path):
    path = tmp_path / "codes"
    with pytest.raises(FileNotFoundError, match="codes: no such file"):
        QuantisedCodes.load(path)
    Codes.from_signs([[1, -1]]).save(path)
    with pytest.raises(ValueError, match="not a file of quantized codes"):
        QuantisedCodes.load(path)
    example().save(path)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="checksum does not match"):
        QuantisedCodes.load(path)
    path.write_bytes(content.replace(b'"version":"1"', b'"version":"7"'))
    with pytest.raises(ValueError, match=r"unknown format version 7, .* reads version 1; upgrade"):
        QuantisedCodes.load(path)
    path.write_bytes(content[:100])
    with pytest.raises(ValueError, match="not a file of quantized codes, or truncated"):
        QuantisedCodes.load(path)


def test_invalid_indices_and_codebooks_are_refused():
    books = np.zeros((2, 4, 3))
    for indices, codebooks, message in [
        ([[0, 1]], np.zeros((4, 3)), r"shape \(M, n, d\)"),
        ([[0, 1]], np.zeros((2, 3, 3)), "power of two"),
        ([[0, 1]], np.zeros((2, 512, 3)), "from 2 to 256"),
        ([[0, 1, 1]], books, r"shape \(N, 2\), got \(1, 3\)"),
        ([[0, 4]], books, "from 0 to 3"),
        ([[0, -1]], books, "from 0 to 3"),
        ([[0.0, 1.0]], books, "must be integers"),
    ]:
        with pytest.raises(ValueError, match=message):
            QuantisedCodes(indices, codebooks)
    with pytest.raises(ValueError, match=r"shape \(Q, 6\) to match the codebooks, got \(1, 5\)"):
        QuantisedCodes([[0, 1]], books).distances(np.ones((1, 5)))
