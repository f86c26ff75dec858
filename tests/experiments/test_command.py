"""`bitprint reproduce` from its options to its page."""

import shlex

import pytest
from typer.testing import CliRunner

from bitprint.cli import app


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path / "home"))


def reproduce(*arguments):
    result = CliRunner().invoke(app, ["reproduce", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments):
    """Return the sentence in which a command is refused."""
    result = CliRunner().invoke(app, ["reproduce", *map(str, arguments)])
    assert isinstance(result.exception, ValueError), result.output
    return str(result.exception)


def test_the_page_gives_every_option_that_was_given(tmp_path):
    out = tmp_path / "my table.csv"
    options = ["--dataset", "digits", "--methods", "deep", "--bits", "12,24", "--splits", "2"]
    options += ["--backbone", "small", "--validation", "--set", "lr=0.1", "--set", "epochs=3"]
    options += ["--workers", "3", "--deadline", "0", "--out", str(out), "--json"]
    reproduce("figure1", *options)
    (page,) = tmp_path.glob("*.html")
    command = shlex.join(["bitprint", "reproduce", "figure1", *options])
    assert f"<code>{command.replace(chr(39), '&#x27;')}</code>" in page.read_text()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--set", "lr=abc"], "leave out --set"),
        (["--features", "gist", "--unseen", "--set", "lr=1"], "--features, --unseen, --set"),
    ],
)
def test_what_quick_refuses_is_named_as_it_was_typed(options, part):
    assert refused("table1", "--quick", "--methods", "dsdh", *options).endswith(part)
