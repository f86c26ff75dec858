"""`bitprint reproduce`: options, table and report."""

import shlex

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from bitprint.cli import app
from bitprint.data import load_digits
from bitprint.experiments.cells import KEY
from bitprint.experiments.rows import read_table


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path / "home"))


def reproduce(*arguments):
    result = CliRunner().invoke(app, ["reproduce", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments):
    """Return the error of a command that must fail."""
    result = CliRunner().invoke(app, ["reproduce", *map(str, arguments)])
    assert isinstance(result.exception, ValueError), result.output
    return str(result.exception)


def test_the_report_contains_the_command_with_all_options(tmp_path):
    out = tmp_path / "my table.csv"
    options = ["--dataset", "digits", "--methods", "deep", "--bits", "12,24", "--splits", "2"]
    options += ["--backbone", "small", "--validation", "--set", "lr=0.1", "--set", "epochs=3"]
    options += ["--workers", "3", "--out", str(out), "--json"]
    reproduce("figure1", *options, "--deadline", "0")  # not part of the command to resume
    (page,) = tmp_path.glob("*.html")
    command = shlex.join(["bitprint", "reproduce", "figure1", *options])
    assert f"<code>{command.replace(chr(39), '&#x27;')}</code>" in page.read_text()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--set", "lr=abc"], "leave out --set"),
        (["--features", "gist", "--unseen", "--set", "lr=1"], "--features, --unseen, --set"),
    ],
)
def test_options_refused_by_quick_are_named(options, part):
    assert refused("table1", "--quick", "--methods", "dsdh", *options).endswith(part)


def test_unknown_options_are_refused_before_the_first_cell(tmp_path):
    out = tmp_path / "t.csv"
    table = ["table1", "--dataset", "digits", "--splits", 1, "--out", out]
    assert "dpsh: unknown option 'mu'" in refused(
        *table, "--methods", "itq,dpsh,dsdh", "--set", "mu=3"
    )
    assert "lr must be a" in refused(*table, "--methods", "lsh,dsdh", "--set", "lr=abc")
    assert "mode must be paper" in refused(*table, "--methods", "lsh,dsdh", "--set", "mode=none")
    assert not out.exists()


