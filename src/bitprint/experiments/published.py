"""MAP of all tables in the DSDH paper."""

from __future__ import annotations

from collections.abc import Iterable

BITS = {1: (12, 24, 32, 48), 2: (16, 24, 32, 48)}
"""Code lengths of the tables, by protocol."""

MAP: dict[tuple[str, int, str], tuple[float, ...]] = {
    # Table 1: protocol 1; shallow methods use hand-crafted features.
    ("cifar10", 1, "dsdh"): (0.740, 0.786, 0.801, 0.820),
    ("cifar10", 1, "dqn"): (0.554, 0.558, 0.564, 0.580),
    ("cifar10", 1, "dpsh"): (0.713, 0.727, 0.744, 0.757),
    ("cifar10", 1, "dhn"): (0.555, 0.594, 0.603, 0.621),
    ("cifar10", 1, "dtsh"): (0.710, 0.750, 0.765, 0.774),
    ("cifar10", 1, "ninh"): (0.552, 0.566, 0.558, 0.581),
    ("cifar10", 1, "cnnh"): (0.439, 0.511, 0.509, 0.522),
    ("cifar10", 1, "fasth"): (0.305, 0.349, 0.369, 0.384),
    ("cifar10", 1, "sdh"): (0.285, 0.329, 0.341, 0.356),
    ("cifar10", 1, "ksh"): (0.303, 0.337, 0.346, 0.356),
    ("cifar10", 1, "lfh"): (0.176, 0.231, 0.211, 0.253),
    ("cifar10", 1, "splh"): (0.171, 0.173, 0.178, 0.184),
    ("cifar10", 1, "itq"): (0.162, 0.169, 0.172, 0.175),
    ("cifar10", 1, "sh"): (0.127, 0.128, 0.126, 0.129),
    ("nuswide", 1, "dsdh"): (0.776, 0.808, 0.820, 0.829),
    ("nuswide", 1, "dqn"): (0.768, 0.776, 0.783, 0.792),
    ("nuswide", 1, "dhn"): (0.708, 0.735, 0.748, 0.758),
    ("nuswide", 1, "dtsh"): (0.773, 0.808, 0.812, 0.824),
    ("nuswide", 1, "ninh"): (0.674, 0.697, 0.713, 0.715),
    ("nuswide", 1, "cnnh"): (0.611, 0.618, 0.625, 0.608),
    ("nuswide", 1, "fasth"): (0.621, 0.650, 0.665, 0.687),
    ("nuswide", 1, "sdh"): (0.568, 0.600, 0.608, 0.637),
    ("nuswide", 1, "ksh"): (0.556, 0.572, 0.581, 0.588),
    ("nuswide", 1, "lfh"): (0.571, 0.568, 0.568, 0.585),
    ("nuswide", 1, "splh"): (0.568, 0.589, 0.597, 0.601),
    ("nuswide", 1, "itq"): (0.452, 0.468, 0.472, 0.477),
    ("nuswide", 1, "sh"): (0.454, 0.406, 0.405, 0.400),
    # Table 2: protocol 2.
    ("cifar10", 2, "dsdh"): (0.935, 0.940, 0.939, 0.939),
    ("cifar10", 2, "dtsh"): (0.915, 0.923, 0.925, 0.926),
    ("cifar10", 2, "dpsh"): (0.763, 0.781, 0.795, 0.807),
    ("cifar10", 2, "vdsh"): (0.845, 0.848, 0.844, 0.845),
    ("cifar10", 2, "drsch"): (0.615, 0.622, 0.629, 0.631),
    ("cifar10", 2, "dsch"): (0.609, 0.613, 0.617, 0.620),
    ("cifar10", 2, "dsrh"): (0.608, 0.611, 0.617, 0.618),
    ("nuswide", 2, "dsdh"): (0.815, 0.814, 0.820, 0.821),
    ("nuswide", 2, "dtsh"): (0.756, 0.776, 0.785, 0.799),
    ("nuswide", 2, "dpsh"): (0.715, 0.722, 0.736, 0.741),
    ("nuswide", 2, "vdsh"): (0.545, 0.564, 0.557, 0.570),
    ("nuswide", 2, "drsch"): (0.618, 0.622, 0.623, 0.628),
    ("nuswide", 2, "dsch"): (0.592, 0.597, 0.611, 0.609),
    ("nuswide", 2, "dsrh"): (0.609, 0.618, 0.621, 0.631),
}
"""MAP by (data set, protocol, method): on CIFAR-10 over the whole database, on NUS-WIDE over the
nearest 5,000 in protocol 1 and 50,000 in protocol 2."""


