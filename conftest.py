"""Which modules the search for doctests leaves out, and how tests share a machine."""

import os
from importlib.util import find_spec

import pytest

# Tests run in as many processes as there are cores, and start others: none needs threads, which
# would wait for each other. It counts before NumPy and torch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# They need a GPU's compiler to be imported.
_KERNELS = [
    "src/bitprint/search/gpu_scans.py",
    "src/bitprint/methods/discrete_gpu.py",
    "src/bitprint/nets/depthwise_gpu.py",
    "src/bitprint/nets/depthwise_kernels.py",
]
collect_ignore = [] if find_spec("triton") else _KERNELS
# As modules they would all have one name.
collect_ignore_glob = ["tests/*/conftest.py"]


@pytest.fixture(autouse=True)
def same_registries():
    """Remove the methods and backbones that a test or an example registered."""
    from bitprint.methods import METHODS
    from bitprint.nets.trunk import _BACKBONES

    kept = [(registry, dict(registry)) for registry in (METHODS, _BACKBONES)]
    yield
    for registry, before in kept:
        registry.clear()
        registry.update(before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give the tests of a file to one process, so that a server that they share starts once."""
    if config.option.dist != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)
