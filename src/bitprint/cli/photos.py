"""`bitprint index | search | duplicates`."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitprint.cli._printing import (
    list_skipped,
    note,
    pictures_bar,
    print_about,
    print_found,
    print_hits,
    say,
)
from bitprint.cli._shared import JsonOption, output

if TYPE_CHECKING:
    from bitprint.codes import Codes
    from bitprint.photos import Photos
    from bitprint.photos.files import Source
    from bitprint.search.stores import Store

_BITS = 64

IndexArgument = Annotated[
    str, typer.Argument(metavar="INDEX", help="index file, such as my.bp, or address of a store")
]


_PARTITIONED = "_listing.parquet"  # which a folder of `bitprint encode --ray` holds


class Action(StrEnum):
    """What `bitprint index` does."""

    add = "add"
    sync = "sync"
    remove = "remove"
    info = "info"
    compact = "compact"
    copy = "copy"


def index(
    path: IndexArgument,
    action: Annotated[
        str,
        typer.Argument(
            metavar="|".join(Action),
            help="what to do; `copy FROM TO` is the same as `FROM copy TO`",
        ),
    ],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="add: a folder, a CSV with a column file, what `bitprint encode` has written, or "
            "- for names on standard input; sync: a folder; remove: files, folders or ids; copy: a "
            "new index file, or address of a store"
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="run folder of `bitprint train`; by default ITQ learns from the folder"),
    ] = None,
    bits: Annotated[
        int | None, typer.Option(min=1, help=f"length of the codes of a new index; {_BITS}")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Keep an index of pictures, or of codes; an interrupted command goes on when run again."""
    given = names or []
    if path == Action.copy and action not in list(Action):
        path, action = action, path
    if action not in list(Action):
        raise typer.BadParameter(f"{action!r} is not one of {', '.join(Action)}")
    limits: dict[str, tuple[int, int | None]] = {
        Action.add: (1, 1),
        Action.sync: (0, 1),
        Action.remove: (1, None),
        Action.copy: (1, 1),
    }
    least, most = limits.get(action, (0, 0))
    if len(given) < least or (most is not None and len(given) > most):
        wanted = {0: "no names", 1: "one name"}.get(most or least, "names")
        raise typer.BadParameter(f"{action} takes {wanted}, got {len(given)}")
    if (model is not None or bits is not None) and action != Action.add:
        raise typer.BadParameter("--model and --bits are for add")
    try:
        if action == Action.add:
            about = _add(path, given[0], model, bits)
        elif action == Action.sync:
            about = _sync(path, given[0] if given else None)
        elif action == Action.remove:
            about = _remove(path, given)
        elif action == Action.copy:
            about = _copy(path, given[0])
        else:
            about = _inspect(path, compact=action == Action.compact)
    except KeyboardInterrupt:
        note("interrupted; the same command goes on from here", style="yellow")
        raise typer.Exit(1) from None
    print_about(about, as_json)


