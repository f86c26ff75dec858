"""The help of the commands, and the commands named in documents and messages."""

import re
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bitprint.cli import app, main

ROOT = Path(__file__).parents[1]
COMMANDS = typer.main.get_command(app).commands
ACTIONS = COMMANDS["index"].commands
GROUPS = {"index": ACTIONS, "vectors": COMMANDS["vectors"].commands}
EVERY = [(name,) for name in COMMANDS]
EVERY += [(group, name) for group, actions in GROUPS.items() for name in actions]

# In Python files commands are in strings and comments, between backquotes or after a colon.
WRITTEN = re.compile(r"(?:^|`|: )bitprint ([a-z]+)(?: ([a-z]+)\b)?", re.MULTILINE)


def call(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_bitprint_alone_prints_examples_and_commands():
    result = call()
    assert result.exit_code == 0
    assert result.stdout == call("--help").stdout
    examples = ("demo", "train ~/", "index add photos.bp", "search photos.bp", "vectors add")
    for example in examples:
        assert f"\n   bitprint {example}" in result.stdout
    for name in COMMANDS:
        assert re.search(rf"^│ {name} ", result.stdout, re.MULTILINE), name


def test_examples_of_the_introduction_are_valid_usage():
    examples = re.findall(r"^   bitprint (.+?)\s*$", call().stdout, re.MULTILINE)
    assert len(examples) == 6
    for example in examples:
        name, *words = example.split()
        command = COMMANDS[name]
        if name in GROUPS:
            command, words = GROUPS[name][words[0]], words[1:]
        command.make_context(name, words)  # raises a usage error for an unknown option


@pytest.mark.parametrize(
    ("typed", "suggested"), [(["serch", "a.bp"], "search"), (["index", "ad", "a.bp"], "add")]
)
def test_unknown_command_suggests_the_nearest(typed, suggested):
    result = call(*typed)
    assert result.exit_code == 2
    assert f"Did you mean '{suggested}'" in result.stderr


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_short_help_option_prints_the_help(command):
    result = call(*command, "-h")
    assert result.exit_code == 0
    assert result.stdout == call(*command, "--help").stdout
    assert "Usage: " in result.stdout


def test_index_action_has_only_its_own_options():
    shared = {"--json"}
    choice = {"--model", "--bits", *shared}
    expected = {"add": choice, "rebuild": choice}
    for name, command in ACTIONS.items():
        found = {each for param in command.params for each in param.opts if each.startswith("--")}
        assert found == expected.get(name, shared), name


def test_json_is_offered_by_commands_that_print_figures():
    without = {
        " ".join(path)
        for path in EVERY
        if "--json" not in call(*path, "--help").stdout and path[-1] not in GROUPS
    }
    assert without == {"demo", "train", "serve"}


def test_commands_in_documents_exist():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "soak").rglob("*.py")]
    pages += (ROOT / "src").rglob("*.py")
    found = set()
    for page in pages:
        for name, action in WRITTEN.findall(page.read_text("utf-8")):
            assert name in COMMANDS, f"{page.name}: bitprint {name}"
            if name in GROUPS and action:
                assert action in GROUPS[name], f"{page.name}: bitprint {name} {action}"
                found.add(action)
    assert {"add", "sync", "remove", "copy", "learn"} <= found


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 0),
        (["index", "info", "missing.bp"], 1),
        (["index", "copy", "missing.bp", "b.bp"], 1),
        (["index"], 2),
        (["index", "info"], 2),
        (["data", "digits", "--check", "."], 2),
        (["bench", "train"], 2),
        (["export", "coco-64", "--to", "exe"], 2),
    ],
)
def test_exit_code_differs_for_failure_and_wrong_usage(
    arguments, code, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bitprint", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == code
    printed = capsys.readouterr()
    if code == 1:
        assert (printed.out, printed.err.count("\n")) == ("", 1)
        assert printed.err.startswith("bitprint: ")
        assert "missing.bp: no such index" in printed.err
    elif code == 2:
        assert "Usage: " in printed.out + printed.err
