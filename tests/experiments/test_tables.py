import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from bitprint.cli import app
from bitprint.data import load_folder
from bitprint.evaluation import evaluate
from bitprint.experiments.cells import run_cell
from bitprint.experiments.published import BITS
from bitprint.experiments.tables import (
    SHALLOW,
    Entry,
    compare,
    experiment_cells,
    shallow_cells,
    summarize,
)
from bitprint.features import extract
from bitprint.methods import DeepHasher, create, list_methods, method


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path / "home"))


@pytest.fixture
def scenes(save_scenes):
    """Twenty-four images with one or two colors each."""
    rng, parts = np.random.default_rng(0), ("query", "train", "train", "database")
    made = []
    for number in range(24):
        red, blue = number % 3 != 0, number % 3 != 1
        pixels = rng.integers(0, 60, (32, 32, 3))
        pixels[:16, :, 0] += 190 * red
        pixels[16:, :, 2] += 190 * blue
        made.append((pixels, parts[number % 4], ["red"] * red + ["blue"] * blue))
    return save_scenes(made)


def reproduce(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def read(table):
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("cells_in_one_process")
def test_a_folder_with_a_split_has_a_table(scenes, tmp_path, monkeypatch):
    """MAP is that of the split in the CSV file, computed here separately."""
    monkeypatch.chdir(tmp_path)
    labels = scenes / "labels.csv"
    result = reproduce(
        *("table3", "--dataset", scenes, "--labels", labels, "--features", "small"),
        *("--methods", "lsh,itq", "--bits", "8", "--splits", 2),
    )
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "Table 3: MAP@5000 on scenes, its own split" in words
    assert "scenes replaces NUS-WIDE" in words
    assert " paper " not in words.partition("scenes replaces")[0]
    rows = read(tmp_path / "results" / "table3_scenes.csv")
    assert [(row["dataset"], row["method"], row["seed"]) for row in rows] == [
        ("scenes", name, seed) for seed in "01" for name in ("lsh", "itq")
    ]
    assert {row["map_at"] for row in rows} == {"5000"}
    assert len({row["split"] for row in rows}) == 1

    images = load_folder(scenes, labels=labels)
    features = extract(images, "small")
    part = np.arange(24) % 4
    queries, training, database = part == 0, (part == 1) | (part == 2), part != 0
    for row in rows:
        hasher = create(row["method"], 8, seed=int(row["seed"])).fit(features[training])
        report = evaluate(
            hasher.encode(features[queries]),
            images.labels[queries],
            hasher.encode(features[database]),
            images.labels[database],
        )
        assert float(row["map"]) == round(report.map, 4)


def test_invalid_folders_are_refused_before_any_work(scenes, tmp_path):
    def complaint(text):
        labels = tmp_path / "other.csv"
        labels.write_text(text)
        result = reproduce("table3", "--dataset", scenes, "--labels", labels)
        assert isinstance(result.exception, ValueError)
        return str(result.exception)

    assert "line 2" in complaint("file,label,split\n00.png,a,test\n")
    assert "no image has the split query" in complaint("file,label,split\n00.png,a,train\n")


def test_images_without_labels_have_no_table(scenes):
    (cell,) = shallow_cells(str(scenes), ["lsh"], bits=[8], splits=1)
    with pytest.raises(ValueError, match="scenes has no labels; give them in sub-folders or a CSV"):
        run_cell(cell, load_folder(scenes))


def test_the_shallow_table_has_every_cell_once_and_seeds_outermost():
    cells = shallow_cells("cifar10", splits=2)
    assert len({cell.key for cell in cells}) == len(cells) == 2 * 4 * len(SHALLOW)
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    assert {cell.bits for cell in cells} == set(BITS[1])
    assert set(SHALLOW) <= set(list_methods())


def test_a_folder_is_identified_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (cell,) = shallow_cells(str(tmp_path), ["lsh"], bits=[8], splits=1, labels="a.csv")
    (here,) = shallow_cells(".", ["lsh"], bits=[8], splits=1)
    assert cell.key[0] == here.key[0] == tmp_path.name
    assert (cell.dataset, cell.labels) == (str(tmp_path), "a.csv")


# ---- rows and columns of the paper, copied from its tables a second time


@pytest.mark.parametrize(
    ("name", "protocol", "rows"),
    [
        ("table1", 1, "dsdh dqn dpsh dhn dtsh ninh cnnh fasth sdh ksh lfh splh itq sh"),
        ("table2", 2, "dsdh dtsh dpsh vdsh drsch dsch dsrh"),
        ("table3", 1, "fasth sdh ksh lfh splh itq sh"),
        ("figure1", 1, "dsdh-a dsdh-b dsdh-c dsdh"),
    ],
)
def test_an_experiment_has_every_row_and_length_of_the_paper(name, protocol, rows):
    cells = experiment_cells(name, splits=2)
    unnamed = {"lsh", "sblsh", "klsh", "nmlsh", "bre", "oph"}  # cited without results
    found = {cell.variant for cell in cells}
    assert found - unnamed == set(rows.split())
    assert found == set(rows.split()) or name in ("table1", "table3")
    assert {cell.protocol for cell in cells} == {protocol}
    assert {cell.bits for cell in cells} == set(
        {1: (12, 24, 32, 48), 2: (16, 24, 32, 48)}[protocol]
    )
    assert len({cell.key for cell in cells}) == len(cells) == 2 * 4 * len(found)


def test_cells_are_ordered_by_split_and_cost():
    cells = experiment_cells("table1", bits=[12], splits=2)
    assert [cell.seed for cell in cells] == [0] * 20 + [1] * 20
    for part in (cells[:20], cells[20:]):
        deep = [issubclass(method(cell.method), DeepHasher) for cell in part]
        assert deep == [False] * 13 + [True] * 7
        assert [cell.variant for cell in part[:13]] == list(SHALLOW)


def test_input_of_methods():
    def backbones(name, **changes):
        cells = experiment_cells(name, methods="itq,dpsh", bits=[16], splits=1, **changes)
        return {cell.variant: cell.backbone for cell in cells}

    assert backbones("table1", backbone="cnnf") == {"itq": "gist", "dpsh": "cnnf"}
    assert backbones("table3", backbone="cnnf") == {"itq": "cnnf", "dpsh": "cnnf"}
    assert backbones("table3", features="alexnet") == {
        "itq": "alexnet",
        "dpsh": "efficientnet-lite0",
    }


def test_rows_by_kind_and_by_name():
    def rows(name, methods):
        return [
            cell.variant for cell in experiment_cells(name, methods=methods, bits=[12], splits=1)
        ]

    assert rows("table1", "shallow") == list(SHALLOW)
    assert len(rows("table1", "deep")) == 7
    assert rows("table2", "dsdh recipe, sh") == ["sh", "dsdh recipe"]
    with pytest.raises(ValueError, match="table2 has no shallow rows"):
        rows("table2", "shallow")
    with pytest.raises(ValueError, match="unknown method 'nonsense'"):
        rows("table1", "lsh,nonsense")


def test_rows_named_twice_are_run_once():
    cells = experiment_cells("table1", methods="itq, dpsh,itq,dpsh", bits=[12, 24, 12], splits=1)
    found = [(cell.variant, cell.bits) for cell in cells]
    assert found == [("itq", 12), ("itq", 24), ("dpsh", 12), ("dpsh", 24)]


def test_every_option_reaches_every_cell():
    cells = experiment_cells(
        "table1", "mine", "lsh,dpsh", bits=[8], splits=1, validation=True, labels="a.csv"
    )
    assert {(cell.dataset, cell.validation, cell.labels) for cell in cells} == {
        ("mine", True, "a.csv")
    }


# ---- comparison with the paper


def row(name, bits, found, paper="", backbone="gist", seed=0):
    return {
        "variant": name,
        "backbone": backbone,
        "bits": str(bits),
        "seed": str(seed),
        "map": str(found),
        "paper_map": str(paper),
    }


@pytest.mark.parametrize(
    ("ours", "verdict", "difference"),
    [
        (0.5, "reached", 0.0),
        (0.4996, "reached", 0.0),  # rounds to the .500 of the paper
        (0.4994, "near", -0.001),
        (0.48, "near", -0.02),
        (0.479, "below", -0.021),
        (0.9, "reached", 0.4),
    ],
)
def test_comparison_uses_rounded_map(ours, verdict, difference):
    entry = Entry("itq", "gist", 12, (ours,), 0.5)
    assert (entry.verdict, entry.difference) == (verdict, difference)
    unknown = entry._replace(paper=None)
    assert (unknown.verdict, unknown.difference) == ("", None)


def test_rows_are_gathered_by_method_network_and_length():
    rows = [
        row("a", 12, 0.1),
        row("a", 12, 0.4, seed=1),
        row("a", 12, 0.3, 0.2, "small"),
        row("a", 24, 0.5),
    ]
    assert summarize(rows) == {
        ("a", "gist"): {
            12: ("a", "gist", 12, (0.1, 0.4), None),
            24: ("a", "gist", 24, (0.5,), None),
        },
        ("a", "small"): {12: ("a", "small", 12, (0.3,), 0.2)},
    }


def test_the_last_row_of_a_seed_is_used():
    rows = [row("a", 12, 0.1), row("a", 12, 0.1), row("a", 12, 0.3, seed=1)]
    assert summarize(rows)["a", "gist"][12].maps == (0.1, 0.3)
    assert str(summarize(rows[:2])["a", "gist"][12]) == "0.100"


def test_a_table_shows_mean_deviation_and_paper():
    rows = [
        row("lsh", 12, 0.1),
        row("lsh", 12, 0.3, seed=1),
        row("itq", 12, 0.5, 0.25),
        row("sh", 12, 0.1, 0.2),
    ]
    columns = [list(column.cells) for column in compare(rows, "title").columns]
    assert columns[:2] == [
        ["lsh", "itq", "  paper", "sh", "  paper"],
        ["gist", "gist", "", "gist", ""],
    ]
    assert [str(cell) for cell in columns[2]] == [
        "0.200 ±0.141",
        "0.500",
        "0.250",
        "0.100",
        "0.200",
    ]
    assert [getattr(cell, "style", None) for cell in columns[2]] == ["", "green", None, "red", None]


# ---- the command


def test_no_time_left_still_reports(tmp_path):
    out = tmp_path / "t.csv"
    result = reproduce("figure1", "--dataset", "digits", "--deadline", 0, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    about = json.loads(result.stdout)
    assert about["missing"] == 4 * 4 * 3
    assert about["entries"] == []
    assert "48 cells are missing" in (tmp_path / "t_figure1_digits.html").read_text()
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["table4"], "choose table1, table2, table3, figure1"),
        (["table1", "--bits", "12,x"], "--bits takes comma-separated integers"),
        (["table1", "--quick", "--dataset", "shapes"], "leave out --dataset"),
        (["table1", "--dataset", "nuswide"], "ImageList/Imagelist.txt is missing"),
    ],
)
def test_invalid_arguments_are_refused(arguments, part):
    result = reproduce(*arguments)
    assert isinstance(result.exception, ValueError)
    assert part in str(result.exception)
