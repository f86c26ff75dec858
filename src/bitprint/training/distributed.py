"""Workers: processes that train one network together, started by torchrun.

Each process puts its part of a batch through the network. The outputs are gathered, and every
process computes the loss of the whole batch on the same buffers, but follows the gradient into its
own part only; the sum of these gradients is the gradient of one process. So whatever a loss
compares, what a method keeps is exact and the same everywhere. The price: the network is divided
among the processes, the loss (batch x N for pairwise methods) is not.
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

from bitprint.devices import pick_device

LOST = (
    "another process of this training has died or was stopped; "
    "the same command goes on from the last checkpoint"
)
"""What is said, once, when the processes are no longer complete."""

_LONGEST_TURN = timedelta(days=7)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)


class Workers:
    """The processes that train together, as one of them sees it.

    Every method that speaks to the others must be called by all of them; with one process it does
    nothing. Where another process cannot be reached, it raises a ConnectionError.

    Parameters
    ----------
    rank : int
        Which process this is, from 0.
    size : int
        How many there are.
    store : torch.distributed.Store, optional
        Where processes leave word for each other.

    Attributes
    ----------
    batch : int
        Images of the whole batch that goes through the network now.

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
        """Whether this is the process that writes files and reports."""
        return self.rank == 0

    def part(self, whole: Tensor) -> Tensor:
        """Rows of a batch that are this process's: none, where processes outnumber them."""
        return whole.tensor_split(self.size)[self.rank]

    def forward(self, net: nn.Module, items: Tensor, count: int) -> Tensor:
        """Outputs for a batch of `count` items, of which this process has its `part`.

        Gradients flow into this process's own outputs; those of others are constants.
        """
        self.batch = count
        if len(items) == 0 and not any(isinstance(layer, _BATCH_NORMS) for layer in net.modules()):
            # Not every network takes nothing; what it says of a stand-in counts for nothing.
            outputs: Tensor = net(items.new_zeros(1, *items.shape[1:]))[:0]
        else:
            outputs = net(items)
        return self.gather(outputs, count)

    def gather(self, own: Tensor, count: int) -> Tensor:
        """Whole batch of `count` rows, of which this process has its `part`: gradients go there."""
        if self.size == 1:
            return own
        few, more = divmod(count, self.size)
        lengths = [few + (rank < more) for rank in range(self.size)]
        message = own.detach().new_zeros(max(lengths), *own.shape[1:])
        message[: len(own)] = own.detach()
        parts = [torch.empty_like(message) for _ in lengths]
        with _others():
            dist.all_gather(parts, message)
        parts = [part[:length] for part, length in zip(parts, lengths, strict=True)]
        parts[self.rank] = own
        return torch.cat(parts)

    def sum(self, values: Tensor) -> Tensor:
        """Sum of the processes' `values`, with gradients to all of them."""
        if self.size == 1:
            return values
        total: Tensor = _Sum.apply(values)  # type: ignore[no-untyped-call]
        return total

    def sum_gradients(self, net: nn.Module) -> None:
        """Give every parameter the sum of the processes' gradients.

        In one message of a fixed layout: the order of the additions, and with it the rounding, is
        the same in every run, which buckets in the order of arrival would not grant.
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
            with _others():
                dist.broadcast(message, src=0)
            value.detach().copy_(message)

    def check_same(self, what: str, fix: str) -> None:
        """Raise a ValueError that says `fix` unless `what` is the same text in all processes."""
        if self.size == 1:
            return
        own = torch.tensor(list(hashlib.sha256(what.encode()).digest()), dtype=torch.uint8)
        digests = [torch.empty_like(own) for _ in range(self.size)]
        with _others():
            dist.all_gather(digests, own)
        if any(not digest.equal(own) for digest in digests):
            raise ValueError(fix)

    def wait(self) -> None:
        """Wait until all processes have come this far."""
        if self.size > 1:
            _all_reduce(torch.zeros(1))

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let process 0 through, and the others when it has finished: it fills the caches."""
        self._turns += 1
        key = f"turn {self._turns}"
        if self._store is not None and not self.first:
            with _others():
                self._store.wait([key], _LONGEST_TURN)
        try:
            yield
        finally:
            # Also where it failed: the others then find the same fault.
            if self._store is not None and self.first:
                self._store.set(key, "over")

    def first_to_say(self, sentence: str) -> bool:
        """Whether no other process has said this; of `LOST`, whether none has said anything.

        A process that fails says why before it is gone, and that is all there is to say.
        """
        assert self._store is not None
        try:
            first = self._store.add("said", 1) == 1
            # One counter decides: of two that two processes advance, neither may come out first.
            return bool(first if sentence == LOST else self._store.add(f"said {sentence}", 1) == 1)
        except RuntimeError:  # the store went with the process that held it
            return True


