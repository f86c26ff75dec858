"""Training: runs are killed and resumed; they end with the codes of a run that was not killed."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import bitprint as bp
from bitprint.data import load_digits
from soak.rounds import Kind, Round, check
from soak.victims import Acknowledge, Victim

_IMAGES = 200
_MOST_KILLS = 3
_RUNS: dict[str, dict[str, Any]] = {
    "dsdh": {"backbone": "mlp", "epochs": 20, "batch_size": 16, "optimizer": "adamw", "lr": 1e-3},
    "dpsh": {"backbone": "small", "epochs": 10, "batch_size": 32, "augment": "flip+shift"},
}


class Ended(NamedTuple):
    """What a run leaves; two that are equal did the same."""

    codes: bytes
    weights: bytes
    figures: list[dict[str, str]]


class Training(Kind):
    """Each round resumes one run until it ends by itself."""

    name = "training"

    def prepare(self) -> None:
        """Train each method once without a fault."""
        self._expected: dict[str, Ended] = {}
        self._seconds: dict[str, float] = {}
        self._rounds = 0
        for method in _RUNS:
            run = self.folder / f"undisturbed-{method}"
            victim = Victim(train, run, method)
            victim.finish()
            self._seconds[method] = float(victim.acknowledged[0])
            self._expected[method] = read_ended(run)

    def strike(self) -> Round:
        """Kill a run up to three times, then let it end."""
        method = self.rng.choice(list(_RUNS))
        self._rounds += 1
        run = self.folder / f"{method}-{self._rounds}"
        kills = 0
        for _ in range(self.rng.randint(1, _MOST_KILLS)):
            victim = Victim(train, run, method)
            time.sleep(self.rng.uniform(0, self._seconds[method]))
            kills += victim.kill()
        Victim(train, run, method).finish()
        ended = read_ended(run)
        for part, found, expected in zip(Ended._fields, ended, self._expected[method], strict=True):
            check(found == expected, f"{run}: {part} differ after {kills} kills")
        return Round(faults=kills, checked=_IMAGES)


def train(acknowledge: Acknowledge, run: Path, method: str) -> None:
    """Train into a run folder, or go on with what is there, and write the codes.

    What is acknowledged in the end are the seconds that it took.
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


def read_ended(run: Path) -> Ended:
    """Read what a run left, its times excepted."""
    with (run / "metrics.csv").open(newline="") as file:
        rows = [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]
    codes = bp.Codes.load(run / "codes").packed.tobytes()
    return Ended(codes, (run / "model.safetensors").read_bytes(), rows)
