"""Comparison of DSDH with the best other method on common seeds."""

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
        "12 bits on net: dsdh recipe is level with dtsh recipe over 2 seeds (higher on 1), "
        "MAP 0.855 against 0.850."
    ]


def test_only_seeds_that_both_have_are_compared():
    table = rows(("dsdh", {0: 0.8, 1: 0.99}), ("dlbhc", {0: 0.9, 2: 0.1}))
    assert standings(table) == [
        "12 bits on net: dsdh is behind dlbhc on the only common seed, MAP 0.800 against 0.900."
    ]


def test_no_comparison_without_a_common_seed():
    table = rows(("dsdh", {0: 0.8}), ("dlbhc", {1: 0.9}))
    assert standings(table) == [
        "12 bits on net: dsdh and the other methods have no seed in common."
    ]


def test_the_best_other_method_is_chosen_on_common_seeds():
    table = rows(
        ("dsdh", {0: 0.9, 1: 0.6}), ("dtsh", {0: 0.91, 1: 0.7}), ("dpsh", {0: 0.905, 2: 0.99})
    )
    assert "behind dtsh over 2 seeds (higher on 0), MAP 0.750 against 0.805" in standings(table)[0]


def test_equal_rounded_map_is_level():
    table = rows(("dsdh", {0: 0.9171}), ("dtsh", {0: 0.9174}))
    assert standings(table) == [
        "12 bits on net: dsdh is level with dtsh on the only common seed, MAP 0.917 against 0.917."
    ]


@pytest.mark.parametrize(
    ("theirs", "place", "wins"),
    [
        ((0.913, 0.914, 0.915), "ahead of", 3),
        ((0.910, 0.910, 0.919), "level with", 2),
        ((0.910, 0.920, 0.920), "level with", 1),
        ((0.915, 0.916, 0.918), "behind", 0),
        ((0.910, 0.915, 0.917), "level with", 1),  # higher once, otherwise equal
    ],
)
def test_ahead_means_higher_on_every_seed(theirs, place, wins):
    table = rows(("dsdh", {0: 0.914, 1: 0.915, 2: 0.917}), ("dtsh", dict(enumerate(theirs))))
    (line,) = standings(table)
    assert f"dsdh is {place} dtsh over 3 seeds (higher on {wins}), MAP 0.915 against" in line


def test_networks_and_lengths_are_compared_separately():
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
def test_one_side_alone_is_not_compared(alone):
    assert standings(rows(alone)) == []
    assert "best other method" not in html_report("title", rows(alone), command="")


def test_the_report_contains_the_comparison():
    table = rows(("dsdh", {0: 0.8}), ("dpsh <x>", {0: 0.9}))
    page = html_report("title", table, command="")
    assert "<li>12 bits on net: dsdh is behind dpsh &lt;x&gt; on the only common seed" in page


def test_features_of_a_network_are_compared_with_the_network():
    table = rows(("dsdh", {0: 0.8}), backbone="resnet-50")
    table += rows(("vdsh", {0: 0.7}), backbone="hub:some/resnet-50")
    assert standings(table) == [
        "12 bits on resnet-50: dsdh is ahead of vdsh on the only common seed, MAP 0.800 against "
        "0.700."
    ]
