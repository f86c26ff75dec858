"""The soak: each kind of fault for a moment, and that it would notice what it looks for."""

import os
import random
import re
import subprocess
import sys
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest

from bitprint.search.index import Index
from soak import indexing
from soak.__main__ import KINDS, soak, table
from soak.bytes import FORMATS, Bytes, damage, make_index, read_index
from soak.rounds import Kind, Round

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def short():
    """What a run of a few seconds prints, every kind having had its turn."""
    command = [sys.executable, "-m", "soak", "--minutes", "0.1", "--seed", "1"]
    threads = {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | threads
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs SIGKILL and a fork server")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_faults_of_each_kind_do_no_harm(short, kind):
    if any(find_spec(name) is None for name in kind.needs):
        pytest.skip(f"{' or '.join(kind.needs)} is not installed")
    row = re.search(
        rf"^{kind.name} +\d+ +(\d+) +([\d,]+) +([\d,]+) +\d+ +(\d+)$", short.stdout, re.M
    )
    assert row, short.stdout + short.stderr
    rounds, faults, checked, violations = (int(cell.replace(",", "")) for cell in row.groups())
    assert violations == 0, short.stdout + short.stderr
    assert min(rounds, faults, checked) >= 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs SIGKILL and a fork server")
def test_a_run_without_violations_says_so(short):
    assert short.returncode == 0, short.stdout + short.stderr
    assert re.search(
        r"\d+ faults injected with seed 1; nothing acknowledged was lost\n$", short.stdout
    )


# What the soak would notice


class Harmless(Kind):
    name = "harmless"

    def strike(self):
        return Round(faults=2, checked=3, unnoticed={"text": 1})


class Failing(Kind):
    name = "failing"
    closed = 0

    def strike(self):
        (self.folder / "mark").touch(exist_ok=False)
        if self.rng.random() < 2:
            raise KeyError("lost")
        return Round(1, 1)

    def close(self):
        Failing.closed += 1


def test_whatever_is_raised_is_a_violation_and_the_kind_starts_anew(tmp_path, capsys):
    tallies = soak([Harmless, Failing], 0.05, 0, tmp_path)
    harmless, failing = tallies
    assert (harmless.faults, harmless.checked) == (2 * harmless.rounds, 3 * harmless.rounds)
    assert harmless.unnoticed == {"text": harmless.rounds}
    assert failing.violations == ["KeyError: 'lost'"] * failing.rounds
    assert failing.rounds == Failing.closed == len(list(tmp_path.glob("failing-*/mark")))
    assert "Traceback" in capsys.readouterr().err
    lines = table(tallies).splitlines()
    assert lines[1].split() == [
        "harmless",
        "0",
        *(f"{n:,}" for n in (harmless.rounds, harmless.faults, harmless.checked)),
        f"{harmless.rounds:,}",
        "0",
    ]


class Dishonest:
    """A victim that acknowledges `lead` calls more than it has made."""

    lead = 0

    def __init__(self, task, *arguments):
        self.acknowledged = []
        made = []

        class Enough(Exception):  # noqa: N818
            pass

        def acknowledge(text):
            made.append(text)
            if len(made) == 5:
                raise Enough

        with pytest.raises(Enough):
            task(acknowledge, *arguments)
        self.acknowledged = ["call"] * (len(made) + self.lead)

    def wait_for_one(self):
        return True

    def kill(self):
        return True


@pytest.mark.parametrize(("lead", "noticed"), [(-1, False), (0, False), (1, True), (-2, True)])
def test_a_writer_that_acknowledges_too_early_is_noticed(tmp_path, monkeypatch, lead, noticed):
    monkeypatch.setattr(indexing, "Victim", Dishonest)
    monkeypatch.setattr(indexing, "_LONGEST_LIFE", 0)
    monkeypatch.setattr(Dishonest, "lead", lead)
    monkeypatch.setattr(indexing.Indexing, "compactions", 0.0)  # each call changes what is held
    kind = indexing.Indexing(tmp_path, random.Random(0))
    if noticed:
        with pytest.raises(AssertionError, match="the index holds neither"):
            kind.strike()
    else:
        assert kind.strike().faults == 1


def test_states_follow_the_plan():
    calls = list(islice(indexing.plan(7, [1, 2], 0.2), 30))
    held = {1, 2}
    for done, (kind, ids) in enumerate(calls):
        after = {key for key in held if key not in ids} if kind == "remove" else {*held, *ids}
        assert indexing.states(7, [1, 2], 0.2, done) == (held, after)
        held = after
    assert {kind for kind, _ in calls} == {"add", "remove", "compact"}


def test_a_lost_label_is_noticed(tmp_path):
    path = tmp_path / "a.bp"
    with Index.create(path, indexing.BITS) as index:
        index.add([1, 2], indexing.codes_of([1, 2]), ["1.png", "2.png"], [["1"], []])
    with pytest.raises(AssertionError, match="paths or labels"):
        indexing.stored_ids(path)


def test_damage_is_of_one_byte():
    content, rng = bytes(range(100)), random.Random(0)
    lengths = set()
    for _ in range(500):
        _, damaged = damage(content, rng)
        assert damaged != content
        lengths.add(len(damaged) - len(content))
        if len(damaged) == len(content):
            assert sum(a != b for a, b in zip(damaged, content, strict=True)) == 1
    assert {-1, 0, 1} <= lengths
    assert min(lengths) < -50


def test_a_format_whose_checksum_says_nothing_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("bitprint.codes._checksum", lambda packed, bits: "the same")
    monkeypatch.setattr("soak.bytes._FAULTS_PER_ROUND", 200)
    kind = Bytes(tmp_path, random.Random(0))
    with pytest.raises(AssertionError, match=r"codes, .* read otherwise, without a word"):
        kind.strike()


def test_an_error_that_is_no_sentence_is_noticed(tmp_path, monkeypatch):
    def fail(folder):
        raise ValueError("two\nlines")

    kind = Bytes(tmp_path, random.Random(0))
    monkeypatch.setitem(FORMATS, "codes", FORMATS["codes"]._replace(read=fail))
    with pytest.raises(AssertionError, match="not one sentence"):
        kind.strike()


def test_damage_to_what_finds_attachments_does_not_hide_them(tmp_path):
    make_index(tmp_path)
    path = tmp_path / "a.bp"
    content, expected = path.read_bytes(), read_index(tmp_path)
    last = len(content) - 16_384  # the page of SQLite's own index over their names
    changed = [place for place in range(last, len(content)) if content[place]]
    assert len(changed) > 5  # most of the page is empty
    for place in changed:
        for damaged in (
            content[:place],
            content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :],
        ):
            for part in tmp_path.glob("a.bp*"):
                part.unlink()
            path.write_bytes(damaged)
            try:
                found = read_index(tmp_path)
            except ValueError:
                continue
            assert found == expected
