"""All public names are on the API page, with complete docstrings and examples that run.

A class or function is public if
- a package exports it in `__all__`, or
- a page (README.md, docs/) or an example of a public name imports it or contains its full name, or
- it is a class and the docstring of a public name refers to it, or
- it is a method of the registry.

docs/api.md, or the page of a method of the registry, must show each public name. For each of them
- its docstring must have an example with a result; the example of a function must call it;
- its public methods and properties must have docstrings and be used in an example of the class.
  Examples are not required for methods that override another one or that a protocol declares, and
  for methods of stores that `Index` has too, since the examples of `Index` use them.
"""

import ast
import doctest
import inspect
import re
import tomllib
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest

from bitprint.methods import METHODS
from bitprint.search.index import Index
from bitprint.search.stores import Store

for extra in ("fastapi", "fsspec", "psycopg", "pyarrow", "pymilvus"):
    pytest.importorskip(extra, reason="some modules of Bitprint need this package")

ROOT = Path(__file__).parents[1]
MODULES = {
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "src").rglob("*.py"))
}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

NOT_RUN = {
    "bitprint.cluster.encoding.connect": "a cluster takes seconds to start",
    "bitprint.cluster.encoding.encode_collection": "a cluster takes seconds to start",
    "bitprint.data.cifar10_fetch.fetch_cifar10": "it downloads 170 MB",
    "bitprint.export.export_onnx": "the exporter takes seconds to start",
    "bitprint.search.stores.milvus.MilvusIndex.build_ivf": "it needs a server",
    "bitprint.search.stores.postgres.PostgresIndex": "it needs a server",
    "bitprint.web.run.make_server": "it serves until it is stopped",
}


METHODS_OF_STORES = [name for name, member in vars(Store).items() if inspect.isfunction(member)]


def name_of(thing):
    return f"{thing.__module__}.{thing.__qualname__}"


def may_be_public(thing):
    """Return whether this is a class or function of Bitprint, not a module, value or method."""
    ours = (getattr(thing, "__module__", None) or "").startswith("bitprint")
    return (
        ours
        and (inspect.isclass(thing) or inspect.isfunction(thing))
        and ("." not in thing.__qualname__)
    )


def look_up(name):
    try:
        return resolve_name(name)
    except (ImportError, AttributeError):  # a page can contain other or outdated names
        return None


def examples_in(docstring):
    return doctest.DocTestParser().get_examples(docstring or "")


def code_in(docstring):
    return "".join(example.source for example in examples_in(docstring))


def imports_in(code):
    return {
        f"{node.module}.{imported.name}"
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom)
        for imported in node.names
    }


