"""What `bitprint index add` does: add pictures, codes of a file, or codes of a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bitprint.cli._codes import is_codes, read_ids
from bitprint.cli._shared import counted, list_skipped, note, progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bitprint.photos import Photos
    from bitprint.photos.files import Listing, Source

BITS = 64
"""Length of the codes of an index whose model is learned, unless it is said."""

FEW = 100
"""With fewer pictures than this a new index has the model that comes with Bitprint."""

_READY_MADE = Path("coco-64")

_PARTITIONED = "_listing.parquet"  # which a folder of `bitprint encode --ray` holds


def add(path: str, names: list[str], model: Path | None, bits: int | None) -> dict[str, Any]:
    """Add what has a name, or is named on standard input, to an index; say what became of it."""
    from bitprint.photos.files import named

    for name in names:
        named(name)
        if len(names) > 1 and (is_codes(Path(name)) or _is_partitioned(name)):
            raise typer.BadParameter(f"{name} holds codes, which are added by themselves")
    name = names[0]
    if is_codes(Path(name)):
        if model is not None or bits is not None:
            raise typer.BadParameter("--model and --bits are for pictures, not for codes")
        return _add_codes(path, Path(name))
    if _is_partitioned(name):
        if bits is not None:
            raise typer.BadParameter("--bits is for pictures, not for codes")
        return _add_partitions(path, name, model)
    sources = [_read_names() if name == "-" else name for name in dict.fromkeys(names)]
    return _add_pictures(path, sources, model, bits)


def _is_partitioned(name: str) -> bool:
    return (Path(name) / _PARTITIONED).is_file()


def _add_pictures(
    path: str, sources: Sequence[Source], model: Path | None, bits: int | None
) -> dict[str, Any]:
    from bitprint.photos.sources import list_for_new
    from bitprint.search.stores import index_exists

    to_add: Sequence[Source | Listing] = sources
    if index_exists(path):
        photos = _open(path, model, bits)
    else:
        if model is not None and bits is not None:
            raise typer.BadParameter("--bits is for an index without --model, which has its own")
        listing = list_for_new(sources)
        photos = _create(path, listing, model, bits)
        to_add = [listing]
    with photos:
        with progress_bar("encoding") as progress:
            added = photos.add(*to_add, progress=progress)
        list_skipped(added.skipped)
        _mind_unlabelled(sources)
        if added.new:
            _mind_few(photos)
        return added._asdict() | {"held": len(photos.index), "model": photos.index.model}


def _mind_unlabelled(sources: Sequence[Source]) -> None:
    """Say of which lists there is no column of labels: it may have another name."""
    from bitprint.data.label_csv import has_label_column

    for source in sources:
        if isinstance(source, str) and source.lower().endswith(".csv"):
            path = Path(source)
            if path.is_file() and not has_label_column(path):
                note(f"{source}: has no column label, and gives pictures none")


def _mind_few(photos: Photos) -> None:
    """Say so when a model that was learned from few pictures makes the codes of many."""
    encoder, held = photos.encoder, len(photos.index)
    if encoder.hasher.name == "itq" and encoder.pictures and encoder.pictures < FEW <= held:
        note(
            f"the model of this index was learned from {counted(encoder.pictures, 'picture')}, too "
            f"few for the {held} it holds now; a new index would learn from all of them"
        )


def _open(path: str, model: Path | None, bits: int | None) -> Photos:
    from bitprint.photos import Photos
    from bitprint.search.closing import on_error
    from bitprint.search.stores import open_index

    index = open_index(path, bits=bits)
    with on_error(index.close):
        photos = Photos(index)
        if model is not None:
            photos.check_model(model)
    return photos


def _create(path: str, listing: Listing, model: Path | None, bits: int | None) -> Photos:
    from bitprint.photos import Photos
    from bitprint.photos.encoder import Encoder

    held = len(listing.pictures)
    if model is None and bits is None and held < FEW:
        note(
            f"{counted(held, 'picture')}, too few to learn from: codes are by {_READY_MADE}, "
            "unless --bits asks for a model of their own"
        )
        model = _READY_MADE
    if model is None:
        with progress_bar("learning") as progress:
            photos = Photos.learn(path, listing, bits=bits or BITS, progress=progress)
        note(f"learned from {counted(photos.encoder.pictures or 0, 'picture')} without labels")
        return photos
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
        opened.add(read_ids(file, len(codes)), codes)
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
    with opened, progress_bar("adding") as progress:
        for part in read_codes(folder):
            opened.add(*part)
            new += len(part.codes)
            progress(new, job.pictures)
        return {"new": new, "held": len(opened), "model": opened.model}


def _read_names() -> list[str]:
    """Names on standard input, one per line, or separated by null characters."""
    content = typer.get_binary_stream("stdin").read()
    names = (
        content.split(b"\0") if b"\0" in content else content.replace(b"\r\n", b"\n").split(b"\n")
    )
    return [os.fsdecode(name) for name in names if name]
