"""`bitprint vectors learn | add | search`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitprint.cli._printing import print_about
from bitprint.cli._shared import (
    TRAINING,
    JsonOption,
    note,
    output,
    progress_bar,
    resume_hint,
    say,
)
from bitprint.utils.text import printable

if TYPE_CHECKING:
    from bitprint.vectors import Source, VectorIndex

app = typer.Typer(
    no_args_is_help=True,
    help="Compress vectors of any model, such as embeddings of texts, and search them. `bitprint "
    "index info | remove | compact | copy | export` also accept these indexes.",
)

_BITS, _METRIC, _KEEP = 256, "cosine", "int8"  # as in `bitprint.vectors`, which is slow to import
_NONE = "none"

FileArgument = Annotated[str, typer.Argument(metavar="INDEX", help="index file such as docs.bp")]
VectorsArgument = Annotated[
    list[Path],
    typer.Argument(metavar="VECTORS", help=".npy, .parquet or .safetensors files"),
]
ColumnOption = Annotated[
    str | None,
    typer.Option(help="Parquet column or tensor of the vectors; needed if there are several"),
]
BitsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help=f"code length of a new index (default: {_BITS})",
        rich_help_panel=TRAINING,
        show_default=False,
    ),
]
MetricOption = Annotated[
    str | None,
    typer.Option(
        help="similarity of a new index: cosine, ip (inner product) or l2 (Euclidean distance) "
        f"(default: {_METRIC})",
        rich_help_panel=TRAINING,
        show_default=False,
    ),
]
KeepOption = Annotated[
    str | None,
    typer.Option(
        help="how a new index stores vectors, for ranking the best candidates: int8, float16 or "
        f"none (default: {_KEEP})",
        rich_help_panel=TRAINING,
        show_default=False,
    ),
]
MethodOption = Annotated[
    str | None,
    typer.Option(
        help="method of a new index, see `bitprint methods` (default: itq, or sblsh if there are "
        "more bits than dimensions)",
        rich_help_panel=TRAINING,
        show_default=False,
    ),
]


@app.command()
def learn(
    index: FileArgument,
    vectors: VectorsArgument,
    bits: BitsOption = None,
    metric: MetricOption = None,
    keep: KeepOption = None,
    method: MethodOption = None,
    column: ColumnOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an index with a model learned from a random sample of vectors, without adding them."""
    from bitprint.vectors import open_vectors

    source = open_vectors(*vectors, column=column)
    with _learn(index, source, bits, metric, keep, method) as learned:
        about = _about(learned)
    _print(learned, about, as_json)


@app.command()
def add(
    index: FileArgument,
    vectors: VectorsArgument,
    ids: Annotated[
        Path | None,
        typer.Option(
            help="ids of the vectors: text with one per line, or .npy (default: row numbers)"
        ),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="Parquet column of the ids", show_default=False)
    ] = None,
    column: ColumnOption = None,
    bits: BitsOption = None,
    metric: MetricOption = None,
    keep: KeepOption = None,
    method: MethodOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add vectors; create the index and learn its model if it does not exist.

    All vectors are added or, after an error or an interruption, none. Vectors whose ids are in the
    index are replaced.
    """
    from bitprint.vectors import VectorIndex, open_vectors

    source = open_vectors(*vectors, column=column, ids=ids, id_column=id_column)
    with resume_hint():
        if Path(index).expanduser().exists():
            opened = VectorIndex.open(index)
        else:
            opened = _learn(index, source, bits, metric, keep, method)
        with opened:
            _check_same(opened, bits, metric, keep, method)
            with progress_bar("adding") as progress:
                opened.add(source, progress=progress)
            about = {"new": source.count, **_about(opened)}
    _print(opened, about, as_json)


@app.command()
def search(
    index: FileArgument,
    queries: Annotated[
        Path,
        typer.Argument(metavar="QUERIES", help="a .npy, .parquet or .safetensors file of vectors"),
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="number of hits per query")] = 10,
    rescore: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="rank this many times -k candidates by their stored vectors (default: 10; 0 if "
            "the index stores no vectors)",
            show_default=False,
        ),
    ] = None,
    hamming: Annotated[
        bool, typer.Option("--hamming", help="rank candidates by Hamming distance: less exact")
    ] = False,
    column: ColumnOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the vectors most similar to each query vector."""
    from bitprint.vectors import VectorIndex, open_vectors

    source = open_vectors(queries, column=column)
    with VectorIndex.open(index) as opened:
        found = opened.search(source, k, rescore=rescore, metric="hamming" if hamming else None)
        model = opened.index.model
    hits = [
        [
            {"id": identifier, "similarity": round(float(similarity), 6)}
            for identifier, similarity in zip(*row, strict=True)
            if similarity > float("-inf")
        ]
        for row in zip(found.ids.tolist(), found.similarities.tolist(), strict=True)
    ]
    if as_json:
        rows = [{"query": number, "results": results} for number, results in enumerate(hits)]
        output.print_json(data={"model": model, "queries": rows}, ensure_ascii=True)
        return
    note(f"model: {model}")
    for number, results in enumerate(hits):
        say(f"query {number}:")
        for hit in results:
            say(f"{hit['similarity']:8.4f}  {printable(str(hit['id']))}")


def _learn(
    path: str,
    source: Source,
    bits: int | None,
    metric: str | None,
    keep: str | None,
    method: str | None,
) -> VectorIndex:
    from bitprint.vectors import VectorIndex
    from bitprint.vectors.index import SAMPLE

    note(f"learning from {min(source.count, SAMPLE)} of {source.count} vectors")
    return VectorIndex.learn(
        path,
        source,
        bits=_BITS if bits is None else bits,
        metric=metric or _METRIC,
        keep=None if keep == _NONE else keep or _KEEP,
        method=method,
    )


def _check_same(
    index: VectorIndex,
    bits: int | None,
    metric: str | None,
    keep: str | None,
    method: str | None,
) -> None:
    """Raise ValueError if options differ from those with which the index was learned."""
    learned = index.model.settings
    stored = {
        "--bits": learned.bits,
        "--metric": learned.metric,
        "--keep": learned.keep or _NONE,
        "--method": learned.method,
    }
    given = {"--bits": bits, "--metric": metric, "--keep": keep, "--method": method}
    for option, value in given.items():
        if value is not None and value != stored[option]:
            raise ValueError(
                f"{index.path}: was learned with {option} {stored[option]}, not {value}; create "
                "another index"
            )


def _about(index: VectorIndex) -> dict[str, Any]:
    return {"held": len(index), "bits": index.bits, "model": index.index.model}


def _print(closed: VectorIndex, about: dict[str, Any], as_json: bool) -> None:
    # Closing merges the log into the file.
    print_about(about | {"bytes": closed.path.stat().st_size}, as_json)
