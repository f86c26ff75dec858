import pytest
from store_contract import StoreContract

from bitprint.search.index import Index
from bitprint.search.stores import is_uri, open_index, shown_place


class TestLocal(StoreContract):
    examples = 25

    @pytest.fixture
    def places(self, tmp_path):
        numbers = iter(range(1000))
        return lambda: str(tmp_path / f"{next(numbers)}.bp")


def test_a_path_opens_the_local_index(tmp_path):
    with open_index(tmp_path / "a.bp", bits=12, create=True) as index:
        assert isinstance(index, Index)
    with open_index(str(tmp_path / "a.bp")) as index:
        assert index.path == tmp_path / "a.bp"


def test_an_index_that_is_refused_is_closed(tmp_path):
    open_index(tmp_path / "a.bp", bits=12, create=True).close()
    for other in ({"bits": 16}, {"model": "dsdh"}):
        with pytest.raises(ValueError, match=r"has codes of|were computed by"):
            open_index(tmp_path / "a.bp", **other)
        assert [path.name for path in tmp_path.iterdir()] == ["a.bp"]


def test_a_path_is_shown_as_it_is(tmp_path):
    assert shown_place(tmp_path / "a.bp") == str(tmp_path / "a.bp")


def test_other_addresses_are_refused():
    with pytest.raises(ValueError, match="redis:// is not supported; give a path"):
        open_index("redis://localhost")
    assert not is_uri("c:/photos.bp")


def test_attachments_are_for_a_new_index(tmp_path):
    open_index(tmp_path / "a.bp", bits=12, create=True).close()
    with pytest.raises(ValueError, match="attachments are only for a new index"):
        open_index(tmp_path / "a.bp", attachments={"a": b""})
