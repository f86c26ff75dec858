"""`bitprint train | evaluate`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitprint.cli._shared import (
    OUTPUT,
    DataArgument,
    DeviceOption,
    JsonOption,
    LabelsOption,
    counted,
    errors,
    note,
    note_unlabeled,
    open_set,
    output,
    parse_numbers,
    parse_options,
    progress_bar,
    resume_hint,
)

if TYPE_CHECKING:
    from bitprint.data import ImageSet
    from bitprint.workflows import ImageSplit

_METHOD, _DATA, _METRICS = "Method", "Data", "Metrics"


def train(
    name: DataArgument,
    out: Annotated[Path, typer.Option(help="output folder; run again to resume")],
    method: Annotated[
        str,
        typer.Option(help="method, see `bitprint methods`", rich_help_panel=_METHOD),
    ] = "dsdh",
    bits: Annotated[int, typer.Option(help="code length", rich_help_panel=_METHOD)] = 48,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="settings of a deep method: recommended (default), paper or original",
            rich_help_panel=_METHOD,
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="network of a deep method (default: efficientnet-lite0; small for tiny images)",
            rich_help_panel=_METHOD,
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="train on features of the images: gist, pixels, or the name of a backbone; "
            "fast without a GPU",
            rich_help_panel=_METHOD,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="another option of the method or of training, such as epochs=20; can be repeated",
            rich_help_panel=_METHOD,
        ),
    ] = None,
    protocol: Annotated[
        int | None,
        typer.Option(
            help="hold out queries and train on a small part (1) or all (2) of the other images "
            "(default: 1 for built-in data; a folder is not split)",
            rich_help_panel=_DATA,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="seed of the split and of training", rich_help_panel=_DATA)
    ] = 0,
    labels: LabelsOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Train a method on images and save the model in a folder.

    To train on several GPUs, run `torchrun --nproc-per-node 2 -m bitprint train ...`.
    """
    from bitprint import workflows
    from bitprint.training.distributed import joined

    options = _method_options(
        method, changes, seed=seed, device=device, backbone=backbone, recipe=recipe
    )
    workflows.check_training(method, bits, features=features, protocol=protocol, out=out, **options)
    with joined(device) as workers, _only_first_prints(workers.first):
        with workers.in_turn(), progress_bar(f"reading {name}") as progress:
            images = open_set(name, labels, progress)
        data = workflows.training_images(images, method, protocol, seed)
        _note_training_set(images, data, method, bits)
        with resume_hint(), progress_bar(f"computing {features}") as progress:
            workflows.train(
                data,
                bits=bits,
                method=method,
                features=features,
                out=out,
                note=note,
                feature_progress=progress,
                name=name,
                **options,
            )
        note(f"model saved in {out}")


def _method_options(
    method: str, changes: list[str] | None, *, seed: int, device: str, **given: Any
) -> dict[str, Any]:
    """Return the options of a method; only deep methods have a device."""
    from bitprint.methods import DeepHasher
    from bitprint.methods import method as method_class

    options = {"seed": seed, **parse_options(changes or [])}
    options |= {name: value for name, value in given.items() if value is not None}
    return options | ({"device": device} if issubclass(method_class(method), DeepHasher) else {})


def _note_training_set(
    images: ImageSet, data: ImageSplit | ImageSet, method: str, bits: int
) -> None:
    """Print how many images are used for training, and how many are left out."""
    from bitprint.workflows import ImageSplit

    if isinstance(data, ImageSplit):
        used, count = data.images, len(data.rows.training)
        note(f"protocol {data.protocol}: training on {count} of {len(used)} images")
    else:
        used, count = data, len(data)
    note_unlabeled(len(images) - len(used))
    note(f"training {method}, {counted(bits, 'bit')}, on {counted(count, 'image')}")


@contextmanager
def _only_first_prints(first: bool) -> Iterator[None]:
    """Silence the notes of all processes except the first; every process can raise errors."""
    errors.quiet = not first
    try:
        yield
    finally:
        errors.quiet = False


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="output folder of `bitprint train`")],
    name: DataArgument,
    protocol: Annotated[
        int | None,
        typer.Option(
            help="1 or 2 (default: as in training; 1 if training used none)", rich_help_panel=_DATA
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="seed of the split (default: as in training)", rich_help_panel=_DATA),
    ] = None,
    labels: LabelsOption = None,
    top: Annotated[
        str | None,
        typer.Option(
            help="cutoff of MAP, or several, comma-separated (default: cutoff of the protocol)",
            rich_help_panel=_METRICS,
        ),
    ] = None,
    ties: Annotated[
        str,
        typer.Option(
            help="order of images at equal distance: expected (mean over all orders), stable, "
            "optimistic or pessimistic",
            rich_help_panel=_METRICS,
        ),
    ] = "expected",
    denominator: Annotated[
        str,
        typer.Option(
            help="average precision is divided by the number of relevant images above the cutoff "
            "(retrieved), in the database (total), or the smaller of total and the cutoff (min)",
            rich_help_panel=_METRICS,
        ),
    ] = "retrieved",
    empty: Annotated[
        str,
        typer.Option(
            help="queries without a relevant image: leave out (skip), or score 0 (zero)",
            rich_help_panel=_METRICS,
        ),
    ] = "skip",
    radius: Annotated[
        int,
        typer.Option(help="Hamming radius of precision within a radius", rich_help_panel=_METRICS),
    ] = 2,
    graded: Annotated[
        bool,
        typer.Option(
            "--graded",
            help="also compute NDCG and ACG, where relevance is the number of shared labels",
            rich_help_panel=_METRICS,
        ),
    ] = False,
    cutoffs: Annotated[
        str | None,
        typer.Option(
            help="values of N for precision@N, comma-separated (default: 100,200,...,1000)",
            rich_help_panel=_METRICS,
        ),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(help="write plots (PNG) to this folder", rich_help_panel=OUTPUT)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a model on queries that were not used in training."""
    from bitprint import workflows
    from bitprint.data.protocols import check_protocol
    from bitprint.evaluation.metrics import check_conventions
    from bitprint.evaluation.plots import plot_reports
    from bitprint.methods import load
    from bitprint.methods._store import read_about

    about = read_about(run)
    conventions: dict[str, Any] = {
        "ties": ties,
        "denominator": denominator,
        "empty": empty,
        "radius": radius,
    }
    if top is not None:
        numbers = parse_numbers("--top", top)
        conventions["top"] = numbers if "," in top else numbers[0]
    if cutoffs is not None:
        conventions["cutoffs"] = parse_numbers("--cutoffs", cutoffs)
    check_conventions(**conventions)  # before loading data
    if protocol is not None:
        check_protocol(protocol)
    with progress_bar(f"reading {name}") as progress:
        images = open_set(name, labels, progress)
    split = workflows.evaluation_split(images, about, protocol=protocol, seed=seed, name=name)
    note_unlabeled(len(images) - len(split.images))
    hasher = load(run)
    with progress_bar(f"computing {about.get('features')}") as progress:
        report = workflows.evaluate_split(
            hasher, split, graded=graded, feature_progress=progress, **conventions
        )
    if plots:
        plot_reports({hasher.name: report}, plots)
    if as_json:
        output.print_json(data=report.as_dict() | {"split": split.rows.fingerprint})
    else:
        output.print(report.summary(), highlight=False)
