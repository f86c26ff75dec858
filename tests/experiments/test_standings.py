"""DSDH against the best of the others, with seeds that both have."""

import pytest

from bitprint.experiments.html import html_report
from bitprint.experiments.standings import standings


def rows(*cells, backbone="net", bits=12):
    about = {"dataset": "cifar10", "protocol": "1", "measured_on": "test"}
    about |= {"map_at": "", "paper_map": ""}
    return [
        about
        | {"variant": name, "method": name.partition(" ")[0], "backbone": backbone}
        | {"bits": str(bits), "seed": str(seed), "map": str(value)}
        for name, maps in cells
        for seed, value in maps.items()
    ]


def test_the_best_of_each_side_by_its_mean():
    table = rows(
        ("dsdh", {0: 0.7, 1: 0.9}),
        ("dsdh recipe", {0: 0.85, 1: 0.86}),
        ("dpsh", {0: 0.5}),
        ("dtsh recipe", {0: 0.8, 1: 0.9}),
    )
    assert standings(table) == [
        "12 bits on net: dsdh recipe is level with dtsh recipe, 0.855 to 0.850 over 2 seeds, "
        "ahead in 1."
    ]


def test_only_seeds_that_both_have_are_compared():
    table = rows(("dsdh", {0: 0.8, 1: 0.99}), ("dlbhc", {0: 0.9, 2: 0.1}))
    assert standings(table) == [
        "12 bits on net: dsdh is behind dlbhc on one seed alone, 0.800 to 0.900."
    ]


def test_no_verdict_without_a_common_seed():
    table = rows(("dsdh", {0: 0.8}), ("dlbhc", {1: 0.9}))
    assert standings(table) == [
        "12 bits on net: dsdh and the others were measured with different seeds."
    ]


def test_a_lucky_seed_makes_no_strongest_rival():
    table = rows(
        ("dsdh", {0: 0.9, 1: 0.6}), ("dtsh", {0: 0.91, 1: 0.7}), ("dpsh", {0: 0.905, 2: 0.99})
    )
    assert "behind dtsh, 0.750 to 0.805 over 2 seeds, ahead in 0" in standings(table)[0]


def test_what_is_printed_alike_is_level():
    table = rows(("dsdh", {0: 0.9171}), ("dtsh", {0: 0.9174}))
    assert standings(table) == [
        "12 bits on net: dsdh is level with dtsh on one seed alone, 0.917 to 0.917."
    ]


@pytest.mark.parametrize(
    ("theirs", "place", "wins"),
    [
        ((0.913, 0.914, 0.915), "ahead of", 3),
        ((0.910, 0.910, 0.919), "level with", 2),
        ((0.910, 0.920, 0.920), "level with", 1),
        ((0.915, 0.916, 0.918), "behind", 0),
        ((0.910, 0.915, 0.917), "level with", 1),  # ahead once, and equal else
    ],
)
def test_who_is_ahead_is_so_with_every_seed(theirs, place, wins):
    table = rows(("dsdh", {0: 0.914, 1: 0.915, 2: 0.917}), ("dtsh", dict(enumerate(theirs))))
    (line,) = standings(table)
    assert f"dsdh is {place} dtsh, 0.915 to" in line
    assert line.endswith(f"over 3 seeds, ahead in {wins}.")


def test_networks_and_lengths_are_apart_and_in_order():
    table = [
        *rows(("dsdh", {0: 0.8}), ("dpsh", {0: 0.9}), bits=48),
        *rows(("dsdh", {0: 0.8}), ("dpsh", {0: 0.7}), bits=12),
        *rows(("dsdh", {0: 0.8}), ("dpsh", {0: 0.7}), backbone="another", bits=48),
    ]
    assert [line.partition(":")[0] for line in standings(table)] == [
        "48 bits on another",
        "12 bits on net",
        "48 bits on net",
    ]


@pytest.mark.parametrize("alone", [("dsdh", {0: 0.8}), ("dsdh-a", {0: 0.8})])
def test_nothing_is_said_of_one_side_alone(alone):
    assert standings(rows(alone)) == []
    assert "best of the others" not in html_report("title", rows(alone), command="")


def test_the_page_says_it():
    table = rows(("dsdh", {0: 0.8}), ("dpsh <x>", {0: 0.9}))
    page = html_report("title", table, command="")
    assert "<li>12 bits on net: dsdh is behind dpsh &lt;x&gt; on one seed" in page


def test_features_of_a_network_are_compared_with_the_network():
    table = rows(("dsdh", {0: 0.8}), backbone="resnet-50")
    table += rows(("vdsh", {0: 0.7}), backbone="hub:some/resnet-50")
    assert standings(table) == [
        "12 bits on resnet-50: dsdh is ahead of vdsh on one seed alone, 0.800 to 0.700."
    ]