@cache
def shown():
    """Objects that the pages show, by name."""
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    things = map(resolve_name, re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    return {name_of(thing): thing for thing in things}


@cache
def classes():
    """Full names of public classes by class name; a name can occur several times."""
    found = {}
    for module, path in MODULES.items():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(f"{module}.{node.name}")
    return found


def referred(docstring):
    """Full names of the classes in backticks in a docstring, with or without their module."""
    for module, name in re.findall(r"(?<!`)`((?:\w+\.)*)(\w+)`(?!`)", docstring or ""):
        full_names = classes().get(name, [])
        yield from (each for each in full_names if each == module + name or not module)


def docstrings_of(thing):
    """The docstring of a public object and of its public methods and properties."""
    members = members_of(thing) if inspect.isclass(thing) else ()
    return [thing.__doc__, *(member.__doc__ for _, member, _ in members)]


def mentioned():
    """Pairs of a place and an object that is mentioned there."""
    for name, path in MODULES.items():
        if re.search(r"^__all__ =", path.read_text("utf-8"), re.MULTILINE):
            module = import_module(name)
            yield from ((f"__all__ of {name}", getattr(module, each)) for each in module.__all__)
    for page in PAGES:
        text = page.read_text("utf-8")
        names = set(re.findall(r"\bbitprint(?:\.\w+)+", text))
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            names |= imports_in(block)
        yield from ((page.name, look_up(each)) for each in names)
    for name, thing in shown().items():
        for each in imports_in(code_in(thing.__doc__)):
            yield f"the example of {name}", look_up(each)
        for each in set().union(*map(referred, docstrings_of(thing))):
            yield f"the docstring of {name}", look_up(each)
    for method in METHODS.values():
        yield "the registry", method


def members_of(cls):
    """Public methods and properties (name, definition, class), except those shown elsewhere."""
    kinds = (classmethod, staticmethod, property, cached_property)
    for owner in cls.__mro__:
        elsewhere = owner is not cls and name_of(owner) in shown()
        if owner.__module__.startswith("bitprint") and not elsewhere:
            for name, member in vars(owner).items():
                if not name.startswith("_") and (
                    inspect.isfunction(member) or isinstance(member, kinds)
                ):
                    yield name, member, owner


def is_declared_elsewhere(name, owner):
    above = owner.__mro__[1:]
    if owner is not Index and all(hasattr(owner, method) for method in METHODS_OF_STORES):
        above += (Store,)
    return getattr(owner, "_is_protocol", False) or any(name in vars(base) for base in above)


def faults_of(thing):
    """Documentation problems of a public class or function."""
    examples = examples_in(thing.__doc__)
    if not examples:
        yield "has no docstring with an example"
    elif not any(example.want for example in examples):
        yield "has an example without a result"
    elif inspect.isfunction(thing) and not re.search(
        rf"\b{thing.__name__}\(|^@{thing.__name__}$", code_in(thing.__doc__), re.MULTILINE
    ):
        yield "is not called in its example"
    if inspect.isclass(thing):
        code = "".join(map(code_in, docstrings_of(thing)))
        for name, member, owner in members_of(thing):
            value = isinstance(member, property | cached_property)
            use = rf"\.{name}\b" if value else rf"(\.|def ){name}\("
            if not member.__doc__:
                yield f"has no docstring for {name}"
            elif not is_declared_elsewhere(name, owner) and not re.search(use, code):
                yield f"uses {name} in no example"


def docstrings_below(node, name):
    """Name and docstring of a module, class or function, and of its nested definitions."""
    yield name, ast.get_docstring(node)
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from docstrings_below(inner, f"{name}.{inner.name}")


@cache
def written_examples():
    """All examples in the sources, by the name of their module, class or function."""
    return {
        name: examples_in(docstring)
        for module, path in MODULES.items()
        for name, docstring in docstrings_below(ast.parse(path.read_text("utf-8")), module)
        if examples_in(docstring)
    }


def test_every_module_has_a_one_line_summary():
    for path in MODULES.values():
        first = path.read_text("utf-8").partition("\n")[0]
        assert re.fullmatch(r'r?"""\S.+\.(""")?', first), f"{path}: {first}"


def test_pages_show_all_public_names():
    missing = {
        f"{name_of(thing)}, which is in {place}"
        for place, thing in mentioned()
        if may_be_public(thing) and name_of(thing) not in shown()
    }
    assert not missing, "\n".join(["docs/api.md lacks", *sorted(missing)])


def test_public_names_are_documented_with_examples():
    assert {"bitprint.codes.Codes", "bitprint.methods.create"} <= set(shown())
    faults = [f"{name} {fault}" for name, thing in shown().items() for fault in faults_of(thing)]
    assert not faults, "\n".join(["", *sorted(faults)])


def test_every_example_is_collected_as_doctest():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    pytest_settings = settings["tool"]["pytest"]["ini_options"]
    assert "src" in pytest_settings["testpaths"]
    assert "--doctest-modules" in pytest_settings["addopts"].split()
    written = set(written_examples())
    found = {
        test.name
        for name, path in MODULES.items()
        if ">>>" in path.read_text("utf-8")
        for test in doctest.DocTestFinder().find(import_module(name))
        if test.examples
    }
    assert found == written


def test_only_listed_examples_are_skipped():
    skipped = {
        name
        for name, examples in written_examples().items()
        if any(example.options.get(doctest.SKIP) for example in examples)
    }
    assert skipped == set(NOT_RUN)


class Complete:
    """A class with complete documentation.

    >>> Complete().used()
    1
    """

    def used(self):
        """One."""
        return 1

    @property
    def value(self):
        """Two.

        >>> Complete().value
        2
        """
        return 2


class Incomplete(Complete):
    def used(self):
        """Override."""

    def unused(self):
        """Something.

        >>> unused = 1
        """

    def bare(self): ...


def called():
    """Nothing.

    >>> 1 + 1
    2
    """


def resultless():
    """Nothing.

    >>> called()
    """


@pytest.mark.parametrize(
    ("thing", "faults"),
    [
        (Complete, []),
        (
            Incomplete,
            [
                "has no docstring with an example",
                "uses unused in no example",
                "has no docstring for bare",
            ],
        ),
        (called, ["is not called in its example"]),
        (resultless, ["has an example without a result"]),
    ],
)
def test_faults_are_found(thing, faults, monkeypatch):
    for cls in (Complete, Incomplete):
        monkeypatch.setattr(cls, "__module__", "bitprint.sample")
    monkeypatch.setitem(shown(), name_of(Complete), Complete)
    assert list(faults_of(thing)) == faults
