"""Which modules the doctests leave out: those that need a GPU's compiler to be imported."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["src/bitprint/search/gpu_scans.py"]
