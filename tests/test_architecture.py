"""Imports follow the layers, and generated documentation is up to date."""

import ast
import csv
import importlib
import re
from pathlib import Path
from statistics import mean, stdev

import pytest

from bitprint.experiments.published import MAP_RERUN, published_map
from bitprint.experiments.tables import experiment_cells
from bitprint.methods import METHODS

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module


@pytest.fixture
def graph(tool):
    return tool("import_graph")


@pytest.fixture
def house(tmp_path):
    """Write the modules of a small package `bitprint`."""

    def build(**sources):
        for name, source in {"__init__": "", **sources}.items():
            path = tmp_path / "bitprint" / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(source)
        return tmp_path

    return build


def test_imports_are_from_lower_layers_only(graph):
    imports = graph.read_imports(graph.read_modules())
    assert graph.back_edges(imports) == []


def test_there_are_no_import_cycles(graph):
    assert graph.find_cycle(graph.read_imports(graph.read_modules())) == []


def test_codes_import_only_the_helpers(graph):
    assert graph.part_graph(graph.read_imports(graph.read_modules()))["codes"] == {"utils"}


def test_no_import_is_missed(graph):
    """The imports include all that a search of the lines finds."""
    modules = graph.read_modules()
    found = {(importer, imported) for importer, imported, _ in graph.read_imports(modules)}
    count = 0
    for name, path in modules.items():
        line = re.compile(
            r"^[ \t]*(?:from|import) (bitprint[\w.]*)(?: import \(?\s*(\w*))?", re.MULTILINE
        )
        for written in line.finditer(path.read_text("utf-8")):
            home, first = written.groups()
            assert {(name, home), (name, f"{home}.{first}")} & found, f"{path}: {written[0]}"
            count += 1
    assert count > 400


@pytest.mark.parametrize(
    "source",
    [
        "from bitprint.web import page",
        "import bitprint.web",
        "from bitprint import web",
        "def late():\n    from bitprint.web import page",
        "if TYPE_CHECKING:\n    from bitprint.web import page",
    ],
)
def test_an_import_from_a_higher_layer_is_found(graph, house, source):
    imports = graph.read_imports(graph.read_modules(house(search=source, web="page = 1")))
    assert graph.back_edges(imports) == [
        "bitprint.search imports bitprint.web, which is not in a lower layer"
    ]


def test_an_import_within_a_layer_is_found(graph, house):
    source = house(data="import bitprint.nets", nets="")
    assert len(graph.back_edges(graph.read_imports(graph.read_modules(source)))) == 1


def test_a_part_without_a_layer_is_found(graph, house):
    source = house(cellar="import bitprint.codes", codes="")
    found = graph.back_edges(graph.read_imports(graph.read_modules(source)))
    assert found == ["cellar is in no layer of tools/import_graph.py"]


def test_a_cycle_is_found_except_for_type_only_imports(graph, house):
    late = "def late():\n    import bitprint.words"
    source = house(codes="import bitprint.files", files=late, words="import bitprint.codes")
    circle = graph.find_cycle(graph.read_imports(graph.read_modules(source)))
    assert set(circle) == {"bitprint.codes", "bitprint.files", "bitprint.words"}
    source = house(words="if TYPE_CHECKING:\n    if True:\n        import bitprint.codes")
    assert graph.find_cycle(graph.read_imports(graph.read_modules(source))) == []


def test_the_graph_is_complete_and_minimal(graph):
    """The arrows have the same transitive closure as all imports."""
    parts = graph.part_graph(graph.read_imports(graph.read_modules()))
    arrows = re.findall(r"^ +(\w+) --> (\w+)$", graph.draw(parts), re.MULTILINE)
    assert closure(arrows) == closure((a, b) for a, targets in parts.items() for b in targets)
    for arrow in arrows:
        assert arrow not in closure(set(arrows) - {arrow}), f"{arrow} is implied by others"


