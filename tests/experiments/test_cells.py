import ast
import csv
from concurrent.futures import Executor, Future

import numpy as np
import pytest

import bitprint
from bitprint.data import ImageSet, load_digits, split_for
from bitprint.data.protocols import make_split
from bitprint.data.split import Split
from bitprint.evaluation import evaluate
from bitprint.experiments.cells import KEY, Cell, check_cells, hold_out, run_cell
from bitprint.experiments.processes import run_cells
from bitprint.experiments.rows import save_rows
from bitprint.methods import create

SMALL = {"backbone": "small", "epochs": 1, "lr": 1e-2}


def cell(method="lsh", bits=12, seed=0, **changes):
    about = {"dataset": "digits", "protocol": 1, "variant": method, "backbone": "pixels"} | changes
    return Cell(method=method, bits=bits, seed=seed, **about)


def read(table):
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def digits():
    return load_digits()


# ---- validation never sees the queries


def several_labels():
    rng = np.random.default_rng(0)
    labels = (rng.random((600, 4)) < [0.5, 0.3, 0.2, 0.1]).astype(int)
    labels[labels.sum(axis=1) == 0, 0] = 1
    return ImageSet(np.zeros((600, 2, 2, 3), np.uint8), labels=labels)


@pytest.mark.parametrize("several", [False, True], ids=["one label", "several labels"])
@pytest.mark.parametrize("seed", [0, 1])
def test_hold_out_splits_only_the_training_set(digits, several, seed):
    images = several_labels() if several else digits
    split = make_split(images.labels, queries_per_class=5, training_per_class=20, seed=seed)
    assert len(split.training) < len(split.database)
    parts = hold_out(images, split)
    together = np.concatenate(parts)
    np.testing.assert_array_equal(np.sort(together), split.training)
    assert not set(together) & set(split.queries)
    assert all(np.all(np.diff(part) > 0) for part in parts)


def test_hold_out_takes_a_fifth_of_each_class_for_queries_and_one_for_the_database(digits):
    split = make_split(digits.labels, queries_per_class=5, training_per_class=100, seed=0)
    queries, training, database = hold_out(digits, split)
    for part, per_class in ((queries, 20), (training, 60), (database, 20)):
        np.testing.assert_array_equal(np.bincount(digits.labels[part]), [per_class] * 10)


def test_hold_out_uses_training_images_as_the_database(digits):
    split = split_for(digits, 2, 0)
    queries, training, database = hold_out(digits, split)
    np.testing.assert_array_equal(training, database)
    np.testing.assert_array_equal(np.sort(np.concatenate([queries, training])), split.training)


def test_hold_out_depends_on_the_seed(digits):
    split = split_for(digits, 1, 0)
    again, other = split_for(digits, 1, 0), split_for(digits, 1, 1)
    np.testing.assert_array_equal(hold_out(digits, split)[0], hold_out(digits, again)[0])
    assert not np.array_equal(hold_out(digits, split)[0], hold_out(digits, other)[0])


def of_sizes(*sizes):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return ImageSet(np.zeros((len(labels), 2, 2, 3), np.uint8), labels=labels, name="small")


def counts_of(images, parts):
    classes = images.labels.max() + 1
    return [np.bincount(images.labels[part], minlength=classes).tolist() for part in parts]


def test_a_small_class_is_used_for_training_only():
    images = of_sizes(60, 2, 2, 3)  # of which a split takes 6, 1, 1 and 1 as queries
    queries, training, database = counts_of(images, hold_out(images, split_for(images, 1, 0)))
    assert queries == [10, 0, 0, 1]
    assert training == database == [44, 1, 1, 1]
    images = of_sizes(60, 2, 3, 4)
    split = make_split(images.labels, queries_per_class=1, seed=0)
    several = Split(split.queries, split.database[:-1], split.database, "small", 0)
    assert counts_of(images, hold_out(images, several)) == [
        [11, 0, 0, 0],
        [37, 1, 2, 2],
        [11, 0, 0, 0],
    ]


def test_hold_out_of_small_classes_only_is_refused():
    images = of_sizes(2, 2, 2)
    with pytest.raises(ValueError, match="small/1: the classes have too few training images"):
        hold_out(images, split_for(images, 1, 0))
    with pytest.raises(ValueError, match="run without --validation"):
        check_cells([cell(validation=True)], images)


