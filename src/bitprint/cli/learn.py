"""`bitprint train | evaluate`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from bitprint.cli._shared import (
    DataArgument,
    DeviceOption,
    JsonOption,
    LabelsOption,
    counted,
    errors,
    note,
    open_set,
    output,
    parse_options,
    progress_bar,
    resume_hint,
    tell_unlabelled,
)

_METHOD, _DATA = "Method", "Data"
_CONVENTIONS = "Conventions of the metrics"


def train(
    name: DataArgument,
    out: Annotated[Path, typer.Option(help="output folder; run again to resume")],
    method: Annotated[
        str, typer.Option(help="see `bitprint methods`", rich_help_panel=_METHOD)
    ] = "dsdh",
    bits: Annotated[int, typer.Option(help="length of the codes", rich_help_panel=_METHOD)] = 48,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="recommended (default), paper or original settings of a deep method",
            rich_help_panel=_METHOD,
        ),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="network of a deep method", rich_help_panel=_METHOD)
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="learn from features of the images: gist, pixels, or the name of a backbone; "
            "fast without a GPU",
            rich_help_panel=_METHOD,
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="any other option of the method or its training, such as epochs=20",
            rich_help_panel=_METHOD,
        ),
    ] = None,
    protocol: Annotated[
        int | None,
        typer.Option(
            help="1 or 2 (default: 1 for built-in data, none for a folder)", rich_help_panel=_DATA
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
    from bitprint.codes import check_bits
    from bitprint.devices import pick_device
    from bitprint.methods import DeepHasher
    from bitprint.methods import method as method_class
    from bitprint.training.distributed import joined

    given: dict[str, Any] = {"seed": seed, **parse_options(options or [])}
    deep = issubclass(method_class(method), DeepHasher)
    for option, value in (("backbone", backbone), ("recipe", recipe)):
        if value is not None and not deep:
            raise ValueError(
                f"{method} has no {option}: it learns from features, without a network"
            )
        given |= {option: value} if value is not None else {}
    if deep:
        given["device"] = device
        pick_device(device)
    check_bits(bits)
    workflows.check_training(
        method, bits, features=features, protocol=protocol, out=out, **given
    )  # before loading data
    with joined(device) as workers, _only_first_logs(workers.first):
        with workers.in_turn(), progress_bar(f"reading {name}") as progress:
            images = open_set(name, labels, progress)
        data = workflows.training_images(images, method, protocol, seed)
        if isinstance(data, workflows.ImageSplit):
            known, count = data.images, len(data.rows.training)
            note(f"protocol {data.protocol}: {count} of {len(known)} images are for training")
        else:
            known, count = data, len(data)
        tell_unlabelled(len(images) - len(known))
        note(f"training {method}, {counted(bits, 'bit')}, on {counted(count, 'image')}")
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
                **given,
            )
        note(f"model saved in {out}")


@contextmanager
def _only_first_logs(first: bool) -> Iterator[None]:
    """Of several processes, only the first prints; all can raise errors."""
    errors.quiet = not first
    try:
        yield
    finally:
        errors.quiet = False


def _numbers(option: str, text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(
            f"{option} takes numbers with commas, such as 10,100; got {text!r}"
        ) from None


def evaluate(
    run: Annotated[Path, typer.Argument(help="folder of a trained model")],
    name: DataArgument,
    protocol: Annotated[
        int | None,
        typer.Option(help="1 or 2 (default: that of the training)", rich_help_panel=_DATA),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="seed of the split (default: that of the training)", rich_help_panel=_DATA
        ),
    ] = None,
    labels: LabelsOption = None,
    top: Annotated[
        str | None,
        typer.Option(
            help="cutoff of MAP, or several with commas (default: that of the protocol)",
            rich_help_panel=_CONVENTIONS,
        ),
    ] = None,
    ties: Annotated[
        str,
        typer.Option(
            help="expected, stable, optimistic or pessimistic", rich_help_panel=_CONVENTIONS
        ),
    ] = "expected",
    denominator: Annotated[
        str, typer.Option(help="retrieved, total or min", rich_help_panel=_CONVENTIONS)
    ] = "retrieved",
    empty: Annotated[
        str,
        typer.Option(
            help="queries without a relevant image: skip them, or count them as zero",
            rich_help_panel=_CONVENTIONS,
        ),
    ] = "skip",
    radius: Annotated[
        int,
        typer.Option(
            help="Hamming distance of precision within a radius", rich_help_panel=_CONVENTIONS
        ),
    ] = 2,
    graded: Annotated[
        bool,
        typer.Option(
            "--graded",
            help="also NDCG and ACG: relevance is the number of shared labels",
            rich_help_panel=_CONVENTIONS,
        ),
    ] = False,
    cutoffs: Annotated[
        str | None,
        typer.Option(
            help="N of precision@N, numbers with commas (default: 100 to 1000)",
            rich_help_panel=_CONVENTIONS,
        ),
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="folder for curves as PNG")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a model on queries that were not used in training."""
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
        numbers = _numbers("--top", top)
        conventions["top"] = numbers if "," in top else numbers[0]
    if cutoffs is not None:
        conventions["cutoffs"] = _numbers("--cutoffs", cutoffs)
    check_conventions(**conventions)  # before loading data
    if protocol is not None:
        check_protocol(protocol)
    with progress_bar(f"reading {name}") as progress:
        images = open_set(name, labels, progress)
    workflows.check_labelled(images)
    tell_unlabelled(len(images) - len(images.labelled()))
    seed = about.get("seed", 0) if seed is None else seed
    protocol = about.get("protocol") or 1 if protocol is None else protocol
    split = workflows.split(images, protocol, seed)
    workflows.check_unseen(about, split, name)
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
