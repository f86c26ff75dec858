"""The MAP of the paper, copied from its tables a second time to find typing errors."""

import pytest

from bitprint.experiments.published import BITS, MAP, MAP_CNN, MAP_RERUN, published_map, rerun_notes

TABLE_1 = """
dsdh    .740 .786 .801 .820   .776 .808 .820 .829
dqn     .554 .558 .564 .580   .768 .776 .783 .792
dpsh    .713 .727 .744 .757   .752 .790 .794 .812
dhn     .555 .594 .603 .621   .708 .735 .748 .758
dtsh    .710 .750 .765 .774   .773 .808 .812 .824
ninh    .552 .566 .558 .581   .674 .697 .713 .715
cnnh    .439 .511 .509 .522   .611 .618 .625 .608
fasth   .305 .349 .369 .384   .621 .650 .665 .687
sdh     .285 .329 .341 .356   .568 .600 .608 .637
ksh     .303 .337 .346 .356   .556 .572 .581 .588
lfh     .176 .231 .211 .253   .571 .568 .568 .585
splh    .171 .173 .178 .184   .568 .589 .597 .601
itq     .162 .169 .172 .175   .452 .468 .472 .477
sh      .127 .128 .126 .129   .454 .406 .405 .400
"""
TABLE_2 = """
dsdh    .935 .940 .939 .939   .815 .814 .820 .821
dtsh    .915 .923 .925 .926   .756 .776 .785 .799
dpsh    .763 .781 .795 .807   .715 .722 .736 .741
vdsh    .845 .848 .844 .845   .545 .564 .557 .570
drsch   .615 .622 .629 .631   .618 .622 .623 .628
dsch    .609 .613 .617 .620   .592 .597 .611 .609
dsrh    .608 .611 .617 .618   .609 .618 .621 .631
"""
AGAIN = {
    ("nuswide", 1, "dpsh"): ".752 .790 .794 .812",
    ("cifar10", 2, "dpsh"): ".903 .885 .915 .911",
}
TABLE_3 = """
fasth   .553 .607 .619 .636   .779 .807 .816 .825
sdh     .478 .557 .584 .592   .780 .804 .815 .824
ksh     .488 .539 .548 .563   .768 .786 .790 .799
lfh     .208 .242 .266 .339   .695 .734 .739 .759
splh    .299 .330 .335 .330   .753 .775 .783 .786
itq     .237 .246 .255 .261   .719 .739 .747 .756
sh      .183 .164 .161 .161   .621 .616 .615 .612
"""


def parse(table, protocol):
    rows = {}
    for line in table.split("\n"):
        if line:
            name, *values = line.split()
            values = tuple(float(value) for value in values)
            rows["cifar10", protocol, name] = values[:4]
            rows["nuswide", protocol, name] = values[4:]
    return rows


def test_every_row_is_the_papers():
    # Pairwise rows first, so that a failure names the row.
    for key, values in (parse(TABLE_1, 1) | parse(TABLE_2, 2)).items():
        row = MAP_RERUN[key] if key == ("nuswide", 1, "dpsh") else MAP[key]
        assert row == values, key
    assert len(MAP) == 2 * 14 + 2 * 7 - 1
    for (dataset, _, method), values in parse(TABLE_3, 1).items():
        assert MAP_CNN[dataset, method] == values, (dataset, method)
    assert len(MAP_CNN) == 2 * 7


def test_every_rerun_is_the_papers():
    assert {key: tuple(map(float, row.split())) for key, row in AGAIN.items()} == MAP_RERUN


@pytest.mark.parametrize(
    ("dataset", "protocol", "method", "bits", "value"),
    [
        ("cifar10", 1, "dsdh", 12, 0.740),
        ("cifar10", 1, "dsdh", 48, 0.820),
        ("nuswide", 1, "dtsh", 24, 0.808),
        ("nuswide", 1, "cnnh", 48, 0.608),
        ("cifar10", 2, "dsdh", 16, 0.935),
        ("cifar10", 2, "vdsh", 32, 0.844),
        ("nuswide", 2, "dsrh", 48, 0.631),
        ("nuswide", 1, "dpsh", 12, 0.752),  # a re-run; there is no other row
        ("cifar10", 2, "dpsh", 16, 0.763),  # not that of the re-run
    ],
)
def test_lookup(dataset, protocol, method, bits, value):
    assert published_map(dataset, protocol, method, bits) == value


def test_lookup_of_what_the_paper_does_not_print():
    assert BITS == {1: (12, 24, 32, 48), 2: (16, 24, 32, 48)}
    assert published_map("cifar10", 1, "dsdh", 16) is None
    assert published_map("cifar10", 2, "dsdh", 12) is None
    assert published_map("cifar10", 1, "lsh", 12) is None
    assert published_map("digits", 1, "dsdh", 12) is None


def test_reruns_are_reported_for_their_methods():
    def note(dataset, protocol, method, measured_on="test"):
        row = {"dataset": dataset, "protocol": protocol, "method": method}
        return rerun_notes([row | {"measured_on": measured_on}] * 2)

    (second,) = note("cifar10", "2", "dpsh")
    assert "0.903 at 16 bits, 0.885 at 24 bits, 0.915 at 32 bits, 0.911 at 48 bits" in second
    assert "compared with the first" in second
    (only,) = note("nuswide", "1", "dpsh")
    assert "The paper's MAP of dpsh is from its own re-run" in only
    assert note("cifar10", "1", "dpsh") == note("cifar10", "2", "dtsh") == []
    assert note("nuswide", "2", "dpsh") == []
    for measured_on in ("unseen classes", "validation", "validation, unseen classes"):
        assert note("cifar10", "2", "dpsh", measured_on) == []
