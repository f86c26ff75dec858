import csv

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from bitprint.cli import app
from bitprint.data import load_folder
from bitprint.evaluation import evaluate
from bitprint.experiments.cells import run_cell
from bitprint.experiments.published import BITS
from bitprint.experiments.tables import SHALLOW, compare, shallow_cells
from bitprint.features import extract
from bitprint.methods import create, list_methods


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path / "home"))


@pytest.fixture
def scenes(tmp_path):
    """Twenty-four pictures with one or two colours each, and a CSV with labels and split."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "scenes"
    folder.mkdir()
    lines = ["file,split,labels"]
    for number in range(24):
        red, blue = number % 3 != 0, number % 3 != 1
        pixels = rng.integers(0, 60, (32, 32, 3))
        pixels[:16, :, 0] += 190 * red
        pixels[16:, :, 2] += 190 * blue
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number:02}.png")
        part = ("query", "train", "train", "database")[number % 4]
        lines.append(f"{number:02}.png,{part},{'|'.join(['red'] * red + ['blue'] * blue)}")
    (folder / "labels.csv").write_text("\n".join(lines))
    return folder


def reproduce(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def read(table):
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_folder_with_a_split_has_a_table(scenes, tmp_path, monkeypatch):
    """The figures are those of the split in the CSV, worked out here by hand."""
    monkeypatch.chdir(tmp_path)
    labels = scenes / "labels.csv"
    result = reproduce(
        *("table3", "--dataset", scenes, "--labels", labels, "--features", "small"),
        *("--methods", "lsh,itq", "--bits", "8", "--splits", 2),
    )
    assert result.exit_code == 0, result.output
    assert "MAP@5000 on scenes, its own split, small features" in " ".join(result.stdout.split())
    assert "paper" not in result.stdout
    rows = read(tmp_path / "results" / "table3_scenes_shallow.csv")
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


def test_what_is_wrong_with_a_folder_is_said_before_any_work(scenes, tmp_path):
    def complaint(text):
        labels = tmp_path / "other.csv"
        labels.write_text(text)
        result = reproduce("table3", "--dataset", scenes, "--labels", labels)
        assert isinstance(result.exception, ValueError)
        return str(result.exception)

    assert "line 2" in complaint("file,label,split\n00.png,a,test\n")
    assert "marks no image as query" in complaint("file,label,split\n00.png,a,train\n")


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


def test_a_folder_goes_by_its_name_in_a_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (cell,) = shallow_cells(str(tmp_path), ["lsh"], bits=[8], splits=1, labels="a.csv")
    (here,) = shallow_cells(".", ["lsh"], bits=[8], splits=1)
    assert cell.key[0] == here.key[0] == tmp_path.name
    assert (cell.dataset, cell.labels) == (str(tmp_path), "a.csv")


def test_a_table_gives_mean_and_spread_and_the_paper_where_it_has_a_figure():
    figures = [("lsh", 12, 0.1, ""), ("lsh", 12, 0.3, ""), ("itq", 12, 0.5, 0.25)]
    rows = [
        {"variant": name, "bits": bits, "map": found, "paper_map": paper}
        for name, bits, found, paper in figures
    ]
    columns = [list(column.cells) for column in compare(rows, "title").columns]
    assert columns == [["lsh", "itq", "  paper"], ["0.200 ±0.141", "0.500", "0.250"]]
