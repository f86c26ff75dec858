"""One HTML file that holds a table of cells: figures, plots and the settings of each cell."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from bitprint.experiments.published import reruns
from bitprint.experiments.quick import NOTE
from bitprint.experiments.standings import standings
from bitprint.experiments.tables import BELOW, Entry, summarise
from bitprint.nets import replaces_paper_network
from bitprint.version import __version__

_PAPER_SETS = ("cifar10", "nuswide")
_NO_NETWORKS = ("gist", "pixels")  # other features that methods learn from
_SETTINGS = (
    "variant",
    "method",
    "backbone",
    "bits",
    "seed",
    "map",
    "paper_map",
    "measured_on",
    "options",
    "version",
    "device",
    "split",
    "date",
    "train_seconds",
    "encode_seconds",
)
_PAPER = "Ours, and below it the figure of the DSDH paper (Li et al., 2017)"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto }
th, td { padding: .2rem .7rem; text-align: left; white-space: nowrap }
th, td { border-bottom: 1px solid #ddd }
td small { display: block; color: #555 }
.reached { background: #d9f2dd } .below { background: #fbdcdc }
img { max-width: 100%; width: 36rem } code { background: #f3f3f3; padding: .1rem .3rem }
"""


def html_report(
    title: str,
    rows: Sequence[dict[str, str]],
    *,
    command: str,
    plots: Iterable[Path] = (),
    missing: int = 0,
    quick: bool = False,
    several_labels: bool = False,
) -> str:
    """Write out a report as one HTML page that needs no other file, script or network.

    Parameters
    ----------
    title : str
    rows : sequence of dict
        Rows of a table of cells, all of one data set and setting.
    command : str
        What makes the page again.
    plots : iterable of path
        PNG files, which become part of the page.
    missing : int
        How many cells have yet to be run.
    quick : bool
        The cells are those of `bitprint.experiments.quick`: nothing is said about the methods.
    several_labels : bool
        As in `stand_ins`.
    """
    notes = [
        *remarks(rows, quick=quick, several_labels=several_labels),
        *_conventions(rows),
    ]
    if missing:
        notes.insert(0, f"Not finished: {missing} cells are missing. The command below goes on.")
    body = [
        f"<h1>{escape(title)}</h1>",
        *(f"<p>{escape(note)}</p>" for note in notes),
        f"<p>Made by <code>{escape(command)}</code></p>",
        f"<h2>{_PAPER if _has_paper(rows) else 'MAP'}</h2>",
        _comparison(rows),
        *([] if quick else _standings(rows)),
        "<h2>Curves</h2>",
        "".join(map(_picture, plots)) or "<p>No curves were kept of these cells.</p>",
        "<h2>Settings of each cell</h2>",
        _settings(rows),
    ]
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def remarks(
    rows: Sequence[dict[str, str]], *, quick: bool = False, several_labels: bool = False
) -> list[str]:
    """Return what is to be said beside the figures of a table; parameters as in `html_report`.

    Examples
    --------
    >>> remarks([{"version": __version__}], quick=True) == [NOTE]
    True
    """
    about = [NOTE] if quick else stand_ins(rows, several_labels) + reruns(rows)
    return about + other_versions(rows)


def stand_ins(rows: Iterable[dict[str, str]], several_labels: bool = False) -> list[str]:
    """Say which data and networks are not the paper's own.

    Parameters
    ----------
    rows : iterable of dict
        Rows of a table of cells, all of one data set and setting.
    several_labels : bool
        Whether an image of that set may have several labels.

    Examples
    --------
    >>> row = {"dataset": "cifar10", "backbone": "cnnf", "measured_on": "test", "map_at": ""}
    >>> stand_ins([row])
    []
    """
    rows = list(rows)
    notes = []
    for name in dict.fromkeys(row["dataset"] for row in rows if row["dataset"] not in _PAPER_SETS):
        kind = "NUS-WIDE as a set with several labels to an image" if several_labels else "CIFAR-10"
        notes.append(
            f"{name} stands in for {kind}: the paper has no figures for it, and these cannot be "
            "compared with those it has."
        )
    backbones = dict.fromkeys(row["backbone"] for row in rows)
    networks = [
        name
        for name in backbones
        if name not in _NO_NETWORKS and replaces_paper_network(name.partition(":")[0])
    ]
    if networks:
        notes.append(
            f"{', '.join(networks)} in place of the paper's networks, CNN-F and AlexNet: the order "
            "of the methods can be compared; part of any difference is the network's."
        )
    if "gist" in backbones and any(row["dataset"] == "nuswide" for row in rows):
        notes.append("GIST in place of the 1,134 features that NUS-WIDE comes with.")
    if any("unseen classes" in row["measured_on"] for row in rows):
        notes.append(
            "Queries and database are of classes that no method was trained on: not to be compared "
            "with the paper's figures."
        )
    if any("validation" in row["measured_on"] for row in rows):
        notes.append(
            "Measured on held-out training images, not on queries: not to be compared with the "
            "paper's figures."
        )
    return notes