@pytest.mark.parametrize("name", ["table1.html", "results"])
def test_out_must_be_a_csv_file(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sentence = refused("table1", "--quick", "--methods", "lsh", "--bits", 8, "--out", name)
    assert sentence.startswith("--out must be a CSV file")
    assert sentence.endswith(f"such as table1.csv; got {name!r}")
    assert list(tmp_path.iterdir()) == []


def test_set_without_deep_rows_is_refused():
    assert "all selected rows are shallow" in refused(
        "table1", "--methods", "itq", "--set", "lrr=0.1"
    )


@pytest.mark.parametrize(("deadline", "computed"), [("0", []), ("1e-9", ["gist"])])
def test_features_are_computed_for_cells_that_may_start(deadline, computed, tmp_path, monkeypatch):
    requested = []
    monkeypatch.setattr("bitprint.cli.paper.items_of", lambda _, name: requested.append(name))
    table = ["table1", "--quick", "--methods", "itq,dpsh", "--out", tmp_path / "t.csv"]
    reproduce(*table, "--deadline", deadline)
    assert requested == computed


@pytest.mark.usefixtures("cells_in_one_process")
def test_features_are_not_computed_for_cells_that_are_done(tmp_path, monkeypatch):
    table = ["table1", "--quick", "--methods", "lsh", "--bits", 8, "--out", tmp_path / "t.csv"]
    requested = []
    monkeypatch.setattr("bitprint.cli.paper.items_of", lambda _, name: requested.append(name))
    reproduce(*table)
    assert requested == ["gist"]
    reproduce(*table)
    assert requested == ["gist"]


@pytest.mark.usefixtures("cells_in_one_process")
def test_tables_in_one_file_have_separate_reports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for table in ("table1", "table3"):
        arguments = [table, "--quick", "--methods", "lsh", "--bits", 8]
        page = f"mine_{table}_digits_quick.html"
        assert f"report: {page}" in reproduce(*arguments, "--out", "mine.csv").stdout
        reproduce(*arguments)
    assert len((tmp_path / "mine.csv").read_text().splitlines()) == 3
    for table, title in (
        ("table1", "Table 1: MAP on digits"),
        ("table3", "Table 3: MAP on digits"),
    ):
        assert title in (tmp_path / f"mine_{table}_digits_quick.html").read_text()
        assert (tmp_path / f"mine_{table}_digits_quick_plots").is_dir()
        assert (tmp_path / "results" / f"{table}_digits_quick.html").exists()
        assert (tmp_path / "results" / f"{table}_digits_quick_plots").is_dir()


@pytest.mark.usefixtures("cells_in_one_process")
def test_kinds_of_evaluation_in_one_file_have_separate_reports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["--methods", "lsh", "--bits", 8, "--splits", 1]
    digits = ["--dataset", "digits", "--features", "pixels"]
    pages = {
        "mine_table1_digits": ([*digits], "protocol 1</h1>"),
        "mine_table1_digits_unseen": ([*digits, "--unseen"], "unseen classes</h1>"),
        "mine_table1_digits_validation": ([*digits, "--validation"], "training images</h1>"),
        "mine_table1_digits_quick": (["--quick"], "only shows that all steps work"),
    }
    for options, _ in pages.values():
        reproduce("table1", *rows, *options, "--out", "mine.csv")
    assert len(read_table(tmp_path / "mine.csv")) == len(pages)
    for stem, (_, part) in pages.items():
        assert part in (tmp_path / f"{stem}.html").read_text()
        assert (tmp_path / f"{stem}_plots" / "precision_radius2.png").exists()


@pytest.mark.parametrize(
    ("options", "page"),
    [
        ("--out mine.csv", "mine_table1"),
        ("--out mine.csv --unseen", "mine_table1_unseen"),
        ("--out mine.csv --validation --unseen", "mine_table1_validation_unseen"),
        ("--out mine.csv --dataset digits", "mine_table1_digits"),
        ("--out table1_mine.csv", "table1_mine"),
        ("--out table1_mine.csv --unseen", "table1_mine_unseen"),
        ("--out table1_unseen.csv --unseen", "table1_unseen"),
        ("--out digits.csv --dataset digits", "digits_table1"),
        ("--out mine.csv --dataset able", "mine_table1_able"),
        ("", "results/table1_cifar10"),
        ("--validation --unseen", "results/table1_cifar10_validation_unseen"),
        ("--quick", "results/table1_digits_quick"),
    ],
)
def test_a_report_is_named_by_table_images_and_evaluation(options, page, tmp_path, monkeypatch):
    images = load_digits()  # whatever set is named
    monkeypatch.setattr("bitprint.cli.paper.open_set", lambda *_: images)
    monkeypatch.chdir(tmp_path)
    printed = reproduce("table1", "--methods", "lsh", "--deadline", 0, *options.split()).stdout
    assert f"report: {page}.html\n" in printed


# ---- unseen classes


@pytest.fixture
def scenes(save_scenes):
    """Forty images of five classes."""
    rng, parts = np.random.default_rng(0), ("query", "train", "database")
    return save_scenes(
        (rng.integers(0, 256, (32, 32, 3)), parts[number % 3], "abcde"[number % 5])
        for number in range(40)
    )


def unseen(scenes):
    labels = ["--labels", scenes / "labels.csv"]
    rest = ["--methods", "lsh", "--bits", 8, "--splits", 1, "--features", "pixels", "--unseen"]
    return ["table3", "--dataset", scenes, *labels, *rest, "--out", scenes.parent / "t.csv"]


@pytest.mark.usefixtures("cells_in_one_process")
def test_unseen_classes_are_drawn_for_sets_with_a_split(scenes):
    words = " ".join(reproduce(*unseen(scenes)).stdout.split())
    assert "Table 3: MAP on scenes, protocol 1, unseen classes" in words
    assert "its own split" not in words


@pytest.mark.usefixtures("cells_in_one_process")
def test_a_table_of_another_split_is_not_resumed(scenes, tmp_path):
    labels, table = scenes / "labels.csv", tmp_path / "t.csv"
    rest = ["--methods", "lsh", "--bits", 8, "--splits", 2, "--features", "pixels"]
    arguments = ["table3", "--dataset", scenes, "--labels", labels, *rest, "--out", table]
    reproduce(*arguments)
    before, text = table.read_bytes(), labels.read_text()
    labels.write_text(text.replace("01.png,train", "01.png,database"))
    sentence = refused(*arguments)
    assert f"{table} contains cells of another split of scenes" in sentence
    assert sentence.endswith("use another file for --out")
    labels.write_text(text)
    reproduce(*arguments)
    assert table.read_bytes() == before


def test_a_class_with_one_image_left_is_named(scenes):
    labels = scenes / "labels.csv"
    header, *lines = labels.read_text().splitlines()
    # All images of d but one are of all other classes as well.
    several = [line + "|a|b|c|e" if line.endswith(",d") else line for line in lines]
    several[3] = lines[3]
    labels.write_text("\n".join([header, *several]))
    sentence = refused(*unseen(scenes))
    assert "scenes: after excluding images that also have " in sentence
    assert "seen classes, class 'd' has only one image; " in sentence


@pytest.mark.usefixtures("cells_in_one_process")
def test_shapes_replace_nus_wide(tmp_path):
    table = ["table3", "--dataset", "shapes", "--methods", "lsh", "--bits", 8, "--splits", 1]
    for kind in ([], ["--unseen"]):
        out = ["--features", "pixels", "--out", tmp_path / "t.csv"]
        assert "shapes replaces NUS-WIDE" in reproduce(*table, *kind, *out).stdout


def folder_of(pixels, folder):
    for number, image in enumerate(pixels):
        place = folder / f"class {number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number:02}.png")


