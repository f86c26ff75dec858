import subprocess
import sys

import numpy as np
import pytest

from bitprint.search import flat, numpy_scan
from bitprint.utils.words import as_planes, as_words


@pytest.mark.parametrize("bits", [8, 64, 100, 1024])
@pytest.mark.parametrize("k", [1, 7, 400])
@pytest.mark.parametrize("alive", [None, 0.0, 0.5])
def test_numpy_scan_equals_the_compiled_scan(bits, k, alive):
    """8-bit codes have many ties; k above the number of codes gives padding."""
    rng = np.random.default_rng(bits)
    packed = rng.integers(0, 256, (300, -(-bits // 8)), np.uint8)
    marks = None if alive is None else (rng.random(290) < alive).astype(np.uint8)
    queries, planes = as_words(packed[::40]), as_planes(packed)  # the capacity exceeds the count
    ours = numpy_scan.nearest(queries, planes, 290, k, marks)
    for found, expected in zip(ours, flat.nearest(queries, planes, 290, k, marks), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


def test_numpy_scan_at_full_distance_counts_all_bits():
    queries, planes = np.zeros((1, 16), np.uint64), np.full((16, 1), 2**64 - 1, np.uint64)
    assert numpy_scan.nearest(queries, planes, 1, 1, None)[1].tolist() == [[1024]]


def test_numpy_scan_is_unused_once_kernels_are_imported():
    assert "bitprint.search.kernels" in sys.modules
    assert not numpy_scan.suffices(1, 1)


def test_many_small_searches_import_the_kernels():
    source = """
import sys, tempfile, numpy as np, bitprint as bp
codes = bp.Codes.from_signs(np.ones((100, 8)))
with tempfile.TemporaryDirectory() as folder, bp.Index.create(f"{folder}/a.bp", bits=8) as index:
    index.add(range(100), codes)
    index.search(codes[:1])
    print("numba" in sys.modules)
    for _ in range(50):
        index.search(codes)
    print("numba" in sys.modules, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True", "False"], done.stderr