def other_versions(rows: Iterable[dict[str, str]]) -> list[str]:
    """Say which rows are not known to be measured by this version of Bitprint.

    Examples
    --------
    >>> (note,) = other_versions([{"version": __version__}, {"version": "0.0.1"}, {"map": "0.5"}])
    >>> note.partition(", or ")[2]
    'not known to be: 1 cell of 0.0.1, 1 of a version not recorded.'
    """
    versions = Counter(row.get("version") or "a version not recorded" for row in rows)
    versions.pop(__version__, None)
    if not versions:
        return []
    (first, count), *others = versions.items()
    parts = [f"{count} {'cell' if count == 1 else 'cells'} of {first}"]
    parts += [f"{count} of {version}" for version, count in others]
    return [f"Not of Bitprint {__version__}, or not known to be: {', '.join(parts)}."]


def _conventions(rows: Sequence[dict[str, str]]) -> list[str]:
    depths = dict.fromkeys(row.get("map_at") for row in rows)
    reach = " and ".join(f"the nearest {at}" if at else "the whole database" for at in depths)
    notes = [
        f"MAP over {reach or 'nothing yet'}, the expectation over all orders of equal distances; "
        f"{_seeds(rows)}. Every figure is of the model after its last epoch."
    ]
    if _has_paper(rows):
        notes.append(f"Green: the paper's figure is reached. Red: more than {BELOW} below it.")
    return notes


def _seeds(rows: Sequence[dict[str, str]]) -> str:
    """Say what the spread is over: a set with a split of its own has that with every seed."""
    splits = {row["seed"]: row.get("split") for row in rows}
    if len(splits) == 1:
        return "one seed alone, so that no spread is known"
    drawn = "training alone" if len({*splits.values()}) == 1 else "both split and training"
    return f"mean ± standard deviation over the seeds, which draw {drawn}"


def _has_paper(rows: Iterable[dict[str, str]]) -> bool:
    """Whether the paper has a figure for any of these."""
    return any(row["paper_map"] for row in rows)


def _comparison(rows: Iterable[dict[str, str]]) -> str:
    lines = summarise(rows)
    lengths = sorted({bits for entries in lines.values() for bits in entries})
    header = ["method", "on", *(f"{bits} bits" for bits in lengths)]
    return _table(
        header,
        (
            f"<td>{escape(name)}</td><td>{escape(backbone)}</td>"
            + "".join(_figure(entries.get(bits)) for bits in lengths)
            for (name, backbone), entries in lines.items()
        ),
    )


def _figure(entry: Entry | None) -> str:
    if entry is None:
        return "<td></td>"
    theirs = ""
    if entry.paper is not None:
        theirs = f"<small>{entry.paper:.3f} ({entry.difference:+.3f})</small>"
    return f'<td class="{entry.verdict}">{entry}{theirs}</td>'


def _standings(rows: Iterable[dict[str, str]]) -> list[str]:
    lines = [f"<li>{escape(line)}</li>" for line in standings(rows)]
    return ["<h2>DSDH and the best of the others</h2>", "<ul>", *lines, "</ul>"] if lines else []


def _settings(rows: Iterable[dict[str, str]]) -> str:
    return _table(
        _SETTINGS,
        ("".join(f"<td>{escape(row.get(name) or '')}</td>" for name in _SETTINGS) for row in rows),
    )


def _table(header: Iterable[str], lines: Iterable[str]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _picture(path: Path) -> str:
    content = base64.b64encode(path.read_bytes()).decode("ascii")
    name = escape(path.stem.replace("_", " "))
    return f'<p><img alt="{name}" src="data:image/png;base64,{content}"></p>\n'
