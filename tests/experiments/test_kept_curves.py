import numpy as np
import pytest

from bitprint import Codes
from bitprint.evaluation import evaluate
from bitprint.experiments.cells import KEY, Cell
from bitprint.experiments.curves import (
    _KEY,
    RECALLS,
    curves_file,
    curves_of,
    read_curves,
    save_curves,
)


def cell(**changes):
    about = {"dataset": "digits", "protocol": 1, "variant": "lsh", "backbone": "pixels"}
    return Cell(**(about | {"method": "lsh", "bits": 12, "seed": 0} | changes))


def report(seed=0, size=450, bits=12):
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 3, size)
    centers = rng.choice([-1, 1], (3, bits))
    signs = centers[classes] * np.where(rng.random((size, bits)) < 0.2, -1, 1)
    codes = Codes.from_signs(signs)
    return evaluate(codes[:20], classes[:20], codes[20:], classes[20:])


class Ranked:
    """A database with other distances than Hamming distances."""

    bits = 8

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def distances(self, queries):
        return np.abs(queries[:, None] - self.rows[None, :])


def between(x, xs, ys):
    """Linear interpolation by a loop."""
    if x <= xs[0]:
        return ys[0]
    for i in range(1, len(xs)):
        if x <= xs[i]:
            share = (x - xs[i - 1]) / (xs[i] - xs[i - 1])
            return ys[i - 1] + share * (ys[i] - ys[i - 1])
    return ys[-1]


def test_curves_are_those_of_the_report():
    found, whole = curves_of(report()), report()
    assert found.precision_at[:4].tolist() == [whole.precision_at[n] for n in (100, 200, 300, 400)]
    assert np.isnan(found.precision_at[4:]).all()
    assert len(found.precision_at) == 10
    along = [between(x, whole.pr_curve.recall, whole.pr_curve.precision) for x in RECALLS]
    np.testing.assert_allclose(found.precision_at_recall, along)
    assert len(set(found.precision_at_recall.round(3))) > 20


def test_saved_curves_are_read(tmp_path):
    table = tmp_path / "new" / "table.csv"
    assert read_curves(table) == {}
    odd = cell(variant='a, "quoted" é', backbone="hub:some/net")
    for number, each in enumerate((cell(), odd)):
        save_curves(each, report(number), table)
    assert [path.name for path in table.parent.iterdir()] == ["table_curves.csv"]
    kept = read_curves(table)
    assert list(kept) == [cell().key, odd.key]
    for number, curves in enumerate(kept.values()):
        for ours, theirs in zip(curves, curves_of(report(number)), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=5.1e-6)


def test_a_cell_that_runs_again_replaces_its_curves(tmp_path):
    table = tmp_path / "table.csv"
    save_curves(cell(), report(0), table)
    save_curves(cell(seed=1), report(1), table)
    before = curves_file(table).read_text().splitlines()
    save_curves(cell(), report(2), table)
    after = curves_file(table).read_text().splitlines()
    assert after[:2] == [before[0], before[2]]
    assert len(after) == 3
    found = read_curves(table)[cell().key].precision_at[0]
    assert found == pytest.approx(report(2).precision_at[100], abs=5.1e-6)
    assert found != pytest.approx(report(0).precision_at[100], abs=1e-3)


def test_other_distances_have_curves(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 150)
    rows = labels + rng.random(150)
    table = tmp_path / "table.csv"
    measured = evaluate(rows[:10], labels[:10], Ranked(rows[10:]), labels[10:])
    save_curves(cell(), measured, table)
    (kept,) = read_curves(table).values()
    assert kept.precision_at[0] == pytest.approx(measured.precision_at[100], abs=5.1e-6)
    assert not np.isnan(kept.precision_at_recall).any()


def test_another_file_is_not_overwritten(tmp_path):
    table = tmp_path / "table.csv"
    curves_file(table).write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"table_curves.csv: unexpected columns"):
        save_curves(cell(), report(), table)
    assert curves_file(table).read_text() == "a,b\n1,2\n"


def test_curves_are_stored_by_the_key_of_the_cell():
    assert _KEY == KEY
