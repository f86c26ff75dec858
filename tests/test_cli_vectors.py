"""`bitprint vectors`, and `bitprint index` on an index of vectors."""

import json
import sys

import numpy as np
import pytest

import bitprint as bp
from bitprint.cli import main
from bitprint.vectors import VectorIndex


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Return a function that runs a command, checks its exit code, and returns its output."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["bitprint", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        assert (stop.value.code or 0) == code, printed.err
        return printed.err if code else printed.out

    return call


@pytest.fixture
def vectors(tmp_path):
    found = np.random.default_rng(0).normal(size=(200, 24)).astype(np.float32)
    np.save(tmp_path / "v.npy", found)
    np.save(tmp_path / "q.npy", found[[3, 150]])
    (tmp_path / "ids.txt").write_text("".join(f"text {row}\n" for row in range(200)))
    return found


def test_add_and_search_are_enough(run, vectors):
    assert run("vectors", "add", "docs.bp", "v.npy", "--bits", 24).startswith("200 new, 200 in")
    lines = run("vectors", "search", "docs.bp", "q.npy", "-k", 2).splitlines()
    assert [line for line in lines if line.startswith("query")] == ["query 0:", "query 1:"]
    assert lines[1] == "  1.0000  3"
    assert lines[4] == "  1.0000  150"
    with VectorIndex.open("docs.bp") as index:
        expected = index.search(vectors[[3, 150]], k=2)
    found = json.loads(run("vectors", "search", "docs.bp", "q.npy", "-k", 2, "--json"))
    assert [[hit["id"] for hit in row["results"]] for row in found["queries"]] == (
        expected.ids.tolist()
    )
    rounded = [[hit["similarity"] for hit in row["results"]] for row in found["queries"]]
    assert rounded == pytest.approx(expected.similarities, abs=1e-6)


def test_learn_then_add_with_ids(run, vectors):
    options = ("--bits", 32, "--metric", "l2", "--keep", "none", "--json")
    about = json.loads(run("vectors", "learn", "docs.bp", "v.npy", *options))
    assert (about["held"], about["bits"]) == (0, 32)
    assert about["model"].startswith("SBLSH, 32 bits, on vectors of length 24, l2 (")
    about = json.loads(run("vectors", "add", "docs.bp", "v.npy", "--ids", "ids.txt", "--json"))
    assert (about["new"], about["held"]) == (200, 200)
    run("vectors", "add", "docs.bp", "v.npy", "--ids", "ids.txt")
    assert run("vectors", "search", "docs.bp", "q.npy", "-k", 1).splitlines()[1].endswith("text 3")
    found = json.loads(run("vectors", "search", "docs.bp", "q.npy", "--hamming", "--json"))
    assert found["queries"][0]["results"][0] == {"id": "text 3", "similarity": 1.0}
    assert run("index", "info", "docs.bp").startswith("200 in the index\nbits: 32\n")


def test_index_commands_accept_an_index_of_vectors(run, vectors, tmp_path):
    run("vectors", "add", "docs.bp", "v.npy", "--bits", 24)
    run("index", "remove", "docs.bp", "3", "4")
    run("index", "compact", "docs.bp")
    run("index", "copy", "docs.bp", "copy.bp")
    with VectorIndex.open("copy.bp") as copy:
        assert len(copy) == 198
        assert copy.search(vectors[150:151], k=1).ids.tolist() == [[150]]
        codes = copy.index.codes(copy.index.ids())
    about = json.loads(run("index", "export", "copy.bp", "codes.npy", "--json"))
    assert about == {"codes": 198, "bits": 24, "file": "codes.npy"}
    assert bp.Codes.from_packed(np.load("codes.npy"), bits=24) == codes
    assert "unknown format" in run("index", "export", "copy.bp", "codes.csv", code=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bits", 16], "was learned with --bits 24, not 16"),
        (["--metric", "ip"], "was learned with --metric cosine, not ip"),
        (["--keep", "none"], "was learned with --keep int8, not none"),
        (["--method", "lsh"], "was learned with --method itq, not lsh"),
    ],
)
def test_other_options_for_an_existing_index_are_refused(run, vectors, options, message):
    run("vectors", "add", "docs.bp", "v.npy", "--bits", 24)
    assert message in run("vectors", "add", "docs.bp", "v.npy", *options, code=1)
    run("vectors", "add", "docs.bp", "v.npy", "--bits", 24, "--keep", "int8")


def test_failures_are_one_sentence(run, vectors, tmp_path):
    (tmp_path / "cut.npy").write_bytes((tmp_path / "v.npy").read_bytes()[:-7])
    for arguments, message in (
        (("add", "docs.bp", "cut.npy"), "cut.npy: not a .npy file of numbers, or truncated"),
        (("add", "docs.bp", "none.npy"), "none.npy: no such file"),
        (("search", "docs.bp", "q.npy"), "docs.bp: no such index"),
    ):
        printed = run("vectors", *arguments, code=1)
        assert message in printed
        assert printed.count("\n") == 1
    assert not (tmp_path / "docs.bp").exists()
