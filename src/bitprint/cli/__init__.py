"""Command line: parse arguments, call the library, print results."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import typer

from bitprint.cli import (
    bench,
    data,
    encode,
    export,
    index,
    learn,
    methods,
    paper,
    search,
    serve,
    vectors,
)
from bitprint.cli._shared import note, say
from bitprint.utils.text import printable
from bitprint.version import __version__

_HELP = """Learn short binary codes for images and search them by Hamming distance.

\b
Try all steps on built-in images:
  bitprint demo
Train a model on images in one folder per class:
  bitprint train ~/Labeled --features efficientnet-lite0 --out runs/mine
Index a folder of images (no labels needed) and search it:
  bitprint index add photos.bp ~/Pictures
  bitprint search photos.bp query.jpg --open
Compress embeddings of any model and search them:
  bitprint vectors add docs.bp embeddings.npy
  bitprint vectors search docs.bp queries.npy
"""

app = typer.Typer(
    help=_HELP,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
)
_COMMANDS = {
    "Train and evaluate": (
        paper.demo,
        data.data,
        methods.methods,
        learn.train,
        learn.evaluate,
        encode.encode,
        export.export,
    ),
    "Search": (search.search, search.duplicates, serve.serve),
    "Experiments": (paper.reproduce, bench.bench),
}
for panel, commands in _COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(index.app, name="index", rich_help_panel="Search")
app.add_typer(vectors.app, name="vectors", rich_help_panel="Search")


def _print_version(requested: bool) -> None:
    if requested:
        say(f"bitprint {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="print the version and exit"
        ),
    ] = False,
) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main() -> None:
    """Run the command line; on failure print one line to standard error and exit with code 1."""
    warnings.formatwarning = lambda message, *_: f"warning: {printable(str(message))}\n"
    # Pillow warns about large images without naming the file.
    warnings.filterwarnings("ignore", "Image size .* exceeds limit of .* pixels")
    try:
        app()
    except (ValueError, OSError, FloatingPointError) as error:
        if os.environ.get("BITPRINT_DEBUG"):
            raise
        note(f"bitprint: {printable(str(error))}", style="red")
        sys.exit(1)
