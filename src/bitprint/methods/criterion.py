"""Criterion: the loss of a deep method as a torch module, for custom training loops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from bitprint.data.feed import Feed, item_shape
from bitprint.data.inputs import Data, read_inputs
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
from bitprint.supervision import check_labels, class_count, class_names
from bitprint.training.plan import Training
from bitprint.training.state import State
from bitprint.utils.devices import pick_device

_IMAGE = (224, 224, 3)  # recipes depend on the kind of items, not on their size


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

    Use it with your own model, loader, optimizer and training loop.

    Parameters
    ----------
    name : str
        A deep method, such as "dsdh"; see `bitprint.list_methods`.
    bits : int
        K.
    labels : array_like
        Labels of the whole training set: (N,) class numbers or names, (N, c) zeros and ones, or a
        list of names per image. A method that learns without labels only uses their number.
    batch_size : int
        Batch size of your loader. Sums over a batch are divided by it, also in a smaller last
        batch.
    epochs : int, optional
        Number of epochs of your loop. Only "dsch" and "drsch" need it.
    device : str or torch.device
        Device of the buffers; `to` moves them.
    **options
        Options of the method, such as ``eta=20.0``, and `recipe` and `seed`, see
        `bitprint.create`. Training options, such as `lr`, are not accepted. Defaults are those
        for models of images; over feature vectors, DSDH recommends `codes_after` and other `eta`
        and `mu`, see `bitprint.DSDH`.

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
    hasher = _created(name, bits, epochs, options)
    names = class_names(labels) if hasher._uses_labels else None
    checked = check_labels(labels) if hasher._uses_labels else np.asarray(labels)
    checked = hasher._check_labels(checked, checked, len(checked))
    return Criterion(_settled(hasher, checked, batch_size, epochs), checked, place, names)


class Criterion(nn.Module):
    """The loss of a deep method; create it with `bitprint.criterion`.

    Its buffers contain the state between batches, such as the last outputs of all training
    images. `state_dict` saves them and `to` moves them.

    Parameters
    ----------
    hasher : DeepHasher
        The method, with all options resolved.
    labels : ndarray, shape (N,) or (N, c)
        Labels of the training set.
    device : torch.device
    names : list of str, optional
        Names of the classes.

    Attributes
    ----------
    parts : dict of str to Tensor
        Named terms of the last loss, without gradients. The loss is their sum.

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
        self._width = _head_width(hasher, 64 * hasher.bits, self._class_count)
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
        """Return the method, bits and number of training images for `repr`."""
        return f"{self._hasher.name!r}, bits={self._hasher.bits}, images={len(self)}"

    def make_head(self, features: int) -> nn.Module:
        """Return a layer from features (n, features) to the inputs of the criterion.

        Its first K outputs are the hash outputs; some methods have more outputs. The weights are
        drawn from torch's global generator.
        """
        self._width = _head_width(self._hasher, features, self._class_count)
        return self._hasher.make_head(features, self._class_count).to(self.labels.device)

    def forward(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Return the loss of one batch, a scalar with a gradient.

        Parameters
        ----------
        outputs : Tensor, shape (n, K) or wider
            Outputs of the head for the batch. For a method that compares two views of each image,
            such as "cibhash", the outputs of the first views, followed by those of the second:
            ``criterion(torch.cat([first, second]), rows.repeat(2))``.
        rows : Tensor of int64, shape (n,)
            Indices of the training images in `labels`. `bitprint.IndexedDataset` adds them to the
            items of a dataset.
        """
        rows = self._checked(outputs, torch.as_tensor(rows))
        # As in Bitprint's training loop, losses are computed in float32.
        with torch.autocast(outputs.device.type, enabled=False), self._state() as state:
            parts = self._hasher.loss(outputs.to(self.classes.dtype), rows, state)
        self.parts = {name: value.detach() for name, value in parts.items()}
        return torch.stack(list(parts.values())).sum()

    @torch.no_grad()
    def end_epoch(self) -> dict[str, float]:
        """Update the method after an epoch and return its metrics.

        Call this method after each epoch. DSDH solves for its classifier and codes here.
        """
        with self._state() as state:
            return self._hasher.after_epoch(state)

    @torch.no_grad()
    def hasher(self, model: nn.Module, head: nn.Module, data: Data) -> DeepHasher:
        """Return a fitted hasher with copies of a trained model and head.

        It can encode and be saved like a hasher trained by `fit`.

        Parameters
        ----------
        model : Module
            Maps images to features, like the `backbone` of a deep method. It must have been
            trained on images with the normalization described there.
        head : Module
            Maps features to outputs.
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
        known = fitted._uses_labels
        fitted.label_names_ = (self._names or _label_names(source, None)) if known else None
        return fitted

    @contextmanager
    def _state(self) -> Iterator[State]:
        """Yield the buffers as a `State`, then register the buffers that the method replaced."""
        kept = dict(self.tensors.named_buffers())
        state = State(self.labels, self.classes, self._batch_size, kept)
        yield state
        for key, value in state.tensors.items():
            self.tensors.register_buffer(key, value)

    def _checked(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Return the rows on the device of the buffers; raise a ValueError for invalid input."""
        device = self.labels.device
        if not isinstance(outputs, Tensor):
            raise ValueError(f"outputs must be a torch tensor, got {type(outputs).__name__}")
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
        # For rows on a GPU, the check would synchronize in each step.
        unchecked = rows.is_cuda or len(rows) == 0
        if not (unchecked or 0 <= rows.min() <= rows.max() < len(self)):
            raise ValueError(
                f"rows must be from 0 to {len(self) - 1}, got {int(rows.min())} to "
                f"{int(rows.max())}; rows are indices into labels"
            )
        views = self._hasher.views
        once = rows[: len(rows) // views]
        if not unchecked and not torch.equal(rows, once.repeat(views)):
            raise ValueError(
                f"{self._hasher.name} compares {views} views of each image: call "
                f"criterion(torch.cat(outputs), rows.repeat({views})) with the outputs of the views"
            )
        # Repeated values that are all below the number of classes are probably labels.
        if not unchecked and rows.max() < self._class_count < len(once) <= len(self):
            raise ValueError(
                "rows must be indices into labels, not class numbers: get them from "
                "bp.IndexedDataset and call criterion(outputs, rows)"
            )
        return rows.to(device, torch.int64)


def _created(name: str, bits: int, epochs: int | None, options: dict[str, Any]) -> DeepHasher:
    """Return the hasher of a criterion; raise a ValueError for options that it cannot have."""
    cls = method(name)
    if not issubclass(cls, DeepHasher):
        raise ValueError(
            f"{name} has no criterion because it does not train a network by gradient steps; "
            f'use bp.create("{name}", bits={bits}).fit(features, labels)'
        )
    for option in options:
        if option in ("training", *TRAINING_OPTIONS):
            raise ValueError(
                f"a criterion has no option {option}: set it in your own optimizer, loader or loop"
            )
        if option == "backbone":
            raise ValueError(
                "a criterion has no option backbone: it takes the outputs of your model"
            )
    if epochs is None and cls.staged:
        raise ValueError(
            f"the loss of {name} changes during training: pass epochs=, the number of epochs "
            "of your loop"
        )
    return cast(DeepHasher, create(name, bits, backbone=nn.Identity(), **options))


def _settled(
    hasher: DeepHasher, labels: NDArray, batch_size: int, epochs: int | None
) -> DeepHasher:
    """Return a copy of the hasher with all options resolved."""
    settled = settle(hasher, Items(_IMAGE, len(labels)))
    settled.training = Training(epochs=epochs or 1, batch_size=batch_size, precision="float32")
    settled._check_options(labels)
    return settled


def _head_width(hasher: DeepHasher, features: int, classes: int) -> int:
    """Return the number of outputs of the head, without allocating its weights."""
    with torch.device("meta"):
        outputs = hasher.make_head(features, classes)(torch.zeros(1, features))
    return int(outputs.shape[1])


def _refuse_other_labels(
    criterion: nn.Module, tensors: dict[str, Tensor], prefix: str, *others: Any
) -> None:
    """Raise a ValueError for buffers of another training set, whose rows are other images."""
    mine, stored = cast(Tensor, criterion.labels), tensors.get(f"{prefix}labels")
    if isinstance(stored, Tensor) and not torch.equal(stored.to(mine), mine):
        raise ValueError(
            "this state was saved with other labels, or with the same labels in another order; "
            "create the criterion with the labels of the same training set"
        )
