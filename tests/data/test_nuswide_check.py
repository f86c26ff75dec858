import json

import pytest
from typer.testing import CliRunner

from bitprint.cli import app
from bitprint.data import nuswide_check
from bitprint.data.nuswide_check import check_nuswide

CONCEPTS = {"sky": [1, 1, 1, 0, 0, 1], "cat": [0, 0, 1, 1, 0, 0], "road": [0, 0, 0, 0, 1, 0]}


@pytest.fixture
def layout(tmp_path, monkeypatch):
    """A complete set in the official layout, of six images, three concepts and two frequent."""
    for name, count in {"LISTED": 6, "CONCEPT_FILES": 3, "FREQUENT": 2, "WANTED": 5}.items():
        monkeypatch.setattr(nuswide_check, name, count)
    (tmp_path / "ImageList").mkdir()
    names = [f"actor\\{row}.jpg" for row in range(6)]
    (tmp_path / "ImageList" / "Imagelist.txt").write_text("\r\n".join(names) + "\r\n")
    labels = tmp_path / "Groundtruth" / "AllLabels"
    labels.mkdir(parents=True)
    for concept, column in CONCEPTS.items():
        (labels / f"Labels_{concept}.txt").write_text("".join(f"{flag}\n" for flag in column))
    (tmp_path / "Flickr" / "actor").mkdir(parents=True)
    for row in range(6):
        (tmp_path / "Flickr" / "actor" / f"{row}.jpg").write_bytes(b"picture")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def test_a_complete_set_has_no_problems(layout):
    found = check_nuswide(layout)
    assert (found.listed, found.concepts, found.wanted, found.problems) == (6, 3, 5, [])
    result = run("nuswide", "--check", layout)
    assert result.exit_code == 0
    assert "5 of 5 required images found" in result.stdout
    assert "nothing is missing" in result.stdout


def test_an_image_that_no_frequent_concept_needs_may_be_missing(layout):
    (layout / "Flickr" / "actor" / "4.jpg").unlink()
    assert check_nuswide(layout).problems == []


def test_images_may_lie_in_one_folder(layout):
    (layout / "Flickr" / "actor").rename(layout / "images")
    (layout / "Flickr").rmdir()
    assert check_nuswide(layout).problems == []


def test_missing_and_empty_images_are_counted_and_named(layout):
    (layout / "Flickr" / "actor" / "0.jpg").unlink()
    (layout / "Flickr" / "actor" / "3.jpg").unlink()
    (layout / "Flickr" / "actor" / "5.jpg").write_bytes(b"")
    found = check_nuswide(layout)
    assert found.problems == ["2 of 5 images are missing", "1 of 5 images are empty files"]
    assert (found.missing, found.empty) == (["actor/0.jpg", "actor/3.jpg"], ["actor/5.jpg"])
    result = run("nuswide", "--check", layout)
    assert result.exit_code == 1
    assert "2 of 5 required images found" in result.stdout
    assert "  actor/3.jpg\n" in result.stdout
    listed = run("nuswide", "--check", layout, "--json")
    assert listed.exit_code == 1
    assert json.loads(listed.stdout) == vars(found)


def test_only_the_first_missing_files_are_printed(layout, monkeypatch):
    monkeypatch.setattr(nuswide_check, "_SHOWN", 2)
    for row in range(4):
        (layout / "Flickr" / "actor" / f"{row}.jpg").unlink()
    assert check_nuswide(layout).lines()[-3:] == [
        "  actor/0.jpg",
        "  actor/1.jpg",
        "  and 2 more; use --json to list all",
    ]


def test_without_a_folder_of_images_all_are_missing(layout):
    (layout / "Flickr").rename(layout / "elsewhere")
    found = check_nuswide(layout)
    assert found.problems == [
        "no folder Flickr or images",
        "5 of 5 images are missing",
    ]


def test_wrong_number_of_labels_is_reported(layout):
    (layout / "Groundtruth" / "AllLabels" / "Labels_sky.txt").unlink()
    with (layout / "ImageList" / "Imagelist.txt").open("a") as file:
        file.write("actor\\6.jpg\n")
    for name in ("cat", "road"):
        with (layout / "Groundtruth" / "AllLabels" / f"Labels_{name}.txt").open("a") as file:
            file.write("0\n")
    assert check_nuswide(layout).problems == [
        "Groundtruth/AllLabels has 2 of the 3 files Labels_<concept>.txt",
        "ImageList/Imagelist.txt has 7 lines, expected 6",
        "3 images have one of the 2 most frequent concepts, expected 5",
    ]


def test_the_counts_are_those_of_the_paper():
    counts = (nuswide_check.LISTED, nuswide_check.CONCEPT_FILES)
    assert counts == (269_648, 81)
    assert (nuswide_check.FREQUENT, nuswide_check.WANTED) == (21, 195_834)


def test_other_sets_have_no_checker(tmp_path):
    result = run("cifar10", "--check", tmp_path)
    assert result.exit_code == 2
    assert "--check works with nuswide only" in result.stderr
