"""`bitprint encode`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitprint.cli._codes import ids_beside, write_codes
from bitprint.cli._shared import (
    DataArgument,
    LabelsOption,
    counted,
    goes_on,
    items_of,
    note,
    open_set,
    progress_bar,
    tell_left_out,
    tell_unread,
)


def encode(
    run: Annotated[Path, typer.Argument(help="run folder of `bitprint train`, or coco-64")],
    name: DataArgument,
    place: Annotated[Path | None, typer.Argument(metavar="OUT", help="the same as --out")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="file for the codes, whose ids go to FILE.ids.txt; with --ray a folder"),
    ] = None,
    labels: LabelsOption = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="encode on a Ray cluster, local, auto or ray://host:10001: a folder, a list in "
            "CSV or Parquet with a column path, or an object store such as s3://bucket/photos",
        ),
    ] = None,
) -> None:
    """Turn images into codes and save them; with --ray, an interrupted command goes on."""
    target = out or place
    if target is None or (out and place):
        raise typer.BadParameter("say once where the codes go: OUT, or --out OUT")
    if ray is None:
        _encode_here(run, name, target, labels)
    elif labels is not None:
        raise typer.BadParameter("--labels is not for --ray, which takes a list of files instead")
    else:
        _encode_on_ray(run, name, target, ray)


def _encode_here(run: Path, name: str, out: Path, labels: Path | None) -> None:
    import numpy as np

    from bitprint.data import data_home, load_folder
    from bitprint.methods import load
    from bitprint.methods._store import read_about

    hasher, about = load(run), read_about(run)
    with progress_bar(f"reading {name}") as progress:
        if not Path(name).is_dir():
            images = open_set(name, labels, progress)
        else:
            size, cache = about.get("size", 256), data_home() / "decoded"
            images = load_folder(name, labels=labels, size=size, cache=cache, progress=progress)
            tell_unread(images)
    codes = hasher.encode(items_of(images, about.get("features"))(np.arange(len(images))))
    assert images.ids is not None
    write_codes(codes, images.ids, out)
    written = f"{counted(len(codes), 'code')} of {counted(codes.bits, 'bit')}"
    note(f"{written} in {out}, their ids in {ids_beside(out)}")


def _encode_on_ray(run: Path, source: str, out: Path, address: str) -> None:
    try:
        from bitprint.cluster import connect, encode_collection, read_job
    except ImportError as error:
        raise ValueError(str(error)) from error
    with goes_on(), connect(address), progress_bar("encoding") as progress:
        encoded = encode_collection(run, source, out, progress=progress)
    if encoded.partitions == 0:
        note(f"{out} was finished already")
    codes = counted(encoded.new + encoded.kept, "code")
    bits = counted(read_job(out).bits, "bit")
    note(f"{codes} of {bits} in {out}, {encoded.new} of them new")
    if encoded.failed:
        failed = out / "failed.csv"
        note(f"files without a code: {encoded.failed}, see {failed}", style="yellow")
    tell_left_out(encoded.left_out)
