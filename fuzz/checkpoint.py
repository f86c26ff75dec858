"""Checkpoints of a training run."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load
from torch import nn

from bitprint.training.run import RunFolder, _checksum
from bitprint.training.state import State
from fuzz.harness import Target, file_bytes
from fuzz.tensors import change_tensors


def parse(data: bytes, folder: Path) -> object:
    """Restore a checkpoint."""
    (folder / "checkpoint").mkdir(exist_ok=True)
    (folder / "checkpoint" / "last.safetensors").write_bytes(data)
    run = RunFolder(folder, "fuzz")
    return run.restore(*_training()), run.kept_epochs


def seeds() -> list[bytes]:
    """Return the checkpoint of a small network after one optimizer step."""

    def save(path: Path) -> None:
        net, optimizer, state = _training()
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        RunFolder(path.parent, "fuzz").save([{"epoch": 1}], net, optimizer, state)
        (path.parent / "checkpoint" / "last.safetensors").rename(path)

    return [file_bytes(save)]


def _training() -> tuple[nn.Module, torch.optim.Optimizer, State]:
    net = nn.Linear(3, 2)
    state = State(torch.arange(5), torch.eye(5), batch_size=2)
    state.tensors = {"U": torch.zeros(5, 2)}
    return net, torch.optim.AdamW(net.parameters(), lr=0.1), state


mutate = partial(
    change_tensors,
    field="checksum",
    checksum=lambda data, metadata: _checksum(load(data), metadata),
)

TARGET = Target(parse, seeds, mutate)