def search(
    path: IndexArgument,
    query: Annotated[Path, typer.Argument(help="a picture, or a codes file")],
    k: Annotated[int, typer.Option("-k", help="how many to find")] = 12,
    label: Annotated[str | None, typer.Option(help="find only pictures with this label")] = None,
    sheet: Annotated[Path | None, typer.Option(help="write a contact sheet (HTML) here")] = None,
    show: Annotated[bool, typer.Option("--open", help="open the contact sheet")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find the pictures nearest to a picture, or the codes nearest to codes."""
    from bitprint.codes import Codes
    from bitprint.photos import Photos
    from bitprint.search.stores import open_index

    if _is_codes(query):
        if sheet or show:
            raise typer.BadParameter("--sheet and --open are for a picture as the query")
        codes = Codes.load(query)
        with open_index(path) as opened:
            found = _find(opened, codes, k, label)
        print_found(zip(_query_names(query, len(codes)), found, strict=True), as_json)
        return
    with Photos.open(path) as photos:
        hits = _find(photos.index, _encode_query(photos, query), k, label)[0]
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
        int, typer.Option("-r", "--radius", help="how many bits may differ; 0 is the strictest")
    ] = 2,
    as_json: JsonOption = False,
) -> None:
    """Group pictures that are nearly identical."""
    from bitprint.photos import find_duplicates
    from bitprint.photos.files import printable
    from bitprint.search.stores import open_index

    with open_index(path) as opened, pictures_bar("comparing") as progress:
        groups = find_duplicates(opened, radius, progress=progress)
    if as_json:
        output.print_json(data=[group._asdict() for group in groups], ensure_ascii=True)
        return
    for group in groups:
        say(f"{len(group.ids)} alike, at most {group.distance} bits apart")
        for name in group.ids:
            say(f"  {printable(str(name))}")
    note(f"{len(groups)} groups within {radius} bits")


def _add(path: str, name: str, model: Path | None, bits: int | None) -> dict[str, Any]:
    if name != "-" and _is_codes(Path(name)):
        if model is not None or bits is not None:
            raise typer.BadParameter("--model and --bits are for pictures, not for codes")
        return _add_codes(path, Path(name))
    if name != "-" and (Path(name) / _PARTITIONED).is_file():
        if bits is not None:
            raise typer.BadParameter("--bits is for pictures, not for codes")
        return _add_partitions(path, name, model)
    source = _read_names() if name == "-" else name
    with _open_or_create(path, source, model, bits) as photos:
        with pictures_bar("encoding") as progress:
            added = photos.add(source, progress=progress)
        list_skipped(added.skipped)
        return added._asdict() | {"held": len(photos.index), "model": photos.index.model}


def _open_or_create(path: str, source: Source, model: Path | None, bits: int | None) -> Photos:
    from bitprint.photos import Photos
    from bitprint.search.stores import index_exists

    if not index_exists(path):
        return _create(path, source, model, bits)
    photos = Photos.open(path)
    if bits is not None and bits != photos.index.bits:
        raise ValueError(
            f"{photos.index.path}: holds codes of {photos.index.bits} bits, not of {bits}"
        )
    if model is not None:
        photos.check_model(model)
    return photos


def _create(path: str, source: Source, model: Path | None, bits: int | None) -> Photos:
    from bitprint.photos import Photos
    from bitprint.photos.encoder import Encoder
    from bitprint.photos.files import list_pictures

    if model is None:
        with pictures_bar("learning") as progress:
            photos = Photos.learn(path, source, bits=bits or _BITS, progress=progress)
        note(f"learned from {photos.encoder.pictures} pictures without labels")
        return photos
    if bits is not None:
        raise typer.BadParameter("--bits is for an index without --model, which has its own")
    if not list_pictures(source).pictures:
        raise ValueError(f"{source}: no pictures found, so that no index was made")
    return Photos.create(path, Encoder.load(model))


def _add_codes(path: str, file: Path) -> dict[str, Any]:
    from bitprint.codes import Codes
    from bitprint.search.stores import index_exists, open_index

    codes = Codes.load(file)
    exists = index_exists(path)
    with open_index(path) if exists else open_index(path, bits=codes.bits, create=True) as opened:
        if opened.model is not None:
            raise ValueError(
                f"{opened.path}: holds codes by {opened.model}, and {file} does not say what made "
                "its codes; add pictures, or make another index"
            )
        opened.add(_ids_of(file, len(codes)), codes)
        return {"new": len(codes), "held": len(opened), "model": None}


def _add_partitions(path: str, folder: str, model: Path | None) -> dict[str, Any]:
    """Add what `bitprint encode --ray` has written; with its model, pictures can be searched."""
    from bitprint.cluster import read_codes, read_job
    from bitprint.photos import Photos
    from bitprint.photos.encoder import Encoder
    from bitprint.search.stores import index_exists, open_index

    job = read_job(folder)
    if index_exists(path):
        opened = open_index(path, bits=job.bits, model=job.model)
    elif model is None:
        opened = open_index(path, bits=job.bits, model=job.model, create=True)
    else:
        encoder = Encoder.load(model)
        if encoder.identity != job.model:
            raise ValueError(f"{folder}: holds codes by {job.model}, not by {encoder.identity}")
        opened = Photos.create(path, encoder).index
    new = 0
    with opened, pictures_bar("adding") as progress:
        for part in read_codes(folder):
            opened.add(*part)
            new += len(part.codes)
            progress(new, job.pictures)
        return {"new": new, "held": len(opened), "model": opened.model}


def _sync(path: str, folder: str | None) -> dict[str, Any]:
    from bitprint.photos import Photos
    from bitprint.photos.files import printable

    with Photos.open(path) as photos:
        with pictures_bar("encoding") as progress:
            synced = photos.sync(folder, progress=progress)
        for old, new in synced.moved:
            note(f"moved {printable(old)} to {printable(new)}")
        for name in synced.removed:
            note(f"removed {printable(name)}")
        list_skipped(synced.skipped)
        return synced._asdict() | {"held": len(photos.index), "model": photos.index.model}


def _remove(path: str, names: list[str]) -> dict[str, Any]:
    from bitprint.photos import Photos, holds_pictures
    from bitprint.search.stores import open_index

    with open_index(path) as opened:
        if holds_pictures(opened):
            removed = Photos(opened).remove(names)
        else:
            numbers = opened.ids().dtype != object and all(name.isdecimal() for name in names)
            opened.remove([int(name) for name in names] if numbers else names)
            removed = len(set(names))
        return {"removed": removed, "held": len(opened), "model": opened.model}


def _copy(path: str, target: str) -> dict[str, Any]:
    from bitprint.search.copying import copy_index

    with pictures_bar("copying and comparing") as progress:
        copied = copy_index(path, target, progress=progress)
    note(f"both hold the same, checksum {copied.checksum}")
    held = copied.new + copied.kept
    return {"new": copied.new, "unchanged": copied.kept, "held": held, "checksum": copied.checksum}


def _inspect(path: str, compact: bool) -> dict[str, Any]:
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


def _find(opened: Store, codes: Codes, k: int, label: str | None) -> list[list[dict[str, Any]]]:
    """The hits of each query: id, path, distance and labels."""
    ids, distances = opened.search(codes, k, label)
    found = []
    for names, bits in zip(ids.tolist(), distances.tolist(), strict=True):
        hits = [
            (name, distance) for name, distance in zip(names, bits, strict=True) if distance >= 0
        ]
        items = opened.items([name for name, _ in hits])
        found.append(
            [
                {"id": name, "path": item.path, "distance": distance, "labels": list(item.labels)}
                for (name, distance), item in zip(hits, items, strict=True)
            ]
        )
    return found


def _encode_query(photos: Photos, query: Path) -> Codes:
    from bitprint.data.decoding import decode_image

    return photos.encoder.encode([decode_image(query, photos.encoder.size)])


def _write_sheet(query: Path, hits: list[dict[str, Any]], sheet: Path | None, show: bool) -> None:
    from bitprint.photos.sheet import Tile, contact_sheet

    tiles = [Tile(str(query), "query")]
    tiles += [Tile(hit["path"], f"{hit['distance']} bits") for hit in hits]
    page = contact_sheet(f"Nearest to {query.name}", tiles)
    if sheet is None:
        handle, name = tempfile.mkstemp(prefix="bitprint-", suffix=".html")
        os.close(handle)
        sheet = Path(name)
    sheet.write_text(page, "utf-8")
    note(f"contact sheet in {sheet}")
    if show:
        webbrowser.open(sheet.resolve().as_uri())


def _is_codes(path: Path) -> bool:
    """Whether a file is in the format of codes: after eight bytes begins a JSON object."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


def _ids_of(file: Path, count: int) -> list[str]:
    """Read the ids that `bitprint encode` wrote beside codes."""
    beside = file.with_name(file.name + ".ids.txt")
    if not beside.is_file():
        raise FileNotFoundError(f"{beside}: no ids for the codes of {file}; one per line")
    ids = beside.read_text("utf-8", "surrogateescape").split("\n")[:-1]
    if len(ids) != count:
        raise ValueError(f"{beside}: {len(ids)} ids for {count} codes; encode the pictures again")
    return ids


def _query_names(file: Path, count: int) -> list[str]:
    """Names of queries: their ids where there are some, and numbers otherwise."""
    if file.with_name(file.name + ".ids.txt").is_file():
        return _ids_of(file, count)
    return [str(number) for number in range(count)]


def _read_names() -> list[str]:
    """Names on standard input, one per line, or separated by null characters."""
    content = typer.get_binary_stream("stdin").read()
    names = (
        content.split(b"\0") if b"\0" in content else content.replace(b"\r\n", b"\n").split(b"\n")
    )
    return [os.fsdecode(name) for name in names if name]
