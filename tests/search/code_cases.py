"""Random codes and searches for the tests of scans and tables."""

import numpy as np

KINDS = ["uniform", "duplicates", "clustered", "two clusters", "equal"]


def random_codes(rng, size, bits, *, kind="uniform"):
    """Return packed codes; `kind` determines how similar they are."""
    centers = {"clustered": 5, "two clusters": 2, "equal": 1, "duplicates": -(-size // 5)}
    signs = rng.random((centers.get(kind, size), bits)) < 0.5
    if kind != "uniform":
        signs = signs[rng.integers(0, max(1, len(signs)), size)]
    if kind in ("clustered", "two clusters"):
        signs = signs ^ (rng.random((size, bits)) < 0.05)
    return np.packbits(signs, axis=1)


def random_search(rng, bits, size, count, kind, removed):
    """Return codes, queries (every second one is a code), removal flags and a radius."""
    codes = random_codes(rng, size, bits, kind=kind)
    queries = random_codes(rng, count, bits)
    if size:
        queries[::2] = codes[rng.integers(0, size, len(queries[::2]))]
    alive = None if removed is None else (rng.random(size) >= removed).astype(np.uint8)
    return codes, queries, alive, int(rng.integers(0, bits + 2))
