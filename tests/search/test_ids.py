"""Ids as ranges: in the file, in memory, and in the lookup of positions."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bitprint.search import id_lookup, id_ranges
from bitprint.search.id_column import IdColumn
from bitprint.search.id_lookup import IdLookup, IntegerLookup
from bitprint.search.id_ranges import Ranges, as_names, compress, decode, encode
from bitprint.search.ids import as_ids, to_bytes

LOWEST, HIGHEST = -(2**63), 2**63 - 1
STEPS = [1, 1, 1, -1, 2, -3, 10, 2**40, 2**61]


@pytest.fixture(params=[1, 8], autouse=True, ids=["all ranges", "long ranges"])
def _lengths(request, monkeypatch):
    """Test also with ranges of any length, which are otherwise stored as arrays."""
    monkeypatch.setattr(id_ranges, "_MEAN_LENGTH", request.param)
    monkeypatch.setattr(id_lookup, "_SHORT", request.param)


@st.composite
def pieces(draw):
    """Return a range of ids that fits 64 bits."""
    start = draw(st.one_of(st.integers(-30, 30), st.sampled_from([LOWEST, -(2**62), HIGHEST])))
    step, count = draw(st.sampled_from(STEPS)), draw(st.integers(1, 20))
    ids = [start + step * number for number in range(count)]
    return [each for each in ids if LOWEST <= each <= HIGHEST]


@st.composite
def id_lists(draw):
    """Return unique ids: several ranges and single ids."""
    return list(dict.fromkeys(chain(*draw(st.lists(pieces(), max_size=6)))))


@given(id_lists())
@example([LOWEST, HIGHEST])
@example([HIGHEST, LOWEST, LOWEST + 1, LOWEST + 2])
@example([0, 2**62, -(2**62), LOWEST, HIGHEST])
@example([*range(10), 20, 30, *range(40, 50, 2)])
@example([1, 2, 4, 8, 16, 32, 64, 128, 256])
def test_integer_ids_come_back_as_they_were(ids):
    data = encode(np.array(ids, np.int64))
    assert len(data) <= 1 + 8 * len(ids) * (3 if id_ranges._MEAN_LENGTH == 1 else 1)
    if ids:
        decoded = decode(data, "integer")
        found = decoded.numbers() if isinstance(decoded, Ranges) else decoded
        assert found.tolist() == ids


@given(st.lists(st.one_of(st.integers(0, 40).map(str), st.text("0179x\udcff²", max_size=20))))
@example([str(number) for number in range(100)])
@example(["0", "00", "1"])
@example(["9" * 18, "9" * 19, "1" + 18 * "0"])
@example([""])
def test_string_ids_come_back_as_they_were(names):
    if not names:
        return
    decoded = decode(encode(as_ids(names)), "string")
    found = decoded.ids("string") if isinstance(decoded, Ranges) else decoded
    assert found.tolist() == names


@pytest.mark.parametrize(
    "ids", [range(65_536), range(7, -69_993, -7), range(LOWEST, HIGHEST, 2**50)]
)
def test_a_range_takes_25_bytes(ids):
    assert len(encode(as_ids(ids))) == 25
    column = IdColumn("integer")
    for start in range(0, len(ids), 1000):
        column.append(compress(as_ids(ids[start : start + 1000])))
    (part,) = column.view().parts()
    assert (part.starts.tolist(), part.size) == ([ids[0]], len(ids))


def test_a_range_of_decimal_strings_takes_25_bytes():
    assert len(encode(as_names(np.arange(65_536)))) == 25


def test_ids_with_short_ranges_are_arrays(monkeypatch):
    monkeypatch.setattr(id_ranges, "_MEAN_LENGTH", 8)
    gaps = np.array([number for number in range(1000) if number % 8])
    assert compress(gaps) is gaps
    assert encode(gaps) == to_bytes(gaps)
    ranges = compress(np.array([number for number in range(1000) if number % 9]))
    assert ranges.starts.tolist() == list(range(1, 1000, 9))


HOSTILE = {
    "no ids": (0, 1, 0),
    "a negative number of ids": (0, 1, -5),
    "repeated ids": (0, 0, 9),
    "too large": (HIGHEST, 1, 2),
    "too small": (LOWEST, -1, 2),
    "around once": (0, 2**62, 3),
    "around several times": (0, 2**62, 2**20 + 1),
    "a number of ids that wraps around": (0, 1, 2**62),
    "the smallest step": (HIGHEST, LOWEST, 3),
}


@pytest.mark.parametrize("row", HOSTILE.values(), ids=HOSTILE)
def test_ranges_that_cannot_be_are_refused(row):
    data = b"\xff" + np.array(row, "<i8").tobytes()
    with pytest.raises(ValueError, match="invalid ranges"):
        decode(data, "integer")


@pytest.mark.parametrize("row", [(-1, 1, 3), (1, -1, 3), (10**18 - 1, 1, 2)])
def test_ranges_of_strings_that_cannot_be_are_refused(row):
    data = b"\xff" + np.array(row, "<i8").tobytes()
    assert decode(data, "integer").numbers().tolist() == [
        row[0] + row[1] * i for i in range(row[2])
    ]
    with pytest.raises(ValueError, match="invalid ranges"):
        decode(data, "string")


def test_the_largest_ranges_are_read():
    for row in [(HIGHEST, LOWEST, 2), (LOWEST, HIGHEST, 3), (LOWEST, 1, 1), (HIGHEST, -1, 4)]:
        ids = decode(b"\xff" + np.array(row, "<i8").tobytes(), "integer").numbers()
        assert ids.tolist() == [row[0] + row[1] * number for number in range(row[2])]


@given(st.lists(id_lists(), max_size=8), st.booleans())
def test_a_column_returns_ids_in_any_order(batches, strings):
    kind = "string" if strings else "integer"
    column, expected, views = IdColumn(kind), [], []
    for batch in batches:
        ids = as_names(np.array(batch, np.int64)) if strings else np.array(batch, np.int64)
        column.append(compress(ids))
        expected += ids.tolist()
        views.append((column.view(), list(expected)))
    for view, ids in views:
        assert len(view) == len(ids)
        assert view.to_array().tolist() == ids
        order = np.random.default_rng(0).integers(0, max(1, len(ids)), (2, len(ids)))
        found = view[order]
        assert found.dtype == (object if strings else np.int64)
        assert found.tolist() == [[ids[place] for place in row] for row in order.tolist()]


@given(st.lists(id_lists(), max_size=10), st.booleans(), st.integers(0, 10))
def test_the_lookup_finds_the_last_position(batches, strings, known):
    """The first `known` batches are there when the lookup is made, the others are added to it."""
    kind = "string" if strings else "integer"
    column, positions, lookup = IdColumn(kind), {}, None
    for number, batch in enumerate(batches):
        if number == known:
            lookup = IdLookup(kind, column.view())
        ids = as_names(np.array(batch, np.int64)) if strings else np.array(batch, np.int64)
        ids = compress(ids)
        if lookup:
            lookup.extend(ids, column.count)
        positions.update(zip(batch, range(column.count, column.count + len(batch)), strict=True))
        column.append(ids)
    lookup = lookup or IdLookup(kind, column.view())
    wanted = list({*positions, *range(-45, 45), LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST})
    numbers = np.array(wanted, np.int64)
    found = lookup.find(as_names(numbers) if strings else numbers)
    assert found.tolist() == [positions.get(each, -1) for each in wanted]


def test_many_classes_of_ranges_are_found(monkeypatch):
    monkeypatch.setattr(id_lookup, "_CLASSES", 3)
    batches = [range(start, start + 100 * step, step) for step in (1, 2, 5, 7) for start in (0, 3)]
    column, positions = IdColumn("integer"), {}
    for ids in batches:
        positions.update(zip(ids, range(column.count, column.count + 100), strict=True))
        column.append(compress(as_ids(ids)))
    found = IdLookup("integer", column.view()).find(np.arange(-5, 800))
    assert found.tolist() == [positions.get(each, -1) for each in range(-5, 800)]


def test_a_range_that_is_added_in_parts_stays_one_interval():
    lookup = IdLookup("integer", IdColumn("integer").view())
    for start in range(0, 100_000, 100):
        lookup.extend(compress(np.arange(start, start + 100)), start)
    for number in range(1000):  # replaced again and again
        lookup.extend(compress(np.arange(5000, 5100)), 100_000 + 100 * number)
    (levels,) = lookup._ranges._classes.values()
    assert sum(len(level.low) for level in levels) < 20
    assert lookup.find(np.array([4999, 5000, 5099, 5100])).tolist() == [
        4999,
        199_900,
        199_999,
        5100,
    ]


@given(st.lists(st.lists(st.integers(-20, 20), max_size=12), max_size=12))
def test_the_integer_lookup_finds_the_last_position(batches):
    lookup, positions, first = IntegerLookup(), {}, 0
    for batch in batches:
        lookup.extend(np.array(batch, np.int64), np.arange(first, first + len(batch)))
        positions.update(zip(batch, range(first, first + len(batch)), strict=True))
        first += len(batch)
    wanted = np.arange(-25, 26)
    assert lookup.find(wanted).tolist() == [positions.get(key, -1) for key in wanted.tolist()]


def test_positions_beyond_32_bits_are_found():
    lookup = IntegerLookup()
    lookup.extend(np.array([5, 3]), np.array([2**32 - 2, 2**32 - 1]))
    lookup.extend(np.array([9, 1]), np.array([2**32, 2**32 + 1]))
    assert lookup.find(np.array([1, 3, 5, 9])).tolist() == [2**32 + 1, 2**32 - 1, 2**32 - 2, 2**32]


@pytest.mark.parametrize("ids", [range(HIGHEST, HIGHEST + 2), [2**63], range(LOWEST - 1, 0, 2**62)])
def test_ids_beyond_64_bits_are_refused(ids):
    with pytest.raises(ValueError, match=r"between -2\*\*63 and 2\*\*63 - 1"):
        as_ids(ids)
