import pytest

from bitprint.search.closing import Closable, on_error


class Door(Closable):
    def __init__(self):
        self.closed = 0

    def close(self):
        self.closed += 1


def test_with_closes_also_on_errors():
    with Door() as door:
        assert door.closed == 0
    assert door.closed == 1
    with pytest.raises(KeyError), door:
        raise KeyError
    assert door.closed == 2


def test_on_error_does_nothing_without_an_error():
    door = Door()
    with on_error(door.close):
        pass
    assert door.closed == 0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_on_error_closes_on_any_error(error):
    door = Door()
    with pytest.raises(error), on_error(door.close):
        raise error
    assert door.closed == 1


def test_a_closable_must_define_close():
    with pytest.raises(TypeError, match="close"):
        type("Wall", (Closable,), {})()
