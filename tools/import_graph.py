"""Which part of the package imports which: read from the source, checked, and drawn.

Run it to print the drawing; `python tools/docs.py` writes it into `docs/architecture.md`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = "bitprint"

LAYERS: dict[str, tuple[str, ...]] = {
    "entrances": ("__main__", "bitprint"),
    "command line": ("cli",),
    "uses": ("web", "cluster", "export", "demo", "experiments"),
    "collections": ("photos",),
    "what consumes codes": ("search",),
    "workflows": ("workflows",),
    "from images to codes": ("methods", "features"),
    "training": ("training",),
    "metrics": ("evaluation",),
    "inputs and forms of codes": ("data", "nets", "quantised", "weighted"),
    "ground": (
        "codes",
        "supervision",
        "arguments",
        "devices",
        "files",
        "parallel",
        "popcount",
        "words",
        "version",
    ),
}
"""Rooms of the house from top to bottom: each may import from layers below its own only.

A room is a package or a module directly below `bitprint`; "bitprint" itself holds the public names.
"""


class Import(NamedTuple):
    """One module imports another; a type-only import is not executed."""

    importer: str
    imported: str
    type_only: bool


def read_modules(source: Path = ROOT / "src") -> dict[str, Path]:
    """Return the files of all modules below `source` by their dotted names."""
    modules = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def read_imports(modules: dict[str, Path]) -> list[Import]:
    """Return the imports between modules, those inside of functions too."""
    imports = {
        Import(name, imported, type_only)
        for name, path in modules.items()
        for imported, type_only in _imported(ast.parse(path.read_text("utf-8")), modules)
    }
    return sorted(imports)


def _imported(
    node: ast.AST, modules: dict[str, Path], type_only: bool = False
) -> Iterator[tuple[str, bool]]:
    for child in ast.iter_child_nodes(node):
        names = []
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            if child.level:
                raise ValueError(f"line {child.lineno}: write imports with their full names")
            inside = [f"{child.module}.{alias.name}" for alias in child.names]
            names = [name if name in modules else str(child.module) for name in inside]
        yield from ((name, type_only) for name in names if name in modules)
        guarded = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        yield from _imported(child, modules, type_only or guarded)


def room_of(module: str) -> str:
    """Return the room that a module is in: the second part of its name."""
    return PACKAGE if module == PACKAGE else module.split(".")[1]


def room_graph(imports: list[Import]) -> dict[str, set[str]]:
    """Return the rooms that each room imports from; type-only imports count."""
    graph: dict[str, set[str]] = {}
    for importer, imported, _ in imports:
        for room in map(room_of, (importer, imported)):
            graph.setdefault(room, set())
        if room_of(importer) != room_of(imported):
            graph[room_of(importer)].add(room_of(imported))
    return graph


def back_edges(imports: list[Import]) -> list[str]:
    """Return the imports that do not lead to a lower layer, one sentence each."""
    depth = {room: at for at, rooms in enumerate(LAYERS.values()) for room in rooms}
    found = []
    for importer, imported, _ in imports:
        above, below = room_of(importer), room_of(imported)
        unknown = {above, below} - depth.keys()
        if unknown:
            found.append(f"{unknown.pop()} is in no layer of tools/import_graph.py")
        elif above != below and depth[above] >= depth[below]:
            found.append(f"{importer} imports {imported}, which is not below it")
    return sorted(set(found))


def find_cycle(imports: list[Import]) -> list[str]:
    """Return modules that import each other in a circle when they run, or nothing."""
    graph: dict[str, set[str]] = {}
    for importer, imported, type_only in imports:
        if not type_only:
            graph.setdefault(importer, set()).add(imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def draw(graph: dict[str, set[str]]) -> str:
    """Draw the rooms as a Mermaid flowchart, without arrows that a longer way implies."""
    lines = ["```mermaid", "flowchart TD"]
    for at, (title, rooms) in enumerate(LAYERS.items()):
        present = [room for room in rooms if room in graph]
        lines += [
            f'    subgraph layer{at}["{title}"]',
            *(f"        {r}" for r in present),
            "    end",
        ]
    for room in sorted(graph):
        implied = {far for near in graph[room] for far in _reachable(graph, near)}
        lines += [f"    {room} --> {target}" for target in sorted(graph[room] - implied)]
    return "\n".join([*lines, "```"])


def _reachable(graph: dict[str, set[str]], room: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[room])
    while waiting:
        target = waiting.pop()
        if target not in found:
            found.add(target)
            waiting += graph[target]
    return found


def table(graph: dict[str, set[str]], modules: dict[str, Path]) -> str:
    """List the rooms: what lives there, by the first line of the source, and what they import."""
    lines = ["| layer | room | what lives there | imports |", "|---|---|---|---|"]
    for title, rooms in LAYERS.items():
        for room in (room for room in rooms if room in graph):
            path = modules[PACKAGE if room == PACKAGE else f"{PACKAGE}.{room}"]
            about = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0]
            targets = (
                ", ".join(f"`{target}`" for target in sorted(graph[room])) or "nothing of ours"
            )
            lines.append(f"| {title} | `{room}` | {about} | {targets} |")
    return "\n".join(lines)


def render(source: Path = ROOT / "src") -> str:
    """Return the drawing and the list."""
    modules = read_modules(source)
    graph = room_graph(read_imports(modules))
    return f"{draw(graph)}\n\n{table(graph, modules)}"


if __name__ == "__main__":
    print(render())
