"""GPU search returns the results of a CPU scan, on all available devices."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bitprint as bp
from bitprint.search import flat, gpu
from bitprint.search.gpu import GpuIndex
from bitprint.utils.words import as_planes, as_words

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def tensors(device, queries, packed, alive=None):
    words = torch.from_numpy(as_words(queries).view(np.int64)).to(device)
    planes = torch.from_numpy(as_planes(packed).view(np.int64)).to(device)
    return words, planes, None if alive is None else torch.from_numpy(alive).to(device)


def random_codes(seed, count, width, distinct):
    """Return few distinct codes, so that most distances are ties."""
    rng = np.random.default_rng(seed)
    pool = rng.integers(0, 256, (distinct, width), dtype=np.uint8)
    return pool[rng.integers(distinct, size=count)]


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 300),
    queries=st.integers(0, 40),
    width=st.integers(1, 20),
    k=st.integers(1, 50),
    distinct=st.integers(1, 30),
    removed=st.booleans(),
)
def test_nearest_equals_a_scan_on_the_cpu(
    device, seed, count, queries, width, k, distinct, removed
):
    packed = random_codes(seed, count, width, distinct)
    queried = random_codes(seed + 1, queries, width, distinct)
    alive = np.random.default_rng(seed).integers(0, 2, count, dtype=np.uint8) if removed else None
    words, planes, marks = tensors(device, queried, packed, alive)
    positions, distances = gpu.nearest(words, planes, k, marks)
    expected = flat.nearest(as_words(queried), as_planes(packed), count, k, alive)
    np.testing.assert_array_equal(positions.cpu(), expected[0])
    np.testing.assert_array_equal(distances.cpu(), expected[1])


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 200),
    queries=st.integers(0, 10),
    width=st.integers(1, 20),
    radius=st.integers(0, 200),
    removed=st.booleans(),
)
def test_within_equals_a_scan_on_the_cpu(device, seed, count, queries, width, radius, removed):
    packed = random_codes(seed, count, width, 20)
    queried = random_codes(seed + 1, queries, width, 20)
    alive = np.random.default_rng(seed).integers(0, 2, count, dtype=np.uint8) if removed else None
    words, planes, marks = tensors(device, queried, packed, alive)
    found = gpu.within(words, planes, radius, marks)
    expected = flat.within(as_words(queried), as_planes(packed), count, radius, alive)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours.cpu(), theirs)


@pytest.mark.parametrize("device", DEVICES)
def test_results_do_not_depend_on_spans_and_room(device, monkeypatch):
    """Many spans and, on a GPU, spans with more matches than room."""
    monkeypatch.setattr(gpu, "_FIRST", 4)
    monkeypatch.setattr(gpu, "_GROWTH", 3)
    monkeypatch.setattr(gpu, "_ROOM", 16)
    monkeypatch.setattr(gpu, "_QUERIES", 7)
    monkeypatch.setattr(gpu, "_PLAIN", 100)
    packed = random_codes(0, 5000, 3, 40)
    queried = random_codes(1, 20, 3, 40)
    words, planes, _ = tensors(device, queried, packed)
    for k in (1, 15, 40):
        expected = flat.nearest(as_words(queried), as_planes(packed), 5000, k, None)
        for ours, theirs in zip(gpu.nearest(words, planes, k), expected, strict=True):
            np.testing.assert_array_equal(ours.cpu(), theirs)
    expected = flat.within(as_words(queried), as_planes(packed), 5000, 9, None)
    for ours, theirs in zip(gpu.within(words, planes, 9), expected, strict=True):
        np.testing.assert_array_equal(ours.cpu(), theirs)


@pytest.mark.parametrize("device", DEVICES)
def test_the_gpu_copy_equals_the_index_at_its_creation(device, tmp_path):
    codes = bp.Codes.from_packed(random_codes(3, 500, 6, 50), bits=48)
    with bp.Index.create(tmp_path / "index.bp", bits=48) as index:
        index.add([f"picture {number}" for number in range(500)], codes)
        index.remove(["picture 3", "picture 77"])
        snapshot = GpuIndex(index, device=device)
        nearest, around = index.search(codes[:9], k=600), index.within(codes[:9], radius=20)
        index.remove(["picture 4"])
    assert len(snapshot) == 498
    ours = snapshot.search(codes[:9], k=600)
    assert ours.ids.tolist() == nearest.ids.tolist()
    np.testing.assert_array_equal(ours.distances, nearest.distances)
    ours_around = snapshot.within(codes[:9], radius=20)
    for mine, theirs in zip(ours_around.ids, around.ids, strict=True):
        assert mine.tolist() == theirs.tolist()


def test_every_bit_of_a_word_counts():
    words = torch.tensor([0, 1, -1, -(2**63), 2**63 - 1, 0x0F0F, -2])
    expected = [bin(int(word) & (2**64 - 1)).count("1") for word in words]
    assert gpu._ones(words).tolist() == expected


def refusal(call, *arguments):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        call(*arguments)
    return str(caught.value)


def test_bad_input_is_refused_in_one_sentence(tmp_path):
    words, planes = torch.zeros(2, 1, dtype=torch.int64), torch.zeros(1, 5, dtype=torch.int64)
    assert "k must be at least 1" in refusal(gpu.nearest, words, planes, 0)
    assert "radius must be at least 0" in refusal(gpu.within, words, planes, -1)
    assert "(Q, W) and (W, N)" in refusal(gpu.nearest, words, planes.T, 1)
    assert "int64" in refusal(gpu.nearest, words.int(), planes, 1)
    assert "contiguous" in refusal(
        gpu.nearest, words, torch.zeros(5, 2, dtype=torch.int64).T[:1], 1
    )
    marks = torch.ones(4, dtype=torch.uint8)
    assert "5 codes but (4,) marks" in refusal(gpu.nearest, words, planes, 1, marks)
    with bp.Index.create(tmp_path / "index.bp", bits=8) as index:
        snapshot = GpuIndex(index, device="cpu")
    codes = bp.Codes.from_signs([[1, -1]])
    assert "codes of 8 bits, got 2" in refusal(snapshot.search, codes)
