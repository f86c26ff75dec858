"""Which modules the search for doctests leaves out."""

from importlib.util import find_spec

# It needs a GPU's compiler to be imported.
collect_ignore = [] if find_spec("triton") else ["src/bitprint/search/gpu_scans.py"]
# As modules they would all have one name.
collect_ignore_glob = ["tests/*/conftest.py"]
