"""Quote functions of the source in the pages.

A page contains ``<!-- code: PATH NAME -->`` and ``<!-- end -->``, where NAME is a function or a
method of a class, such as ``DSDH.loss``. Between them is the function without its docstring.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[1]

_BLOCK = re.compile(r"(<!-- code: (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def refresh(text: str) -> str:
    """Return a page with the present code in its quotations."""

    def fill(block: re.Match[str]) -> str:
        code = quote((ROOT / block[2]).read_text("utf-8"), block[3])
        return f"{block[1]}\n```py\n{code}\n```\n\n{block[4]}"

    return _BLOCK.sub(fill, text)


def quote(source: str, name: str) -> str:
    """Return a function of a module without its decorators and docstring.

    Parameters
    ----------
    source : str
        Text of the module.
    name : str
        Name of the function, after that of its class if it has one.
    """
    node: ast.AST = ast.parse(source)
    for part in name.split("."):
        inner = [
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name == part
        ]
        if not inner:
            raise ValueError(f"{name}: not in the source; correct the page that quotes it")
        node = inner[0]
    assert isinstance(node, ast.FunctionDef)
    assert node.end_lineno is not None
    kept = list(range(node.lineno, node.end_lineno + 1))
    if ast.get_docstring(node) is not None:
        docstring = node.body[0]
        assert docstring.end_lineno is not None
        kept = [line for line in kept if not docstring.lineno <= line <= docstring.end_lineno]
    lines = source.splitlines()
    return dedent("\n".join(lines[number - 1] for number in kept))
