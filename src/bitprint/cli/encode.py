"""`bitprint encode`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitprint.cli._codes import ids_file, write_codes
from bitprint.cli._shared import (
    OUTPUT,
    DataArgument,
    JsonOption,
    LabelsOption,
    counted,
    items_of,
    note,
    note_left_out,
    open_set,
    output,
    progress_bar,
    resume_hint,
)


def encode(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="output folder of `bitprint train`, or coco-64")
    ],
    name: DataArgument,
    out_path: Annotated[Path | None, typer.Argument(metavar="OUT", help="same as --out")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="output file; ids are written to OUT.ids.txt (with --ray: output folder)",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    labels: LabelsOption = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="encode on a Ray cluster: local, auto or ray://host:10001; DATA is then a folder, "
            "a CSV or Parquet file with a column named path, or an object store such as "
            "s3://bucket/photos",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Encode images with a trained model and save the codes.

    To resume an interrupted command with --ray, run it again.
    """
    target = out or out_path
    if target is None or (out and out_path):
        raise typer.BadParameter("give the output file once, as OUT or as --out")
    if ray is not None and labels is not None:
        raise typer.BadParameter("--labels cannot be used with --ray")
    if ray is None:
        about = _encode_here(run, name, target, labels)
    else:
        about = _encode_on_ray(run, name, target, ray)
    if as_json:
        output.print_json(data={"out": str(target)} | about, ensure_ascii=True)


def _encode_here(run: Path, name: str, out: Path, labels: Path | None) -> dict[str, int]:
    import numpy as np

    from bitprint.methods import load
    from bitprint.methods._store import read_about

    hasher, about = load(run), read_about(run)
    with progress_bar(f"reading {name}") as progress:
        images = open_set(name, labels, progress, size=about.get("size", 256))
    codes = hasher.encode(items_of(images, about.get("features"))(np.arange(len(images))))
    assert images.ids is not None
    write_codes(codes, images.ids, out)
    written = f"{counted(len(codes), 'code')} of {counted(codes.bits, 'bit')}"
    note(f"wrote {written} to {out} and their ids to {ids_file(out)}")
    return {"codes": len(codes), "bits": codes.bits}


def _encode_on_ray(run: Path, source: str, out: Path, address: str) -> dict[str, int]:
    try:
        from bitprint.cluster import connect, encode_collection, read_job
    except ImportError as error:
        raise ValueError(str(error)) from error
    with resume_hint(), connect(address), progress_bar("encoding") as progress:
        encoded = encode_collection(run, source, out, progress=progress)
    if encoded.partitions == 0:
        note(f"{out} is already complete")
    count, bits = encoded.new + encoded.kept, read_job(out).bits
    written = f"{counted(count, 'code')} of {counted(bits, 'bit')}"
    note(f"{out} contains {written}, {encoded.new} of them new")
    if encoded.failed:
        failed = out / "failed.csv"
        note(f"{counted(encoded.failed, 'file')} not encoded, see {failed}", style="yellow")
    note_left_out(encoded.left_out)
    return {"codes": count, "bits": bits, "new": encoded.new, "failed": encoded.failed}
