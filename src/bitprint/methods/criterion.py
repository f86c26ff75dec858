"""Criterion: the loss of a deep method as a torch module, for training loops of your own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from typing import Any, cast

import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from bitprint.data.feed import Feed, item_shape
from bitprint.data.inputs import Data, read_inputs
from bitprint.devices import pick_device
from bitprint.methods import create, method
from bitprint.methods._deep import (
    TRAINING_OPTIONS,
    DeepHasher,
    _label_names,
    training_state,
)
from bitprint.methods.recipes import Items, settle
from bitprint.nets.module import Module
from bitprint.nets.network import HashNetwork
from bitprint.supervision import check_labels, check_several_classes, class_count, class_names
from bitprint.training.plan import Training
from bitprint.training.state import State

_IMAGE = (224, 224, 3)  # recipes depend on the kind of the items; their size does not matter


def criterion(
    name: str,
    bits: int,
    labels: ArrayLike,
    *,
    batch_size: int = 128,
    epochs: int | None = None,
    device: str | torch.device = "cpu",
    **options: Any,
) -> Criterion:
    """Return the loss of a deep method as a torch module.

    Model, loader, optimizer and loop stay yours.

    Parameters
    ----------
    name : str
        A deep method, such as "dsdh"; see `bitprint.list_methods`.
    bits : int
        K.
    labels : array_like
        Labels of the whole training set: (N,) class numbers or names, (N, c) zeros and ones, or a
        list of names per image.
    batch_size : int
        Batch size of your loader. Sums over a batch are divided by it, also in a last, smaller
        batch.
    epochs : int, optional
        Number of epochs of your loop. Only "dsch" and "drsch" need it.
    device : str or torch.device
        Where its buffers are. `to` moves them later.
    **options
        Options of the method, such as ``eta=20.0``, and `recipe` and `seed`, see
        `bitprint.create`. Options of the training, such as `lr`, belong to your loop.

    Returns
    -------
    Criterion

    Examples
    --------
    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> loss_of = criterion("dsdh", bits=12, labels=labels, batch_size=2)
    >>> model = nn.Linear(4, 8)
    >>> head = loss_of.make_head(8)
    >>> optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01)
    >>> for epoch in range(3):
    ...     for rows in torch.randperm(4).split(2):
    ...         loss = loss_of(head(model(torch.eye(4)[rows])), rows)
    ...         optimizer.zero_grad()
    ...         loss.backward()
    ...         optimizer.step()
    ...     figures = loss_of.end_epoch()
    >>> sorted(loss_of.parts), sorted(figures)
    (['pair', 'quantisation'], ['changed_bits', 'classification', 'codes_per_label'])
    """
    place = pick_device(device)
    if isinstance(labels, Tensor):
        labels = labels.cpu().numpy()
    checked = check_labels(labels)
    check_several_classes(checked)
    hasher = _settled(name, bits, checked, batch_size, epochs, options)
    return Criterion(hasher, checked, place, class_names(labels))


class Criterion(nn.Module):
    """The loss of a deep method; `bitprint.criterion` makes one.

    Its buffers are what the method keeps between batches, such as the last outputs of all
    training images. They are saved by `state_dict` and moved by `to`.

    Parameters
    ----------
    hasher : DeepHasher
        The method. Every option has its value.
    labels : ndarray, shape (N,) or (N, c)
        Labels of the training set.
    device : torch.device
    names : list of str, optional
        Names of the classes.

    Attributes
    ----------
    parts : dict of str to Tensor
        Named parts of the last loss, without gradients. The loss is their sum.

    Examples
    --------
    >>> import bitprint as bp
    >>> loss_of = bp.criterion("dtsh", bits=12, labels=[0, 0, 1, 1], batch_size=4)
    >>> model = nn.Linear(4, 8)
    >>> head = loss_of.make_head(8)
    >>> loss = loss_of.forward(head(model(torch.eye(4))), rows=[0, 1, 2, 3])
    >>> bool(loss == sum(loss_of.parts.values())), loss_of.end_epoch()
    (True, {})
    >>> list(loss_of.state_dict())
    ['labels', 'tensors.U']
    >>> loss_of.hasher(model, head, torch.eye(4)).encode(torch.eye(4))
    Codes(4 x 12 bits)
    """

    labels: Tensor
    classes: Tensor

    def __init__(
        self,
        hasher: DeepHasher,
        labels: NDArray,
        device: torch.device,
        names: list[str] | None = None,
    ) -> None:
        super().__init__()
        assert hasher.training is not None
        self.parts: dict[str, Tensor] = {}
        self._hasher = hasher
        self._batch_size = hasher.training.batch_size
        self._class_count = class_count(labels)
        self._names = names
        self._width = _head_width(hasher, self._class_count)
        state = training_state(labels, device, self._batch_size)
        hasher.prepare(state)
        self.register_buffer("labels", state.labels)
        self.register_buffer("classes", state.classes, persistent=False)
        self.tensors = nn.Module()
        for key, value in state.tensors.items():
            self.tensors.register_buffer(key, value)
        self.register_load_state_dict_pre_hook(_refuse_other_labels)  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self.labels)

    def extra_repr(self) -> str:
        """Method, bits and number of training images, for `repr`."""
        return f"{self._hasher.name!r}, bits={self._hasher.bits}, images={len(self)}"

    def make_head(self, features: int) -> nn.Module:
        """Build the layer from features (n, features) to what the criterion takes.

        The first K of its outputs are the hash outputs; some methods have further ones. Weights
        are drawn with torch's generator.
        """
        return self._hasher.make_head(features, self._class_count).to(self.labels.device)

    def forward(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Return the loss of one batch, a number with a gradient.

        Parameters
        ----------
        outputs : Tensor, shape (n, K) or wider
            Outputs of the head for the batch.
        rows : Tensor of int64, shape (n,)
            Which training images these are, as rows of `labels`. `bitprint.IndexedDataset` adds
            them to the items of a dataset.
        """
        rows = self._checked(outputs, torch.as_tensor(rows))
        # Losses are float32 in Bitprint's own loop, too.
        with torch.autocast(outputs.device.type, enabled=False), self._state() as state:
            parts = self._hasher.loss(outputs.to(self.classes.dtype), rows, state)
        self.parts = {name: value.detach() for name, value in parts.items()}
        return torch.stack(list(parts.values())).sum()

    @torch.no_grad()
    def end_epoch(self) -> dict[str, float]:
        """Do the method's work between epochs; return its figures.

        Call it after every epoch: DSDH solves for its classifier and its codes here.
        """
        with self._state() as state:
            return self._hasher.after_epoch(state)

    @torch.no_grad()
    def hasher(self, model: nn.Module, head: nn.Module, data: Data) -> DeepHasher:
        """Return a fitted hasher of copies of a trained model and head.

        It encodes, and can be saved like a hasher that was trained by `fit`.

        Parameters
        ----------
        model : Module
            From images to features, as `backbone=` of a deep method takes it: it must have been
            trained on images that were normalized in the way described there.
        head : Module
            From features to outputs.
        data : ImageSet or array
            The training images or features, in the order of `labels`.
        """
        source, _ = read_inputs(data)
        if len(source) != len(self):
            raise ValueError(f"{len(source)} training items but {len(self)} labels")
        device = self.labels.device
        fitted = copy(self._hasher)
        fitted.backbone, fitted.device = model, str(device)
        trunk = Module(model, item_shape(source))
        net = HashNetwork(trunk, deepcopy(head)).to(device).eval()
        with self._state() as state:
            fitted.finish(net, state, Feed(source, device))
        fitted.net_, fitted.history_ = net, []
        fitted.training_, fitted.settings_ = cast(Training, fitted.training), fitted._settings()
        fitted._fitted_bits = fitted.bits
        fitted.input_shape_, fitted.classes_ = item_shape(source), self._class_count
        fitted.label_names_ = self._names or _label_names(source, None)
        return fitted

    @contextmanager
    def _state(self) -> Iterator[State]:
        """The buffers as the method knows them; those that it replaces are registered again."""
        kept = dict(self.tensors.named_buffers())
        state = State(self.labels, self.classes, self._batch_size, kept)
        yield state
        for key, value in state.tensors.items():
            self.tensors.register_buffer(key, value)

    def _checked(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Return the rows on the device of the buffers; raise a ValueError for what cannot be."""
        device = self.labels.device
        if not isinstance(outputs, Tensor):
            raise ValueError(f"outputs are a torch tensor, got {type(outputs).__name__}")
        if outputs.ndim != 2 or outputs.shape[1] != self._width:
            raise ValueError(
                f"{self._hasher.name} with {self._hasher.bits} bits and {self._class_count} "
                f"classes needs outputs of shape (n, {self._width}), got {tuple(outputs.shape)}; "
                "make_head builds the layer for them"
            )
        if outputs.device != device:
            raise ValueError(
                f"the outputs are on {outputs.device} and the criterion is on {device}; "
                f'move it: criterion.to("{outputs.device}")'
            )
        if rows.shape != (len(outputs),) or rows.is_floating_point():
            raise ValueError(
                f"rows must be {len(outputs)} integers, one for each row of the outputs, "
                f"got {rows.dtype} of shape {tuple(rows.shape)}"
            )
        # With rows on a GPU, the check would make each step wait.
        unchecked = rows.is_cuda or len(rows) == 0
        if not (unchecked or 0 <= rows.min() <= rows.max() < len(self)):
            raise ValueError(
                f"rows must be from 0 to {len(self) - 1}, got {int(rows.min())} to "
                f"{int(rows.max())}; they are the places of the images in labels"
            )
        # More rows than classes, and none above the classes: these are labels.
        if not unchecked and rows.max() < self._class_count < len(rows) <= len(self):
            raise ValueError(
                "rows are the places of the images in labels, not their classes: get them from "
                "bp.IndexedDataset, and call criterion(outputs, rows)"
            )
        return rows.to(device, torch.int64)


def _settled(
    name: str,
    bits: int,
    labels: NDArray,
    batch_size: int,
    epochs: int | None,
    options: dict[str, Any],
) -> DeepHasher:
    """Return the hasher of a criterion, with all options resolved."""
    cls = method(name)
    if not issubclass(cls, DeepHasher):
        raise ValueError(
            f"{name} has no criterion, as it trains no network by gradient steps; "
            f'use bp.create("{name}", bits={bits}).fit(features, labels)'
        )
    for option in options:
        if option in ("training", *TRAINING_OPTIONS):
            raise ValueError(
                f"a criterion takes no {option}: set it in your own optimizer, loader or loop"
            )
        if option == "backbone":
            raise ValueError("a criterion takes no backbone: give the features of your model to it")
    if epochs is None and cls.staged:
        raise ValueError(
            f"the loss of {name} changes during the training: give epochs=, the number of epochs "
            "of your loop"
        )
    hasher = cast(DeepHasher, create(name, bits, backbone=nn.Identity(), **options))
    settled = settle(hasher, Items(_IMAGE, len(labels)))
    settled.training = Training(epochs=epochs or 1, batch_size=batch_size, precision="float32")
    settled._check_options(labels)
    return settled


def _head_width(hasher: DeepHasher, classes: int) -> int:
    """How many outputs the head of a method has, found without memory for its weights."""
    features = 64 * hasher.bits
    with torch.device("meta"):
        outputs = hasher.make_head(features, classes)(torch.zeros(1, features))
    return int(outputs.shape[1])


def _refuse_other_labels(
    criterion: nn.Module, tensors: dict[str, Tensor], prefix: str, *others: Any
) -> None:
    """Refuse to load the buffers of another training set: their rows are other images."""
    mine, stored = cast(Tensor, criterion.labels), tensors.get(f"{prefix}labels")
    if isinstance(stored, Tensor) and not torch.equal(stored.to(mine), mine):
        raise ValueError(
            "this state was saved with other labels, or the same in another order; "
            "make the criterion with the labels of its training set"
        )
