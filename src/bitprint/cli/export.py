"""`bitprint export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitprint.cli._shared import JsonOption, note, output


def export(
    run: Annotated[
        Path, typer.Argument(help="run folder of `bitprint train`, coco-64, or an index file")
    ],
    to: Annotated[str, typer.Option(help="the format: onnx")] = "onnx",
    out: Annotated[Path | None, typer.Option(help="file to write; by default RUN.onnx")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a model in a format that other programs run, and compare its codes with ours."""
    if to != "onnx":
        raise typer.BadParameter(f"models are exported to onnx, not to {to!r}")
    from bitprint.export import export_onnx
    from bitprint.photos import Photos
    from bitprint.photos.encoder import Encoder

    if run.is_file():
        with Photos.open(run) as photos:
            encoder = photos.encoder
    else:
        encoder = Encoder.load(run)
    out = out or run.with_name(run.name + ".onnx")
    checked = export_onnx(encoder, out)
    if as_json:
        about = {"file": str(out), "model": encoder.identity, "size": encoder.size}
        output.print_json(data=about | checked._asdict())
        return
    compared = (
        f"on random pictures {checked.different} of {checked.bits} bits differ from ours; "
        f"{checked.near_zero} are of outputs within 1e-4 of zero"
    )
    note(f"{out}: {encoder.describe()}\n{compared}")
