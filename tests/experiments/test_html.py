import base64
import re
from html.parser import HTMLParser

import pytest

from bitprint.experiments.html import html_report, stand_ins
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
    """Tags with their attributes, and the rows of every table as texts."""

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


def test_ours_stands_above_the_papers_with_its_colour():
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


def test_the_page_is_one_file_and_text_stays_text(tmp_path):
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


def test_what_the_page_says_of_itself():
    text = Page(html_report("A title", ROWS, command="bitprint reproduce table1", missing=7)).text
    assert "7 cells are missing" in text
    assert "bitprint reproduce table1" in text
    assert "after its last epoch" in text
    assert "MAP over the whole database" in text
    assert "No curves were kept" in text
    deep = Page(html_report("A title", [row(map_at="5000")], command="x")).text
    assert "MAP over the nearest 5000" in deep
    assert "are missing" not in deep


def test_rows_of_other_versions_are_told():
    def notes(*versions):
        rows = [row(seed=seed, version=version) for seed, version in enumerate(versions)]
        text = Page(html_report("Title", rows, command="x")).text
        return re.findall(r"not known to be: .*", text)

    assert notes(__version__, __version__) == []
    assert notes(__version__, "0.0.1") == ["not known to be: 1 cell of 0.0.1."]
    assert notes("", "0.0.1", "", __version__) == [
        "not known to be: 2 cells of a version not recorded, 1 of 0.0.1."
    ]


def test_what_the_seeds_draw():
    def says(*splits):
        rows = [row(seed=seed, split=split) for seed, split in enumerate(splits)]
        return Page(html_report("Title", rows, command="x")).text

    assert "over the seeds, which draw both split and training. Every" in says("f00", "ba2")
    assert "over the seeds, which draw training alone. Every" in says("f00", "f00")
    assert "one seed alone" in says("f00")
    assert "standard deviation" not in says("f00")


def test_the_paper_is_spoken_of_where_it_has_a_figure():
    with_figure = Page(html_report("Title", ROWS, command="x")).text
    without = Page(html_report("Title", [row("lsh")], command="x")).text
    for part in ("Green: ", "Red: ", "the figure of the DSDH paper"):
        assert part in with_figure
        assert part not in without


def test_the_papers_rerun_is_told_beside_its_figures():
    page = Page(html_report("T", [row("dpsh", 16, protocol="2", paper=0.763)], command="x"))
    assert "0.903 at 16 bits" in page.text
    assert "0.5000.763 (-0.263)" in page.rows[1]
    assert "re-run" not in html_report("T", [row("dpsh", 12)], command="x")


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"dataset": "digits"}, "digits stands in for CIFAR-10"),
        ({"backbone": "hub:resnet-50"}, "hub:resnet-50 in place of the paper's networks"),
        ({"dataset": "nuswide"}, "GIST in place of the 1,134 features"),
        ({"measured_on": "validation"}, "held-out training images"),
    ],
)
def test_what_stands_in_for_what(changes, part):
    (note,) = stand_ins([row(), row(**changes)])
    assert part in note


@pytest.mark.parametrize("map_at", ["", "5000"])
def test_a_set_with_several_labels_stands_in_for_nus_wide(map_at):
    rows = [row(dataset="coco", map_at=map_at)]
    assert "coco stands in for NUS-WIDE as a set with several labels" in stand_ins(rows, True)[0]
    page = html_report("Title", rows, command="x", several_labels=True)
    assert "coco stands in for NUS-WIDE" in page


@pytest.mark.parametrize("backbone", ["gist", "cnnf", "cnnf:weights.mat", "alexnet", "nin-small"])
def test_nothing_stands_in_for_the_papers_own(backbone):
    assert stand_ins([row(backbone=backbone)]) == []
    assert html_report("Title", [], command="x").count("stands in") == 0