MAP_RERUN: dict[tuple[str, int, str], tuple[float, ...]] = {
    # Rows marked DPSH*; in Table 1 this is the only row of DPSH on NUS-WIDE.
    ("nuswide", 1, "dpsh"): (0.752, 0.790, 0.794, 0.812),
    ("cifar10", 2, "dpsh"): (0.903, 0.885, 0.915, 0.911),
}
"""MAP from re-runs of the code of the authors of a method, by (data set, protocol, method)."""


MAP_CNN: dict[tuple[str, str], tuple[float, ...]] = {
    # Table 3: protocol 1, features of CNN-F without fine-tuning.
    ("cifar10", "fasth"): (0.553, 0.607, 0.619, 0.636),
    ("cifar10", "sdh"): (0.478, 0.557, 0.584, 0.592),
    ("cifar10", "ksh"): (0.488, 0.539, 0.548, 0.563),
    ("cifar10", "lfh"): (0.208, 0.242, 0.266, 0.339),
    ("cifar10", "splh"): (0.299, 0.330, 0.335, 0.330),
    ("cifar10", "itq"): (0.237, 0.246, 0.255, 0.261),
    ("cifar10", "sh"): (0.183, 0.164, 0.161, 0.161),
    ("nuswide", "fasth"): (0.779, 0.807, 0.816, 0.825),
    ("nuswide", "sdh"): (0.780, 0.804, 0.815, 0.824),
    ("nuswide", "ksh"): (0.768, 0.786, 0.790, 0.799),
    ("nuswide", "lfh"): (0.695, 0.734, 0.739, 0.759),
    ("nuswide", "splh"): (0.753, 0.775, 0.783, 0.786),
    ("nuswide", "itq"): (0.719, 0.739, 0.747, 0.756),
    ("nuswide", "sh"): (0.621, 0.616, 0.615, 0.612),
}
"""MAP of shallow methods on network features, by (data set, method)."""


def published_map(
    dataset: str, protocol: int, method: str, bits: int, *, deep_features: bool = False
) -> float | None:
    """Return the MAP in the paper, or None if there is none.

    If the paper has both a published result and its own re-run, the published result is returned.

    Parameters
    ----------
    dataset, protocol, method, bits
        As in `Cell`.
    deep_features : bool
        Whether a shallow method learns from network features: in protocol 1 this selects Table 3;
        protocol 2 has only such rows.

    Returns
    -------
    float or None

    Examples
    --------
    >>> published_map("cifar10", 1, "dsdh", 48), published_map("cifar10", 1, "sh", 12)
    (0.82, 0.127)
    >>> published_map("cifar10", 1, "sh", 12, deep_features=True)
    0.183
    """
    row = MAP.get((dataset, protocol, method)) or MAP_RERUN.get((dataset, protocol, method))
    if deep_features and protocol == 1:
        row = MAP_CNN.get((dataset, method))
    if row is None or bits not in BITS[protocol]:
        return None
    return row[BITS[protocol].index(bits)]


def rerun_notes(rows: Iterable[dict[str, str]]) -> list[str]:
    """Return notes on results of the paper that come from re-runs of other authors' code.

    Parameters
    ----------
    rows : iterable of dict
        Rows of a table of cells.

    Examples
    --------
    >>> row = {"dataset": "nuswide", "protocol": "1", "method": "dpsh", "measured_on": "test"}
    >>> rerun_notes([row])
    ["The paper's MAP of dpsh is from its own re-run of the code of the method's authors."]
    """
    shown = {
        (row["dataset"], int(row["protocol"]), row["method"])
        for row in rows
        if row["measured_on"] == "test"
    }
    notes = []
    for cell, maps in MAP_RERUN.items():
        _, protocol, method = cell
        if cell not in shown:
            continue
        if cell not in MAP:
            notes.append(
                f"The paper's MAP of {method} is from its own re-run of the code of the method's "
                "authors."
            )
            continue
        values = zip(maps, BITS[protocol], strict=True)
        printed = ", ".join(f"{value:.3f} at {bits} bits" for value, bits in values)
        notes.append(
            f"The paper has a second row for {method}, from its own re-run of the code of the "
            f"method's authors: {printed}. MAP is compared with the first row."
        )
    return notes
