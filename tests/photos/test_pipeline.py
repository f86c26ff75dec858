"""Decoding and computing on all cores."""

import threading
import time

import numpy as np
import pytest
import torch
from PIL import Image

import bitprint as bp
from bitprint.data import ImageSet
from bitprint.data.decoding import decode_image, try_decode
from bitprint.photos.encoder import Encoder, Features
from bitprint.photos.pipeline import compute_ahead
from bitprint.utils.devices import one_thread_per_worker


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def paths(tmp_path):
    """Nine files: gray images of increasing brightness, a text and a missing file."""
    names = [str(tmp_path / f"{number}.png") for number in range(9)]
    for number, name in enumerate(names):
        Image.new("L", (9, 7), 10 * number).save(name)
    (tmp_path / "3.png").write_text("no image")
    (tmp_path / "5.png").unlink()
    return names


@pytest.mark.parametrize("batch_size", [1, 2, 4, 20])
def test_results_are_in_order_whichever_thread_is_first(paths, batch_size, three_threads):
    def slow_at_first(pixels):
        time.sleep(0.02 if pixels.min() == 0 else 0)
        return pixels[:, 0, 0, 0].tolist()

    batches = list(compute_ahead(paths, 5, slow_at_first, batch_size))
    assert [row for batch in batches for row in batch.rows] == [0, 1, 2, 4, 6, 7, 8]
    for batch in batches:
        assert (batch.result or []) == [10 * row for row in batch.rows]
        assert (batch.result is None) == (not batch.rows)


def test_reasons_equal_those_of_decoding_one_file(paths):
    skipped = {}
    for batch in compute_ahead(paths, 5, len, 4):
        skipped |= batch.skipped
    assert skipped == {row: try_decode(paths[row], 5) for row in (3, 5)}
    assert skipped[5] == "no such file"


def test_an_error_in_the_function_is_raised_and_ends_the_threads(paths, three_threads):
    def fail(pixels):
        raise RuntimeError("no memory for this")

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="no memory for this"):
        list(compute_ahead(paths, 5, fail, 2))
    assert threading.active_count() == before
    assert torch.get_num_threads() == 3


def test_each_worker_uses_one_thread_of_torch(paths, three_threads):
    used = set()

    def note(pixels):
        used.add((threading.get_ident(), torch.get_num_threads()))

    list(compute_ahead(paths, 5, note, 1))
    assert {count for _, count in used} == {1}
    assert threading.get_ident() not in {ident for ident, _ in used}
    assert torch.get_num_threads() == 3


def test_threads_are_restored_after_an_error(three_threads):
    block = one_thread_per_worker()
    assert block.__enter__() == 3
    error = KeyError()
    assert not block.__exit__(KeyError, error, None)
    assert torch.get_num_threads() == 3


def test_a_stopped_reader_cancels_the_files_ahead(paths, three_threads):
    seen = []

    def note(pixels):
        seen.append(pixels)
        time.sleep(0.005)

    batches = compute_ahead(paths * 50, 5, note, 1)
    next(batches)
    batches.close()
    assert len(seen) < 50
    assert torch.get_num_threads() == 3


def test_codes_equal_those_of_the_plain_network(tmp_path):
    """Folded, fused and split into small batches, the network computes the same bits."""
    rng = np.random.default_rng(0)
    for number in range(6):
        blocks = rng.integers(0, 256, (12, 16, 3), np.uint8)
        image = Image.fromarray(blocks).resize((800, 600), Image.Resampling.BICUBIC)
        image.save(tmp_path / f"{number}.jpg", quality=90)
    paths = sorted(map(str, tmp_path.glob("*.jpg")))
    encoder = Encoder.load("coco-64")
    found = [batch.result for batch in compute_ahead(paths, encoder.size, encoder.encode_squares)]
    codes = np.concatenate([codes.packed for codes in found])
    pixels = np.stack([decode_image(path, encoder.size) for path in paths])
    trunk = encoder.features.trunk.eval()
    with torch.inference_mode():
        features = trunk(trunk.preprocess(torch.from_numpy(pixels))).numpy()
    outputs = encoder.hasher.project(features)
    clear = np.abs(outputs) > 1e-4  # rounding may turn others
    assert clear.mean() > 0.99
    signs = bp.Codes(codes, encoder.bits).signs() > 0
    np.testing.assert_array_equal(signs[clear], (outputs >= 0)[clear])
    [query] = encoder.encode([decode_image(paths[4], encoder.size)]).packed
    np.testing.assert_array_equal(query, codes[4])


def test_features_of_the_frozen_network_are_computed_once_frozen():
    features = Features("efficientnet-lite0")
    one = features(np.zeros((1, 224, 224, 3), np.uint8))
    two = features(np.zeros((2, 224, 224, 3), np.uint8))
    np.testing.assert_array_equal(two[1], one[0])
    assert features._network is features._network
    assert features._network is not features.trunk


def test_a_network_without_a_faster_form_is_used_as_it_is():
    features = Features("small", 16)
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), np.uint8)
    assert features._network is features.trunk
    trunk = features.trunk.eval()
    with torch.inference_mode():
        expected = trunk(trunk.preprocess(torch.from_numpy(images))).numpy()
    np.testing.assert_allclose(features(ImageSet(images).pixels), expected, rtol=1e-5, atol=1e-6)
