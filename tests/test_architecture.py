"""Imports lead down, and the pages say what the code and the tables of results say."""

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
    """Write modules of a small `bitprint`, by name and source."""

    def build(**sources):
        for name, source in {"__init__": "", **sources}.items():
            path = tmp_path / "bitprint" / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(source)
        return tmp_path

    return build


def test_imports_lead_to_lower_layers_only(graph):
    imports = graph.read_imports(graph.read_modules())
    assert graph.back_edges(imports) == []


def test_no_modules_import_each_other_in_a_circle(graph):
    assert graph.find_cycle(graph.read_imports(graph.read_modules())) == []


def test_codes_import_nothing_of_ours(graph):
    assert graph.room_graph(graph.read_imports(graph.read_modules()))["codes"] == set()


def test_no_import_is_missed(graph):
    """What a plain search for lines finds, module by module."""
    modules = graph.read_modules()
    found = {(importer, imported) for importer, imported, _ in graph.read_imports(modules)}
    count = 0
    for name, path in modules.items():
        for line in path.read_text("utf-8").splitlines():
            written = re.match(r"\s*(?:from|import) (bitprint[\w.]*)(?: import \(?(\w*))?", line)
            if written and not line.lstrip().startswith(">>>"):
                home, first = written.groups()
                assert {(name, home), (name, f"{home}.{first}")} & found, f"{path}: {line}"
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
def test_an_import_that_leads_up_is_found(graph, house, source):
    imports = graph.read_imports(graph.read_modules(house(search=source, web="page = 1")))
    assert graph.back_edges(imports) == [
        "bitprint.search imports bitprint.web, which is not below it"
    ]


def test_an_import_between_rooms_of_a_layer_is_found(graph, house):
    source = house(data="import bitprint.nets", nets="")
    assert len(graph.back_edges(graph.read_imports(graph.read_modules(source)))) == 1


def test_a_room_without_a_layer_is_found(graph, house):
    source = house(cellar="import bitprint.codes", codes="")
    found = graph.back_edges(graph.read_imports(graph.read_modules(source)))
    assert found == ["cellar is in no layer of tools/import_graph.py"]


def test_a_circle_is_found_unless_it_is_never_run(graph, house):
    late = "def late():\n    import bitprint.words"
    source = house(codes="import bitprint.files", files=late, words="import bitprint.codes")
    circle = graph.find_cycle(graph.read_imports(graph.read_modules(source)))
    assert set(circle) == {"bitprint.codes", "bitprint.files", "bitprint.words"}
    source = house(words="if TYPE_CHECKING:\n    if True:\n        import bitprint.codes")
    assert graph.find_cycle(graph.read_imports(graph.read_modules(source))) == []


def test_the_drawing_says_what_the_imports_say(graph):
    """Following the arrows leads to exactly the rooms that following all imports does."""
    rooms = graph.room_graph(graph.read_imports(graph.read_modules()))
    arrows = re.findall(r"^ +(\w+) --> (\w+)$", graph.draw(rooms), re.MULTILINE)
    assert closure(arrows) == closure((a, b) for a, targets in rooms.items() for b in targets)
    for arrow in arrows:
        assert arrow not in closure(set(arrows) - {arrow}), f"{arrow} is implied by others"


def test_an_arrow_that_a_long_way_implies_is_left_out(graph):
    rooms = {"a": {"b", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert re.findall(r"\w --> \w", graph.draw(rooms)) == ["a --> b", "b --> c", "c --> d"]


def closure(pairs):
    reached = set(pairs)
    while True:
        more = {(a, d) for a, b in reached for c, d in reached if b == c} - reached
        if not more:
            return reached
        reached |= more


def test_the_pages_are_in_step(tool):
    docs = tool("docs")
    stale = [path.relative_to(ROOT).as_posix() for path in docs.out_of_step()]
    assert not stale, f"{', '.join(stale)}: out of step with code or results; run {docs.COMMAND}"


def test_a_page_that_is_out_of_step_is_named(tool, tmp_path, monkeypatch):
    docs = tool("docs")
    page = tmp_path / "architecture.md"
    page.write_text("before\n<!-- import graph -->\nwhat was true once\n<!-- end -->\nafter\n")
    monkeypatch.setattr(docs, "_ARCHITECTURE", page)
    assert page in docs.out_of_step()
    text = docs.generated()[page]
    assert text.startswith("before\n<!-- import graph -->\n\n```mermaid\n")
    assert text.endswith("\n\n<!-- end -->\nafter\n")
    assert "what was true once" not in text


def test_every_row_of_the_coverage_is_full_and_true(tool):
    text = tool("coverage_page").page()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| [")]
    assert [row[0].split("]")[0].lstrip("[") for row in rows] == list(METHODS)
    for name, files, paper, ours, command in rows:
        method = re.match(r"\[(.+)\]\((.+)\)", name)
        assert (ROOT / "docs" / method[2]).exists()
        code, *tests = re.findall(r"`(.+?)`", files)
        source = ROOT / "src" / "bitprint" / "methods" / code
        assert f"class {METHODS[method[1]].__name__}(" in source.read_text()
        assert tests
        assert all((ROOT / "tests" / "methods" / name).exists() for name in tests)
        assert paper.strip()
        assert ours.strip()
        _, _, table, _, rows_of_it = command.strip("`").split()
        cells = experiment_cells(table, methods=rows_of_it, splits=1)
        assert {cell.method for cell in cells} == {method[1]}


def test_the_papers_figures_are_the_published_ones(tool):
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


def test_our_figures_are_means_over_the_rows_of_the_tables(tool):
    figures = tool("figures")
    with (ROOT / "results" / "table1_cifar10_shallow.csv").open(newline="") as file:
        rows = [
            row for row in csv.DictReader(file) if (row["method"], row["bits"]) == ("itq", "24")
        ]
    maps = [float(row["map"]) for row in rows]
    lines = figures.measured_lines("itq")[figures.Task("cifar10", 1)]
    line = next(line for line in lines if line.on == "GIST")
    assert line.maps[24] == f"{mean(maps):.3f} ±{stdev(maps):.3f}"
    assert line.seeds == str(len(maps))


def test_tables_that_chose_settings_are_not_shown(tool, tmp_path):
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


def test_no_map_is_typed_by_hand():
    written = [*(ROOT / "docs" / "methods").glob("*.md"), ROOT / "docs" / "metrics.md"]
    for path in written:
        by_hand = re.sub(r"<!-- measured.*?<!-- end -->", "", path.read_text(), flags=re.DOTALL)
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
