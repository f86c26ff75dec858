"""Run folder: checkpoints and the metrics of every epoch."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor, nn

from bitprint.training.state import State
from bitprint.utils.files import make_folder, write_atomically

_VERSION = 1
_RECIPES = {"recipes": "named"}  # marks checkpoints whose options include a recipe
_CHECKPOINT = Path("checkpoint", "last.safetensors")

History = list[dict[str, Any]]


def has_checkpoint(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder contains a checkpoint."""
    return (Path(folder) / _CHECKPOINT).is_file()


def identity_without_recipe(folder: str | os.PathLike[str]) -> str | None:
    """Return the identity of the run in a folder if an old version without recipes started it.

    Such runs have the recipe "original".
    """
    path = Path(folder) / _CHECKPOINT
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except SafetensorError:  # a damaged file: `RunFolder.restore` raises an error for it
        return None
    return None if "recipes" in metadata else metadata.get("identity")


def other_run_error(folder: str | os.PathLike[str]) -> ValueError:
    """Return the error for a folder that contains another run."""
    return ValueError(
        f"{folder}: contains a run with other options or other data; "
        "choose another folder or delete this one"
    )


class RunFolder:
    """One training run on disk.

    Parameters
    ----------
    path : path
        The folder; created if missing.
    identity : str
        Identifies method, options and training data. A folder with another identity raises a
        ValueError.
    """

    def __init__(self, path: str | os.PathLike[str], identity: str) -> None:
        self.path = Path(path)
        make_folder(self.path)
        self._identity = identity
        self._checkpoint = self.path / _CHECKPOINT
        self._metrics = self.path / "metrics.csv"
        self._saved_at = 0.0
        self._save_seconds = 0.0

    @property
    def kept_epochs(self) -> int:
        """Number of epochs in the checkpoint; 0 without a checkpoint."""
        if not self._checkpoint.exists():
            return 0
        with safe_open(self._checkpoint, framework="pt") as file:
            return len(json.loads(file.metadata()["history"]))

    def due(self) -> bool:
        """Return whether to write a checkpoint now; writing takes at most 5% of the time."""
        return time.monotonic() - self._saved_at >= 20 * self._save_seconds

    def save(
        self, history: History, net: nn.Module, optimizer: torch.optim.Optimizer, state: State
    ) -> None:
        """Write a checkpoint after the epochs of `history`, replacing the last one."""
        started = time.monotonic()
        tensors = {f"net.{name}": value for name, value in net.state_dict().items()}
        tensors |= {f"state.{name}": value for name, value in state.tensors.items()}
        for number, values in optimizer.state_dict()["state"].items():
            tensors |= {
                f"optimizer.{number}.{name}": value
                for name, value in values.items()
                if isinstance(value, Tensor)
            }
        metadata = {
            "format": "bitprint.checkpoint",
            "version": str(_VERSION),
            "identity": self._identity,
            **_RECIPES,
            "history": json.dumps(history),
        }
        tensors = {name: value.cpu().contiguous().clone() for name, value in tensors.items()}
        metadata["checksum"] = _checksum(tensors, metadata)
        write_atomically(self._checkpoint, serialize(tensors, metadata))
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - started

    def restore(
        self, net: nn.Module, optimizer: torch.optim.Optimizer, state: State
    ) -> tuple[int, History]:
        """Load the last checkpoint, if any; return its number of epochs and their metrics."""
        if not self._checkpoint.exists():
            return 0, []
        tensors, metadata = self._read()
        try:
            net.load_state_dict(_under(tensors, "net."))
            _load_moments(optimizer, _under(tensors, "optimizer."))
            history = _parse_history(metadata["history"])
            buffers = _under(tensors, "state.")
            if missing := state.tensors.keys() - buffers.keys():
                raise ValueError(f"missing: {', '.join(sorted(missing))}")
        except Exception as error:  # torch raises many types for a state that does not match
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{self._checkpoint}: does not match this run ({reason}); delete it to start again"
            ) from error
        state.tensors = {name: value.to(state.device) for name, value in buffers.items()}
        return len(history), history

    def write_metrics(self, history: History) -> None:
        """Write the metrics of all epochs to `metrics.csv`."""
        columns = list(dict.fromkeys(name for row in history for name in row))
        table = io.StringIO()
        writer = csv.DictWriter(table, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(history)
        write_atomically(self._metrics, table.getvalue().encode())

    def _read(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        try:
            with safe_open(self._checkpoint, framework="pt") as file:
                metadata = file.metadata() or {}
                # Copy: in the memory-mapped file tensors are not aligned as torch aligns them, and
                # matrix products of unaligned tensors can round differently.
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            reason = " ".join(str(error).split())  # a name in the file can contain line breaks
            raise ValueError(
                f"{self._checkpoint}: not a checkpoint, or damaged ({reason}); "
                "delete it to start again"
            ) from error
        version = metadata.get("version", "")
        if metadata.get("format") != "bitprint.checkpoint" or not version.isdecimal():
            raise ValueError(f"{self._checkpoint}: not a checkpoint; delete it to start again")
        if version != str(_VERSION):
            raise ValueError(
                f"{self._checkpoint}: checkpoint format {version}, expected {_VERSION}"
            )
        if metadata.pop("checksum", None) != _checksum(tensors, metadata):
            raise ValueError(
                f"{self._checkpoint}: damaged checkpoint (wrong checksum); delete it to start again"
            )
        if metadata.get("identity") != self._identity:
            raise other_run_error(self.path)
        return tensors, metadata


def _checksum(tensors: dict[str, Tensor], metadata: dict[str, str]) -> str:
    """Return the SHA-256 of a checkpoint without its checksum."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _load_moments(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        moments.setdefault(int(number), {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": moments, "param_groups": groups})


def _parse_history(text: str) -> History:
    history = json.loads(text)
    if not isinstance(history, list) or not all(isinstance(row, dict) for row in history):
        raise ValueError("history is not a list of epochs")
    return history


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
