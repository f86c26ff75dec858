import re

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from bitprint.codes import Codes
from bitprint.search.index import Index
from bitprint.web import create_app
from bitprint.web.collection import KEY_PATTERN, Collection, SearchRequest, id_of, key_of, readable
from bitprint.web.models import code_pattern, parse_code

texts = st.text(st.characters(exclude_characters="\0"), max_size=40)  # includes lone surrogates


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), texts))
def test_a_key_is_safe_in_urls_and_leads_back(identifier):
    key = key_of(identifier)
    assert re.fullmatch(KEY_PATTERN, key)
    assert id_of(key) == identifier


@pytest.mark.parametrize("key", ["", "x7", "n", "n7x", "sA", "s\xff", "s_w", "7"])
def test_invalid_key_raises(key):
    with pytest.raises(ValueError):  # noqa: PT011
        id_of(key)


@given(texts)
def test_readable_names_can_be_sent(name):
    assert len(readable(name)) == len(name)
    readable(name).encode("utf-8", "strict")
    if not re.search("[\ud800-\udfff]", name):
        assert readable(name) == name


@given(st.integers(1, 70), st.data())
def test_code_pattern_matches_valid_codes(bits, data):
    width = -(-bits // 8)
    packed = data.draw(st.binary(min_size=width, max_size=width))
    padding = 8 * width - bits
    if packed[-1] % 2**padding:
        with pytest.raises(ValueError, match="hexadecimal"):
            parse_code(packed.hex(), bits)
    else:
        assert parse_code(packed.hex().upper(), bits) == packed
    for wrong in (packed.hex()[:-1], packed.hex() + "0", packed.hex() + "\n", "é" * 2 * width):
        assert not re.fullmatch(code_pattern(bits), wrong)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Create 300 codes of 20 bits with ids and labels that are not valid text."""
    rng = np.random.default_rng(0)
    signs = rng.random((300, 20)) < 0.5
    names = [f"pic\udce9 {number}" for number in range(300)]
    labels = [["even", "caf\udce9"] if number % 2 == 0 else ["odd"] for number in range(300)]
    path = tmp_path_factory.mktemp("labelled") / "a.bp"
    with Index.create(path, bits=20) as index:
        index.add(names, Codes.from_signs(signs), labels=labels)
        yield Collection(index), signs, labels


def brute_force(signs, labels, query, search):
    wanted = {"": None, "caf\N{REPLACEMENT CHARACTER}": "caf\udce9"}.get(search.label, search.label)
    pairs = [
        (int(np.sum(signs[row] != query)), row)
        for row in range(len(signs))
        if wanted is None or wanted in labels[row]
    ]
    return [pair for pair in sorted(pairs) if pair[0] <= search.radius][: search.k]


def test_a_batch_of_unlike_searches_answers_each_as_brute_force_does(labelled):
    collection, signs, labels = labelled
    rng = np.random.default_rng(1)
    queries = rng.random((24, 20)) < 0.5
    codes = Codes.from_signs(queries).packed
    searches = [
        SearchRequest(
            codes[number].tobytes(),
            k=[1, 7, 1000][number % 3],
            radius=[2, 6, 20, 1024][number % 4],
            label=["", "even", "odd", "caf\N{REPLACEMENT CHARACTER}", "nobody's"][number % 5],
        )
        for number in range(24)
    ]
    answers = collection.search(searches)
    for query, search, found in zip(queries, searches, answers, strict=True):
        expected = brute_force(signs, labels, query, search)
        assert [(one.distance, one.key) for one in found] == [
            (distance, key_of(f"pic\udce9 {row}")) for distance, row in expected
        ]
        for one, (_, row) in zip(found, expected, strict=True):
            assert one.name == f"pic\N{REPLACEMENT CHARACTER} {row}"
            assert one.labels == tuple(readable(label) for label in labels[row])
            assert one.code == Codes.from_signs(signs[row : row + 1]).packed.tobytes()
            assert not one.has_picture
    assert any(len(found) == 0 for found in answers)
    assert any(len(found) > 7 for found in answers)


def test_labels_are_text(labelled):
    assert labelled[0].labels() == ["caf\N{REPLACEMENT CHARACTER}", "even", "odd"]


def test_an_empty_index_finds_nothing(tmp_path):
    with Index.create(tmp_path / "a.bp", bits=9) as index:
        collection = Collection(index)
        collection.warm_up()
        assert collection.search([SearchRequest(bytes(2), 5, 9, "")]) == [[]]
        assert collection.labels() == []


def test_search_repeats_if_a_hit_is_removed(tmp_path):
    with Index.create(tmp_path / "a.bp", bits=8) as index:
        index.add(["stays", "goes"], Codes.from_packed(np.array([[0], [0]], np.uint8), bits=8))
        collection, search = Collection(index), index.search

        def search_and_remove(*arguments):
            index.search = search
            found = search(*arguments)
            index.remove(["goes"])
            return found

        index.search = search_and_remove
        answers = collection.search([SearchRequest(bytes(1), 5, 8, "")])
    assert [one.name for one in answers[0]] == ["stays"]


def test_an_index_of_codes_with_any_attachment_is_served(codes_file):
    with Index.open(codes_file) as index:
        index.attach({"note": b"of last year", "models": b"none"})
        code = index.codes([7]).packed.tobytes()
    collection = Collection.open(codes_file)
    with collection.index:
        assert collection.encoder is None
        collection.warm_up()
        [[hit]] = collection.search([SearchRequest(code, k=1, radius=0, label="")])
        assert (hit.distance, hit.code) == (0, code)


def test_a_server_of_codes_with_an_attachment_answers(codes_file):
    with Index.open(codes_file) as index:
        index.attach({"places.json": b"{}"})
    collection = Collection.open(codes_file)
    with (
        collection.index,
        TestClient(create_app(collection), base_url="http://127.0.0.1") as client,
    ):
        info = client.get("/api/info").json()
        assert (info["codes"], info["model"], info["uploads"]) == (50, None, None)
        found = client.post("/api/search", json={"id": key_of(3), "k": 1}).json()
        assert found["results"][0]["distance"] == 0


def test_an_index_that_cannot_be_served_is_closed(photos_file, monkeypatch):
    opened = []

    def refuse(index):
        opened.append(index)
        raise ValueError("damaged")

    monkeypatch.setattr("bitprint.web.collection.Photos", refuse)
    with pytest.raises(ValueError, match="damaged"):
        Collection.open(photos_file)
    with pytest.raises(ValueError, match="closed"):
        len(opened[0])