def test_an_implied_arrow_is_not_drawn(graph):
    parts = {"a": {"b", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert re.findall(r"\w --> \w", graph.draw(parts)) == ["a --> b", "b --> c", "c --> d"]


def closure(pairs):
    reached = set(pairs)
    while True:
        more = {(a, d) for a, b in reached for c, d in reached if b == c} - reached
        if not more:
            return reached
        reached |= more


def test_generated_pages_are_up_to_date(tool):
    docs = tool("docs")
    stale = [path.relative_to(ROOT).as_posix() for path in docs.out_of_date()]
    assert not stale, f"{', '.join(stale)}: out of date; run {docs.COMMAND}"


def test_page_that_is_out_of_date_is_named(tool, tmp_path, monkeypatch):
    docs = tool("docs")
    page = tmp_path / "architecture.md"
    page.write_text("before\n<!-- import graph -->\nan old graph\n<!-- end -->\nafter\n")
    monkeypatch.setattr(docs, "_ARCHITECTURE", page)
    assert page in docs.out_of_date()
    text = docs.generated()[page]
    assert text.startswith("before\n<!-- import graph -->\n\n```mermaid\n")
    assert text.endswith("\n\n<!-- end -->\nafter\n")
    assert "an old graph" not in text


def test_rows_of_the_coverage_page_are_complete(tool):
    text = tool("coverage_page").page()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| [")]
    assert [row[0].split("]")[0].lstrip("[") for row in rows] == list(METHODS)
    for name, setting, on, paper, ours, ratio in rows:
        method = re.match(r"\[(.+)\]\((.+)\)", name)
        assert (ROOT / "docs" / method[2]).exists()
        assert (on.strip() == "-") == (ours == "-")  # not measured yet
        printed = published_map("cifar10", int(setting), method[1], 48)
        assert paper == (f"{printed:.3f}" if printed else paper)
        if printed:
            assert float(ratio) == pytest.approx(float(ours.split()[0]) / printed, abs=0.005)
        else:
            assert paper in ("-", "plotted")
            assert ratio == "-"


def test_coverage_shows_a_new_method_of_the_registry(tool, monkeypatch):
    coverage = tool("coverage_page")
    homes = coverage.pages() | {"another": coverage.PAGE}
    monkeypatch.setattr(coverage, "pages", lambda: homes)
    monkeypatch.setitem(METHODS, "another", METHODS["itq"])
    assert coverage.page().endswith("| [another](methods/coverage.md) | 1 | - | - | - | - |\n")


def test_every_method_has_a_test_and_a_command():
    sources = [path.read_text("utf-8") for path in (ROOT / "tests" / "methods").glob("test_*.py")]
    for name, cls in METHODS.items():
        named = re.compile(rf"\b{cls.__name__}\b|create\(\"{re.escape(name)}\"")
        assert any(named.search(source) for source in sources), f"no test names {name}"
        cells = experiment_cells("table1", methods=name, splits=1)
        assert {cell.method for cell in cells} == {name}


def test_map_of_the_paper_is_the_published_map(tool):
    figures = tool("figures")
    seen = 0
    for method in METHODS:
        for task, lines in figures.published_lines(method).items():
            for line in lines:
                deep = line.on == "CNN-F features"
                if line.on == "re-run by the paper":
                    again = MAP_RERUN[*task[:2], method]
                    assert list(line.maps.values()) == [f"{printed:.3f}" for printed in again]
                    seen += len(again)
                    continue
                for bits, text in line.maps.items():
                    printed = published_map(*task[:2], method, bits, deep_features=deep)
                    assert text == f"{printed:.3f}"
                    seen += 1
    # Tables 1, 2 and 3, two data sets each; and DPSH again in Table 2.
    assert seen == 4 * (14 * 2 + 7 * 2 + 7 * 2 + 1)


def test_measured_map_is_the_mean_over_rows(tool):
    figures = tool("figures")
    with (ROOT / "results" / "table1_cifar10_shallow.csv").open(newline="") as file:
        rows = [
            row for row in csv.DictReader(file) if (row["method"], row["bits"]) == ("itq", "24")
        ]
    maps = [float(row["map"]) for row in rows]
    lines = figures.measured_lines("itq")[figures.EvaluationTask("cifar10", 1)]
    line = next(line for line in lines if line.on == "GIST")
    assert line.maps[24] == f"{mean(maps):.3f} ±{stdev(maps):.3f}"
    assert line.seeds == str(len(maps))


def test_validation_results_are_not_shown(tool, tmp_path):
    figures = tool("figures")
    columns = "dataset,protocol,backbone,variant,bits,seed,measured_on,method,map,paper_map\n"
    (tmp_path / "a.csv").write_text(columns + "x,1,gist,itq,12,0,validation,itq,0.5,\n")
    (tmp_path / "b.csv").write_text(columns + "x,1,gist,itq,12,0,test,itq,0.4,\n")
    (tmp_path / "speed.csv").write_text("codes,seconds\n1,2\n")
    assert [row["map"] for row in figures.measured_rows(tmp_path)] == ["0.4"]


def test_a_cell_in_two_tables_is_refused(tool, tmp_path):
    figures = tool("figures")
    columns = "dataset,protocol,backbone,variant,bits,seed,measured_on,method,map,paper_map\n"
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(columns + "x,1,gist,itq,12,0,test,itq,0.4,\n")
    with pytest.raises(ValueError, match="x, 1, gist, itq, 12, 0, test is measured twice"):
        figures.measured_rows(tmp_path)


def test_pages_contain_no_map_outside_generated_tables():
    written = [*(ROOT / "docs" / "methods").glob("*.md"), ROOT / "docs" / "metrics.md"]
    for path in written:
        by_hand = re.sub(r"<!-- measured.*?<!-- end -->", "", path.read_text(), flags=re.DOTALL)
        by_hand = re.sub(
            r"^Published elsewhere: .*?\n\n", "", by_hand, flags=re.DOTALL | re.MULTILINE
        )
        assert re.findall(r"(?<![\w.])0?\.\d{2,}", by_hand) == [], path.name


WALKS = ("One image, from its file to a search result", "One training batch")


def steps_of(walk):
    """What a walk names: pairs of a file and a function, a class or a method in it."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    _, _, rest = text.partition(f"\n## {walk}\n")
    section, _, _ = rest.partition("\n## ")
    return section, re.findall(r"`([\w/]+\.py)`\s+`([\w.]+)`", section)


def names_in(path):
    """Functions and classes of a file, and methods with the name of their class before them."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{part.name}" for part in node.body if hasattr(part, "name")}
    return found


@pytest.mark.parametrize("walk", WALKS)
def test_what_a_walk_names_is_there(walk):
    _, steps = steps_of(walk)
    assert len(steps) > 15
    for file, name in steps:
        assert name in names_in(ROOT / "src" / "bitprint" / file), f"{file} has no {name}"


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_is_numbered_and_every_step_names_something(walk):
    section, _ = steps_of(walk)
    steps = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^\S|\Z)", section, re.DOTALL | re.MULTILINE)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert all(re.search(r"`[\w/]+\.py`\s+`[\w.]+`", text) for _, text in steps)
