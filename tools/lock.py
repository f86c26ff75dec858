"""Write the lock files in `requirements/` from `pyproject.toml` and the installed packages.

`python tools/lock.py [WHEEL ...]` pins the versions that are installed in the environment of the
command, with the hashes of all their files in the package index:

- `core.txt`: what Bitprint requires, and setuptools, which builds it
- `all.txt`: the core, and what the tests require
- `cpu.txt`: the CPU build of torch, which the package index lacks
- `cuda.txt`: what the build of torch in the package index requires besides on Linux

WHEEL is a file of the CPU build of torch. It is needed when the version of torch has changed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import package_index
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
CORE, ALL, CPU, CUDA = (FOLDER / name for name in ("core.txt", "all.txt", "cpu.txt", "cuda.txt"))

_TITLES = {
    CORE: "What Bitprint requires, and setuptools, which builds it. torch may be either build.",
    ALL: "core.txt, and what the tests require.",
    CPU: "The CPU build of torch. pip prefers the other build, so install this file first.",
    CUDA: "What the CUDA build of torch requires besides. The CPU build does not need it.",
}
_HEAD = """# {title}
# Written by tools/lock.py; do not edit.
# pip install --require-hashes --no-deps -r requirements/{name}
"""
_PIN = re.compile(r"(\S+)==(\S+) \\")
_HASH = re.compile(r"    --hash=sha256:([0-9a-f]{64})(?: \\)?")


class Pin(NamedTuple):
    """A package of a lock file: its version and the hashes of the files that pip may install."""

    version: str
    hashes: frozenset[str]


def read(path: Path) -> dict[str, Pin]:
    """Read a lock file; return its packages by name."""
    pins: dict[str, Pin] = {}
    name = ""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if found := _PIN.fullmatch(line):
            name = found[1]
            pins[name] = Pin(found[2], frozenset())
        elif (found := _HASH.fullmatch(line)) and name:
            pins[name] = pins[name]._replace(hashes=pins[name].hashes | {found[1]})
        elif not line.startswith("#"):
            raise ValueError(f"{path}, line {number}: not a pinned package or a hash: {line}")
    return pins


def render(path: Path, pins: Mapping[str, Pin]) -> str:
    """Return the text of a lock file."""
    text = _HEAD.format(title=_TITLES[path], name=path.name)
    for name, pin in sorted(pins.items()):
        hashes = [f"    --hash=sha256:{sha256}" for sha256 in sorted(pin.hashes)]
        text += " \\\n".join([f"{name}=={pin.version}", *hashes]) + "\n"
    return text


def declared(*extras: str) -> list[Requirement]:
    """Return the requirements of `pyproject.toml`: to build, to run, and those of some extras."""
    project = _pyproject()["project"]
    lines = [*_pyproject()["build-system"]["requires"], *project["dependencies"]]
    found = [Requirement(line) for line in lines]
    todo = list(extras)
    while todo:
        for requirement in map(Requirement, project["optional-dependencies"][todo.pop()]):
            if requirement.name == project["name"]:  # it stands for other extras
                todo += requirement.extras
            else:
                found.append(requirement)
    return found


def closure(
    roots: Iterable[Requirement], requires: Callable[[Requirement], Iterable[Requirement]]
) -> set[str]:
    """Return the names of some packages and of all packages that they require.

    Parameters
    ----------
    roots : iterable of Requirement
    requires : callable
        Returns the requirements of a package.
    """
    seen: set[Requirement] = set()
    todo = list(roots)
    for requirement in todo:  # the loop appends to it
        if requirement not in seen:
            seen.add(requirement)
            extras = {"", *requirement.extras}
            todo += [
                each
                for each in requires(requirement)
                if each.marker is None
                or any(each.marker.evaluate({"extra": extra}) for extra in extras)
            ]
    return {canonicalize_name(requirement.name) for requirement in seen}


def requires_installed(requirement: Requirement) -> list[Requirement]:
    """Return the requirements of an installed package."""
    return [Requirement(line) for line in importlib.metadata.requires(requirement.name) or []]


def pin_installed(requirements: Iterable[Requirement]) -> dict[str, Pin]:
    """Pin the installed versions of some packages and of all packages that they require."""
    return {
        name: _pin(name, _installed(name)) for name in closure(requirements, requires_installed)
    }


def pin_cpu(torch: str, wheels: Iterable[str]) -> dict[str, Pin]:
    """Pin the CPU build of a version of torch, from its files or else from the present lock."""
    pins = read(CPU) if CPU.exists() else {}
    hashes = {hashlib.sha256(Path(wheel).read_bytes()).hexdigest() for wheel in wheels}
    if hashes:
        pins = {"torch": Pin(f"{torch}+cpu", frozenset(hashes))}
    wrong = [wheel for wheel in wheels if not Path(wheel).name.startswith(f"torch-{torch}+cpu-")]
    if wrong or "torch" not in pins or pins["torch"].version != f"{torch}+cpu":
        raise SystemExit(f"give the wheel of the CPU build: tools/lock.py torch-{torch}+cpu-*.whl")
    return pins


def pin_cuda(torch: str, core: Iterable[str]) -> dict[str, Pin]:
    """Pin what the build of torch in the package index requires besides the core.

    Each package gets the newest version that the first requirement on it admits.
    """
    root = Requirement(f"torch=={torch}")
    chosen: dict[str, Version] = {}

    def requires(requirement: Requirement) -> Iterable[Requirement]:
        name = canonicalize_name(requirement.name)
        if name in core and requirement is not root:
            return []
        wheels = [file for file in package_index.files(name) if _installable(file)]
        allowed = list(requirement.specifier.filter(file.version for file in wheels))
        version = chosen.setdefault(name, max(allowed))
        if version not in allowed:
            raise ValueError(f"{name}: {requirement} does not admit {version}, which was chosen")
        return package_index.requires(next(file.url for file in wheels if file.version == version))

    closure([root], requires)
    del chosen["torch"]
    return {name: _pin(name, str(version)) for name, version in chosen.items()}


def _pin(name: str, version: str) -> Pin:
    files = [file for file in package_index.files(name) if file.version == Version(version)]
    if not files:
        raise ValueError(f"{name} {version}: the package index has no file of this version")
    oldest = SpecifierSet(_pyproject()["project"]["requires-python"])
    for file in files:
        if not all(limit.version in SpecifierSet(file.requires_python) for limit in oldest):
            raise ValueError(
                f"{name} {version} requires Python {file.requires_python}, Bitprint {oldest}: "
                "install another version of the package"
            )
    return Pin(version, frozenset(file.sha256 for file in files))


def _installed(name: str) -> str:
    """Return the installed version, for example 2.13.0 of 2.13.0+cpu."""
    return Version(importlib.metadata.version(name)).public


def _installable(file: package_index.File) -> bool:
    """Return whether a file is a wheel for this Python and this machine."""
    if file.yanked or not file.name.endswith(".whl"):
        return False
    return not parse_wheel_filename(file.name)[3].isdisjoint(_tags())


@cache
def _tags() -> frozenset[Tag]:
    return frozenset(sys_tags())


@cache
def _pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def main() -> None:
    """Write the files."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise SystemExit("run this on Linux on x86-64, where torch requires the CUDA packages")
    torch = _installed("torch")
    cpu = pin_cpu(torch, sys.argv[1:])
    core, everything = pin_installed(declared()), pin_installed(declared("test"))
    for pins in (core, everything):
        pins["torch"] = Pin(torch, pins["torch"].hashes | cpu["torch"].hashes)
    cuda = pin_cuda(torch, core)
    FOLDER.mkdir(exist_ok=True)
    for path, pins in {CORE: core, ALL: everything, CPU: cpu, CUDA: cuda}.items():
        path.write_text(render(path, pins), "utf-8")
        print(f"{path.relative_to(ROOT)}: {len(pins)} packages")


if __name__ == "__main__":
    main()
