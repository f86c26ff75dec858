"""Find classes by their decorator, without importing the modules that define them."""

from __future__ import annotations

import re
from pathlib import Path


def decorated_classes(folder: Path, decorator: str) -> dict[str, str]:
    r"""Return the decorated classes of a folder of modules.

    Only the source text is read: a class is found if the line `@decorator` is directly above
    its `class` line, without indentation. Modules whose names begin with an underscore are skipped.

    Parameters
    ----------
    folder : Path
    decorator : str
        Name of the decorator, without `@` and without arguments.

    Returns
    -------
    dict of str to str
        The name of each class, and the name of its module.

    Examples
    --------
    >>> import tempfile
    >>> source = "@register\nclass First:\n    pass\n\nclass Second:\n    pass\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "one.py").write_text(source)
    ...     decorated_classes(Path(folder), "register")
    {'First': 'one'}
    """
    line = re.compile(rf"^@{decorator}\nclass (\w+)", re.MULTILINE)
    return {
        name: path.stem
        for path in sorted(folder.glob("[!_]*.py"))
        for name in line.findall(path.read_text("utf-8"))
    }
