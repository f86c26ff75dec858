"""HTML report of a table: MAP, plots and the settings of each cell, in one file."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from bitprint.experiments.published import rerun_notes
from bitprint.experiments.quick import NOTE
from bitprint.experiments.standings import standings
from bitprint.experiments.tables import BELOW, Entry, summarize
from bitprint.nets import replaces_paper_network
from bitprint.version import __version__

_PAPER_SETS = ("cifar10", "nuswide")
_NO_NETWORKS = ("gist", "pixels")  # features that are not computed by a network
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
_HEADING = "MAP, and below it the MAP in the DSDH paper (Li et al., 2017)"
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
    """Return a report as a self-contained HTML page without scripts or external resources.

    Parameters
    ----------
    title : str
    rows : sequence of dict
        Rows of a table of cells, all of one data set and protocol.
    command : str
        The command that creates the page.
    plots : iterable of path
        PNG files to embed.
    missing : int
        Number of cells that have not been run.
    quick : bool
        The cells are those of `bitprint.experiments.quick`; methods are not compared.
    several_labels : bool
        As in `substitution_notes`.

    Returns
    -------
    str
    """
    notes = [
        *report_notes(rows, quick=quick, several_labels=several_labels),
        *_conventions(rows),
    ]
    if missing:
        notes.insert(
            0, f"Not complete: {missing} cells are missing. Run the command below to resume."
        )
    body = [
        f"<h1>{escape(title)}</h1>",
        *(f"<p>{escape(note)}</p>" for note in notes),
        f"<p>Command: <code>{escape(command)}</code></p>",
        f"<h2>{_HEADING if _has_paper(rows) else 'MAP'}</h2>",
        _comparison(rows),
        *([] if quick else _standings(rows)),
        "<h2>Curves</h2>",
        "".join(map(_image, plots)) or "<p>No curves are stored for these cells.</p>",
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


def report_notes(
    rows: Sequence[dict[str, str]], *, quick: bool = False, several_labels: bool = False
) -> list[str]:
    """Return the notes on the results of a table; parameters as in `html_report`.

    Examples
    --------
    >>> report_notes([{"version": __version__}], quick=True) == [NOTE]
    True
    """
    about = [NOTE] if quick else substitution_notes(rows, several_labels) + rerun_notes(rows)
    return about + version_notes(rows)


def substitution_notes(rows: Iterable[dict[str, str]], several_labels: bool = False) -> list[str]:
    """Return notes on data and networks that differ from those of the paper.

    Parameters
    ----------
    rows : iterable of dict
        Rows of a table of cells, all of one data set and protocol.
    several_labels : bool
        Whether images of the set can have several labels.

    Examples
    --------
    >>> row = {"dataset": "cifar10", "backbone": "cnnf", "measured_on": "test", "map_at": ""}
    >>> substitution_notes([row])
    []
    """
    rows = list(rows)
    notes = []
    for name in dict.fromkeys(row["dataset"] for row in rows if row["dataset"] not in _PAPER_SETS):
        kind = "NUS-WIDE, a set with several labels per image" if several_labels else "CIFAR-10"
        notes.append(
            f"{name} replaces {kind}. The paper has no results on it, so MAP cannot be compared "
            "with the paper."
        )
    backbones = dict.fromkeys(row["backbone"] for row in rows)
    networks = [
        name
        for name in backbones
        if name not in _NO_NETWORKS and replaces_paper_network(name.partition(":")[0])
    ]
    if networks:
        notes.append(
            f"{', '.join(networks)} in place of CNN-F and AlexNet, the networks of the paper. The "
            "order of the methods can be compared; differences in MAP are partly due to the "
            "network."
        )
    if "gist" in backbones and any(row["dataset"] == "nuswide" for row in rows):
        notes.append("GIST in place of the 1,134 features that are distributed with NUS-WIDE.")
    if any("unseen classes" in row["measured_on"] for row in rows):
        notes.append(
            "Queries and database contain only classes that are not in the training images, so MAP "
            "cannot be compared with the paper."
        )
    if any("validation" in row["measured_on"] for row in rows):
        notes.append(
            "Evaluated on held-out training images instead of queries, so MAP cannot be compared "
            "with the paper."
        )
    return notes


def version_notes(rows: Iterable[dict[str, str]]) -> list[str]:
    """Return a note on rows that were computed by other or unknown versions of Bitprint.

    Examples
    --------
    >>> (note,) = version_notes([{"version": __version__}, {"version": "0.0.1"}, {"map": "0.5"}])
    >>> note.partition(": ")[2]
    '1 cell by 0.0.1, 1 by an unknown version.'
    """
    versions = Counter(row.get("version") or "an unknown version" for row in rows)
    versions.pop(__version__, None)
    if not versions:
        return []
    (first, count), *others = versions.items()
    parts = [f"{count} {'cell' if count == 1 else 'cells'} by {first}"]
    parts += [f"{count} by {version}" for version, count in others]
    return [f"Computed by other versions than Bitprint {__version__}: {', '.join(parts)}."]


def _conventions(rows: Sequence[dict[str, str]]) -> list[str]:
    depths = dict.fromkeys(row.get("map_at") for row in rows)
    cutoffs = " and ".join(f"the nearest {at}" if at else "the whole database" for at in depths)
    notes = [
        f"MAP over {cutoffs or 'no cells yet'}, averaged over all orders of equal distances; "
        f"{_seeds(rows)}. Every model is evaluated after its last epoch."
    ]
    if _has_paper(rows):
        notes.append(f"Green: at least the MAP of the paper. Red: more than {BELOW} below it.")
    return notes


def _seeds(rows: Sequence[dict[str, str]]) -> str:
    """Describe the seeds; they change the split unless the set has its own."""
    splits = {row["seed"]: row.get("split") for row in rows}
    if len(splits) == 1:
        return "one seed, so there is no standard deviation"
    seeded = "training" if len({*splits.values()}) == 1 else "split and training"
    return f"mean ± standard deviation over seeds of {seeded}"


def _has_paper(rows: Iterable[dict[str, str]]) -> bool:
    """Return whether the paper has a MAP for any of these rows."""
    return any(row["paper_map"] for row in rows)


def _comparison(rows: Iterable[dict[str, str]]) -> str:
    lines = summarize(rows)
    lengths = sorted({bits for entries in lines.values() for bits in entries})
    header = ["method", "on", *(f"{bits} bits" for bits in lengths)]
    return _table(
        header,
        (
            f"<td>{escape(name)}</td><td>{escape(backbone)}</td>"
            + "".join(_entry(entries.get(bits)) for bits in lengths)
            for (name, backbone), entries in lines.items()
        ),
    )


def _entry(entry: Entry | None) -> str:
    if entry is None:
        return "<td></td>"
    paper = ""
    if entry.paper is not None:
        paper = f"<small>{entry.paper:.3f} ({entry.difference:+.3f})</small>"
    return f'<td class="{entry.verdict}">{entry}{paper}</td>'


def _standings(rows: Iterable[dict[str, str]]) -> list[str]:
    lines = [f"<li>{escape(line)}</li>" for line in standings(rows)]
    return ["<h2>DSDH and the best other method</h2>", "<ul>", *lines, "</ul>"] if lines else []


def _settings(rows: Iterable[dict[str, str]]) -> str:
    return _table(
        _SETTINGS,
        ("".join(f"<td>{escape(row.get(name) or '')}</td>" for name in _SETTINGS) for row in rows),
    )


def _table(header: Iterable[str], lines: Iterable[str]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _image(path: Path) -> str:
    content = base64.b64encode(path.read_bytes()).decode("ascii")
    name = escape(path.stem.replace("_", " "))
    return f'<p><img alt="{name}" src="data:image/png;base64,{content}"></p>\n'
