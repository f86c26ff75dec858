"""The files for contributors: hooks, workflows and forms."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from bitprint.version import __version__

ROOT = Path(__file__).parents[1]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(path):
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


def supported_pythons():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [line.rpartition(" :: ")[2] for line in project["classifiers"] if "Python ::" in line]
    return [line for line in lines if "." in line]


def test_commits_are_checked_by_make_lint():
    hooks = [hook for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert [hook["entry"] for hook in hooks] == ["make lint"]


def test_workflow_runs_ci_on_the_oldest_python_with_pinned_actions():
    workflow = read(".github/workflows/ci.yml")
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    actions = {step["uses"]: step.get("with", {}) for step in job["steps"] if "uses" in step}
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+\.\d+\.\d+", name) for name in actions)
    (python,) = (given for name, given in actions.items() if "setup-python" in name)
    assert python["python-version"] == supported_pythons()[0]
    (command,) = (step["run"] for step in job["steps"] if "run" in step)
    assert (ROOT / command).stat().st_mode & 0o111


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_form_is_valid(path):
    form = read(path)
    assert form.keys() == {"name", "description", "labels", "body"}
    fields = [item for item in form["body"] if item["type"] != "markdown"]
    assert {item["type"] for item in fields} <= {"input", "textarea", "checkboxes"}
    assert all(item["attributes"]["label"] for item in fields)
    assert len({item["id"] for item in fields}) == len(fields)
    assert any(item.get("validations", {}).get("required") for item in fields)


def test_there_is_a_form_for_bugs_and_one_for_methods():
    assert [path.stem for path in FORMS] == ["bug_report", "method_request"]


@pytest.mark.parametrize(
    "path", [".github/pull_request_template.md", *FORMS], ids=lambda path: Path(path).stem
)
def test_files_named_by_a_template_exist(path):
    text = (ROOT / path).read_text("utf-8")
    for name in re.findall(r"[\w/]+\.md", text):
        assert (ROOT / name).exists(), name
    for target in re.findall(r"`make (\w+)`", text):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def test_version_is_the_same_in_all_files():
    assert read("CITATION.cff")["version"] == __version__
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    latest = re.search(r"^## (\S+) \(\d{4}-\d{2}-\d{2}\)$", changes, re.MULTILINE)
    assert latest[1] == __version__
    supported = re.findall(r"^\| (\d+\.\d+) \| yes \|$", (ROOT / "SECURITY.md").read_text(), re.M)
    assert supported == [__version__.rpartition(".")[0]]


def test_contributing_names_every_lock_file():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = re.findall(r"^\| `(\w+\.txt)` \|", text, re.MULTILINE)
    assert sorted(named) == sorted(path.name for path in (ROOT / "requirements").iterdir())
