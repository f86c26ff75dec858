import base64
import re
from html.parser import HTMLParser

import pytest

from bitprint.experiments.html import html_report, substitution_notes
from bitprint.version import __version__


def row(name="itq", bits=12, seed=0, found=0.5, paper="", **changes):
    about = {
        "dataset": "cifar10",
        "protocol": "1",
        "variant": name,
        "method": name,
        "backbone": "gist",
        "bits": str(bits),
        "seed": str(seed),
        "map": str(found),
        "paper_map": str(paper),
        "map_at": "",
        "measured_on": "test",
        "options": "",
    }
    return about | changes


class Page(HTMLParser):
    """Tags with attributes, and the rows of all tables as text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.rows, self.text, self.inside = [], [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag):
        self.inside &= tag not in ("td", "th")

    def handle_data(self, data):
        self.text += data
        if self.inside:
            self.rows[-1][-1] += data


ROWS = [
    row(found=0.5, paper=0.4),
    row(found=0.6, paper=0.4, seed=1),
    row(found=0.3, paper=0.4, bits=24),
    row("sh", found=0.39, paper=0.4),
    row("lsh", found=0.1),
]


def test_map_is_colored_by_comparison_with_the_paper():
    page = Page(html_report("Title", ROWS, command="make it"))
    assert page.rows[:4] == [
        ["method", "on", "12 bits", "24 bits"],
        ["itq", "gist", "0.550 ±0.0710.400 (+0.150)", "0.3000.400 (-0.100)"],
        ["sh", "gist", "0.3900.400 (-0.010)", ""],
        ["lsh", "gist", "0.100", ""],
    ]
    classes = [attributes["class"] for tag, attributes in page.tags if "class" in attributes]
    assert classes == ["reached", "below", "near", ""]
    assert ".reached { background" in page.text
    assert ".below { background" in page.text
    assert ".near" not in page.text


def test_every_cell_has_its_settings():
    about = {
        "version": "0.0.1",
        "options": "epochs=20 lr=0.0001",
        "device": "some card",
        "split": "f00d",
        "date": "2026-01-02",
        "train_seconds": "12.3",
        "encode_seconds": "4.5",
    }
    page = Page(html_report("Title", [row(**about), row(seed=1)], command="make it"))
    header, first, second = page.rows[-3:]
    assert {name: first[header.index(name)] for name in about} == about
    assert [second[header.index(name)] for name in ("seed", "device")] == ["1", ""]


def test_the_page_is_self_contained_and_escaped(tmp_path):
    plot = tmp_path / "precision_at.png"
    plot.write_bytes(b"\x89PNG some bytes")
    evil = "<script>alert('x')</script>&\""
    rows = [row(evil, backbone=evil, options=evil, device=evil)]
    page = Page(html_report(evil, rows, command=f"bitprint {evil}", plots=[plot]))
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "iframe", "object", "a", "base"}
    sources = [attributes["src"] for _, attributes in page.tags if "src" in attributes]
    kind, _, content = sources[0].partition(",")
    assert (len(sources), kind) == (1, "data:image/png;base64")
    assert base64.b64decode(content) == plot.read_bytes()
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "url(" not in page.text
    assert page.text.count(evil) >= 7  # Title twice, note, command, names, options.
    assert page.rows[1][:2] == [evil, evil]


def test_the_page_describes_how_map_was_measured():
    text = Page(html_report("A title", ROWS, command="bitprint reproduce table1", missing=7)).text
    assert "7 cells are missing" in text
    assert "bitprint reproduce table1" in text
    assert "after its last epoch" in text
    assert "MAP over the whole database" in text
    assert "No curves are stored" in text
    deep = Page(html_report("A title", [row(map_at="5000")], command="x")).text
    assert "MAP over the nearest 5000" in deep
    assert "are missing" not in deep


def test_rows_of_other_versions_are_reported():
    def notes(*versions):
        rows = [row(seed=seed, version=version) for seed, version in enumerate(versions)]
        text = Page(html_report("Title", rows, command="x")).text
        return re.findall(r"Computed by other versions than .*: (.*)", text)

    assert notes(__version__, __version__) == []
    assert notes(__version__, "0.0.1") == ["1 cell by 0.0.1."]
    assert notes("", "0.0.1", "", __version__) == ["2 cells by an unknown version, 1 by 0.0.1."]


def test_the_page_describes_the_seeds():
    def text(*splits):
        rows = [row(seed=seed, split=split) for seed, split in enumerate(splits)]
        return Page(html_report("Title", rows, command="x")).text

    assert "over seeds of split and training. Every" in text("f00", "ba2")
    assert "over seeds of training. Every" in text("f00", "f00")
    assert "one seed, so there is no standard deviation" in text("f00")
    assert "mean ±" not in text("f00")


def test_the_paper_is_mentioned_only_if_it_has_map():
    with_paper = Page(html_report("Title", ROWS, command="x")).text
    without = Page(html_report("Title", [row("lsh")], command="x")).text
    for part in ("Green: ", "Red: ", "the MAP in the DSDH paper"):
        assert part in with_paper
        assert part not in without


def test_reruns_of_the_paper_are_reported():
    page = Page(html_report("T", [row("dpsh", 16, protocol="2", paper=0.763)], command="x"))
    assert "0.903 at 16 bits" in page.text
    assert "0.5000.763 (-0.263)" in page.rows[1]
    assert "re-run" not in html_report("T", [row("dpsh", 12)], command="x")


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"dataset": "digits"}, "digits replaces CIFAR-10"),
        ({"backbone": "hub:resnet-50"}, "hub:resnet-50 in place of CNN-F and AlexNet"),
        ({"dataset": "nuswide"}, "GIST in place of the 1,134 features"),
        ({"measured_on": "validation"}, "held-out training images"),
    ],
)
def test_substitutions_are_reported(changes, part):
    (note,) = substitution_notes([row(), row(**changes)])
    assert part in note


@pytest.mark.parametrize("map_at", ["", "5000"])
def test_a_set_with_several_labels_replaces_nus_wide(map_at):
    rows = [row(dataset="coco", map_at=map_at)]
    assert "coco replaces NUS-WIDE, a set with several labels" in substitution_notes(rows, True)[0]
    page = html_report("Title", rows, command="x", several_labels=True)
    assert "coco replaces NUS-WIDE" in page


@pytest.mark.parametrize("backbone", ["gist", "cnnf", "cnnf:weights.mat", "alexnet", "nin-small"])
def test_networks_of_the_paper_are_not_reported(backbone):
    assert substitution_notes([row(backbone=backbone)]) == []
    assert html_report("Title", [], command="x").count("in place of") == 0