# ---- one cell


@pytest.mark.parametrize("validation", [False, True])
def test_a_cell_evaluates_its_split(digits, validation):
    row, history, _ = run_cell(cell(bits=16, seed=2, validation=validation), digits)
    split = split_for(digits, 1, 2)
    queries, training, database = split.queries, split.training, split.database
    if validation:
        queries, training, database = hold_out(digits, split)
    hasher = create("lsh", bits=16, seed=2).fit(digits.subset(training))
    report = evaluate(
        hasher.encode(digits.subset(queries)),
        digits.labels[queries],
        hasher.encode(digits.subset(database)),
        digits.labels[database],
    )
    assert row["map"] == round(report.map, 4)
    assert row["precision_radius2"] == round(report.precision_radius2, 4)
    assert row["precision_at_100"] == round(report.precision_at[100], 4)
    assert row["measured_on"] == ("validation" if validation else "test")
    assert row["split"] == split.fingerprint[:12]
    assert row["paper_map"] is None
    assert history == []


def test_a_deep_cell_returns_the_metrics_of_its_epochs(digits):
    few = digits.subset(np.arange(200))
    options = SMALL | {"epochs": 2, "mode": "balanced"}
    row, history, _ = run_cell(cell("dsdh", variant="mine", options=options), few)
    assert [epoch["epoch"] for epoch in history] == [1, 2]
    assert {epoch["variant"] for epoch in history} == {"mine"}
    assert row["changed_bits"] == round(history[-1]["changed_bits"], 5)
    assert row["codes_per_label"] == round(history[-1]["codes_per_label"], 5)


def test_paper_map_is_given_for_comparable_cells(digits):
    few = digits.subset(np.arange(200))

    def paper_map(method, backbone, **changes):
        return run_cell(cell(method, dataset="cifar10", backbone=backbone, **changes), few).row[
            "paper_map"
        ]

    assert paper_map("dpsh", "small", options=SMALL) == 0.713
    assert paper_map("dpsh", "small", options=SMALL, validation=True) is None
    assert paper_map("dpsh", "small", options=SMALL, unseen=True) is None
    assert paper_map("itq", "pixels") is None


def settings_of(row):
    return dict(setting.split("=", 1) for setting in row["options"].split(" "))


def test_a_row_contains_all_settings_of_its_cell(digits):
    few = digits.subset(np.arange(200))
    row = run_cell(cell("dsdh", options=SMALL | {"mode": "balanced", "eta": 3}), few)[0]
    assert row["version"] == bitprint.__version__
    count = len(split_for(few, 1, 0).training)
    mu = count * 12**0.5 / 10
    settings = settings_of(row)
    assert float(settings["mu"]) == pytest.approx(mu)
    assert float(settings["nu"]) == pytest.approx(mu / 10)
    training = {"epochs": "1", "lr": "0.01", "batch_size": "128", "optimizer": "adamw"}
    expected = {"mode": "balanced", "eta": "3", "backbone": "small", **training}
    assert {name: settings[name] for name in expected} == expected
    assert not settings.keys() & {"bits", "seed", "device", "training", "per_class"}
    again = {name: _value(value) for name, value in settings.items()}
    assert run_cell(cell("dsdh", options=again), few)[0]["map"] == row["map"]


def test_settings_of_shallow_methods_are_recorded(digits):
    assert settings_of(run_cell(cell("itq"), digits)[0]) == {"iterations": "50"}
    options = {"centre": False}
    assert settings_of(run_cell(cell("lsh", options=options), digits)[0]) == {"centre": "False"}


def _value(text):
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


# ---- tables


def test_running_cells_are_reported(tmp_path, monkeypatch):
    """Each cell runs until it has been reported twice."""
    reported, submitted = [], []

    class Patient(Executor):
        def __init__(self, workers, context, initializer, arguments):
            initializer(*arguments)

        def submit(self, function, *arguments):
            submitted.append((Future(), function, arguments))
            return submitted[-1][0]

    def progress(under_way):
        reported.append([cell.title for cell in under_way])
        if len(reported) % 2 == 0:
            future, function, arguments = submitted.pop()
            future.set_result(function(*arguments))

    monkeypatch.setattr("bitprint.experiments.processes.ProcessPoolExecutor", Patient)
    monkeypatch.setattr("bitprint.experiments.processes._SECOND", 0.01)
    rows = list(run_cells([cell(), cell(bits=1)], tmp_path / "table.csv", progress=progress))
    assert [row["bits"] for row in rows] == ["12", "1"]
    assert reported == [["lsh, 12 bits, split 0"]] * 2 + [["lsh, 1 bit, split 0"]] * 2


