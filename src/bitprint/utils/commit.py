"""The commit of the source code, recorded in results."""

from __future__ import annotations

import os
import subprocess
from functools import lru_cache
from pathlib import Path


@lru_cache(1)
def source_commit() -> str:
    """Return the short hash of the checked-out commit.

    A "+" is appended if tracked files in `src` have changes. The environment variable
    BITPRINT_COMMIT overrides the result, for a copy of the source without its repository. The
    result is empty for an installed package.

    Examples
    --------
    >>> isinstance(source_commit(), str)
    True
    """
    if "BITPRINT_COMMIT" in os.environ:
        return os.environ["BITPRINT_COMMIT"]
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return ""
    commit = _git(root, "rev-parse", "--short", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "src")
    return f"{commit}+" if commit and changed else commit


def _git(root: Path, *words: str) -> str:
    try:
        command = ["git", "-C", str(root), *words]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
