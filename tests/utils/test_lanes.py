"""Operations on lanes, compared with those of NumPy, also without AVX-512."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from numba import njit

from bitprint.utils import lanes


@njit
def apply_all(one, two, three, results):
    a, b, c = lanes.load(one, 1), lanes.load(two, 2), lanes.load(three, 0)
    lanes.store(results, 0, lanes.both(a, b))
    lanes.store(results, 8, lanes.differ(a, b))
    lanes.store(results, 16, lanes.invert(a))
    lanes.store(results, 24, lanes.parity(a, b, c))
    lanes.store(results, 32, lanes.majority(a, b, c))
    lanes.store(results, 40, lanes.shift_left(a, np.uint64(13)))
    lanes.store(results, 48, lanes.shift_right(a, np.uint64(13)))
    lanes.store(results, 56, lanes.broadcast(np.uint64(7)))
    lanes.store(results, 64, lanes.zero())


def check_lanes():
    rng = np.random.default_rng(0)
    one, two, three = rng.integers(0, 2**64, (3, 10), np.uint64)
    results = np.full(9 * lanes.LANES, 99, np.uint64)
    apply_all(one, two, three, results)
    a, b, c = one[1:9], two[2:], three[:8]
    thirteen = np.uint64(13)
    expected = [a & b, a ^ b, ~a, a ^ b ^ c, (a & b) | (a & c) | (b & c)]
    expected += [a << thirteen, a >> thirteen, np.full(8, 7), np.zeros(8)]
    np.testing.assert_array_equal(results.reshape(9, 8), np.array(expected, np.uint64))


def test_lanes_compute_what_numpy_computes():
    check_lanes()


def test_lanes_need_no_particular_processor():
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    command = [sys.executable, "-c", "import test_lanes; test_lanes.check_lanes()"]
    folder = Path(__file__).parent
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
