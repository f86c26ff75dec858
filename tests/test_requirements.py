"""The lock files agree with `pyproject.toml`, and `tools/lock.py` writes and reads them."""

import importlib
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]


@pytest.fixture
def lock(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("lock")


@pytest.mark.parametrize(("name", "extras"), [("core", []), ("all", ["test"])])
def test_declared_requirements_are_pinned_in_range(lock, name, extras):
    pins = lock.read(lock.FOLDER / f"{name}.txt")
    declared = lock.declared(*extras)
    assert len(declared) > 10
    for requirement in declared:
        pinned = pins[canonicalize_name(requirement.name)].version
        assert pinned in requirement.specifier, f"{requirement}, {pinned} is pinned"


@pytest.mark.parametrize(("name", "extras"), [("core", []), ("all", ["test"])])
def test_lock_has_what_the_packages_require_and_no_more(lock, name, extras):
    required = lock.closure(lock.declared(*extras), lock.requires_installed)
    cuda = lock.read(lock.CUDA).keys()  # required by the CUDA build, if it is installed
    assert required - cuda == lock.read(lock.FOLDER / f"{name}.txt").keys()


def test_core_is_a_part_of_all(lock):
    assert lock.read(lock.CORE).items() <= lock.read(lock.ALL).items()


def test_every_package_of_the_locks_has_a_hash(lock):
    for path in (lock.CORE, lock.ALL, lock.CPU, lock.CUDA):
        pins = lock.read(path)
        assert pins
        assert [name for name, pin in pins.items() if not pin.hashes] == []
        packages = re.findall(r"^[a-z].*$", path.read_text("utf-8"), re.MULTILINE)
        assert len(packages) == len(pins)


def test_torch_may_be_the_cpu_build_or_that_of_the_index(lock):
    (cpu,) = lock.read(lock.CPU).values()
    torch = lock.read(lock.CORE)["torch"]
    assert cpu.version == f"{torch.version}+cpu"
    assert cpu.hashes < torch.hashes


def test_cuda_packages_are_in_no_other_lock(lock):
    cuda = lock.read(lock.CUDA)
    assert any(name.startswith("nvidia-") for name in cuda)
    assert cuda.keys().isdisjoint(lock.read(lock.ALL))


@pytest.mark.parametrize("name", ["core", "all", "cpu", "cuda"])
def test_lock_read_and_rendered_is_unchanged(lock, name):
    path = lock.FOLDER / f"{name}.txt"
    assert lock.render(path, lock.read(path)) == path.read_text("utf-8")


@pytest.mark.parametrize(
    "line", ["numpy>=2.0", "numpy==2.4.6", "    --hash=md5:0", "-e .", "numpy==2.4.6 # \\"]
)
def test_lock_with_another_line_raises(lock, tmp_path, line):
    path = tmp_path / "core.txt"
    path.write_text(f"# title\n{line}\n")
    with pytest.raises(ValueError, match=r"core\.txt, line 2: not a pinned package or a hash"):
        lock.read(path)


def test_closure_follows_extras_and_markers(lock):
    graph = {
        "a": ["b[x]", "c; python_version < '3'"],
        "b": ["d; extra == 'x'", "e; extra == 'y'", "a"],
        "d": [],
    }
    found = lock.closure([Requirement("a")], lambda each: map(Requirement, graph[each.name]))
    assert found == {"a", "b", "d"}


def package_file(lock, name, requires_python=""):
    version = lock.package_index.version_of(name)
    url = f"https://example.org/{name}"
    return lock.package_index.File(name, version, url, "0" * 64, requires_python, False)


def test_pin_that_excludes_a_supported_python_raises(lock, monkeypatch):
    file = package_file(lock, "fresh-1.0-py3-none-any.whl", ">=3.11.5")
    monkeypatch.setattr(lock.package_index, "files", lambda name: (file,))
    message = r"fresh 1\.0 requires Python >=3\.11\.5, Bitprint >=3\.11: install another version"
    with pytest.raises(ValueError, match=message):
        lock._pin("fresh", "1.0")
    with pytest.raises(ValueError, match=r"fresh 2\.0: the package index has no file"):
        lock._pin("fresh", "2.0")


def test_cuda_pins_are_the_newest_that_torch_admits(lock, monkeypatch):
    index = {
        "torch": (["1.0", "2.0"], ["numpy", "cuda[fft]==13.*", "fft"]),
        "cuda": (["13.0", "13.1", "14.0"], ["fft<3; extra == 'fft'", "other; extra == 'all'"]),
        "fft": (["2.0", "2.5", "3.0"], []),
    }
    files = {
        name: tuple(package_file(lock, f"{name}-{each}-py3-none-any.whl") for each in versions)
        for name, (versions, _) in index.items()
    }
    fake = SimpleNamespace(
        files=files.__getitem__,
        requires=lambda url: map(Requirement, index[Path(url).name.partition("-")[0]][1]),
    )
    monkeypatch.setattr(lock, "package_index", fake)
    with pytest.raises(ValueError, match=r"fft: fft<3; .* does not admit 3\.0, which was chosen"):
        lock.pin_cuda("2.0", ["torch", "numpy"])
    index["torch"][1].pop()
    pins = lock.pin_cuda("2.0", ["torch", "numpy"])
    assert {name: pin.version for name, pin in pins.items()} == {"cuda": "13.1", "fft": "2.5"}


def test_cpu_pin_needs_a_wheel_of_the_same_version(lock, monkeypatch, tmp_path):
    monkeypatch.setattr(lock, "CPU", tmp_path / "cpu.txt")
    wheel = tmp_path / "torch-2.0+cpu-cp311-cp311-linux_x86_64.whl"
    wheel.write_bytes(b"")
    with pytest.raises(SystemExit, match=r"give the wheel of the CPU build: .*torch-2\.0\+cpu-"):
        lock.pin_cpu("2.0", [])
    with pytest.raises(SystemExit, match=r"torch-3\.0\+cpu-"):
        lock.pin_cpu("3.0", [str(wheel)])
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    pins = lock.pin_cpu("2.0", [str(wheel)])
    assert pins == {"torch": lock.Pin("2.0+cpu", frozenset([empty]))}


def test_page_of_the_index_lists_files_with_hashes(lock):
    page = lock.package_index._Page("https://example.org/simple/a/")
    page.feed(
        '<h1>a</h1><a href="../../files/a-1.0.tar.gz#sha256=12" data-requires-python="&gt;=3.9"'
        ' data-yanked="">a</a><a href="/a-1.0-py3-none-any.whl#sha256=34">b</a><a href="a.exe">'
    )
    sdist, wheel = page.files
    assert sdist == (
        *("a-1.0.tar.gz", Version("1.0"), "https://example.org/files/a-1.0.tar.gz", "12"),
        *(">=3.9", True),
    )
    assert (wheel.sha256, wheel.requires_python, wheel.yanked) == ("34", "", False)
    with pytest.raises(ValueError, match=r"a-2\.tar\.gz: the index has no SHA-256 hash"):
        page.feed('<a href="a-2.tar.gz#md5=56">a</a>')


@pytest.mark.parametrize(("target", "name"), [("demo", "core"), ("test", "all")])
def test_make_installs_by_hash_and_nothing_else(target, name):
    command = ["make", "--dry-run", target, "VENV=an-empty-folder"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    installs = [line for line in printed.splitlines() if "pip install" in line]
    assert installs
    assert all("--no-deps" in line for line in installs)
    locks = [re.search(r"requirements/(\w+)\.txt", line) for line in installs]
    assert [found[1] for found in locks if found] == ["cpu", name, "cuda"]
    unlocked = [line for line in installs if "--require-hashes" not in line]
    assert [line.partition("--no-build-isolation ")[2] for line in unlocked] == ["-e ."]
