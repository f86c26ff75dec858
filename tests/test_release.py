"""The archives of a release are reproducible, and its bill of materials is valid CycloneDX 1.6."""

import importlib
import io
import json
import re
import tarfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def tool(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module(name)


@pytest.fixture
def bill(monkeypatch):
    """Render the bill of materials of the core."""
    sbom, lock = tool("sbom", monkeypatch), tool("lock", monkeypatch)
    return json.loads(sbom.render(lock.read(lock.CORE), "1.2", seconds=86400))


def check_licenses(licenses):
    """Check that there is one expression, or any number of names."""
    if licenses and licenses[0].keys() == {"expression"}:
        assert len(licenses) == 1
    else:
        assert all(each.keys() == {"license"} and each["license"]["name"] for each in licenses)


def test_bill_has_what_cyclonedx_requires(bill):
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    known = {"$schema", "bomFormat", "specVersion", "version", "metadata"}
    assert bill.keys() == known | {"components", "dependencies"}
    assert bill["metadata"]["timestamp"] == "1970-01-02T00:00:00Z"
    for component in [bill["metadata"]["component"], *bill["components"]]:
        assert component["type"] == "library"
        assert component["name"]
        assert component["purl"] == f"pkg:pypi/{component['name']}@{component['version']}"
        licenses = component.get("licenses", [])
        expressions = [each for each in licenses if each.keys() == {"expression"}]
        names = [
            each for each in licenses if each.keys() == {"license"} and each["license"]["name"]
        ]
        assert licenses in (expressions, names)
        assert len(expressions) <= 1
        for reference in component.get("externalReferences", []):
            assert reference["type"] == "distribution"
            assert reference["url"] == component["purl"]
            for each in reference["hashes"]:
                assert each["alg"] == "SHA-256"
                assert re.fullmatch("[0-9a-f]{64}", each["content"])


def test_bill_lists_the_packages_and_hashes_of_the_core(bill, monkeypatch):
    lock = tool("lock", monkeypatch)
    listed = {
        component["name"]: lock.Pin(
            component["version"],
            frozenset(each["content"] for each in component["externalReferences"][0]["hashes"]),
        )
        for component in bill["components"]
    }
    assert listed == lock.read(lock.CORE)
    assert bill["metadata"]["component"]["version"] == "1.2"
    licenses = {component["name"]: component.get("licenses") for component in bill["components"]}
    assert licenses["numpy"][0]["expression"].startswith("BSD-3-Clause")
    assert licenses["rich"] == [{"license": {"name": "MIT License"}}]


def test_dependencies_of_the_bill_refer_to_its_components(bill):
    refs = [component["bom-ref"] for component in bill["components"]]
    assert len(set(refs)) == len(refs)
    root = bill["metadata"]["component"]["bom-ref"]
    graph = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert list(graph) == [root, *refs]
    assert {ref for depends in graph.values() for ref in depends} == set(refs)
    (jinja2,) = (ref for ref in refs if ref.startswith("pkg:pypi/jinja2@"))
    assert [re.sub("@.*", "", ref) for ref in graph[jinja2]] == ["pkg:pypi/markupsafe"]


def test_bill_is_the_same_with_the_cuda_build_of_torch(bill, monkeypatch):
    sbom, lock = tool("sbom", monkeypatch), tool("lock", monkeypatch)
    installed = lock.requires_installed

    def with_cuda(requirement):
        return [*installed(requirement), Requirement("nvidia-cublas==13.1.1.3")]

    monkeypatch.setattr(lock, "requires_installed", with_cuda)
    assert json.loads(sbom.render(lock.read(lock.CORE), "1.2", seconds=86400)) == bill


def source_archive(path, names, mtime, owner):
    with tarfile.open(path, "w:gz") as archive:
        for name, mode in names.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(name), mode
            member.mtime, member.uid, member.uname = mtime, len(owner), owner
            archive.addfile(member, io.BytesIO(name.encode()))
    return path


def test_normalized_archives_of_the_same_files_are_equal(tmp_path, monkeypatch):
    normalize = tool("release", monkeypatch).normalize
    names = {"a/one.py": 0o664, "a/run": 0o775}
    first = source_archive(tmp_path / "1.tar.gz", names, 1.5, "ann")
    names = {"a/run": 0o744, "a/one.py": 0o600}
    second = source_archive(tmp_path / "2.tar.gz", names, 9.0, "bob")
    content = normalize(first, 1000)
    assert content == normalize(second, 1000) != normalize(second, 1001)
    assert int.from_bytes(content[4:8], "little") == 1000  # the time of the compressed file
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.tar.gz", "2.tar.gz"]
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = archive.getmembers()
        assert [(each.name, each.mode, each.mtime, each.uname) for each in members] == [
            ("a/one.py", 0o644, 1000, ""),
            ("a/run", 0o755, 1000, ""),
        ]
        assert archive.extractfile("a/run").read() == b"a/run"


def test_builds_that_differ_are_refused(tmp_path, monkeypatch):
    release = tool("release", monkeypatch)
    contents = iter(["one", "two"])
    monkeypatch.setattr(
        release,
        "build",
        lambda folder, seconds: (folder / "a.whl").write_text(next(contents)),
    )
    monkeypatch.setattr(release, "_run", lambda *command: "1000")
    monkeypatch.setattr(release.os, "umask", lambda mask: None)
    monkeypatch.setattr(release.sys, "argv", ["release.py", str(tmp_path / "dist")])
    with pytest.raises(SystemExit, match="two builds differ"):
        release.main()
    assert not (tmp_path / "dist").exists()
