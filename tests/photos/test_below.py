from hypothesis import example, given
from hypothesis import strategies as st

from bitprint.photos import below
from bitprint.photos.below import OrderedPaths, outermost
from bitprint.photos.files import is_below

places = st.text("/a0.\1", max_size=4).map(lambda name: f"/{name}".rstrip("/") or "/")


@example({"/a", "/a\1", "/a/0", "/a0", "/b"}, "/a")
@given(st.sets(places, max_size=12), places)
def test_ordered_paths_below_equals_linear_search(paths, place):
    held = paths - {"/"}
    expected = [path for path in held if is_below(path, place)]
    assert sorted(OrderedPaths(held).below(place)) == sorted(expected)


@example(["/a", "/a.0", "/a/0", "/a/0/a"])
@example(["/a/0", "/", "/a"])
@given(st.lists(places, max_size=12))
def test_outermost_equals_brute_force(given_places):
    expected = {
        place
        for place in given_places
        if not any(is_below(place, other) for other in given_places if other != place)
    }
    assert outermost(given_places) == sorted(expected)


def test_outermost_compares_each_path_once(monkeypatch):
    compared = []

    def counted(path, place):
        compared.append(path)
        return is_below(path, place)

    monkeypatch.setattr(below, "is_below", counted)
    apart = [f"/photos/{number:04d}" for number in range(1000)]
    assert outermost(apart + [f"{place}/cats" for place in apart]) == apart
    assert len(compared) == len(set(compared)) < 2000
