"""Distributed training: processes that train one network together, started by torchrun.

Each process passes its part of a batch through the network. The outputs are gathered, and every
process computes the loss of the whole batch on identical buffers, but backpropagates only into its
own part. The sum of these gradients equals the gradient of a single process. The buffers of a
method are therefore exact and identical in all processes, for any loss. The cost: the network is
divided among the processes, but the loss (batch x N for pairwise methods) is not.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from bitprint.utils.devices import pick_device

LOST = (
    "another process of this training has died or was stopped; "
    "run the same command again to resume from the last checkpoint"
)
"""Message printed once when a process is lost."""

_LONGEST_TURN = timedelta(days=7)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)


class Workers:
    """A group of processes that train together.

    Methods that communicate are collective: all processes must call them. With one process they do
    nothing. They raise a ConnectionError if another process cannot be reached.

    Parameters
    ----------
    rank : int
        Number of this process, from 0.
    size : int
        Number of processes.
    store : torch.distributed.Store, optional
        Key-value store that the processes share.

    Attributes
    ----------
    batch : int
        Number of images in the current batch, over all processes.

    Examples
    --------
    >>> Workers(rank=1, size=3).part(torch.arange(8))
    tensor([3, 4, 5])
    """

    def __init__(self, rank: int = 0, size: int = 1, store: Store | None = None) -> None:
        self.rank = rank
        self.size = size
        self.batch = 0
        self._store = store
        self._turns = 0

    @property
    def first(self) -> bool:
        """Whether this is process 0, which writes files and logs."""
        return self.rank == 0

    def part(self, whole: Tensor) -> Tensor:
        """Return this process's rows of a batch; none if there are more processes than rows."""
        return whole.tensor_split(self.size)[self.rank]

    def forward(self, net: nn.Module, items: Tensor, count: int) -> Tensor:
        """Return the outputs for a batch of `count` items; `items` is this process's `part`.

        Gradients flow into this process's outputs only; those of other processes are constants.
        """
        self.batch = count
        if len(items) == 0 and not any(isinstance(layer, _BATCH_NORMS) for layer in net.modules()):
            # Some networks reject an empty batch: pass a dummy item and drop its output.
            outputs: Tensor = net(items.new_zeros(1, *items.shape[1:]))[:0]
        else:
            outputs = net(items)
        return self.gather(outputs, count)

    def gather(self, own: Tensor, count: int) -> Tensor:
        """Return the whole batch of `count` rows; `own` is this process's `part` of it.

        Gradients flow into `own` only.
        """
        if self.size == 1:
            return own
        few, more = divmod(count, self.size)
        lengths = [few + (rank < more) for rank in range(self.size)]
        message = own.detach().new_zeros(max(lengths), *own.shape[1:])
        message[: len(own)] = own.detach()
        parts = [torch.empty_like(message) for _ in lengths]
        with _as_connection_error():
            dist.all_gather(parts, message)
        parts = [part[:length] for part, length in zip(parts, lengths, strict=True)]
        parts[self.rank] = own
        return torch.cat(parts)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of `values` over the processes, with gradients to all of them."""
        if self.size == 1:
            return values
        total: Tensor = _Sum.apply(values)  # type: ignore[no-untyped-call]
        return total

    def sum_gradients(self, net: nn.Module) -> None:
        """Replace every gradient by its sum over the processes.

        All gradients are sent in one message of a fixed layout, so that the order of the additions
        and the rounding are the same in every run. Buckets that are summed in the order of arrival
        would not guarantee this.
        """
        if self.size == 1:
            return
        gradients = [value.grad for value in net.parameters() if value.grad is not None]
        total = torch.cat([gradient.flatten() for gradient in gradients])
        _all_reduce(total)
        parts = total.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors with those of process 0."""
        if self.size == 1:
            return
        for value in tensors:
            message = value.detach().contiguous()
            with _as_connection_error():
                dist.broadcast(message, src=0)
            value.detach().copy_(message)

    def check_same(self, text: str, error: str) -> None:
        """Raise a ValueError with the message `error` if `text` differs between processes."""
        if self.size == 1:
            return
        own = torch.tensor(list(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8)
        digests = [torch.empty_like(own) for _ in range(self.size)]
        with _as_connection_error():
            dist.all_gather(digests, own)
        if any(not digest.equal(own) for digest in digests):
            raise ValueError(error)

    def wait(self) -> None:
        """Wait until all processes reach this call."""
        if self.size > 1:
            _all_reduce(torch.zeros(1))

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Run the block in process 0 first, so that it fills the caches for the others."""
        self._turns += 1
        key = f"turn {self._turns}"
        if self._store is not None and not self.first:
            with _as_connection_error():
                self._store.wait([key], _LONGEST_TURN)
        try:
            yield
        finally:
            # Also after an error: the others then raise the same one.
            if self._store is not None and self.first:
                self._store.set(key, "over")

    def first_to_report(self, message: str) -> bool:
        """Return whether no other process has reported this message.

        For `LOST`: whether no process has reported anything. A process that fails reports its
        error before it exits, and the others should not add to it.
        """
        assert self._store is not None
        try:
            first = self._store.add("said", 1) == 1
            # Use a single counter: with two, each process could be second in one of them.
            return bool(first if message == LOST else self._store.add(f"said {message}", 1) == 1)
        except RuntimeError:  # the process that served the store has exited
            return True


ALONE = Workers()
"""A group of one process."""

_joined = ALONE


def current_workers() -> Workers:
    """Return the group of `joined`, or `ALONE` outside of it."""
    return _joined


@contextmanager
def joined(device: str = "auto") -> Iterator[Workers]:
    """Join the other processes of torchrun inside the context.

    All processes together train the deep methods that are fitted inside the context. Use the same
    data and options in all processes and call `fit` in each. They communicate over NCCL on GPUs
    (one GPU per process) and over Gloo on CPUs. Without torchrun the context does nothing.

    If several processes fail with the same error, one of them raises it and the others exit with
    status 1. If a process dies, the others report it and exit.

    Parameters
    ----------
    device : str
        "auto", "cuda" or "cpu", as in the method's options.

    Examples
    --------
    >>> with joined() as workers:
    ...     workers.size
    1
    """
    global _joined
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    store, rank, size = next(rendezvous("env://"))
    workers = Workers(rank, size, store)
    with _report_on_sigterm(workers) as silence:
        try:
            backend = "cpu:gloo,cuda:nccl" if _take_gpu(device) else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=size)
            _joined = workers
            yield workers
        except Exception as error:
            silence()
            if not workers.first_to_report(str(error)):
                sys.exit(1)
            raise
        finally:
            _joined = ALONE
        dist.destroy_process_group()


@contextmanager
def _report_on_sigterm(workers: Workers) -> Iterator[Callable[[], object]]:
    """Report a lost process on SIGTERM and exit; torchrun sends it when a process dies.

    A thread handles the signal, because the main thread may be blocked in a collective operation.
    Yields a function that silences the thread, for a main thread that reports its own error.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    reporting = threading.Lock()

    def listen() -> None:
        with os.fdopen(reader, "rb", buffering=0) as numbers:
            while number := numbers.read(1):
                if number[0] == signal.SIGTERM:
                    reporting.acquire()
                    if workers.first_to_report(LOST):
                        os.write(2, f"bitprint: {LOST}\n".encode())
                    os._exit(1)

    # Python writes the signal's number to the wakeup descriptor only if a handler is installed.
    handler = signal.signal(signal.SIGTERM, lambda number, frame: None)
    descriptor = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=listen, name="sigterm", daemon=True).start()
    yield reporting.acquire
    # Not reached after an error, which the main thread has yet to report.
    signal.set_wakeup_fd(descriptor)
    signal.signal(signal.SIGTERM, handler)
    os.close(writer)


def _take_gpu(device: str) -> bool:
    """Select this process's GPU; return False for training on the CPU."""
    place = pick_device(device)
    if place.type != "cuda":
        return False
    if place.index is not None:
        raise ValueError(f"{device} is one GPU, but there are several processes: use auto or cuda")
    number, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if number >= count:
        raise ValueError(
            f"process {number + 1} on a machine with {count} GPUs; start at most one process "
            "per GPU, or use device=cpu"
        )
    torch.cuda.set_device(number)
    return True


class _Sum(torch.autograd.Function):
    """Sum over processes; the values of each process enter the loss of every process."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        _all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        _all_reduce(total)
        return total


def _all_reduce(values: Tensor) -> None:
    with _as_connection_error():
        dist.all_reduce(values)


@contextmanager
def _as_connection_error() -> Iterator[None]:
    """Convert torch's RuntimeError for a lost process into a ConnectionError."""
    try:
        yield
    except RuntimeError as error:
        raise ConnectionError(LOST) from error
