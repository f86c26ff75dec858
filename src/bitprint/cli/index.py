"""`bitprint index`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from bitprint.cli._adding import BITS, add
from bitprint.cli._printing import print_about
from bitprint.cli._shared import (
    IndexArgument,
    JsonOption,
    goes_on,
    list_skipped,
    note,
    progress_bar,
)


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
            help="add: folders, files, a CSV with a column file, what `bitprint encode` has "
            "written, or - for names on standard input; sync: folders; remove: files, folders or "
            "ids; copy: a new index file, or address of a store"
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="run folder of `bitprint train`, or coco-64, which comes with Bitprint; by "
            "default ITQ learns from the folder"
        ),
    ] = None,
    bits: Annotated[
        int | None, typer.Option(min=1, help=f"length of the codes of a new index; {BITS}")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Keep an index of pictures, or of codes; an interrupted command goes on when run again."""
    given = names or []
    if path == Action.copy and action not in list(Action):
        path, action = action, path
    if action not in list(Action):
        raise typer.BadParameter(f"{action!r} is not one of {', '.join(Action)}")
    _check_count(action, given)
    if (model is not None or bits is not None) and action != Action.add:
        raise typer.BadParameter("--model and --bits are for add")
    with goes_on():
        if action == Action.add:
            about = add(path, given, model, bits)
        elif action == Action.sync:
            about = _sync(path, given)
        elif action == Action.remove:
            about = _remove(path, given)
        elif action == Action.copy:
            about = _copy(path, given[0])
        else:
            about = _inspect(path, compact=action == Action.compact)
    print_about(about, as_json)


def _check_count(action: str, given: list[str]) -> None:
    """Refuse too few or too many names, each action with the sentence that fits."""
    if action == Action.copy and len(given) != 1:
        raise typer.BadParameter(
            "copy takes an index and one place for the copy: bitprint index copy FROM TO"
        )
    if action in (Action.add, Action.remove) and not given:
        raise typer.BadParameter(f"{action} takes names of what to {action}, got none")
    if action in (Action.info, Action.compact) and given:
        raise typer.BadParameter(f"{action} takes no names besides the index, got {given[0]}")


def _sync(path: str, folders: list[str]) -> dict[str, Any]:
    from bitprint.photos import Photos
    from bitprint.photos.files import printable

    with Photos.open(path) as photos:
        with progress_bar("encoding") as progress:
            synced = photos.sync(*folders, progress=progress)
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

    with progress_bar("copying and comparing") as progress:
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
