"""Training faults: kill and resume runs; the result must equal that of an undisturbed run."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import bitprint as bp
from bitprint.data import load_digits
from soak.processes import Acknowledge, Child
from soak.rounds import FaultKind, Round, check

_IMAGES = 200
_MOST_KILLS = 3
_RUNS: dict[str, dict[str, Any]] = {
    "dsdh": {"backbone": "mlp", "epochs": 20, "batch_size": 16, "optimizer": "adamw", "lr": 1e-3},
    "dpsh": {"backbone": "small", "epochs": 10, "batch_size": 32, "augment": "flip+shift"},
}


class TrainingResult(NamedTuple):
    """Result of a finished run."""

    codes: bytes
    weights: bytes
    metrics: list[dict[str, str]]


class TrainingFaults(FaultKind):
    """Each round kills and resumes one run, and then lets it finish."""

    name = "training"

    def prepare(self) -> None:
        """Train each method once without a fault."""
        self._expected: dict[str, TrainingResult] = {}
        self._seconds: dict[str, float] = {}
        self._rounds = 0
        for method in _RUNS:
            run = self.folder / f"undisturbed-{method}"
            child = Child(train, run, method)
            child.finish()
            self._seconds[method] = float(child.acknowledged[0])
            self._expected[method] = read_result(run)

    def inject(self) -> Round:
        """Kill a run up to three times, then let it finish."""
        method = self.rng.choice(list(_RUNS))
        self._rounds += 1
        run = self.folder / f"{method}-{self._rounds}"
        kills = 0
        for _ in range(self.rng.randint(1, _MOST_KILLS)):
            child = Child(train, run, method)
            time.sleep(self.rng.uniform(0, self._seconds[method]))
            kills += child.kill()
        Child(train, run, method).finish()
        result, expected = read_result(run), self._expected[method]
        for part in TrainingResult._fields:
            same = getattr(result, part) == getattr(expected, part)
            check(same, f"{run}: {part} differ after {kills} kills")
        return Round(faults=kills, checked=_IMAGES)


def train(acknowledge: Acknowledge, run: Path, method: str) -> None:
    """Train in a run folder, resuming an earlier run, and write the codes.

    The acknowledgement at the end is the duration in seconds.
    """
    started = time.monotonic()
    torch.set_num_threads(1)
    options = _RUNS[method]
    images = load_digits().subset(np.arange(_IMAGES))
    pixels = images.read(slice(None))
    mlp = options["backbone"] == "mlp"
    data = pixels[..., 0].reshape(_IMAGES, -1) / 255 if mlp else images
    hasher: Any = bp.create(method, bits=12, device="cpu", **options)
    hasher.fit(data, images.labels, run=run)
    hasher.encode(data).save(run / "codes")
    acknowledge(str(time.monotonic() - started))


def read_result(run: Path) -> TrainingResult:
    """Read the result of a run, without its times."""
    with (run / "metrics.csv").open(newline="") as file:
        rows = [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]
    codes = bp.Codes.load(run / "codes").packed.tobytes()
    return TrainingResult(codes, (run / "model.safetensors").read_bytes(), rows)
