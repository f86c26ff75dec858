import numpy as np
import pytest
import torch
from code_cases import KINDS, random_codes, random_search
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from bitprint.search import flat, groups, kernels
from bitprint.utils.words import as_planes, as_words

DISPATCHERS = (
    kernels.scan_nearest,
    kernels.collect_within,
    kernels.place_within,
    kernels.scan_within,
)


def naive_distances(queries, codes):
    """Return all distances of packed codes, shape (Q, N), computed from single bits."""
    ones = np.unpackbits(queries, axis=1)[:, None] != np.unpackbits(codes, axis=1)[None]
    return ones.sum(axis=2)


def naive_ranking(distances, alive):
    """Return the live positions, by distance, then by position."""
    return [i for i in np.argsort(distances, kind="stable") if alive[i]]


def with_spare_columns(planes, rng):
    """Append unused columns, whose codes must not be found."""
    return np.hstack([planes, rng.integers(0, 2**63, (len(planes), 37), dtype=np.uint64)])


def search_all_ways(queries, codes, k, radius, alive):
    """Check `nearest` and `within` against the naive ranking of every query."""
    rng = np.random.default_rng(len(codes))
    words, planes = as_words(queries), with_spare_columns(as_planes(codes), rng)
    positions, near = flat.nearest(words, planes, len(codes), k, alive)
    offsets, matches, match_distances = flat.within(words, planes, len(codes), radius, alive)
    assert positions.shape == near.shape == (len(queries), k)
    assert (positions.dtype, near.dtype) == (np.int64, np.int32)
    assert (matches.dtype, match_distances.dtype) == (np.int64, np.int32)
    assert offsets.shape == (len(queries) + 1,)
    assert offsets[0] == 0
    assert offsets[-1] == len(matches) == len(match_distances)
    live = np.ones(len(codes)) if alive is None else alive
    for q, distances in enumerate(naive_distances(queries, codes)):
        ranking = naive_ranking(distances, live)
        best = ranking[:k]
        missing = [-1] * (k - len(best))
        assert positions[q].tolist() == best + missing
        assert near[q].tolist() == distances[best].tolist() + missing
        close = [i for i in ranking if distances[i] <= radius]
        found = slice(offsets[q], offsets[q + 1])
        assert matches[found].tolist() == close
        assert match_distances[found].tolist() == distances[close].tolist()


@settings(deadline=None, max_examples=150)
@given(
    bits=st.integers(1, 200),
    size=st.one_of(st.integers(0, 200), st.integers(900, 3000)),
    count=st.integers(0, 4),
    k=st.one_of(st.integers(1, 12), st.integers(90, 260), st.just(3001)),
    kind=st.sampled_from(KINDS),
    removed=st.sampled_from([None, 0.0, 0.3, 0.98, 1.0]),
    threads=st.integers(1, 4),
    few=st.sampled_from([0, 100]),
    seed=st.integers(0, 2**32 - 1),
)
def test_search_equals_the_naive_ranking(bits, size, count, k, kind, removed, threads, few, seed):
    rng = np.random.default_rng(seed)
    codes, queries, alive, radius = random_search(rng, bits, size, count, kind, removed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: threads)
        patch.setattr(flat, "_SMALL", 0 if threads > 1 else flat._SMALL)
        patch.setattr(flat, "_FEW", few)  # 0: the queries are split, 100: the database
        search_all_ways(queries, codes, k, radius, alive)


