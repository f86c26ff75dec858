import numpy as np
import pytest

from bitprint.codes import Codes
from bitprint.photos import duplicates, find_duplicates
from bitprint.search.index import Index


def brute_force(codes, radius):
    """Return connected components and their largest distances by repeated merging."""
    signs = codes.signs()
    distances = (signs[:, None] != signs[None]).sum(axis=2)
    groups = [{row} for row in range(len(codes))]
    merged = True
    while merged:
        merged = False
        for first in range(len(groups)):
            for second in range(first + 1, len(groups)):
                near = [distances[i, j] <= radius for i in groups[first] for j in groups[second]]
                if any(near):
                    groups[first] |= groups.pop(second)
                    merged = True
                    break
            if merged:
                break
    large = [sorted(group) for group in groups if len(group) > 1]
    large.sort(key=lambda group: (-len(group), group[0]))
    return [(group, int(distances[np.ix_(group, group)].max())) for group in large]


def near_codes(count, seed):
    """Return codes near six random codes, some of them equal."""
    rng = np.random.default_rng(seed)
    bases = rng.random((6, 40)) < 0.5
    flips = rng.random((count, 40)) < rng.choice([0, 0.02, 0.06], (count, 1))
    return Codes.from_signs(bases[rng.integers(0, 6, count)] ^ flips)


@pytest.mark.parametrize("radius", [0, 1, 3, 6])
def test_groups_are_those_of_brute_force(tmp_path, radius):
    codes = near_codes(80, radius)
    with Index.create(tmp_path / "a.bp", bits=40) as index:
        index.add(range(80), codes)
        groups = find_duplicates(index, radius)
        assert [(group.ids, group.distance) for group in groups] == brute_force(codes, radius)
        assert groups


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("matches", [1, 50, 2**20])
def test_groups_do_not_depend_on_the_batches(tmp_path, monkeypatch, names, matches):
    """Ids are not their places: some are removed, and the others are not sorted."""
    monkeypatch.setattr(duplicates, "_MATCHES", matches)
    monkeypatch.setattr(duplicates, "_QUERIES", 7)
    codes = near_codes(90, 5)
    ids = np.random.default_rng(0).permutation(90) + 1000
    ids = [f"{number}.jpg" for number in ids] if names else ids.tolist()
    kept = [row for row in range(90) if row % 5]
    with Index.create(tmp_path / "a.bp", bits=40) as index:
        index.add(ids, codes)
        index.remove(ids[::5])
        found = [
            ([kept.index(ids.index(name)) for name in group], distance)
            for group, distance in find_duplicates(index, 3)
        ]
    assert found == brute_force(codes[kept], 3)


def test_removed_pictures_do_not_link_groups(tmp_path):
    chain = np.ones((3, 8), bool)
    chain[1, 0] = chain[2, :2] = False
    with Index.create(tmp_path / "a.bp", bits=8) as index:
        index.add(["a", "b", "c"], Codes.from_signs(chain))
        assert find_duplicates(index, 1) == [(["a", "b", "c"], 2)]
        index.remove(["b"])
        assert find_duplicates(index, 1) == []
        assert find_duplicates(index, 2) == [(["a", "c"], 2)]


def test_many_identical_pictures_cost_one_query(tmp_path, monkeypatch):
    queries = []
    original = Index.within

    def count(self, codes, radius=2, label=None):
        queries.append(len(codes))
        return original(self, codes, radius, label)

    monkeypatch.setattr(Index, "within", count)
    with Index.create(tmp_path / "a.bp", bits=16) as index:
        index.add(range(500), Codes.from_signs(np.ones((500, 16))))
        assert find_duplicates(index) == [(list(range(500)), 0)]
    assert queries == [1]


def test_an_empty_index_has_none(tmp_path):
    with Index.create(tmp_path / "a.bp", bits=16) as index:
        assert find_duplicates(index) == []
