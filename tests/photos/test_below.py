from hypothesis import example, given
from hypothesis import strategies as st

from bitprint.photos.below import OrderedPaths
from bitprint.photos.files import is_below

places = st.text("/a0\1", max_size=4).map(lambda name: f"/{name}".rstrip("/"))


@example({"/a", "/a\1", "/a/0", "/a0", "/b"}, "/a")
@given(st.sets(places, max_size=12), places)
def test_the_same_are_found_as_by_going_through_all(paths, place):
    held = paths - {""}
    expected = [path for path in held if is_below(path, place or "/")]
    assert sorted(OrderedPaths(held).below(place or "/")) == sorted(expected)
