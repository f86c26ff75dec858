"""`bitprint search | duplicates`."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitprint.cli._codes import ids_file, is_codes, read_ids
from bitprint.cli._printing import print_found, print_hits
from bitprint.cli._shared import (
    IndexArgument,
    JsonOption,
    counted,
    list_skipped,
    note,
    output,
    progress_bar,
    say,
)
from bitprint.utils.files import no_part_left
from bitprint.utils.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bitprint.photos import Compared, Hit


def search(
    path: IndexArgument,
    query: Annotated[Path, typer.Argument(metavar="QUERY", help="image file or codes file")],
    k: Annotated[int, typer.Option("-k", help="number of hits")] = 12,
    label: Annotated[str | None, typer.Option(help="find only images with this label")] = None,
    sheet: Annotated[Path | None, typer.Option(help="write the hits to this HTML file")] = None,
    show: Annotated[bool, typer.Option("--open", help="open the hits in the browser")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find the images most similar to a query image, or the codes nearest to query codes."""
    from bitprint.codes import Codes
    from bitprint.photos import Photos, find_hits
    from bitprint.search.stores import open_index

    if is_codes(query):
        if sheet or show:
            raise typer.BadParameter("--sheet and --open need an image as the query")
        codes = Codes.load(query)
        with open_index(path) as opened:
            found = [_as_dicts(hits) for hits in find_hits(opened, codes, k, label)]
        _note_unknown(label, any(found))
        print_found(zip(_query_names(query, len(codes)), found, strict=True), as_json)
        return
    with Photos.open(path) as photos:
        hits = _as_dicts(photos.search(query, k, label=label))
    _note_unknown(label, bool(hits))
    if as_json:
        model = photos.index.model
        output.print_json(
            data={"query": str(query), "model": model, "results": hits}, ensure_ascii=True
        )
    else:
        note(f"model: {photos.index.model}")
        print_hits(hits)
    if sheet or show:
        _write_sheet(query, hits, sheet, show)


def duplicates(
    path: IndexArgument,
    radius: Annotated[
        int | None,
        typer.Option(
            "-r",
            "--radius",
            help="maximum distance in bits (default: 48 for codes of 256 bits, 10 for 64 bits; "
            "with --codes-alone 16 and 2)",
            show_default=False,
        ),
    ] = None,
    codes_alone: Annotated[
        bool, typer.Option("--codes-alone", help="compare codes only, without opening the images")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Find groups of nearly identical images, such as resized or recompressed copies.

    Candidates are selected by their codes and confirmed by comparing pixels.
    With --codes-alone, groups can contain different images with similar content.
    Check the groups before you delete files.
    """
    from bitprint.photos import compare_pictures, find_duplicates
    from bitprint.photos.duplicates import default_radius
    from bitprint.search.stores import open_index

    with open_index(path) as opened:
        if radius is None:
            radius = default_radius(opened.bits, codes_alone)
        with progress_bar("comparing codes") as progress:
            groups = find_duplicates(opened, radius, progress=progress)
        by_codes = len(groups)
        if not codes_alone:
            with progress_bar("comparing images") as progress:
                compared = compare_pictures(opened, groups, radius, progress=progress)
            groups = compared.groups
            _note_not_compared(compared)
    if as_json:
        output.print_json(data=[group._asdict() for group in groups], ensure_ascii=True)
        return
    for group in groups:
        say(f"group of {len(group.ids)}, at most {counted(group.distance, 'bit')} apart")
        for name in group.ids:
            say(f"  {printable(str(name))}")
    others = "" if by_codes == len(groups) else f"; {by_codes} by codes alone"
    note(f"{counted(len(groups), 'group')} within {counted(radius, 'bit')}{others}")


def _note_not_compared(compared: Compared) -> None:
    """Print which images could not be compared by their pixels."""
    list_skipped(compared.skipped)
    if compared.skipped:
        skipped = counted(len(compared.skipped), "image")
        note(f"{skipped} skipped; --codes-alone compares codes without images", style="yellow")
    if compared.without_file:
        without_file = counted(compared.without_file, "code")
        note(f"{without_file} without an image file, compared by codes alone", style="yellow")


def _as_dicts(hits: Iterable[Hit]) -> list[dict[str, Any]]:
    return [hit._asdict() for hit in hits]


def _note_unknown(label: str | None, found: bool) -> None:
    if label is not None and not found:
        note(f"no image has the label {printable(label)}")


def _write_sheet(query: Path, hits: list[dict[str, Any]], sheet: Path | None, show: bool) -> None:
    from bitprint.photos.sheet import Tile, contact_sheet

    tiles = [Tile(str(query), "query")]
    tiles += [Tile(hit["path"], counted(hit["distance"], "bit")) for hit in hits]
    page = contact_sheet(f"Nearest to {query.name}", tiles)
    if sheet is None:
        handle, name = tempfile.mkstemp(prefix="bitprint-", suffix=".html")
        os.close(handle)
        sheet = Path(name)
    with no_part_left(sheet):
        sheet.write_text(page, "utf-8")
    note(f"contact sheet written to {sheet}")
    if show:
        webbrowser.open(sheet.resolve().as_uri())


def _query_names(file: Path, count: int) -> list[str]:
    """Return the ids of the queries, or their row numbers if there is no file of ids."""
    if ids_file(file).is_file():
        return read_ids(file, count)
    return [str(number) for number in range(count)]
