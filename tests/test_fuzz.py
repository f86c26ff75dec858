"""All parsers on mutated samples: each input is read or refused with one sentence."""

import hashlib
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
from safetensors.numpy import load
from safetensors.torch import load as load_tensors

from bitprint import codes
from bitprint.search.file import checksum
from bitprint.training import run
from fuzz.harness import Target, judge
from fuzz.mutating import change_inside, change_json, mutations
from fuzz.running import TARGETS, find_target
from fuzz.tensors import unpack

ROOT = Path(__file__).parents[1]
MUTATIONS = {"mat": 30, "cifar10": 100, "photos": 100}
# The archives have too few images and are always refused.
NEVER_READ = ("cifar10",)
NEEDS = {"partitions": "pyarrow", "upload": "fastapi"}
FRAMED = [name for name in TARGETS if name not in ("table", "nuswide")]


def target_of(name):
    pytest.importorskip(NEEDS.get(name, "numpy"))
    return find_target(name)


@cache
def seeds_of(name):
    return find_target(name).seeds()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_reads_or_refuses(name, tmp_path):
    target = target_of(name)
    seeds = seeds_of(name)
    expected = "refused" if name in NEVER_READ else "read"
    assert [judge(target, data, tmp_path) for data in seeds] == [expected] * len(seeds)
    damaged = islice(mutations(seeds, random.Random(0), target.mutate), MUTATIONS.get(name, 200))
    outcomes = [judge(target, data, tmp_path) for data in damaged]
    assert outcomes.count("refused") > len(outcomes) / 4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FRAMED)
def test_changes_inside_the_frame_pass_its_checksums(name, tmp_path):
    target = target_of(name)
    seeds, rng = seeds_of(name), random.Random(1)
    changed = [change_inside(target.mutate, rng.choice(seeds), rng, seeds) for _ in range(60)]
    changed = [data for data in changed if data not in seeds]
    assert len(changed) > 30
    if name in NEVER_READ:
        assert any("cannot be restored" in refusal(target, data, tmp_path) for data in changed)
    else:
        assert any(judge(target, data, tmp_path) == "read" for data in changed)


def sums_of_tensors(data):
    metadata, tensors = unpack(data)
    if "packed" in tensors:
        return metadata["sha256"], codes._checksum(load(data)["packed"], metadata["bits"])
    found = metadata.pop("checksum")
    return found, run._checksum(load_tensors(data), metadata)


def sums_of_model(data):
    end = 4 + int.from_bytes(data[:4], "little")
    return json.loads(data[4:end])["sha256"], hashlib.sha256(data[end:]).hexdigest()


def sums_of_index(data):
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(data)
        rows = dict(db.execute("SELECT * FROM meta"))
        found = [int(rows.pop("checksum"))]
        expected = [checksum(*sorted(rows.items()))]
        for first, count, described, total, *blobs in db.execute("SELECT * FROM chunks"):
            found.append(total)
            expected.append(checksum(first, count, described, *blobs))
        for first, generation, total, bitmap in db.execute("SELECT * FROM removed"):
            found.append(total)
            expected.append(checksum(first, generation, bitmap))
        for first, count, labels, paths, *cells in db.execute("SELECT * FROM details"):
            found += [labels, paths]
            expected += [checksum(first, count, *cells[:3]), checksum(first, count, cells[3])]
        for name, total, content in db.execute("SELECT * FROM attachments"):
            found.append(total)
            expected.append(checksum(name, content))
    return found, expected


@pytest.mark.parametrize(
    ("name", "sums"),
    [
        ("codes", sums_of_tensors),
        ("checkpoint", sums_of_tensors),
        ("model", sums_of_model),
        ("index", sums_of_index),
        ("photos", sums_of_index),
    ],
)
def test_checksums_are_valid_after_changes_inside_the_frame(name, sums):
    """Except for tensors that NumPy or torch cannot read, which have no checksum."""
    target, seed, rng = find_target(name), seeds_of(name)[0], random.Random(2)
    checked = 0
    for _ in range(60):
        changed = change_inside(target.mutate, seed, rng, [seed])
        with suppress(TypeError, AttributeError, KeyError):
            found, expected = sums(changed)
            assert found == expected
            checked += 1
    assert checked > 30


def refusal(target, data, folder):
    with pytest.raises(ValueError, match=re.escape(str(folder))) as raised:
        target.parse(data, folder)
    return str(raised.value)


