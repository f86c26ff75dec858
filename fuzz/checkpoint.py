"""Checkpoints of a run."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from bitprint.training.run import RunFolder
from bitprint.training.state import State
from fuzz.harness import Target
from fuzz.samples import written


def parse(data: bytes, folder: Path) -> object:
    """Restore a checkpoint."""
    (folder / "checkpoint").mkdir(exist_ok=True)
    (folder / "checkpoint" / "last.safetensors").write_bytes(data)
    return RunFolder(folder, "fuzz").restore(*_training())


def seeds() -> list[bytes]:
    """The checkpoint of a small network whose optimizer has moved."""

    def save(path: Path) -> None:
        net, optimizer, state = _training()
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        RunFolder(path.parent, "fuzz").save([{"epoch": 1}], net, optimizer, state)
        (path.parent / "checkpoint" / "last.safetensors").rename(path)

    return [written(save)]


def _training() -> tuple[nn.Module, torch.optim.Optimizer, State]:
    net = nn.Linear(3, 2)
    state = State(torch.arange(5), torch.eye(5), batch_size=2)
    state.tensors = {"U": torch.zeros(5, 2)}
    return net, torch.optim.AdamW(net.parameters(), lr=0.1), state


TARGET = Target(parse, seeds)
