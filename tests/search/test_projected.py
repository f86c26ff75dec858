"""Search with real-valued queries, compared with all inner products."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from code_cases import KINDS, random_codes
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite.binding import get_host_cpu_features
from numba import njit

import bitprint as bp
from bitprint.search import flat, gpu_projected, numpy_scan, projected, projected_kernels
from bitprint.search.gpu import GpuIndex
from bitprint.search.projections import check_projections, fixed_point, rounded
from bitprint.utils.words import as_planes, as_words

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def random_projections(rng, count, bits, codes, *, kind):
    """Return projections; "integers" and "codes" have many equal scores."""
    values = rng.standard_normal((count, bits))
    if kind == "integers":
        values = rng.integers(-2, 3, (count, bits))
    if kind == "wide":  # magnitudes from 1e-15 to 1e15
        values = values * 10.0 ** rng.integers(-15, 16, (count, bits))
    if kind == "codes" and len(codes):
        values = signs_of(codes[rng.integers(0, len(codes), count)], bits)
    if kind == "one bit":
        values = np.eye(bits)[rng.integers(0, bits, count)]
    return values.astype(np.float32)


def signs_of(packed, bits):
    return 2.0 * np.unpackbits(packed, axis=1, count=bits) - 1


def expected(projections, packed, k, alive):
    """Rank all live codes by score, then by position; pad with -1 and minus infinity."""
    scores = rounded(projections) @ signs_of(packed, projections.shape[1]).T
    live = np.arange(len(packed)) if alive is None else np.flatnonzero(alive)
    positions = np.full((len(projections), k), -1)
    best = np.full((len(projections), k), -np.inf, np.float32)
    for row, score in enumerate(scores):
        order = live[np.argsort(-score[live], kind="stable")][:k]
        positions[row, : len(order)] = order
        best[row, : len(order)] = score[order]
    return positions, best


def with_spare_columns(planes, rng):
    """Append unused columns, whose codes must not be found."""
    return np.hstack([planes, rng.integers(0, 2**63, (len(planes), 37), dtype=np.uint64)])


def check(found, wanted):
    assert found[0].dtype == np.int64
    assert found[1].dtype == np.float32
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_array_equal(found[1], wanted[1])


def search_on(device, projections, packed, k, alive):
    planes = torch.from_numpy(as_planes(packed).view(np.int64)).to(device)
    values = torch.from_numpy(rounded(projections)).to(device)
    marks = None if alive is None else torch.from_numpy(alive).to(device)
    positions, scores = gpu_projected.nearest_projected(values, planes, k, marks)
    return positions.cpu().numpy(), scores.cpu().numpy().astype(np.float32)


cases = given(
    bits=st.integers(1, 1024),
    size=st.one_of(st.integers(0, 200), st.integers(900, 3000)),
    count=st.integers(0, 4),
    k=st.one_of(st.integers(1, 12), st.integers(90, 260), st.just(3001)),
    codes=st.sampled_from(KINDS),
    queries=st.sampled_from(["normal", "integers", "wide", "codes", "one bit"]),
    removed=st.sampled_from([None, 0.0, 0.3, 0.98, 1.0]),
    threads=st.integers(1, 4),
    few=st.sampled_from([0, 100]),
    seed=st.integers(0, 2**32 - 1),
)


@settings(deadline=None, max_examples=120)
@cases
def test_every_scan_equals_all_inner_products(
    bits, size, count, k, codes, queries, removed, threads, few, seed
):
    rng = np.random.default_rng(seed)
    packed = random_codes(rng, size, bits, kind=codes)
    projections = random_projections(rng, count, bits, packed, kind=queries)
    alive = None if removed is None else (rng.random(size) >= removed).astype(np.uint8)
    wanted = expected(projections, packed, k, alive)
    planes = with_spare_columns(as_planes(packed), rng)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: threads)
        patch.setattr(projected, "_SMALL", 0 if threads > 1 else projected._SMALL)
        patch.setattr(projected, "_FEW", few)  # 0: the queries are split, 100: the database
        check(projected.nearest_projected(projections, planes, size, k, alive), wanted)
    check(numpy_scan.nearest_projected(projections, planes, size, k, alive), wanted)
    for device in DEVICES:
        check(search_on(device, projections, packed, k, alive), wanted)


@pytest.mark.parametrize("words", range(1, 17))
@pytest.mark.parametrize("missing", [0, 1, 63])
def test_all_numbers_of_words(words, missing):
    rng = np.random.default_rng(words)
    bits = 64 * words - missing
    packed = random_codes(rng, 1500, bits)
    projections = random_projections(rng, 3, bits, packed, kind="normal")
    found = projected.nearest_projected(projections, as_planes(packed), 1500, 20, None)
    check(found, expected(projections, packed, 20, None))


@pytest.mark.parametrize("size", [63, 64, 65, 127, 128, 1023, 1024, 1025, 1087, 1088, 2048, 2049])
def test_the_edges_of_groups_and_blocks(size):
    """The last code is the best, so that an error at an edge would lose it."""
    rng = np.random.default_rng(size)
    packed = random_codes(rng, size, 100)
    projections = signs_of(packed[-1:], 100).astype(np.float32)
    for k in (1, 7, 300):
        found = projected.nearest_projected(projections, as_planes(packed), size, k, None)
        check(found, expected(projections, packed, k, None))


@pytest.mark.parametrize("k", [1, 2, 100])
@pytest.mark.parametrize("bits", [64, 200])
def test_codes_with_increasing_scores(bits, k):
    """Every code is accepted at first, and most candidates are replaced later."""
    ones = np.arange(3000) * (bits + 1) // 3000
    packed = np.packbits(np.arange(bits) < ones[:, None], axis=1)
    projections = np.ones((1, bits), np.float32)
    check(
        projected.nearest_projected(projections, as_planes(packed), 3000, k, None),
        expected(projections, packed, k, None),
    )
    check(search_on("cpu", projections, packed, k, None), expected(projections, packed, k, None))


def test_equal_codes_are_in_insertion_order():
    packed = np.full((2500, 8), 0b1011, np.uint8)
    projections = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    positions, scores = projected.nearest_projected(
        projections, as_planes(packed), 2500, 1200, None
    )
    assert positions.tolist() == [list(range(1200))]
    assert len(np.unique(scores)) == 1


def test_projections_of_plus_and_minus_one_rank_by_hamming_distance():
    rng = np.random.default_rng(0)
    packed = random_codes(rng, 3000, 48)
    queries = random_codes(rng, 5, 48)
    positions, distances = flat.nearest(as_words(queries), as_planes(packed), 3000, 30, None)
    found, scores = projected.nearest_projected(
        signs_of(queries, 48).astype(np.float32), as_planes(packed), 3000, 30, None
    )
    np.testing.assert_array_equal(found, positions)
    np.testing.assert_array_equal(scores, 48 - 2 * distances)


@settings(deadline=None, max_examples=100)
@given(
    bits=st.integers(1, 300),
    kind=st.sampled_from(["normal", "integers", "wide", "one bit"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_slack_bounds_the_integer_cost(bits, kind, seed):
    """For the worst of all codes: one that differs exactly where a level is rounded up."""
    rng = np.random.default_rng(seed)
    projections = random_projections(rng, 6, bits, (), kind=kind)
    magnitudes = np.abs(fixed_point(projections)[0])
    levels, steps, slacks = projected.quantize(magnitudes)
    assert levels.max(initial=0) < 2**projected_kernels.PLANES
    excess = levels - magnitudes / steps[:, None]
    worst = np.maximum(excess, 0).sum(axis=1)
    assert np.all(worst <= slacks)
    assert np.all(slacks <= worst + 2e-6)


@given(bits=st.integers(1, 1024), seed=st.integers(0, 2**32 - 1))
def test_sums_of_rounded_projections_are_exact_in_any_order(bits, seed):
    rng = np.random.default_rng(seed)
    values = rounded(random_projections(rng, 1, bits, np.empty((0, 1)), kind="wide"))[0]
    values *= rng.choice([-1, 1], bits)
    exact = sum(map(Fraction, values.tolist()))
    assert Fraction(float(values.sum())) == exact
    assert Fraction(float(values[rng.permutation(bits)].cumsum()[-1])) == exact


def test_rounding_keeps_float32_values_of_similar_magnitude():
    values = np.random.default_rng(0).uniform(2.0**-10, 1, (50, 64)).astype(np.float32)
    np.testing.assert_array_equal(rounded(values), values)


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("queries", [1, 40, 300])
def test_results_do_not_depend_on_the_number_of_threads(monkeypatch, threads, queries):
    """12-bit codes are often equal, so that ties span several parts."""
    rng = np.random.default_rng(threads)
    projections = random_projections(rng, queries, 12, (), kind="integers")
    planes = as_planes(random_codes(rng, 9000, 12))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    alone = projected.nearest_projected(projections, planes, 9000, 50, None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(projected, "_SMALL", 0)
    check(projected.nearest_projected(projections, planes, 9000, 50, None), alone)


@pytest.mark.parametrize("device", DEVICES)
def test_gpu_results_do_not_depend_on_spans(device, monkeypatch):
    monkeypatch.setattr(gpu_projected, "_FIRST", 4)
    monkeypatch.setattr(gpu_projected, "_QUERIES", 7)
    monkeypatch.setattr(gpu_projected, "_BITS", 1 << 14)
    rng = np.random.default_rng(0)
    packed = random_codes(rng, 2000, 100, kind="duplicates")
    projections = random_projections(rng, 20, 100, packed, kind="integers")
    for k in (1, 15, 300):
        found = search_on(device, projections, packed, k, None)
        check(found, expected(projections, packed, k, None))


@pytest.mark.parametrize("small", [True, False])
def test_index_search_respects_removals_replacements_and_labels(tmp_path, monkeypatch, small):
    monkeypatch.setattr(numpy_scan, "suffices", lambda queries, count: small)
    rng = np.random.default_rng(0)
    packed = random_codes(rng, 400, 70)
    names = [f"photo {number}" for number in range(400)]
    labels = [["cat"] if number % 3 else ["dog", "cat"] for number in range(400)]
    projections = random_projections(rng, 4, 70, packed, kind="normal")
    with bp.Index.create(tmp_path / "index.bp", bits=70) as index:
        index.add(names, bp.Codes.from_packed(packed, 70), labels=labels)
        index.remove(names[:50:2])
        index.add(names[60:62], bp.Codes.from_packed(packed[[61, 60]], 70), labels=[["dog"], []])
        found = index.search(projections=projections, k=500)
        dogs = index.search(projections=projections, k=20, label="dog")
        on_gpu = GpuIndex(index, device="cpu").search(projections=projections, k=500)
    order = [n for n in range(400) if not (n < 50 and n % 2 == 0) and n not in (60, 61)] + [60, 61]
    stored = packed.copy()
    stored[[60, 61]] = packed[[61, 60]]
    positions, scores = expected(projections, stored[order], 500, None)
    wanted = [[None if p < 0 else names[order[p]] for p in row] for row in positions]
    assert found.ids.tolist() == on_gpu.ids.tolist() == wanted
    np.testing.assert_array_equal(found.scores, scores)
    np.testing.assert_array_equal(on_gpu.scores, scores)
    with_dog = np.array([n == 60 or (n % 3 == 0 and n != 61) for n in order], np.uint8)
    positions, _ = expected(projections, stored[order], 20, with_dog)
    assert dogs.ids.tolist() == [[names[order[p]] for p in row] for row in positions]


def test_projections_of_a_hasher_find_its_own_codes(tmp_path):
    features = np.random.default_rng(0).standard_normal((300, 40)).astype(np.float32)
    hasher = bp.create("itq", bits=32).fit(features)
    with bp.Index.create(tmp_path / "index.bp", bits=32) as index:
        index.add(range(300), hasher.encode(features))
        ids, scores = index.search(projections=hasher.project(features), k=1)
    np.testing.assert_allclose(
        scores[:, 0], np.abs(hasher.project(features)).sum(axis=1), rtol=1e-5
    )
    assert ids[:, 0].tolist() == list(range(300))


def test_nothing_compiles_after_the_warm_up():
    """There is one signature for all widths, removal flags and array flags."""
    projected.warm_up()
    before = list(projected_kernels.scan_projected.signatures)
    assert len(before) == 1
    rng = np.random.default_rng(0)
    for bits in (12, 64, 100):
        planes = as_planes(random_codes(rng, 300, bits))
        projections = random_projections(rng, 4, bits, (), kind="normal")
        planes.flags.writeable = False
        for alive in (None, np.ones(300, np.uint8), np.ones(600, np.uint8)[::2]):
            projected.nearest_projected(projections, planes, 300, np.int64(5), alive)
            projected.nearest_projected(projections[::2], planes.T.copy().T, 300, 5, alive)
    assert list(projected_kernels.scan_projected.signatures) == before


def test_a_full_adder_is_two_instructions():
    """With AVX-512 the 15 adders of a batch are one instruction for sums and one for carries."""
    if not get_host_cpu_features().get("avx512f"):
        pytest.skip("this processor has no AVX-512")
    projected.warm_up()
    (signature,) = projected_kernels.scan_projected.signatures
    fresh = njit(nogil=True)(projected_kernels.scan_projected.py_func)  # cached: no assembly
    fresh.compile(signature)
    assembly = fresh.inspect_asm(signature)
    assert assembly.count("vpternlogq\t$150") >= 15
    assert assembly.count("vpternlogq\t$232") >= 15


def refusal(call, *arguments, **options):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        call(*arguments, **options)
    return str(caught.value)


def test_bad_input_is_refused_in_one_sentence(tmp_path):
    planes = np.zeros((1, 9), np.uint64)
    good = np.zeros((2, 60), np.float32)
    bad = good.copy()
    bad[1, 3] = np.nan
    search = projected.nearest_projected
    assert "k must be at least 1, got 0" in refusal(search, good, planes, 9, 0, None)
    assert "finite numbers, got nan in row 1" in refusal(search, bad, planes, 9, 1, None)
    assert "2 words, but codes have 1" in refusal(
        search, np.zeros((2, 65), np.float32), planes, 9, 1, None
    )
    assert "count is 10, but" in refusal(search, good, planes, 10, 1, None)
    assert "shape (Q, K), got (60,)" in refusal(search, good[0], planes, 9, 1, None)
    assert "got inf in row 0" in refusal(check_projections, [[1e39, 0]], 2)
    assert "real numbers, got complex128" in refusal(check_projections, [[1j, 0]], 2)
    with bp.Index.create(tmp_path / "index.bp", bits=8) as index:
        on_gpu = GpuIndex(index, device="cpu")
        for place in (index, on_gpu):
            assert "shape (Q, 8), got (1, 2); hasher.project" in refusal(
                place.search, projections=[[1.0, 2.0]]
            )
            assert "nan in row 0" in refusal(place.search, projections=[[np.nan] * 8])
            assert "either codes or projections" in refusal(place.search)
            assert "either codes or projections" in refusal(
                place.search, [[1] * 8], projections=[[1.0] * 8]
            )
        assert "k must be an integer >= 1" in refusal(index.search, projections=[[1.0] * 8], k=0)
    values, words = torch.zeros(2, 60, dtype=torch.float64), torch.zeros(1, 5, dtype=torch.int64)
    on_tensors = gpu_projected.nearest_projected
    assert "k must be at least 1" in refusal(on_tensors, values, words, 0)
    assert "(Q, K) and" in refusal(on_tensors, values, words.T, 1)
    assert "float64 and words int64" in refusal(on_tensors, values.float(), words, 1)
    marks = torch.ones(4, dtype=torch.uint8)
    assert "5 codes but (4,) marks" in refusal(on_tensors, values, words, 1, marks)