@pytest.mark.parametrize("name", ["codes", "quantised", "checkpoint", "model"])
def test_a_changed_byte_is_refused(name, tmp_path):
    """Only mutations with valid checksums reach the code behind the checksum."""
    target, seed = find_target(name), seeds_of(name)[-1]
    for place in range(len(seed) - 20, len(seed)):
        changed = seed[:place] + bytes([seed[place] ^ 1]) + seed[place + 1 :]
        assert judge(target, changed, tmp_path) == "refused"


def fails(error):
    def parse(data, folder):
        raise error

    return Target(parse, list, names_file=False)


@pytest.mark.parametrize(
    "error",
    [
        KeyError("a"),
        MemoryError(),
        RuntimeError("a"),
        OSError("a"),
        ValueError("a\nb"),
        ValueError(),
    ],
)
def test_other_errors_are_findings(error, tmp_path):
    with pytest.raises(AssertionError):
        judge(fails(error), b"", tmp_path)


def test_a_refusal_names_the_file(tmp_path):
    good = fails(ValueError(f"{tmp_path}/a: damaged"))._replace(names_file=True)
    bad = fails(ValueError("damaged"))._replace(names_file=True)
    assert judge(good, b"", tmp_path) == "refused"
    with pytest.raises(AssertionError, match="does not contain the path"):
        judge(bad, b"", tmp_path)


def test_isolated_parsers_have_the_same_outcomes(tmp_path):
    def parse(data, folder):
        if data == b"crash":
            os.abort()
        if data == b"refuse":
            raise ValueError("no")
        if data == b"find":
            raise KeyError("no")

    target = Target(parse, list, names_file=False, isolated=True)
    outcomes = [judge(target, data, tmp_path) for data in (b"", b"refuse", b"crash")]
    assert outcomes == ["read", "refused", "crashed"]
    with pytest.raises(AssertionError, match="child process"):
        judge(target, b"find", tmp_path)


# Hangs, memory use and findings, each in a new process


def run_program(*lines):
    program = "\n".join(("import pathlib, time", "from fuzz import harness, running", *lines))
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("isolated", "message"), [(False, "Timeout"), (True, "not finished after 1 seco")]
)
def test_a_parser_that_hangs_is_a_finding(tmp_path, isolated, message):
    ended = run_program(
        "harness.MOST_SECONDS = 1",
        f"target = harness.Target(lambda data, folder: time.sleep(60), list, isolated={isolated})",
        f"harness.judge(target, b'', pathlib.Path({str(tmp_path)!r}))",
    )
    assert ended.returncode == 1
    assert message in ended.stdout


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize(("size", "found"), [("2**20", False), ("2**27", True)])
def test_a_parser_that_takes_much_memory_is_a_finding(tmp_path, size, found):
    ended = run_program(
        "harness._MOST_GROWTH = 2**26",
        f"target = harness.Target(lambda data, folder: bytearray({size}), list)",
        f"print(harness.judge(target, b'', pathlib.Path({str(tmp_path)!r})))",
    )
    assert ended.returncode == found
    assert ("MiB of memory for one input" in ended.stdout) == found
    assert (ended.stdout == "read\n") == (not found)


@pytest.mark.parametrize("guided", [False, True])
def test_a_finding_is_saved_and_sets_the_exit_code(tmp_path, guided):
    if guided:
        pytest.importorskip("atheris")
    ended = run_program(
        f"running.FINDINGS = pathlib.Path({str(tmp_path)!r})",
        "def parse(data, folder):",
        "    if b'Z' in data: raise KeyError('found')",
        "target = running.Target(parse, lambda: [b'some text'], lambda data, rng: data + b'Z')",
        "scratch = running.FINDINGS / 'scratch'",
        "scratch.mkdir()",
        f"fuzz = running.{'fuzz_with_atheris' if guided else 'fuzz_randomly'}",
        "fuzz('sample', target, 20, 0, scratch, [0, 0, 0])",
    )
    assert ended.returncode != 0
    assert "KeyError: 'found'" in ended.stdout
    (kept,) = tmp_path.glob("sample-*")
    assert b"Z" in kept.read_bytes()


# Mutations


def test_json_is_changed_in_one_place():
    document = {"a": [1, {"b": "c"}], "d": None}
    changed = [json.loads(change_json(json.dumps(document), random.Random(n))) for n in range(200)]
    assert sum(other != document for other in changed) > 150
    assert (
        sum(isinstance(other, dict) and len(other.keys() & {"a", "d"}) > 0 for other in changed)
        > 150
    )
    assert len({json.dumps(other) for other in changed}) > 40


def test_mutations_differ_and_repeat_with_their_seed():
    first, again, other = (
        list(islice(mutations([b"some sample", b"another"], random.Random(seed)), 50))
        for seed in (0, 0, 1)
    )
    assert first == again != other
    assert len(set(first)) > 40
