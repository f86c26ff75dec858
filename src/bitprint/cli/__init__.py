"""The command line: parse, call, print; one file for each group of commands."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import typer

from bitprint.cli import bench, data, encode, export, index, learn, methods, paper, search, serve
from bitprint.cli._shared import note, say
from bitprint.version import __version__

app = typer.Typer(
    help="Learn short binary codes for images and search them by Hamming distance.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    paper.demo,
    data.data,
    methods.methods,
    learn.train,
    learn.evaluate,
    encode.encode,
    index.index,
    search.search,
    search.duplicates,
    serve.serve,
    export.export,
    paper.reproduce,
    bench.bench,
):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"bitprint {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="print the version"),
    ] = False,
) -> None:
    """Take what all commands have in common."""


def main() -> None:
    """Run the command line; a job that fails says why in one sentence and exits with 1."""
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    # Pillow's, of one's own large photographs, and without their names.
    warnings.filterwarnings("ignore", "Image size .* exceeds limit of .* pixels")
    try:
        app()
    except (ValueError, OSError, FloatingPointError) as error:
        if os.environ.get("BITPRINT_DEBUG"):
            raise
        note(f"bitprint: {error}", style="red")
        sys.exit(1)
