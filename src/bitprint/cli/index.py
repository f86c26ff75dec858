"""`bitprint index add | sync | remove | info | compact | copy | export`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bitprint.cli import _adding
from bitprint.cli._printing import print_about
from bitprint.cli._shared import (
    IndexArgument,
    JsonOption,
    counted,
    list_skipped,
    note,
    output,
    progress_bar,
    resume_hint,
)
from bitprint.utils.text import printable


class _ActionFirst(TyperGroup):
    """Group of actions; for the former word order, the error shows the current command."""

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """Return the command of an action; if INDEX comes first, fail with the correct command."""
        if len(args) > 1 and args[0] not in self.commands and args[1] in self.commands:
            command = shlex.join([args[1], args[0], *args[2:]])
            ctx.fail(f"the action comes first: bitprint index {command}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_ActionFirst,
    no_args_is_help=True,
    help="Create and update an index of images or codes. To resume an interrupted command, run it "
    "again.",
)


@app.command()
def add(
    index: IndexArgument,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAMES",
            help="folders, image files, a CSV file with a column named file, or the output of "
            "`bitprint encode`; - reads file names from standard input",
        ),
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            help="output folder of `bitprint train`, or photos-256 or coco-64 (included); default "
            "for a new index: an ITQ model learned from its images, or photos-256 if there are "
            f"fewer than {_adding.FEW}"
        ),
    ] = None,
    bits: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"code length of the model learned for a new index (default: {_adding.BITS})",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add images or codes; create the index if it does not exist.

    Images that are already in the index and unchanged are not encoded again.
    """
    with resume_hint():
        about = _adding.add(index, names, model, bits)
    print_about(about, as_json)


@app.command()
def sync(
    index: IndexArgument,
    folders: Annotated[
        list[str] | None,
        typer.Argument(metavar="FOLDERS", help="folders to update (default: all in the index)"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Update the index after images were added, changed, moved or deleted on disk."""
    from bitprint.photos import Photos

    with resume_hint(), Photos.open(index) as photos:
        with progress_bar("encoding") as progress:
            synced = photos.sync(*(folders or []), progress=progress)
        for old, new in synced.moved:
            note(f"moved {printable(old)} to {printable(new)}")
        for name in synced.removed:
            note(f"removed {printable(name)}")
        list_skipped(synced.skipped)
        about = synced._asdict() | {"held": len(photos.index), "model": photos.index.model}
    print_about(about, as_json)


@app.command()
def rebuild(
    index: IndexArgument,
    model: Annotated[
        Path | None, typer.Option(help="new model; by default chosen as for a new index")
    ] = None,
    bits: Annotated[
        int | None, typer.Option(min=1, help="code length of a newly learned model")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Encode all images of an index again with another model, for example with longer codes.

    Labels and folders are kept. The index is replaced when all images are encoded.
    """
    with resume_hint():
        about = _adding.rebuild(index, model, bits)
    print_about(about, as_json)


@app.command()
def remove(
    index: IndexArgument,
    names: Annotated[
        list[str], typer.Argument(metavar="NAMES", help="image files, folders or ids")
    ],
    as_json: JsonOption = False,
) -> None:
    """Remove images or codes from the index. Image files on disk are not deleted."""
    from bitprint.photos import Photos, holds_pictures
    from bitprint.search.stores import open_index

    with resume_hint(), open_index(index) as opened:
        if holds_pictures(opened):
            removed = Photos(opened).remove(names)
        else:
            as_integers = opened.ids().dtype != object and all(name.isdecimal() for name in names)
            opened.remove([int(name) for name in names] if as_integers else names)
            removed = len(set(names))
        about = {"removed": removed, "held": len(opened), "model": opened.model}
    print_about(about, as_json)


@app.command()
def info(index: IndexArgument, as_json: JsonOption = False) -> None:
    """Print the number of codes, the code length, the model, the folders and the labels."""
    print_about(_inspect(index), as_json)


@app.command()
def compact(index: IndexArgument, as_json: JsonOption = False) -> None:
    """Free the disk space of removed codes."""
    with resume_hint():
        about = _inspect(index, compact=True)
    print_about(about, as_json)


@app.command()
def copy(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="index to copy: a file or a database address")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="new index: a file or a database address")
    ],
    as_json: JsonOption = False,
) -> None:
    """Copy an index to another file or database, and verify the copy by checksum."""
    from bitprint.search.copying import copy_index

    with resume_hint(), progress_bar("copying and verifying") as progress:
        copied = copy_index(source, target, progress=progress)
    note(f"copy verified, checksum {copied.checksum}")
    about = {
        "new": copied.new,
        "unchanged": copied.kept,
        "held": copied.new + copied.kept,
        "checksum": copied.checksum,
    }
    print_about(about, as_json)


@app.command()
def export(
    index: IndexArgument,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="file to write: .faiss, .usearch, .parquet, .npy or .copy (pgvector)",
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Write the codes and ids to a file of another program; the suffix names the format."""
    from bitprint.search.exporting import export_codes
    from bitprint.search.stores import open_index

    with open_index(index) as opened:
        with progress_bar("exporting") as progress:
            export_codes(opened, file, progress=progress)
        count, bits = len(opened), opened.bits
    if as_json:
        about = {"codes": count, "bits": bits, "file": str(file)}
        output.print_json(data=about, ensure_ascii=True)
    else:
        note(f"wrote {counted(count, 'code')} of {counted(bits, 'bit')} to {file}")


def _inspect(path: str, compact: bool = False) -> dict[str, Any]:
    from bitprint.photos import Photos, holds_pictures
    from bitprint.search.stores import is_uri, open_index

    with open_index(path) as opened:
        if compact:
            opened.compact()
        roots = Photos(opened).roots if holds_pictures(opened) else []
        about = {
            "held": len(opened),
            "bits": opened.bits,
            "model": opened.model,
            "folders": [str(root) for root in roots],
            "labels": opened.labels(),
        }
    return about if is_uri(path) else about | {"bytes": Path(path).stat().st_size}
