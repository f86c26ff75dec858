"""`bitprint search | duplicates`."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitprint.cli._codes import ids_beside, is_codes, read_ids
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
from bitprint.files import no_part_left

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bitprint.photos import Compared, Hit

# Within 6 bits are over twice as many copies as within 2 (results/README.md), and among many
# more pictures that are none, which the look at the pixels takes out again.
_RADIUS = 6
_STRICT = 2


def search(
    path: IndexArgument,
    query: Annotated[Path, typer.Argument(metavar="QUERY", help="image file, or codes file")],
    k: Annotated[int, typer.Option("-k", help="number of hits")] = 12,
    label: Annotated[str | None, typer.Option(help="only find images with this label")] = None,
    sheet: Annotated[Path | None, typer.Option(help="write hits to this HTML file")] = None,
    show: Annotated[bool, typer.Option("--open", help="open hits in the browser")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find the images most similar to an image, or the codes nearest to codes."""
    from bitprint.codes import Codes
    from bitprint.photos import Photos, find_hits
    from bitprint.search.stores import open_index

    if is_codes(query):
        if sheet or show:
            raise typer.BadParameter("--sheet and --open are for a picture as the query")
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
        note(f"codes by {photos.index.model}")
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
            help=f"largest distance in bits (default: {_RADIUS}; with --codes-alone {_STRICT})",
            show_default=False,
        ),
    ] = None,
    codes_alone: Annotated[
        bool, typer.Option("--codes-alone", help="compare codes only, do not open images")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Find groups of nearly identical images, such as resized or recompressed copies.

    Codes select the candidates, and a comparison of pixels confirms them.
    With --codes-alone, groups can contain different images of similar content.
    Check the groups before you delete files.
    """
    from bitprint.photos import compare_pictures, find_duplicates
    from bitprint.photos.files import printable
    from bitprint.search.stores import open_index

    if radius is None:
        radius = _STRICT if codes_alone else _RADIUS
    with open_index(path) as opened:
        with progress_bar("comparing codes") as progress:
            groups = find_duplicates(opened, radius, progress=progress)
        by_codes = len(groups)
        if not codes_alone:
            with progress_bar("looking at pictures") as progress:
                compared = compare_pictures(opened, groups, radius, progress=progress)
            groups = compared.groups
            _say_not_seen(compared)
    if as_json:
        output.print_json(data=[group._asdict() for group in groups], ensure_ascii=True)
        return
    for group in groups:
        say(f"{len(group.ids)} alike, at most {counted(group.distance, 'bit')} apart")
        for name in group.ids:
            say(f"  {printable(str(name))}")
    others = "" if by_codes == len(groups) else f"; {by_codes} by codes alone"
    note(f"{counted(len(groups), 'group')} within {counted(radius, 'bit')}{others}")


def _say_not_seen(compared: Compared) -> None:
    """Say which pictures could not be looked at, and what became of them."""
    list_skipped(compared.skipped)
    if compared.skipped:
        skipped = counted(len(compared.skipped), "picture")
        note(f"{skipped} skipped, in no group; --codes-alone needs no pictures", style="yellow")
    if compared.without_file:
        blind = counted(compared.without_file, "code")
        note(f"{blind} without a file here, grouped by codes alone", style="yellow")


def _as_dicts(hits: Iterable[Hit]) -> list[dict[str, Any]]:
    return [hit._asdict() for hit in hits]


def _note_unknown(label: str | None, found: bool) -> None:
    from bitprint.photos.files import printable

    if label is not None and not found:
        note(f"no picture has the label {printable(label)}")


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
    note(f"contact sheet in {sheet}")
    if show:
        webbrowser.open(sheet.resolve().as_uri())


def _query_names(file: Path, count: int) -> list[str]:
    """Names of queries: their ids where there are some, and numbers otherwise."""
    if ids_beside(file).is_file():
        return read_ids(file, count)
    return [str(number) for number in range(count)]
