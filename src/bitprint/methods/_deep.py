"""DeepHasher: a network with a hash layer, trained by the one loop."""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from abc import abstractmethod
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from bitprint.data.feed import Feed, Source, item_shape
from bitprint.data.images import ImageSet
from bitprint.data.inputs import Data, read_inputs
from bitprint.devices import pick_device
from bitprint.methods._base import Hasher
from bitprint.nets import create_trunk, restore_trunk
from bitprint.nets.network import HashNetwork
from bitprint.nets.stochastic_depth import StochasticDepth
from bitprint.supervision import check_several_classes, class_count, class_matrix
from bitprint.training.distributed import Workers, current_workers
from bitprint.training.loop import own_generators, train
from bitprint.training.plan import Training
from bitprint.training.run import RunFolder
from bitprint.training.state import State

ENCODE_BATCH = 256


class DeepHasher(Hasher):
    """A method that trains a network end to end.

    A subclass writes `loss`, and where it needs them `prepare`, `after_epoch`, `finish` and
    `make_head`.
    The loop owns the network, the optimiser, augmentation and checkpoints.

    Parameters
    ----------
    bits : int
        K.
    backbone : str
        The network below the hash layer, see `bitprint.nets`. "auto" is "efficientnet-lite0" for
        images and "mlp" for feature vectors.
    training : Training, optional
        Optimiser, schedule, augmentation; the method's own by default.
    device : str
        "auto" takes a GPU where there is one.
    seed : int
        Seed of everything random.

    Examples
    --------
    >>> class ToCorners(DeepHasher):
    ...     name = "to-corners"
    ...
    ...     def loss(self, outputs, rows, state):
    ...         corners = 2 * state.classes[rows] - 1  # bit k says whether an image is of class k
    ...         state.tensors["U"][rows] = outputs.detach()
    ...         return {"corners": (outputs - corners).square().mean()}
    ...
    ...     def after_epoch(self, state):
    ...         return {"positive": float((state.tensors["U"] >= 0).float().mean())}
    ...
    ...     def finish(self, net, state, feed):
    ...         print(f"trained on {len(feed)} items")
    >>> hasher = ToCorners(bits=2, training=Training(epochs=20, lr=0.1))
    >>> codes = hasher.fit(np.eye(4), [0, 0, 1, 1]).encode(np.eye(4))
    trained on 4 items
    >>> codes.signs().tolist(), hasher.history_[-1]["positive"]
    ([[1, -1], [1, -1], [-1, 1], [-1, 1]], 0.5)
    """

    supervision = "labels"
    default_training: ClassVar[Training] = Training()

    def __init__(
        self,
        bits: int,
        *,
        backbone: str = "auto",
        training: Training | None = None,
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.backbone = backbone
        self.training = training
        self.device = device
        self.seed = seed

    def fit(
        self,
        data: Data,
        labels: ArrayLike | None = None,
        *,
        run: str | os.PathLike[str] | None = None,
        progress: bool | str = False,
        about: dict[str, Any] | None = None,
    ) -> Self:
        """Train the network.

        Inside of `bitprint.training.distributed.joined` all processes train it together. Threads
        of one process train one after the other, as they share torch's random generators.

        Parameters
        ----------
        data : ImageSet, array, path, list of PIL images, torch Dataset, ...
            Training images, or features for a backbone that takes them: all that
            `bitprint.data.inputs.read_inputs` reads.
        labels : array_like, optional
            (N,) class numbers or (N, c) zeros and ones; by default the labels of the image set,
            the folder or the dataset.
        run : path, optional
            Folder for checkpoints, `metrics.csv` and the model. A run that was interrupted goes
            on from its last checkpoint.
        progress : bool or str
            Show a progress bar; where there is no terminal, lines that begin with this text.
        about : dict, optional
            Further facts for the run's `model.json`, as in `save`.
        """
        self._check_numbers()
        source, found = read_inputs(data)
        labels = self._check_labels(source, found if labels is None else labels, len(source))
        assert labels is not None
        check_several_classes(labels)
        self._check_options(labels)
        training = self.training or self.default_training
        device = pick_device(self.device)
        workers = current_workers()
        classes = class_matrix(labels)
        state = State(
            labels=torch.from_numpy(labels if labels.ndim == 1 else classes).to(device),
            classes=torch.from_numpy(classes).to(device),
            batch_size=training.batch_size,
        )
        net = self._build(item_shape(source), classes.shape[1], device, training)
        folder = self._open_run(run, source, labels, workers)
        self.history_ = train(
            net,
            self,
            Feed(source, device, workers.part),
            state,
            training,
            seed=int(self.seed),
            run=folder,
            progress=progress,
            workers=workers,
        )
        self.net_ = net.eval()
        with torch.no_grad():
            self.finish(net, state, Feed(source, device))
        self._fitted_bits = self.bits
        self.input_shape_ = item_shape(source)
        self.classes_ = class_count(labels)
        self.label_names_ = _label_names(source)
        if workers.first:
            self._warn_of_one_code(source)
        if run is not None and workers.first:
            self.save(run, **(about or {}))
        workers.wait()
        return self

    def project(self, data: Data) -> NDArray[np.float32]:
        """Outputs of the hash layer, shape (N, K)."""
        self._check_fitted()
        source, _ = read_inputs(data, self.input_shape_)
        shape = item_shape(source)
        if len(shape) != len(self.input_shape_) or (len(shape) == 1 and shape != self.input_shape_):
            raise ValueError(
                f"this model was trained on items of shape {tuple(self.input_shape_)}, got {shape}"
            )
        device = pick_device(self.device)
        net = self.net_.to(device).eval()
        width = self._output_width()
        outputs = np.empty((len(source), width), np.float32)
        done = 0
        with torch.inference_mode():
            for found in Feed(source, device).outputs(net, ENCODE_BATCH):
                outputs[done : done + len(found)] = found[:, :width].cpu().numpy()
                done += len(found)
        return outputs

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Build the layer on top of the trunk; its first K outputs are the hash outputs.

        Linear, with weights and biases from N(0, 0.01^2) as in the authors' releases of DPSH,
        DTSH and DSDH.

        Examples
        --------
        >>> from bitprint.methods import create
        >>> create("dpsh", bits=12).make_head(features=4096, classes=10)
        Linear(in_features=4096, out_features=12, bias=True)
        """
        return gaussian_linear(features, self.bits)

    def prepare(self, state: State) -> None:
        """Allocate what the method keeps: by default the last outputs of all images, U (N, K).

        Examples
        --------
        >>> from bitprint.methods import create
        >>> labels = torch.tensor([0, 1, 1])
        >>> state = State(labels, torch.eye(2)[labels], batch_size=3)
        >>> create("dpsh", bits=12).prepare(state)
        >>> state.tensors["U"].shape
        torch.Size([3, 12])
        """
        state.tensors["U"] = torch.zeros(len(state), self.bits, device=state.device)

    @abstractmethod
    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Named parts of the loss of one batch.

        Parameters
        ----------
        outputs : Tensor, shape (n, K) or wider
            What the head gave for the batch.
        rows : Tensor of int64, shape (n,)
            Which training images these are.
        state : State
            Labels and buffers of the training set.
        """

    def after_epoch(self, state: State) -> dict[str, float]:
        """Work between epochs; returns figures for `metrics.csv`."""
        return {}

    def finish(self, net: HashNetwork, state: State, feed: Feed) -> None:
        """Move what the method has learned besides the network into it; called after training.

        Parameters
        ----------
        net : HashNetwork
            As it will encode: at rest, with averaged weights where there are some.
        state : State
            Labels and buffers of the training set.
        feed : Feed
            The training items.
        """

    def _warn_of_one_code(self, source: Source) -> None:
        # Where all outputs are equal some losses, of triplets above all, have no gradient, and
        # nothing else tells that training ended there.
        rows = np.unique(np.linspace(0, len(source) - 1, ENCODE_BATCH).astype(int))
        some = source.subset(rows) if isinstance(source, ImageSet) else source[rows]
        codes = self.encode(some)
        if all(codes[row : row + 1] == codes[:1] for row in range(len(codes))):
            warnings.warn(
                f"{self.name} gives one code to all of {len(rows)} training images, so it can tell"
                " none from another; train with a lower rate (lr), or for more epochs",
                stacklevel=3,
            )

    def _output_width(self) -> int:
        """How many outputs of the head `project` returns."""
        return self.bits

    def _check_options(self, labels: NDArray) -> None:
        """Raise a ValueError for options that do not fit; called before training."""
        if not isinstance(self.training, Training | None):
            raise ValueError(f"training must be a Training, got {type(self.training).__name__}")

    def _build(
        self, shape: tuple[int, ...], classes: int, device: torch.device, training: Training
    ) -> HashNetwork:
        backbone = self.backbone
        if backbone == "auto":
            backbone = "mlp" if len(shape) == 1 else "efficientnet-lite0"
        with own_generators():
            torch.manual_seed(int(self.seed))
            trunk = create_trunk(backbone, input_shape=shape)
            net = HashNetwork(trunk, self.make_head(trunk.out_features, classes))
        return _place(net, device, training)

    def _open_run(
        self,
        run: str | os.PathLike[str] | None,
        source: Source,
        labels: NDArray,
        workers: Workers,
    ) -> RunFolder | None:
        """The run folder, if there is to be one; all processes must be about the same run."""
        if run is None and workers.size == 1:
            return None
        identity = self._identity(source, labels)
        workers.check_same(
            identity, "the processes of this training do not have the same options and data"
        )
        return None if run is None else RunFolder(run, identity)

    def _identity(self, source: Source, labels: NDArray) -> str:
        """What a checkpoint must agree with: method, options and training data."""
        if isinstance(source, ImageSet):
            data = source.fingerprint()
        else:
            data = hashlib.sha256(np.ascontiguousarray(source).data).hexdigest()
        about = {
            "method": self.name,
            "options": self._options() | {"device": None},
            "data": data,
            "labels": hashlib.sha256(np.ascontiguousarray(labels).data).hexdigest(),
        }
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

    def _options(self) -> dict[str, Any]:
        options = super()._options()
        options["training"] = asdict(self.training or self.default_training)
        return options

    def _export(self) -> tuple[dict[str, NDArray], dict[str, Any]]:
        arrays = {name: value.cpu().numpy() for name, value in self.net_.state_dict().items()}
        return arrays, {
            "trunk": self.net_.trunk.describe(),
            "input_shape": list(self.input_shape_),
            "classes": self.classes_,
            "label_names": self.label_names_,
        }

    def _restore(self, arrays: dict[str, NDArray], fitted: dict[str, Any]) -> None:
        with torch.device("meta"):  # no memory for widths that a file only claims to have
            described = self._described(fitted).state_dict()
        # Counters are stored as arrays of one number.
        claimed = {name: tuple(value.shape) or (1,) for name, value in described.items()}
        for name in claimed | arrays:
            found = arrays[name].shape if name in arrays else None
            if found != claimed.get(name):
                raise ValueError(f"{name} has shape {found}, not {claimed.get(name)}")
        net = self._described(fitted)
        net.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
        self.net_ = _place(net, pick_device(self.device), self.training or self.default_training)
        self._fitted_bits = self.bits
        self.input_shape_ = tuple(fitted["input_shape"])
        self.classes_ = fitted["classes"]
        self.label_names_ = fitted["label_names"]

    def _described(self, fitted: dict[str, Any]) -> HashNetwork:
        trunk = restore_trunk(fitted["trunk"])
        return HashNetwork(trunk, self.make_head(trunk.out_features, fitted["classes"]))


def gaussian_linear(features: int, outputs: int) -> nn.Linear:
    """Return a linear layer with weights and biases from N(0, 0.01^2)."""
    layer = nn.Linear(features, outputs)
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.normal_(layer.bias, std=0.01)
    return layer


def check_weights(*, zero: bool = False, **weights: float) -> None:
    """Raise a ValueError unless all weights are finite numbers above zero, or `zero` itself."""
    for name, value in weights.items():
        if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
            least = "at least" if zero else "above"
            raise ValueError(f"{name} must be a number {least} 0, got {value}")


def _place(net: HashNetwork, device: torch.device, training: Training) -> HashNetwork:
    automatic = training.precision == "auto" and device.type == "cuda"
    net.mixed = automatic or training.precision == "bfloat16"
    net.mirror = training.mirror
    skipped = [layer for layer in net.modules() if isinstance(layer, StochasticDepth)]
    if training.drop_blocks and not skipped:
        raise ValueError(f"{net.trunk.name} has no blocks to skip: drop_blocks must be 0")
    for layer in skipped:
        layer.dropout.p = training.drop_blocks
    net.to(device)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net


def _label_names(source: Source) -> list[str] | None:
    names = source.label_names if isinstance(source, ImageSet) else None
    return None if names is None else list(names)
