"""`bitprint train | evaluate`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitprint.cli._shared import (
    NAMED,
    DataArgument,
    DeviceOption,
    JsonOption,
    LabelsOption,
    counted,
    errors,
    goes_on,
    items_of,
    note,
    only_labelled,
    open_set,
    output,
    parse_options,
    progress_bar,
)

if TYPE_CHECKING:
    from bitprint.data import Split
    from bitprint.methods import Hasher


def train(
    name: DataArgument,
    out: Annotated[Path, typer.Option(help="run folder; an interrupted run in it goes on")],
    method: Annotated[str, typer.Option(help="see `bitprint methods`")] = "dsdh",
    bits: Annotated[int, typer.Option(help="length of the codes")] = 48,
    backbone: Annotated[str | None, typer.Option(help="network of a deep method")] = None,
    features: Annotated[
        str | None,
        typer.Option(help="learn from gist, pixels, or the features of the network of this name"),
    ] = None,
    protocol: Annotated[
        int | None,
        typer.Option(help="setting 1 or 2; by default 1, and all images of a folder of yours"),
    ] = None,
    seed: Annotated[int, typer.Option(help="seed of the split and of training")] = 0,
    labels: LabelsOption = None,
    device: DeviceOption = "auto",
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="any option of the method, such as eta=1"),
    ] = None,
) -> None:
    """Train a method on images and save the model in a run folder.

    A deep method is trained by several processes, one for each GPU, with
    `torchrun --nproc-per-node 2 -m bitprint train ...`.
    """
    from bitprint.codes import check_bits
    from bitprint.devices import pick_device
    from bitprint.features import width
    from bitprint.methods import DeepHasher, FeatureHasher, create
    from bitprint.supervision import check_several_classes
    from bitprint.training.distributed import joined

    with joined(device) as workers, _one_voice(workers.first):
        given = _given(method, device, backbone, seed, options)
        # Wrong options are told before a long read.
        hasher = create(method, bits, **given)
        check_bits(bits)
        if isinstance(hasher, DeepHasher):
            pick_device(device)
        elif workers.size > 1:
            raise ValueError(f"{method} learns in one process: start it without torchrun")
        with workers.in_turn():
            with progress_bar(f"reading {name}") as progress:
                images = open_set(name, labels, progress)
            if hasher.supervision == "labels":
                _check_labelled(images, name)
                images = only_labelled(images)
                check_several_classes(images.labels)
            rows, about = _training_rows(name, images, features, protocol, seed)
            _check_free(out, hasher, about)
            if isinstance(hasher, FeatureHasher):
                hasher.check_width(width(images, features or "pixels"))
            training = items_of(images, features)(rows)
            its_labels = images.subset(rows).labels
        length, count = counted(bits, "bit"), counted(len(training), "image")
        note(f"training {method}, {length}, on {count}")
        if isinstance(hasher, DeepHasher):
            with goes_on():
                hasher.fit(training, its_labels, run=out, progress=True, about=about)
        else:
            hasher.fit(training, its_labels)
            hasher.save(out, **about)
        note(f"model saved in {out}")


@contextmanager
def _one_voice(first: bool) -> Iterator[None]:
    """Of several processes, let only the first report; all may fail aloud."""
    errors.quiet = not first
    try:
        yield
    finally:
        errors.quiet = False


def _given(
    method: str, device: str, backbone: str | None, seed: int, options: list[str] | None
) -> dict[str, Any]:
    """Options of the hasher that the options of `train` name."""
    from bitprint.methods import DeepHasher
    from bitprint.methods import method as method_class

    given: dict[str, Any] = {"seed": seed, **parse_options(options or [])}
    deep = issubclass(method_class(method), DeepHasher)
    if backbone and not deep:
        raise ValueError(f"{method} has no backbone: it learns from features")
    if deep:
        given |= {"device": device} | ({"backbone": backbone} if backbone else {})
    return given


def _ranks(text: str) -> list[int]:
    try:
        return [int(rank) for rank in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--cutoffs takes numbers with commas, such as 10,100; got {text!r}"
        ) from None


def _check_labelled(images: Any, name: str) -> None:
    """Where no image has a label, say how they are given."""
    if images.labels is None:
        raise ValueError(
            f"{name}: its images have no labels; put those of each class into a sub-folder, "
            "or give a CSV file with the columns file and label as --labels"
        )


def _training_rows(
    name: str, images: Any, features: str | None, protocol: int | None, seed: int
) -> tuple[Any, dict[str, Any]]:
    """Which images to train on, and what `model.json` is to say of them."""
    import numpy as np

    from bitprint.data import split_for

    rows = np.arange(len(images))
    about: dict[str, Any] = {
        "data": name,
        "protocol": None,
        "features": features,
        "size": images.size[0],
    }
    if protocol is not None or name in NAMED or images.split is not None:
        protocol = 1 if protocol is None else protocol
        split = split_for(images, protocol, seed)
        rows = split.training
        if len(rows) < len(images):
            note(f"the split leaves {len(rows)} of {len(images)} images to train on")
        about |= {"protocol": protocol, "seed": seed, "split": split.fingerprint}
    about |= {"images": images.fingerprint(), "trained_on": _digest(images.ids[rows])}
    return rows, about


def _check_free(out: Path, hasher: Hasher, about: dict[str, Any]) -> None:
    """Raise a ValueError where a run folder holds another run than this one.

    What a deep method has begun there, `fit` compares itself.
    """
    from bitprint.methods import DeepHasher
    from bitprint.methods._store import read_description
    from bitprint.training.run import holds_checkpoint, other_run

    if holds_checkpoint(out):
        if not isinstance(hasher, DeepHasher):
            raise other_run(out)
    elif (out / "model.json").is_file():
        found = read_description(out)
        mine = {"method": hasher.name, "options": hasher._options(), "about": about}
        if _identity(found) != _identity(json.loads(json.dumps(mine))):
            raise other_run(out)


def _identity(model: dict[str, Any]) -> tuple[Any, ...]:
    """What of a `model.json` tells runs apart: not how its folder is spelt, nor the device."""
    options, about = model.get("options") or {}, model.get("about") or {}
    return (
        model.get("method"),
        {name: value for name, value in options.items() if name != "device"},
        {name: value for name, value in about.items() if name != "data"},
    )


def evaluate(
    run: Annotated[Path, typer.Argument(help="run folder of `bitprint train`")],
    name: DataArgument,
    protocol: Annotated[int | None, typer.Option(help="setting; by default the run's")] = None,
    seed: Annotated[
        int | None, typer.Option(help="seed of the split; by default the run's")
    ] = None,
    top: Annotated[
        int | None, typer.Option(help="MAP@top; by default as the protocol says")
    ] = None,
    ties: Annotated[
        str, typer.Option(help="expected, stable, optimistic or pessimistic")
    ] = "expected",
    denominator: Annotated[str, typer.Option(help="retrieved, total or min")] = "retrieved",
    empty: Annotated[
        str, typer.Option(help="skip queries without a relevant item, or count them as zero")
    ] = "skip",
    radius: Annotated[int, typer.Option(help="Hamming distance to measure precision within")] = 2,
    cutoffs: Annotated[
        str | None,
        typer.Option(help="N of precision@N, numbers with commas; 100 to 1000 by default"),
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="folder for curves as PNG")] = None,
    labels: LabelsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a model on the queries of a protocol, which it has not been trained on."""
    from bitprint.data import split_for
    from bitprint.evaluation import evaluate as measure
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
    if cutoffs is not None:
        conventions["cutoffs"] = _ranks(cutoffs)
    check_conventions(top=top, **conventions)  # before a long read
    with progress_bar(f"reading {name}") as progress:
        whole = open_set(name, labels, progress)
    _check_labelled(whole, name)
    images = only_labelled(whole)
    seed = about.get("seed", 0) if seed is None else seed
    protocol = about.get("protocol") or 1 if protocol is None else protocol
    split = split_for(images, protocol, seed)
    # Methods without labels have learned from all images; the queries of both splits are the same.
    splits = [(images, split), (whole, split_for(whole, protocol, seed))]
    same_set = any(_is_same_set(about, name, some) for some, _ in splits)
    if same_set and not any(_is_same_training(about, *both) for both in splits):
        raise ValueError(
            f"{run} was trained on other images of {name} than this split has, queries among them; "
            "train with --protocol, and evaluate with the same --protocol and --seed, as long as "
            "no picture is added, removed or renamed"
        )
    hasher, items = load(run), items_of(images, about.get("features"))
    report = measure(
        hasher.encode_queries(items(split.queries)),
        images.labels[split.queries],
        hasher.encode(items(split.database)),
        images.labels[split.database],
        top=split.map_at if top is None else top,
        **conventions,
    )
    if plots:
        plot_reports({hasher.name: report}, plots)
    if as_json:
        output.print_json(data=report.as_dict() | {"split": split.fingerprint})
    else:
        output.print(report.summary(), highlight=False)


def _digest(ids: Any) -> str:
    """Tell parts of one set of images apart, by names."""
    return hashlib.sha256("\n".join(ids).encode("utf-8", "surrogatepass")).hexdigest()


def _is_same_set(about: dict[str, Any], name: str, images: Any) -> bool:
    """Whether a model was trained on these images: as they are, or in the same place."""
    if about.get("images") == images.fingerprint():
        return True
    place = about.get("data")
    if place is None or name in NAMED or place in NAMED:
        return bool(place == name)
    return Path(place).resolve() == Path(name).resolve()


def _is_same_training(about: dict[str, Any], images: Any, split: Split) -> bool:
    """Whether a model was trained on the training images of a split."""
    if "trained_on" in about:
        return bool(about["trained_on"] == _digest(images.ids[split.training]))
    return bool(about.get("split") == split.fingerprint)
