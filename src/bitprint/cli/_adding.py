"""Implementation of `bitprint index add`: add images, a codes file, or codes of a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bitprint.cli._codes import is_codes, read_ids
from bitprint.cli._shared import counted, list_skipped, note, progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bitprint.photos import Chosen, Photos
    from bitprint.photos.files import Listing, Source

# Copies of the values in `bitprint.photos.choosing`, which is slow to import.
BITS, FEW = 256, 500

_PARTITIONED = "_listing.parquet"  # present in output folders of `bitprint encode --ray`


def add(path: str, names: list[str], model: Path | None, bits: int | None) -> dict[str, Any]:
    """Add images or codes to an index; return the counts.

    `names` are files and folders; "-" stands for the names on standard input.
    """
    from bitprint.photos.files import named

    for name in names:
        named(name)
        if len(names) > 1 and (is_codes(Path(name)) or _is_partitioned(name)):
            raise typer.BadParameter(f"{name} contains codes; add it in a separate command")
    name = names[0]
    if is_codes(Path(name)):
        if model is not None or bits is not None:
            raise typer.BadParameter("--model and --bits apply to images, not to codes")
        return _add_codes(path, Path(name))
    if _is_partitioned(name):
        if bits is not None:
            raise typer.BadParameter("--bits applies to images, not to codes")
        return _add_partitions(path, name, model)
    sources = [_read_names() if name == "-" else name for name in dict.fromkeys(names)]
    return _add_images(path, sources, model, bits)


def _is_partitioned(name: str) -> bool:
    return (Path(name) / _PARTITIONED).is_file()


def _add_images(
    path: str, sources: Sequence[Source], model: Path | None, bits: int | None
) -> dict[str, Any]:
    from bitprint.utils.lazy import import_on_use

    import_on_use("scipy.stats", "pandas")  # scikit-learn imports them, which takes a second
    from bitprint.photos import Photos

    _check_one_of(model, bits)
    to_add: Sequence[Source | Listing] = sources
    with Photos.open_or_create(path, model=model, bits=bits) as photos:
        with progress_bar("learning") as progress:
            chosen = photos.choose_model(*sources, progress=progress)
        if chosen is not None:
            _note_model(chosen)
            to_add = [chosen.listing]
        with progress_bar("encoding") as progress:
            added = photos.add(*to_add, progress=progress)
        list_skipped(added.skipped)
        _note_unlabeled(sources)
        if added.new and photos.has_outgrown_model():
            _note_outgrown(photos)
        return added._asdict() | {"held": len(photos), "model": photos.index.model}


def rebuild(path: str, model: Path | None, bits: int | None) -> dict[str, Any]:
    """Encode all images of an index again; return the counts."""
    from bitprint.photos import Photos
    from bitprint.photos.rebuilding import rebuild

    _check_one_of(model, bits)
    with progress_bar("learning") as learning, progress_bar("encoding") as progress:
        added = rebuild(
            path,
            model=model,
            bits=bits,
            learning=learning,
            progress=progress,
            on_choice=_note_model,
        )
    list_skipped(added.skipped)
    with Photos.open(path) as photos:
        return added._asdict() | {"held": len(photos), "model": photos.index.model}


def _check_one_of(model: Path | None, bits: int | None) -> None:
    if model is not None and bits is not None:
        raise typer.BadParameter("give --model or --bits, not both: the model sets the bits")


def _note_model(chosen: Chosen) -> None:
    images = counted(chosen.images, "image")
    if chosen.origin == "ready-made":
        note(
            f"{images}: too few to learn a model, using photos-256 (with --bits a model is learned)"
        )
    elif chosen.origin == "learned":
        note(f"learned a model from {images} without labels")


def _note_unlabeled(sources: Sequence[Source]) -> None:
    """Print the CSV files without a label column, whose labels may have another name."""
    from bitprint.data.label_csv import has_label_column

    for source in sources:
        if isinstance(source, str) and source.lower().endswith(".csv"):
            path = Path(source)
            if path.is_file() and not has_label_column(path):
                note(f"{source}: no column named label, so its images get no labels")


def _note_outgrown(photos: Photos) -> None:
    learned_from = counted(photos.encoder.pictures or 0, "image")
    note(
        f"the model of this index was learned from {learned_from}, too few for its "
        f"{len(photos)} images; `bitprint index rebuild` learns a model from all of them"
    )


def _add_codes(path: str, file: Path) -> dict[str, Any]:
    from bitprint.codes import Codes
    from bitprint.search.stores import index_exists, open_index

    codes = Codes.load(file)
    exists = index_exists(path)
    with open_index(path) if exists else open_index(path, bits=codes.bits, create=True) as opened:
        if opened.model is not None:
            raise ValueError(
                f"{opened.path}: the codes in this index are from {opened.model}, but {file} does "
                "not record its model; add images, or create another index"
            )
        opened.add(read_ids(file, len(codes)), codes)
        return {"new": len(codes), "held": len(opened), "model": None}


def _add_partitions(path: str, folder: str, model: Path | None) -> dict[str, Any]:
    """Add the output of `bitprint encode --ray`; given the model, the index can search images."""
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
            raise ValueError(
                f"{folder}: its codes are from {job.model}, not from {encoder.identity}"
            )
        opened = Photos.create(path, encoder).index
    new = 0
    with opened, progress_bar("adding") as progress:
        for part in read_codes(folder):
            opened.add(*part)
            new += len(part.codes)
            progress(new, job.pictures)
        return {"new": new, "held": len(opened), "model": opened.model}


def _read_names() -> list[str]:
    """Read names from standard input, separated by line breaks or null characters."""
    content = typer.get_binary_stream("stdin").read()
    names = (
        content.split(b"\0") if b"\0" in content else content.replace(b"\r\n", b"\n").split(b"\n")
    )
    return [os.fsdecode(name) for name in names if name]
