"""Select the device of tensors: the CPU or a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def pick_device(name: str | torch.device) -> torch.device:
    """Return the device with a given name.

    Parameters
    ----------
    name : str or torch.device
        "cpu"; "cuda", or "cuda:1" for the second GPU; "mps" for the GPU of a Mac (not tested);
        "auto" for a CUDA GPU if there is one, otherwise the CPU.

    Returns
    -------
    torch.device

    Examples
    --------
    >>> pick_device("cpu")
    device(type='cpu')
    >>> pick_device("gpu")
    Traceback (most recent call last):
    ValueError: unknown device 'gpu': use auto, cpu, cuda, cuda:1 or mps
    """
    if isinstance(name, str) and name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name) if isinstance(name, str | torch.device) else None
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise ValueError(f"unknown device {str(name)!r}: use auto, cpu, cuda, cuda:1 or mps")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError("device is mps, but torch finds no GPU of a Mac; use auto or cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is cuda, but torch finds no GPU; use auto or cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device is {device}, but torch finds {torch.cuda.device_count()} GPU(s), "
            "which are numbered from cuda:0"
        )
    return device


@contextmanager
def one_thread_per_worker() -> Iterator[int]:
    """Let threads that start within a block use one thread of torch each.

    Yields
    ------
    int
        The number of threads that torch used before, for a pool of as many workers.

    Examples
    --------
    >>> with one_thread_per_worker() as workers:
    ...     workers >= 1, torch.get_num_threads()
    (True, 1)
    """
    workers = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield workers
    finally:
        torch.set_num_threads(workers)
