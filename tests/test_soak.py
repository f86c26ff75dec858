"""The soak: a short run of each kind of fault, and the detection of violations."""

import os
import random
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import ClassVar

import pytest

from bitprint.search.index import Index
from soak import disk, encoding, indexing, serving, training
from soak.__main__ import KINDS, main, soak, table
from soak.bytes import FORMATS, ByteFaults, damage
from soak.rounds import FaultKind, Round

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def short():
    """A short run in which every kind of fault is injected."""
    command = [sys.executable, "-m", "soak", "--minutes", "0", "--seed", "1"]
    threads = {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | threads
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs SIGKILL and a fork server")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_faults_of_each_kind_do_no_harm(short, kind):
    if kind.missing():
        pytest.skip(f"{' and '.join(kind.missing())}: not installed")
    row = re.search(
        rf"^{kind.name} +\d+ +(\d+) +([\d,]+) +([\d,]+) +\d+ +(\d+)$", short.stdout, re.M
    )
    assert row, short.stdout + short.stderr
    rounds, faults, checked, violations = (int(cell.replace(",", "")) for cell in row.groups())
    assert violations == 0, short.stdout + short.stderr
    assert min(rounds, faults, checked) >= 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs SIGKILL and a fork server")
def test_a_run_without_violations_reports_no_loss(short):
    assert short.returncode == 0, short.stdout + short.stderr
    assert short.stdout.startswith("injecting faults for 0 minutes with seed 1\n")
    assert re.search(
        r"\n\d+ faults injected with seed 1; nothing acknowledged was lost\n$", short.stdout
    )


# Detection of violations


class Clock:
    """A clock that advances by a millisecond whenever it is read."""

    now = 0.0

    def monotonic(self):
        self.now += 0.001
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("soak.__main__.time", clock)
    return clock


class Harmless(FaultKind):
    name = "harmless"

    def inject(self):
        return Round(faults=2, checked=3, unnoticed={"text": 1})


class Failing(FaultKind):
    name = "failing"
    closed = 0

    def inject(self):
        (self.folder / "mark").touch(exist_ok=False)
        if self.rng.random() < 2:
            raise KeyError("lost")
        return Round(1, 1)

    def close(self):
        Failing.closed += 1


def test_any_error_is_a_violation_and_restarts_the_kind(tmp_path, capsys, clock):
    tallies = soak([Harmless, Failing], 0.05, 0, tmp_path)
    harmless, failing = tallies
    assert (harmless.faults, harmless.checked) == (2 * harmless.rounds, 3 * harmless.rounds)
    assert harmless.unnoticed == {"text": harmless.rounds}
    assert failing.violations == [
        f"round {number}: KeyError: 'lost'" for number in range(1, failing.rounds + 1)
    ]
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


@pytest.mark.parametrize("early", [Round(faults=1, checked=0), Round(faults=0, checked=1)])
@pytest.mark.parametrize(("early_rounds", "rounds"), [(0, 1), (3, 4), (99, 20)])
def test_a_kind_runs_until_it_has_checked_something(early_rounds, rounds, early, tmp_path):
    class Late(FaultKind):
        name = "late"
        rounds = 0

        def inject(self):
            Late.rounds += 1
            return Round(faults=1, checked=1) if Late.rounds > early_rounds else early

    late, harmless = soak([Late, Harmless], 0, 0, tmp_path)
    assert late.rounds == rounds
    assert harmless.rounds == 1


class Stubborn(Harmless):
    name = "stubborn"

    def close(self):
        raise OSError("still there")


def test_an_error_on_close_is_a_violation_and_others_close(tmp_path):
    Failing.closed = 0
    stubborn, failing = soak([Stubborn, Failing], 0, 0, tmp_path)
    assert stubborn.violations == ["round 1: OSError: still there"]
    assert failing.rounds == Failing.closed == 1


def test_the_exit_code_and_the_last_line_report_a_loss(monkeypatch, capfd):
    monkeypatch.setattr("soak.__main__.KINDS", [Harmless, Failing])
    assert main(["--minutes", "0", "--seed", "5", "--only", "harmless"]) == 0
    *_, last = capfd.readouterr().out.splitlines()
    assert last == "2 faults injected with seed 5; nothing acknowledged was lost"
    assert main(["--minutes", "0", "--seed", "5"]) == 1
    first, *_, violated, again, last = capfd.readouterr().out.splitlines()
    assert first == "injecting faults for 0 minutes with seed 5"
    assert violated == "violation in failing, round 1: KeyError: 'lost'"
    assert "python -m soak --seed 5 --only failing" in again
    assert last == "3 faults injected with seed 5; 1 violations"


def test_a_seed_is_drawn_and_printed_if_none_is_given(monkeypatch, capfd):
    monkeypatch.setattr("soak.__main__.KINDS", [Harmless])
    seeds = set()
    for _ in range(5):
        main(["--minutes", "0"])
        first, *_, last = capfd.readouterr().out.splitlines()
        seed = first.split()[-1]
        assert f"with seed {seed};" in last
        seeds.add(seed)
    assert len(seeds) > 1


def drawing(name, clock, seconds, further=0):
    """Return a kind with slow rounds that records its draws, and then makes `further` draws."""

    class Drawing(FaultKind):
        drawn: ClassVar = []

        def prepare(self):
            self.drawn.append(self.rng.random())

        def inject(self):
            clock.now += seconds
            self.drawn.append(self.rng.random())
            for _ in range(further):
                self.rng.random()
            return Round(1, 1)

    Drawing.name = name
    return Drawing


def test_draws_of_a_kind_depend_only_on_the_seed(tmp_path, clock):
    alone, other, seed = (drawing("a", clock, 0.001) for _ in range(3))
    beside = drawing("a", clock, 0.001, further=3)
    soak([alone], 0.05, 3, tmp_path / "1")
    soak([drawing("b", clock, 0.02), beside, drawing("c", clock, 0.003)], 0.05, 3, tmp_path / "2")
    other.name = "d"
    soak([other], 0.05, 3, tmp_path / "3")
    soak([seed], 0.05, 4, tmp_path / "4")
    count = min(len(alone.drawn), len(beside.drawn))
    assert count > 2
    assert len(set(alone.drawn)) == len(alone.drawn)
    assert alone.drawn[:count] == beside.drawn[:count]
    assert not {*alone.drawn} & {*other.drawn, *seed.drawn}


class Dishonest:
    """A child that acknowledges `lead` more calls than it has made."""

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
    monkeypatch.setattr(indexing, "Child", Dishonest)
    monkeypatch.setattr(indexing, "_LONGEST_LIFE", 0)
    monkeypatch.setattr(Dishonest, "lead", lead)
    monkeypatch.setattr(indexing.IndexingFaults, "compactions", 0.0)  # each call changes the ids
    kind = indexing.IndexingFaults(tmp_path, random.Random(0))
    if noticed:
        with pytest.raises(AssertionError, match="the index matches neither"):
            kind.inject()
    else:
        assert kind.inject().faults == 1


class Idle:
    """A child that does nothing and acknowledges everything."""

    acknowledged = ("full", "full", "full")

    def __init__(self, task, *arguments):
        pass

    def kill(self):
        return True

    def finish(self):
        pass


def kind_without_preparation(monkeypatch, module, kind, folder):
    monkeypatch.setattr(module, "Child", Idle)
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(kind, "prepare", lambda self: None)
    made = kind(folder, random.Random(0))
    made._rounds = 0
    return made


@pytest.mark.parametrize("part", training.TrainingResult._fields)
def test_a_run_with_another_result_is_noticed(tmp_path, monkeypatch, part):
    kind = kind_without_preparation(monkeypatch, training, training.TrainingFaults, tmp_path)
    ended = training.TrainingResult(b"codes", b"weights", [{"loss": "1"}])
    kind._expected = dict.fromkeys(training._RUNS, ended)
    kind._seconds = dict.fromkeys(training._RUNS, 0.0)
    monkeypatch.setattr(training, "read_result", lambda run: ended)
    assert kind.inject().faults >= 1
    monkeypatch.setattr(training, "read_result", lambda run: ended._replace(**{part: b"other"}))
    with pytest.raises(AssertionError, match=f"{part} differ after"):
        kind.inject()


def test_a_lost_code_is_noticed(tmp_path, monkeypatch):
    kind = kind_without_preparation(monkeypatch, encoding, encoding.EncodingFaults, tmp_path)
    kind._album = kind._model = tmp_path
    kind._expected = {"a": b"1", "b": b"2"}
    held = kind._expected
    monkeypatch.setattr(encoding, "read_codes", lambda path: held)
    assert kind.inject().faults >= 1
    seen = iter([held, {"a": b"1"}])
    monkeypatch.setattr(encoding, "read_codes", lambda path: next(seen))
    with pytest.raises(AssertionError, match="stored codes are lost"):
        kind.inject()


@pytest.mark.parametrize(
    ("stored", "left", "message"),
    [
        (set(range(6)), b"old", None),
        (set(range(4)), b"old", "differs from the 3 acknowledged batches"),
        (set(range(6)), b"half", "an old file was changed"),
    ],
)
def test_a_loss_on_a_full_disk_is_noticed(tmp_path, monkeypatch, stored, left, message):
    monkeypatch.setattr(disk, "Child", Idle)
    monkeypatch.setattr(disk.DiskFaults, "prepare", lambda self: None)
    kind = disk.DiskFaults(tmp_path, random.Random(0))
    kind._rounds, kind._kept, kind._contents = 0, tmp_path / "kept", {"file": b"old"}
    monkeypatch.setattr(disk, "stored_ids", lambda path: stored)
    monkeypatch.setattr(disk, "read_all", lambda folder: {"file": left})
    if message is None:
        assert kind.inject().faults == 4
    else:
        with pytest.raises(AssertionError, match=message):
            kind.inject()


@pytest.mark.parametrize(
    ("status", "results", "message"),
    [
        (200, [{"id": "other", "distance": 0}], "was added but is not found"),
        (200, [{"id": serving.key_of("/a.png"), "distance": 1}], "was added but is not found"),
        (500, [], "500"),
    ],
)
def test_an_answer_without_the_image_is_noticed(monkeypatch, status, results, message):
    answer = serving.httpx.Response(status, json={"results": results})
    monkeypatch.setattr(serving, "search", lambda url, image: answer)
    with pytest.raises(AssertionError, match=message):
        serving.check_found("http://here", "/a.png", b"")


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


def test_an_ineffective_checksum_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("bitprint.codes._checksum", lambda packed, bits: "the same")
    monkeypatch.setattr("soak.bytes._FAULTS_PER_ROUND", 200)
    kind = ByteFaults(tmp_path, random.Random(0))
    with pytest.raises(AssertionError, match=r"codes, .* reads differently without an error"):
        kind.inject()


def test_an_error_of_several_lines_is_noticed(tmp_path, monkeypatch):
    def fail(folder):
        raise ValueError("two\nlines")

    kind = ByteFaults(tmp_path, random.Random(0))
    monkeypatch.setitem(FORMATS, "codes", FORMATS["codes"]._replace(read=fail))
    with pytest.raises(AssertionError, match="expected one sentence"):
        kind.inject()
