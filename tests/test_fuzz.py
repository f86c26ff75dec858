"""Every parser on mutated samples: a value, or one sentence that says what is wrong."""

import os
import random
from itertools import islice

import pytest

from fuzz.harness import Target, judge, mutations
from fuzz.running import TARGETS, find_target

MUTATIONS = {"mat": 60, "cifar10": 150}
# Archives of too few images are refused, whatever else is right about them.
NEVER_READ = ("cifar10",)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_reads_or_refuses(name, tmp_path):
    target = find_target(name)
    seeds = target.seeds()
    expected = "refused" if name in NEVER_READ else "read"
    assert [judge(target, data, tmp_path) for data in seeds] == [expected] * len(seeds)
    damaged = islice(mutations(seeds, random.Random(0)), MUTATIONS.get(name, 300))
    outcomes = [judge(target, data, tmp_path) for data in damaged]
    assert outcomes.count("refused") > len(outcomes) / 4


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
def test_anything_but_one_sentence_is_a_finding(error, tmp_path):
    with pytest.raises(AssertionError):
        judge(fails(error), b"", tmp_path)


def test_a_refusal_names_the_file(tmp_path):
    good = fails(ValueError(f"{tmp_path}/a: damaged"))._replace(names_file=True)
    bad = fails(ValueError("damaged"))._replace(names_file=True)
    assert judge(good, b"", tmp_path) == "refused"
    with pytest.raises(AssertionError, match="the file is not named"):
        judge(bad, b"", tmp_path)


def test_a_process_apart_tells_the_same(tmp_path):
    def parse(data, folder):
        if data == b"crash":
            os.abort()
        if data == b"refuse":
            raise ValueError("no")
        if data == b"find":
            raise KeyError("no")

    target = Target(parse, list, names_file=False, apart=True)
    outcomes = [judge(target, data, tmp_path) for data in (b"", b"refuse", b"crash")]
    assert outcomes == ["read", "refused", "crashed"]
    with pytest.raises(AssertionError, match="process apart"):
        judge(target, b"find", tmp_path)


def test_mutations_differ_and_repeat_with_their_seed():
    first, again, other = (
        list(islice(mutations([b"some sample", b"another"], random.Random(seed)), 50))
        for seed in (0, 0, 1)
    )
    assert first == again != other
    assert len(set(first)) > 40