@pytest.mark.usefixtures("cells_in_one_process")
def test_a_table_resumes_where_it_stopped(tmp_path):
    table, history = tmp_path / "out" / "table.csv", tmp_path / "history.csv"
    wanted = [cell(), cell(bits=16), cell(seed=1), cell("dpsh", backbone="small", options=SMALL)]
    assert list(run_cells(wanted, table, history=history, deadline=0)) == []
    assert not table.exists()

    # An earlier run without a version computed the second and third; they are not changed.
    for done in wanted[1:3]:
        save_rows(table, [dict(zip(KEY, done.key, strict=True)) | {"map": 0.123}])
    rows = list(run_cells(wanted, table, history=history))
    assert [(row["method"], row["bits"], row["seed"]) for row in rows] == [
        ("lsh", "12", "0"),
        ("dpsh", "12", "0"),
    ]
    kept = read(table)
    assert [tuple(row[name] for name in KEY) for row in kept] == [
        wanted[i].key for i in (1, 2, 0, 3)
    ]
    assert [row["map"] for row in kept[:2]] == ["0.123", "0.123"]
    assert [row["version"] for row in kept] == ["", "", *[bitprint.__version__] * 2]
    assert float(kept[2]["map"]) == rows[0]["map"]
    assert [row["epoch"] for row in read(history)] == ["1"]

    content = table.read_bytes()
    assert list(run_cells(wanted, table, history=history)) == []
    assert table.read_bytes() == content


def test_the_key_identifies_a_cell():
    start = cell()
    others = [
        cell(dataset="shapes"),
        cell(protocol=2),
        cell(variant="other"),
        cell(backbone="other"),
        cell(bits=16),
        cell(seed=1),
        cell(validation=True),
        cell(unseen=True),
        cell(validation=True, unseen=True),
        cell(quick=True),
    ]
    assert len({start.key, *(other.key for other in others)}) == len(others) + 1
    assert all(isinstance(part, str) for part in start.key)
    assert len(start.key) == len(KEY)


def test_a_new_column_keeps_the_earlier_rows(tmp_path):
    table, key = tmp_path / "table.csv", dict.fromkeys(KEY, "a, quoted")
    second, third = key | {"seed": "1"}, key | {"seed": "2"}
    save_rows(table, [key | {"map": 0.5}])
    save_rows(table, [second | {"map": 0.25, "device": "gpu"}, third | {"device": "cpu"}])
    assert read(table) == [
        key | {"map": "0.5", "device": ""},
        second | {"map": "0.25", "device": "gpu"},
        third | {"map": "", "device": "cpu"},
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


@pytest.mark.usefixtures("cells_in_one_process")
def test_epochs_of_a_repeated_cell_are_replaced(tmp_path):
    table, history = tmp_path / "table.csv", tmp_path / "history.csv"
    options = SMALL | {"epochs": 2}
    wanted = [cell("dpsh", bits=bits, backbone="small", options=options) for bits in (8, 12)]
    list(run_cells(wanted, table, history=history))
    header, first, _ = table.read_text().splitlines(keepends=True)
    table.write_text(header + first)
    list(run_cells(wanted, table, history=history))
    epochs = [(row["bits"], row["epoch"]) for row in read(history)]
    assert epochs == [("8", "1"), ("8", "2"), ("12", "1"), ("12", "2")]


@pytest.mark.usefixtures("cells_in_one_process")
def test_a_cell_is_complete_after_its_epochs_are_saved(tmp_path, monkeypatch):
    table, history = tmp_path / "table.csv", tmp_path / "history.csv"

    def killed(file, rows):
        save_rows(file, rows)
        raise KeyboardInterrupt

    monkeypatch.setattr("bitprint.experiments.processes.save_rows", killed)
    wanted = [cell("dpsh", backbone="small", options=SMALL)]
    with pytest.raises(KeyboardInterrupt):
        list(run_cells(wanted, table, history=history))
    assert (history.exists(), table.exists()) == (True, False)
