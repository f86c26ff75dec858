"""`bitprint export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitprint.cli._shared import OUTPUT, JsonOption, note, output


def export(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="output folder of `bitprint train`, coco-64, or an index file"
        ),
    ],
    to: Annotated[str, typer.Option(help="file format: onnx", rich_help_panel=OUTPUT)] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(help="file to write (default: RUN.onnx)", rich_help_panel=OUTPUT),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Export a model to ONNX and check that its codes are the same as in Bitprint."""
    if to != "onnx":
        raise typer.BadParameter(f"unknown format {to!r}; choose onnx")
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
        f"on random images {checked.different} of {checked.bits} bits differ from Bitprint; "
        f"{checked.near_zero} bits have outputs within 1e-4 of zero"
    )
    note(f"{out}: {encoder.describe()}\n{compared}")