def edges(bits):
    """Return sizes around the ends of groups and blocks of codes with this number of bits."""
    block = max(64, 2048 // -(-bits // 64) // 64 * 64)
    ends = (64, 128, block, block + 64, 2 * block)
    return [size + step for size in ends for step in (-1, 0, 1)]


@pytest.mark.parametrize(
    ("bits", "size"), [(bits, size) for bits in (64, 65, 600) for size in edges(bits)]
)
def test_the_edges_of_groups_and_blocks(size, bits):
    """The last code is the nearest, so that an error at an edge would lose it."""
    rng = np.random.default_rng(size)
    codes = random_codes(rng, size, bits)
    search_all_ways(codes[-1:], codes, 1, 0, None)
    search_all_ways(codes[-1:], codes, 7, 24, None)


@pytest.mark.parametrize("words", range(1, 17))
@pytest.mark.parametrize("removed", [None, 0.5])
def test_search_of_any_number_of_words(words, removed):
    """The limits lie within the distances of uniform codes, so that most groups match in part."""
    bits, size = 64 * words - 3, 500
    rng = np.random.default_rng(words)
    codes, queries = random_codes(rng, size, bits), random_codes(rng, 3, bits)
    alive = None if removed is None else (rng.random(size) >= removed).astype(np.uint8)
    for radius in (0, bits // 2, 64 * words):
        search_all_ways(queries, codes, 70, radius, alive)


@pytest.mark.parametrize("removed", [None, 0.5])
@pytest.mark.parametrize("count", [1, 4])
def test_codes_that_differ_from_queries_in_late_words_only(count, removed):
    """All groups pass the comparison by their first words, some of them in vain."""
    rng = np.random.default_rng(0)
    codes = np.zeros((9000, 64), np.uint8)
    codes[:, 48:] = rng.integers(0, 256, (9000, 16), np.uint8)
    codes[rng.integers(0, 9000, 60), 48:] = 0
    codes[5000:5100, 56:] = 0
    alive = None if removed is None else (rng.random(9000) >= removed).astype(np.uint8)
    for k, radius in ((1, 0), (10, 20), (100, 50)):
        search_all_ways(codes[-count:] & 0b111, codes, k, radius, alive)
        search_all_ways(np.zeros((count, 64), np.uint8), codes, k, radius, alive)


def test_within_a_radius_that_contains_all_codes_of_many_queries():
    """The matches exceed the initial capacity many times over."""
    rng = np.random.default_rng(0)
    codes = random_codes(rng, 3000, 9)
    search_all_ways(codes[:40], codes, 3, 9, None)


def test_within_takes_more_queries_than_one_key_can_number(monkeypatch):
    monkeypatch.setattr(flat, "MOST_QUERIES", 7)
    rng = np.random.default_rng(0)
    codes = random_codes(rng, 300, 20)
    search_all_ways(codes[:30], codes, 3, 6, None)


def test_a_key_has_room_for_the_largest_query_distance_and_position():
    key = (kernels.MOST_QUERIES - 1 << 11 | 1024) << kernels.POSITION_BITS
    key |= (1 << kernels.POSITION_BITS) - 1
    assert key < 2**63
    cursors = np.zeros((kernels.MOST_QUERIES, 1025), np.int64)
    positions, distances = np.empty(1, np.int64), np.empty(1, np.int32)
    kernels.place_within(np.array([key]), cursors, positions, distances)
    assert positions.tolist() == [(1 << kernels.POSITION_BITS) - 1]
    assert distances.tolist() == [1024]
    assert np.argwhere(cursors).tolist() == [[kernels.MOST_QUERIES - 1, 1024]]


@pytest.mark.parametrize("bits", [64, 128, 192])
@pytest.mark.parametrize("k", [1, 2, 100])
def test_codes_with_decreasing_distances(bits, k):
    """Every code is accepted at first, and most candidates are dropped later."""
    ones = np.sort(np.arange(3000) * (bits + 1) // 3000)[::-1]
    codes = np.packbits(np.arange(bits) < ones[:, None], axis=1)
    search_all_ways(np.zeros((1, bits // 8), np.uint8), codes, k, 2, None)


@pytest.mark.parametrize("k", [1, 3, 4, 10])
def test_the_search_is_correct_at_any_end(k):
    """Also right after candidates were dropped, with ties at the limit."""
    distances = 128 - np.arange(384) // 3
    planes = as_planes(np.packbits(np.arange(128) < distances[:, None], axis=1))
    query = np.zeros((1, 2), np.uint64)
    for count in range(k, 385):
        best = np.argsort(distances[:count], kind="stable")[:k]
        assert flat.nearest(query, planes, count, k, None)[0].tolist() == [best.tolist()]


def test_equal_codes_are_in_insertion_order():
    codes = np.full((2500, 8), 0b1011, np.uint8)
    words, planes = as_words(codes[:1]), as_planes(codes)
    positions, distances = flat.nearest(words, planes, 2500, 1200, None)
    assert positions.tolist() == [list(range(1200))]
    assert not distances.any()


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("queries", [1, 2, 40, 300])
def test_results_do_not_depend_on_the_number_of_threads(monkeypatch, threads, queries):
    """12-bit codes have few distances, so that ties span several parts."""
    rng = np.random.default_rng(threads)
    words = as_words(random_codes(rng, queries, 12))
    planes = as_planes(random_codes(rng, 20_000, 12))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    alone = flat.nearest(words, planes, 20_000, 50, None)
    alone_within = flat.within(words, planes, 20_000, 1, None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(flat, "_SMALL", 0)
    together = flat.nearest(words, planes, 20_000, 50, None)
    together_within = flat.within(words, planes, 20_000, 1, None)
    for one, many in zip(alone + alone_within, together + together_within, strict=True):
        np.testing.assert_array_equal(one, many)


@given(
    words=st.integers(1, 16),
    start=st.integers(0, 40),
    limit=st.integers(0, 1100),
    prefix=st.integers(1, 16),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None)
def test_group_distances_equal_numpy(words, start, limit, prefix, seed):
    rng = np.random.default_rng(seed)
    planes = rng.integers(0, 2**64, (words, 110), dtype=np.uint64)
    queries = rng.integers(0, 2**64, (3, words), dtype=np.uint64)
    flags = rng.integers(0, 3, 110, dtype=np.uint8)
    written = np.empty(64, np.uint64)
    closer, found, live = compare_group(
        queries, 2, planes, start, limit, min(prefix, words), flags, written
    )
    distances = np.bitwise_count(planes[:, start : start + 64] ^ queries[2, :, None]).sum(axis=0)
    lanes = 2 ** np.arange(64, dtype=object)
    assert written.tolist() == distances.tolist()
    firsts = np.bitwise_count(planes[:prefix, start : start + 64] ^ queries[2, :prefix, None])
    expected = 2 if np.any(distances < limit) else int(np.any(firsts.sum(axis=0) < limit))
    assert closer == expected
    assert found == lanes[distances < limit].sum()
    assert live == lanes[flags[start : start + 64] > 0].sum()


@njit
def compare_group(queries, q, planes, start, limit, prefix, flags, distances):
    return (
        groups.any_closer(queries, q, planes, start, limit, prefix),
        groups.find_closer(queries, q, planes, start, limit, distances),
        groups.nonzero(flags, start),
    )


def test_words_of_unaligned_bytes_are_aligned():
    """Numba compiles the scans again for unaligned arrays."""
    data = np.arange(25, dtype=np.uint8)
    for offset in range(8):
        words = as_words(data[offset : offset + 16].reshape(2, 8))
        assert words.flags.aligned
        assert words.view(np.uint8).ravel().tolist() == list(range(offset, offset + 16))


@given(st.integers(0, 5), st.integers(1, 30))
def test_words_and_planes_hold_the_bytes_and_zeros(size, width):
    packed = np.random.default_rng(width).integers(1, 256, (size, width), dtype=np.uint8)
    words, planes = as_words(packed), as_planes(packed)
    padded = words.view(np.uint8)
    assert words.shape == (size, -(-width // 8))
    np.testing.assert_array_equal(padded[:, :width], packed)
    assert not padded[:, width:].any()
    assert planes.flags.c_contiguous
    np.testing.assert_array_equal(planes, words.T)


def test_nothing_compiles_after_the_warm_up():
    """There is one signature for all widths, removal flags and array flags."""
    flat.warm_up()
    before = [list(dispatcher.signatures) for dispatcher in DISPATCHERS]
    assert [len(signatures) for signatures in before] == [1, 1, 1, 1]
    rng = np.random.default_rng(0)
    for bits in (12, 64, 100):
        codes = random_codes(rng, 300, bits)
        words, planes = as_words(codes[::7]), as_planes(codes)
        planes.flags.writeable = False
        for alive in (None, np.ones(300, np.uint8), np.ones(600, np.uint8)[::2]):
            flat.nearest(words, planes, 300, np.int64(5), alive)
            flat.within(words[1:], planes, 300, 3, alive)
            flat.nearest(words[::2], planes.T.copy().T, 300, 5, alive)
    assert [list(dispatcher.signatures) for dispatcher in DISPATCHERS] == before


def test_the_scan_is_vectorized():
    """The scan loads adjacent codes as vectors and needs no gather instructions."""
    flat.warm_up()
    (signature,) = kernels.scan_nearest.signatures
    fresh = njit(nogil=True)(kernels.scan_nearest.py_func)  # cached functions have no assembly
    fresh.compile(signature)
    assembly = fresh.inspect_asm(signature)
    if "vpopcntq" not in assembly:
        pytest.skip("this processor has no vector popcount")
    assert "gather" not in assembly


def test_wrong_arguments_are_refused():
    words, planes = np.zeros((2, 1), np.uint64), np.zeros((1, 9), np.uint64)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        flat.nearest(words, planes, 9, 0, None)
    with pytest.raises(ValueError, match="radius must be at least 0, got -1"):
        flat.within(words, planes, 9, -1, None)
    with pytest.raises(ValueError, match="queries have 1 words, but codes have 2"):
        flat.nearest(words, np.zeros((2, 9), np.uint64), 9, 1, None)
    with pytest.raises(ValueError, match="count is 10, but"):
        flat.nearest(words, planes, 10, 1, None)
    with pytest.raises(ValueError, match="8 marks"):
        flat.within(words, planes, 9, 1, np.ones(8, np.uint8))