ALONE = Workers()
"""One process."""

_joined = ALONE


def current_workers() -> Workers:
    """The processes that were `joined`, or `ALONE`."""
    return _joined


@contextmanager
def joined(device: str = "auto") -> Iterator[Workers]:
    """Join the other processes of torchrun, for as long as the context lasts.

    Deep methods that are fitted inside of it are trained by all processes together: give all of
    them the same data and options, and call `fit` in each. They speak over NCCL on GPUs, of which
    each takes one, and over Gloo on processors. Without torchrun nothing happens.

    An error that several processes run into is raised in one of them; the others exit with 1. When
    a process dies, the others say so and exit.

    Parameters
    ----------
    device : str
        As the method's own option: "auto", "cuda" or "cpu".

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
    with _last_words(workers) as silence:
        try:
            backend = "cpu:gloo,cuda:nccl" if _take_gpu(device) else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=size)
            _joined = workers
            yield workers
        except Exception as error:
            silence()
            if not workers.first_to_say(str(error)):
                sys.exit(1)
            raise
        finally:
            _joined = ALONE
        dist.destroy_process_group()


@contextmanager
def _last_words(workers: Workers) -> Iterator[Callable[[], object]]:
    """On SIGTERM, by which torchrun ends the processes that another one has left, say so and exit.

    A thread does it: the main one may be waiting for a message that never comes. Gives a function
    that keeps the thread silent, for a main thread that has more to say.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    speaking = threading.Lock()

    def listen() -> None:
        with os.fdopen(reader, "rb", buffering=0) as numbers:
            while number := numbers.read(1):
                if number[0] == signal.SIGTERM:
                    speaking.acquire()
                    if workers.first_to_say(LOST):
                        os.write(2, f"bitprint: {LOST}\n".encode())
                    os._exit(1)

    # A handler has to be there for the number of a signal to be written.
    handler = signal.signal(signal.SIGTERM, lambda number, frame: None)
    descriptor = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=listen, name="last words", daemon=True).start()
    yield speaking.acquire
    # Not after an error, which the main thread is still to report.
    signal.set_wakeup_fd(descriptor)
    signal.signal(signal.SIGTERM, handler)
    os.close(writer)


def _take_gpu(device: str) -> bool:
    """Make this process's own GPU the current one; False where training is on the processor."""
    place = pick_device(device)
    if place.type != "cuda":
        return False
    if place.index is not None:
        raise ValueError(f"{device} is one GPU, and there are several processes: use auto or cuda")
    number, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if number >= count:
        raise ValueError(
            f"process {number + 1} of a machine with {count} GPUs; start one process for each, "
            "or use cpu as device"
        )
    torch.cuda.set_device(number)
    return True


class _Sum(torch.autograd.Function):
    """The sum over processes: each one's values are in the loss of every other."""

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
    with _others():
        dist.all_reduce(values)


@contextmanager
def _others() -> Iterator[None]:
    """Say in our words that another process is gone."""
    try:
        yield
    except RuntimeError as error:
        raise ConnectionError(LOST) from error
