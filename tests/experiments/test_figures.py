import csv
from statistics import mean, stdev

import numpy as np
import pytest
from PIL import Image

from bitprint.experiments import figures
from bitprint.experiments.cells import KEY
from bitprint.experiments.curves import _COLUMNS, RECALLS, curves_file
from bitprint.experiments.figures import draw_figures


@pytest.fixture
def table(tmp_path):
    """Curves of two methods: `a` with two seeds and lengths, `ranked` without Hamming distances."""
    rng = np.random.default_rng(0)
    cells = [("a", 12, 0), ("a", 12, 1), ("a", 48, 0), ("a", 48, 1), ("ranked", 48, 0)]
    rows, lines = [], []
    for name, bits, seed in cells:
        key = ("digits", "1", "gist", name, str(bits), str(seed), "test")
        within, *figures = rng.random(1 + len(_COLUMNS) - len(KEY)).round(4).tolist()
        within = "nan" if name == "ranked" else str(within)
        rows.append(dict(zip(KEY, key, strict=True)) | {"precision_radius2": within})
        lines.append([*key, *figures])
    path = tmp_path / "table.csv"
    with curves_file(path).open("w", newline="") as file:
        csv.writer(file).writerows([_COLUMNS, *lines])
    kept = {tuple(line[3:6]): line[len(KEY) :] for line in lines}
    return path, rows, kept


@pytest.fixture
def axes(monkeypatch):
    """The axes of each plot by file name."""
    drawn = {}
    write = figures.write

    def remember(figure, axes, path):
        drawn[path.name] = axes
        return write(figure, axes, path)

    monkeypatch.setattr(figures, "write", remember)
    return drawn


def test_files_contain_the_colors_of_their_lines(table, tmp_path):
    path, rows, _ = table
    drawn = draw_figures(rows, path, tmp_path / "new" / "plots")
    names = ["precision_radius2.png", "precision_at.png", "precision_recall.png"]
    assert [each.name for each in drawn] == names
    for each, count in zip(drawn, (1, 2, 2), strict=True):
        with Image.open(each) as image:
            pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
        colors = ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00))
        assert [np.any(np.all(pixels == color, axis=1)) for color in colors] == [
            True,
            count == 2,
        ]


def test_lookup_against_bits_is_mean_and_spread_over_seeds(table, tmp_path, axes):
    path, rows, _ = table
    draw_figures(rows, path, tmp_path / "plots")
    (bars,) = axes["precision_radius2.png"].containers
    assert bars.get_label() == "a"
    within = [float(row["precision_radius2"]) for row in rows[:4]]
    by_length = [within[:2], within[2:]]
    line, _, (spread,) = bars.lines
    assert list(line.get_xdata()) == [12, 48]
    np.testing.assert_allclose(list(line.get_ydata()), [mean(each) for each in by_length])
    for segment, each in zip(spread.get_segments(), by_length, strict=True):
        np.testing.assert_allclose(
            segment[:, 1], [mean(each) - stdev(each), mean(each) + stdev(each)]
        )


def test_a_method_has_the_same_style_in_every_plot(table, tmp_path, axes):
    path, rows, _ = table
    draw_figures([rows[4], *rows[:4]], path, tmp_path / "plots")
    (bars,) = axes["precision_radius2.png"].containers
    looks = {(bars.lines[0].get_color(), bars.lines[0].get_marker())}
    for name in ("precision_at.png", "precision_recall.png"):
        ranked, line = axes[name].get_lines()
        looks.add((line.get_color(), line.get_marker()))
        assert (ranked.get_label(), ranked.get_color()) == ("ranked", "#0072B2")
    assert looks == {("#D55E00", "s")}


def test_titles_contain_data_and_common_network(table, tmp_path, axes):
    path, rows, _ = table
    draw_figures(rows, path, tmp_path / "plots", "Digits, protocol 1")
    assert axes["precision_radius2.png"].get_title() == "Hash lookup\nDigits, protocol 1, gist"
    assert axes["precision_at.png"].get_title() == "Ranking, 48 bits\nDigits, protocol 1, gist"
    other = rows[1] | {"backbone": "small"}
    draw_figures([*rows, other], path, tmp_path / "plots", "Digits, protocol 1")
    assert axes["precision_recall.png"].get_title() == "Ranking, 48 bits\nDigits, protocol 1"


@pytest.mark.parametrize(
    ("name", "x", "part"),
    [
        ("precision_at.png", range(100, 1001, 100), slice(10)),
        ("precision_recall.png", RECALLS, slice(10, 61)),
    ],
)
def test_rankings_are_means_at_the_longest_length(table, tmp_path, axes, name, x, part):
    path, rows, kept = table
    draw_figures(rows, path, tmp_path / "plots")
    first, second = axes[name].get_lines()
    assert (first.get_label(), second.get_label()) == ("a", "ranked")
    np.testing.assert_allclose(first.get_xdata(), x)
    expected = [mean(pair) for pair in zip(*(kept["a", "48", s][part] for s in "01"), strict=True)]
    np.testing.assert_allclose(first.get_ydata(), expected)
    np.testing.assert_allclose(second.get_ydata(), kept["ranked", "48", "0"][part])
    assert "48 bits" in axes[name].get_title()


def test_only_the_given_rows_are_drawn(table, tmp_path, axes):
    path, rows, kept = table
    strange = {**rows[0], "variant": "without curves"}
    draw_figures([rows[0], strange], path, tmp_path / "plots")
    (line,) = axes["precision_recall.png"].get_lines()
    np.testing.assert_allclose(line.get_ydata(), kept["a", "12", "0"][10:61])


def test_two_networks_of_a_method_are_two_lines(table, tmp_path, axes):
    path, rows, _ = table
    text = curves_file(path).read_text()
    curves_file(path).write_text(text.replace("gist,a,12,1", "small,a,12,1"))
    rows = [rows[0], rows[1] | {"backbone": "small"}]
    draw_figures(rows, path, tmp_path / "plots")
    labels = [line.get_label() for line in axes["precision_recall.png"].get_lines()]
    assert labels == ["a, gist", "a, small"]


def test_without_curves_there_is_the_plot_of_lookups(table, tmp_path):
    path, rows, _ = table
    curves_file(path).unlink()
    (drawn,) = draw_figures(rows, path, tmp_path / "plots")
    assert drawn.name == "precision_radius2.png"
    assert (
        draw_figures(rows[4:], path, tmp_path / "none") == []
    )  # no precision within radius 2 either
    assert not (tmp_path / "none").exists()