def test_a_table_of_images_with_the_same_name_is_not_resumed(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (45, 16, 16, 3), np.uint8)
    one, other = tmp_path / "a" / "mine", tmp_path / "b" / "mine"
    folder_of(pixels, one)
    folder_of(pixels[::-1], other)
    table = ["--methods", "lsh", "--bits", 12, "--splits", 1, "--features", "pixels"]
    table += ["--out", tmp_path / "t.csv"]
    reproduce("table1", "--dataset", one, *table)
    before = (tmp_path / "t.csv").read_bytes()
    assert "cells of other images or labels with the name mine" in refused(
        "table1", "--dataset", other, *table
    )
    labels = tmp_path / "labels.csv"
    files = sorted(one.rglob("*.png"))
    lines = [f"{file.relative_to(one)},{number % 3}" for number, file in enumerate(files)]
    labels.write_text("\n".join(["file,label", *lines]))
    assert "of other images or labels" in refused(
        "table1", "--dataset", one, "--labels", labels, *table
    )
    reproduce("table1", "--dataset", one, *table)
    assert (tmp_path / "t.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("method,map\nlsh,0.5\n", "row 1 has no dataset, protocol, backbone"),
        ("{header}\ndigits,1,gist,lsh,12,0,test\n", "row 1 is incomplete"),
    ],
)
def test_an_invalid_table_is_refused(text, part, tmp_path):
    out = tmp_path / "t.csv"
    out.write_text(text.format(header=",".join([*KEY, "map"])))
    table = ["--dataset", "digits", "--methods", "lsh", "--bits", 12, "--out", out]
    assert f"{out}: {part}" in refused("table1", *table)
