"""Read, check and draw the imports between the parts of the package.

Run it to print the graph; `python tools/docs.py` writes it into `docs/architecture.md`.
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
    "entry points": ("__main__", "bitprint"),
    "command line": ("cli",),
    "applications": ("web", "cluster", "export", "demo", "experiments", "bench"),
    "collections": ("photos", "vectors"),
    "search of codes": ("search",),
    "workflows": ("workflows",),
    "methods and features": ("methods", "features"),
    "training": ("training",),
    "metrics": ("evaluation",),
    "data, networks and code types": ("data", "nets", "quantised", "weighted"),
    "foundation": ("codes", "supervision", "version"),
    "helpers": ("utils",),
}
"""Parts of the package from top to bottom: a part may import only from lower layers.

A part is a package or a module directly below `bitprint`; "bitprint" itself has the public names.
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
    """Return the imports between modules, including those inside functions."""
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


def part_of(module: str) -> str:
    """Return the part that a module is in: the second component of its name."""
    return PACKAGE if module == PACKAGE else module.split(".")[1]


def part_graph(imports: list[Import]) -> dict[str, set[str]]:
    """Return the parts that each part imports, including type-only imports."""
    graph: dict[str, set[str]] = {}
    for importer, imported, _ in imports:
        for part in map(part_of, (importer, imported)):
            graph.setdefault(part, set())
        if part_of(importer) != part_of(imported):
            graph[part_of(importer)].add(part_of(imported))
    return graph


def back_edges(imports: list[Import]) -> list[str]:
    """Return the imports that do not lead to a lower layer, one sentence each."""
    depth = {part: at for at, parts in enumerate(LAYERS.values()) for part in parts}
    found = []
    for importer, imported, _ in imports:
        above, below = part_of(importer), part_of(imported)
        unknown = {above, below} - depth.keys()
        if unknown:
            found.append(f"{unknown.pop()} is in no layer of tools/import_graph.py")
        elif above != below and depth[above] >= depth[below]:
            found.append(f"{importer} imports {imported}, which is not in a lower layer")
    return sorted(set(found))


def find_cycle(imports: list[Import]) -> list[str]:
    """Return modules that import each other in a cycle at run time, or an empty list."""
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
    """Draw the parts as a Mermaid flowchart, without arrows that other arrows imply."""
    lines = ["```mermaid", "flowchart TD"]
    for at, (title, parts) in enumerate(LAYERS.items()):
        present = [part for part in parts if part in graph]
        lines += [
            f'    subgraph layer{at}["{title}"]',
            *(f"        {r}" for r in present),
            "    end",
        ]
    for part in sorted(graph):
        implied = {far for near in graph[part] for far in _reachable(graph, near)}
        lines += [f"    {part} --> {target}" for target in sorted(graph[part] - implied)]
    return "\n".join([*lines, "```"])


def _reachable(graph: dict[str, set[str]], part: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[part])
    while waiting:
        target = waiting.pop()
        if target not in found:
            found.add(target)
            waiting += graph[target]
    return found


def table(graph: dict[str, set[str]], modules: dict[str, Path]) -> str:
    """List the parts with the first line of their docstring and their imports."""
    lines = ["| layer | part | purpose | imports |", "|---|---|---|---|"]
    for title, parts in LAYERS.items():
        for part in (part for part in parts if part in graph):
            path = modules[PACKAGE if part == PACKAGE else f"{PACKAGE}.{part}"]
            about = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0]
            targets = ", ".join(f"`{target}`" for target in sorted(graph[part])) or "-"
            lines.append(f"| {title} | `{part}` | {about} | {targets} |")
    return "\n".join(lines)


def render(source: Path = ROOT / "src") -> str:
    """Return the graph and the table."""
    modules = read_modules(source)
    graph = part_graph(read_imports(modules))
    return f"{draw(graph)}\n\n{table(graph, modules)}"


if __name__ == "__main__":
    print(render())
