"""DeepHasher, the base class of methods that train a network with a hash layer."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import asdict, fields
from numbers import Number, Real
from typing import Any, ClassVar, Literal, Self, TypedDict

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from bitprint.data.feed import Feed, item_shape
from bitprint.data.images import ImageSet
from bitprint.data.inputs import Data, Source, read_inputs
from bitprint.methods._base import Hasher, either
from bitprint.methods.recipes import Items, check_recipe, settle
from bitprint.nets import create_trunk, restore_trunk
from bitprint.nets.mlp import MLP
from bitprint.nets.module import module_name, module_shapes
from bitprint.nets.network import HashNetwork
from bitprint.nets.noise import GaussianNoise
from bitprint.nets.preprocess import feature_scale
from bitprint.nets.stochastic_depth import StochasticDepth
from bitprint.nets.trunk import Uninitialized
from bitprint.supervision import (
    check_labels,
    check_several_classes,
    class_count,
    class_matrix,
    class_names,
)
from bitprint.training.distributed import Workers, current_workers
from bitprint.training.loop import Callback, isolated_rng, train
from bitprint.training.plan import Training
from bitprint.training.run import RunFolder, identity_without_recipe
from bitprint.training.state import State
from bitprint.utils.arguments import plain
from bitprint.utils.devices import pick_device

ENCODE_BATCH = 256
_SAMPLE = 256  # training images that are checked after training
_NEAR_CHANCE = 0.05  # fraction of the distance from chance to a MAP of 1


class Common(TypedDict, total=False):
    """Options of all deep methods, see `DeepHasher`."""

    recipe: str
    backbone: str | nn.Module
    training: Training | None
    device: str | torch.device
    seed: int
    epochs: int | None
    batch_size: int | None
    optimizer: str | None
    lr: float | None
    trunk_lr: float | None
    schedule: str | None
    momentum: float | None
    weight_decay: float | None
    augment: str | None
    standardize: bool | None
    noise: float | None
    cutmix: float | None
    drop_blocks: float | None
    average: float | None
    freeze_norms: bool | None
    mirror: bool | None
    per_class: int | None
    precision: str | None


Tuned = Mapping[str, Mapping[str, Any]]
"""Options by situation, see `DeepHasher.tuned`."""

TRAINING_OPTIONS = tuple(field.name for field in fields(Training))
"""Options of every deep method that are fields of `Training`."""


class DeepHasher(Hasher):
    """Base class of methods that train a network end to end.

    A subclass implements `loss` and, if needed, `prepare`, `after_epoch`, `finish` and `make_head`.
    The training loop handles the network, the optimizer, augmentation and checkpoints.

    Parameters
    ----------
    bits : int
        K.
    recipe : {"recommended", "paper", "original"}
        Source of the options that are not given, see `bitprint.methods.recipes`.
        "recommended": training and weights validated for this method, the kind of backbone and
        the number of images. "paper": loss and weights of the method's paper, with the same
        training as all methods in the paper's tables. "original": the training of the method's
        authors.
    backbone : str or Module
        Network below the hash layer: a name (see `bitprint.nets`), or a torch module that maps
        images (n, 3, height, width) or vectors to features. A copy of the module is trained (see
        `bitprint.nets.module.Module`); the recommended recipe expects pretrained weights in it.
        "auto" selects "mlp" for feature vectors, "small" for images below 16 pixels, and
        otherwise the network of the method's paper if it has one, the network suggested by the
        image set, or "efficientnet-lite0".
    training : Training, optional
        All training settings in one object, instead of the settings of the recipe.
    device : str or torch.device
        "auto" selects a CUDA GPU if there is one; see `bitprint.utils.devices.pick_device`.
    seed : int
        Seed of all random numbers.
    epochs, batch_size, optimizer, lr, trunk_lr, schedule, momentum, weight_decay, augment, cutmix
        Single training settings, see `bitprint.Training`; None selects the value of the recipe.
    standardize, noise, drop_blocks, average, freeze_norms, mirror, per_class, precision
        Likewise.

    Attributes
    ----------
    net_ : HashNetwork
        The trained network.
    training_ : Training
        The training settings that were used.
    settings_ : dict
        All settings that were used: backbone, options of the method, fields of `training_`.
    history_ : list of dict
        Metrics of each epoch.

    Examples
    --------
    >>> class ToCorners(DeepHasher):
    ...     name = "to-corners"
    ...
    ...     def loss(self, outputs, rows, state):
    ...         corners = 2 * state.classes[rows] - 1  # bit k is +1 for class k
    ...         state.tensors["U"][rows] = outputs.detach()
    ...         return {"corners": (outputs - corners).square().mean()}
    ...
    ...     def after_epoch(self, state):
    ...         return {"positive": float((state.tensors["U"] >= 0).float().mean())}
    ...
    ...     def finish(self, net, state, feed):
    ...         print(f"trained on {len(feed)} items")
    >>> hasher = ToCorners(bits=2, recipe="original", epochs=20, lr=0.1)
    >>> codes = hasher.fit(np.eye(4), [0, 0, 1, 1]).encode(np.eye(4))
    trained on 4 items
    >>> codes.signs().tolist(), hasher.history_[-1]["positive"]
    ([[1, -1], [1, -1], [-1, 1], [-1, 1]], 0.5)
    """

    supervision: ClassVar[Literal["none", "labels"]] = "labels"
    group = "deep"
    default_training: ClassVar[Training] = Training()
    """Training of the method's authors, used by the recipe "original"."""
    tuned: ClassVar[Tuned] = {}
    """Options of this method that differ from the options of a recipe.

    A key consists of words: the name of a recipe; "pretrained", "scratch" or "features" for the
    kind of network; the name of the backbone; "few" for at most 20,000 images or "many" for more.
    The options of a key apply if all its words apply. `images_seen` is the total number of images
    over all epochs.
    """
    staged: ClassVar[bool] = False
    """Whether the loss depends on the fraction of epochs that are finished."""
    views: ClassVar[int] = 1
    """How often an image is in a batch, each time with other augmentation or noise.

    With 2, the rows of a batch are ``[r_1, ..., r_n, r_1, ..., r_n]``: the second half of the
    outputs belongs to the second views of the same images.
    """
    frozen: ClassVar[bool] = False
    """Whether the recipes train only the head, on given features or those of a pretrained backbone.

    A backbone with random weights is trained, too.
    """

    def __init__(
        self,
        bits: int,
        *,
        recipe: str = "recommended",
        backbone: str | nn.Module = "auto",
        training: Training | None = None,
        device: str | torch.device = "auto",
        seed: int = 0,
        epochs: int | None = None,
        batch_size: int | None = None,
        optimizer: str | None = None,
        lr: float | None = None,
        trunk_lr: float | None = None,
        schedule: str | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        augment: str | None = None,
        standardize: bool | None = None,
        noise: float | None = None,
        cutmix: float | None = None,
        drop_blocks: float | None = None,
        average: float | None = None,
        freeze_norms: bool | None = None,
        mirror: bool | None = None,
        per_class: int | None = None,
        precision: str | None = None,
    ) -> None:
        self.bits = bits
        self.recipe = recipe
        self.backbone = backbone
        self.training = training
        self.device = device
        self.seed = seed
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.lr = lr
        self.trunk_lr = trunk_lr
        self.schedule = schedule
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.augment = augment
        self.standardize = standardize
        self.noise = noise
        self.cutmix = cutmix
        self.drop_blocks = drop_blocks
        self.average = average
        self.freeze_norms = freeze_norms
        self.mirror = mirror
        self.per_class = per_class
        self.precision = precision

    def __init_subclass__(cls, **options: Any) -> None:
        """Replace `**common` in the signature by its options, for scikit-learn and `help`."""
        super().__init_subclass__(**options)
        own = vars(cls).get("__init__")
        if own is None:
            return
        kinds = inspect.Parameter
        written = inspect.signature(own).parameters
        if not any(each.kind is kinds.VAR_KEYWORD for each in written.values()):
            return
        named = {n: each for n, each in written.items() if each.kind is not kinds.VAR_KEYWORD}
        common = inspect.signature(DeepHasher.__init__).parameters
        every = named | {n: each for n, each in common.items() if n not in named}
        own.__signature__ = inspect.Signature([*every.values()])

    def own_backbone(self) -> str | None:
        """Return the network of the method's paper if "auto" should select it, else None.

        Examples
        --------
        >>> from bitprint.methods import create
        >>> create("cnnh", bits=12).own_backbone(), create("dsdh", bits=12).own_backbone()
        ('cnnh', None)
        """
        return None

    def fit(
        self,
        X: Data,
        y: ArrayLike | None = None,
        *,
        labels: ArrayLike | None = None,
        validation: tuple[Data, ArrayLike | None] | Data | None = None,
        callback: Callback | None = None,
        run: str | os.PathLike[str] | None = None,
        progress: bool | str = False,
        about: dict[str, Any] | None = None,
    ) -> Self:
        """Train the network.

        Inside `bitprint.training.distributed.joined`, all processes train it together. Threads of
        one process train one at a time, because they share torch's random generators.

        Parameters
        ----------
        X : ImageSet, array, path, list of PIL images, torch Dataset, ...
            Training images or features: any input of `bitprint.data.inputs.read_inputs`.
        y : array_like, optional
            (N,) class numbers or names, (N, c) zeros and ones, or a list of names per image.
            Default: the labels of the image set, the folder or the dataset. Not used by a method
            that learns without labels.
        labels : array_like, optional
            Deprecated: the former name of `y`.
        validation : tuple of (X, y), optional
            Held-out images or features and their labels; or data that include labels, such as an
            `ImageSet`, a torch `Dataset` or a `DataLoader`. Their `score` after each epoch is
            recorded as `validation_map`. It does not affect the training.
        callback : callable, optional
            Function that is called after each epoch with a dict, the row of `metrics.csv`. An
            exception that it raises stops the training.
        run : path, optional
            Folder for checkpoints, `metrics.csv` and the model. Fit again with the same folder to
            resume an interrupted training.
        progress : bool or str
            Show a progress bar, or without a terminal print lines that start with this text.
        about : dict, optional
            Additional facts for the run's `model.json`, as in `save`.
        """
        self._check_numbers()
        if callback is not None and not callable(callback):
            raise ValueError(
                f"callback must be a function that takes a dict, got {callback!r}; to use several, "
                "pass a function that calls each of them"
            )
        source, found = read_inputs(X)
        y = either(y, labels)
        y = found if y is None else y
        names = _label_names(source, y) if self._uses_labels else None
        labels = self._check_labels(source, y, len(source))
        settled = self._settle(source, labels, run)
        settled._check_options(labels)
        training = settled.training
        assert training is not None
        device = pick_device(self.device)
        workers = current_workers()
        state = training_state(labels, device, training.batch_size)
        net = settled._build(item_shape(source), state.classes.shape[1], device, training)
        if training.standardize:
            _standardize(net, source)
        folder = settled._open_run(run, source, labels, workers, self.backbone)
        history = train(
            net,
            settled,
            Feed(source, device, workers.part),
            state,
            training,
            seed=int(self.seed),
            run=folder,
            progress=progress,
            workers=workers,
            validate=settled._validate(net, item_shape(source), validation),
            callback=callback if workers.first else None,
        )
        with torch.no_grad():
            settled.finish(net.eval(), state, Feed(source, device))
        self.__dict__ |= {n: v for n, v in vars(settled).items() if n.endswith("_")}
        self.net_, self.history_ = net, history
        self.training_, self.settings_ = training, settled._settings()
        self._fitted_bits = self.bits
        self.input_shape_ = item_shape(source)
        self.classes_ = class_count(labels)
        self.label_names_ = names
        if workers.first:
            self._warn_of_failure(source, labels)
        self._about = dict(about or {})
        if run is not None and workers.first:
            self.save(run)
        workers.wait()
        return self

    def project(self, data: Data) -> NDArray[np.float32]:
        """Return the outputs of the hash layer, shape (N, K)."""
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
        """Return the layer on top of the backbone; its first K outputs are the hash outputs.

        By default a linear layer with weights and biases from N(0, 0.01^2), as in the authors'
        releases of DPSH, DTSH and DSDH.

        Examples
        --------
        >>> from bitprint.methods import create
        >>> create("dpsh", bits=12).make_head(features=4096, classes=10)
        Linear(in_features=4096, out_features=12, bias=True)
        """
        return gaussian_linear(features, self.bits)

    def prepare(self, state: State) -> None:
        """Create the buffers of the method: by default U (N, K), the last outputs of all images.

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
        """Return the named terms of the loss of one batch; the loss is their sum.

        Parameters
        ----------
        outputs : Tensor, shape (n, K) or wider
            Outputs of the head.
        rows : Tensor of int64, shape (n,)
            Indices of the training images in the batch; see also `views`.
        state : State
            Labels and buffers of the training set.
        """

    def after_epoch(self, state: State) -> dict[str, float]:
        """Update the method after an epoch and return metrics for `metrics.csv`."""
        return {}

    def finish(self, net: HashNetwork, state: State, feed: Feed) -> None:
        """Store what the method has learned outside the network, after training.

        Tensors of the network are saved with the model. Attributes whose names end in an underscore
        are set on the fitted hasher and are not saved.

        Parameters
        ----------
        net : HashNetwork
            The network in evaluation mode, with averaged weights if they are used.
        state : State
            Labels and buffers of the training set.
        feed : Feed
            The training items.
        """

    def _validate(
        self,
        net: HashNetwork,
        shape: tuple[int, ...],
        validation: tuple[Data, ArrayLike | None] | Data | None,
    ) -> Callable[[], dict[str, float]] | None:
        """Return a function that scores the network on validation items, or None without them."""
        if validation is None:
            return None
        pair = validation if isinstance(validation, tuple) else (validation, None)
        if len(pair) != 2 or isinstance(validation, Number):
            raise ValueError("validation must be a tuple (X, y) of items and their labels")
        X, found = read_inputs(pair[0], shape)
        y = found if pair[1] is None else pair[1]
        if y is None and not isinstance(validation, tuple):
            raise ValueError("validation must be a tuple (X, y) of items and their labels")
        if y is None:
            raise ValueError("validation needs labels: validation=(X, y)")
        check_labels(y, len(X))
        measured = copy(self)
        measured.net_, measured.input_shape_ = net, shape
        measured._fitted_bits = self.bits

        def validate() -> dict[str, float]:
            training = net.training
            try:
                return {"validation_map": measured.score(X, y)}
            finally:
                net.train(training)

        return validate

    def _warn_of_failure(self, source: Source, labels: NDArray) -> None:
        """Warn if the codes distinguish training images no better than chance.

        If all outputs are equal, some losses have no gradient and the training cannot recover.
        """
        rows = np.unique(np.linspace(0, len(source) - 1, _SAMPLE).astype(int))
        some = source.subset(rows) if isinstance(source, ImageSet) else source[rows]
        codes = self.encode(some)
        advice = "train with a lower learning rate (lr) or for more epochs"
        if all(codes[row : row + 1] == codes[:1] for row in range(len(codes))):
            warnings.warn(
                f"{self.name} gives the same code to all of {len(rows)} training images; {advice}",
                stacklevel=3,
            )
            return
        classes = class_matrix(labels[rows])
        shared = classes @ classes.sum(axis=0) > classes.sum(axis=1)
        if not shared.any():
            return  # no two of these images share a label
        alike = np.clip(classes @ classes.T, 0, 1)
        chance = (alike.sum() - np.trace(alike)) / (len(rows) * (len(rows) - 1))
        reached = self.score(some, labels[rows])
        if reached - chance < _NEAR_CHANCE * (1 - chance):
            warnings.warn(
                f"{self.name} ranks its training images hardly better than chance (MAP "
                f"{reached:.2f}, chance {chance:.2f}); {advice}",
                stacklevel=3,
            )

    def _output_width(self) -> int:
        """Return the number of head outputs that `project` returns."""
        return self.bits

    def _check_options(self, labels: NDArray) -> None:
        """Raise a ValueError for invalid options; called before training.

        All options have been resolved, see `bitprint.methods.recipes.settle`.
        """
        if self.supervision == "none" and self.training is not None and self.training.cutmix:
            raise ValueError(f"cutmix mixes labels, and {self.name} compares images: set cutmix=0")

    def _check_labels(self, data: Data, labels: ArrayLike | None, count: int) -> NDArray:
        """Return the labels of at least two classes; without supervision, one class for all."""
        if count == 0:
            raise ValueError("there are no training images")
        checked = super()._check_labels(data, labels, count)
        if checked is None:
            return np.zeros(count, np.int64)
        check_several_classes(checked)
        return checked

    def _build(
        self, shape: tuple[int, ...], classes: int, device: torch.device, training: Training
    ) -> HashNetwork:
        with isolated_rng():
            torch.manual_seed(int(self.seed))
            trunk = create_trunk(self.backbone, input_shape=shape)
            net = HashNetwork(trunk, self.make_head(trunk.out_features, classes))
        return _place(net, device, training)

    def _settle(
        self, source: Source, labels: NDArray, run: str | os.PathLike[str] | None
    ) -> DeepHasher:
        """Resolve all options; a run of a version without recipes keeps the recipe "original"."""
        items = Items.of(source)
        begun = None if run is None else identity_without_recipe(run)
        if begun is not None and self.recipe != "original":
            original = copy(self)
            original.recipe = "original"
            settled = settle(original, items)
            if settled._identity(source, labels, self.backbone) == begun:
                warnings.warn(
                    f"{run}: an earlier version started this run with the recipe original; it "
                    "resumes with that recipe",
                    stacklevel=3,
                )
                self.recipe = "original"
                return settled
        return settle(self, items)

    def _open_run(
        self,
        run: str | os.PathLike[str] | None,
        source: Source,
        labels: NDArray,
        workers: Workers,
        named: Any,
    ) -> RunFolder | None:
        """Return the run folder or None; raise if the processes differ in options or data."""
        if run is None and workers.size == 1:
            return None
        identity = self._identity(source, labels, named)
        workers.check_same(
            identity, "the processes of this training do not have the same options and data"
        )
        return None if run is None else RunFolder(run, identity)

    def _identity(self, source: Source, labels: NDArray, named: Any = "auto") -> str:
        """Return a hash of the method, the settings and the training data of a run.

        It includes the resolved settings and not the recipe, so that runs of versions without
        recipes can resume as "original". `named` is the requested backbone, which those versions
        stored.
        """
        if isinstance(source, ImageSet):
            data = source.fingerprint()
        else:
            data = hashlib.sha256(np.ascontiguousarray(source).data).hexdigest()
        usual = "efficientnet-lite0" if isinstance(source, ImageSet) else "mlp"
        backbone = "auto" if named == "auto" and self.backbone == usual else self.backbone
        about = {
            "method": self.name,
            "options": self._own_options()
            | {
                "bits": self.bits,
                "backbone": backbone
                if isinstance(backbone, str)
                else [module_name(backbone), module_shapes(backbone)],
                "training": _identifying(self.training or self.default_training),
                "device": None,
                "seed": plain(self.seed),
            },
            "data": data,
            "labels": hashlib.sha256(np.ascontiguousarray(labels).data).hexdigest(),
        }
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

    def _training(self, options: Mapping[str, Any]) -> Training:
        """Return the training settings: given ones, else those of the recipe."""
        if not isinstance(self.training, Training | None):
            raise ValueError(f"training must be a Training, got {type(self.training).__name__}")
        base = {name: options[name] for name in TRAINING_OPTIONS if name in options}
        whole = base if self.training is None else asdict(self.training)
        given = {name: getattr(self, name, None) for name in TRAINING_OPTIONS}
        return Training(**whole | {n: value for n, value in given.items() if value is not None})

    def _check_numbers(self) -> None:
        super()._check_numbers()
        check_recipe(self.recipe)
        self._training({})  # validates the given settings

    def _own_options(self) -> dict[str, Any]:
        """Return the options that are specific to this method, as JSON values."""
        common = inspect.signature(DeepHasher.__init__).parameters
        params = self.get_params(deep=False)
        return {name: plain(value) for name, value in params.items() if name not in common}

    def _settings(self) -> dict[str, Any]:
        """Return all settings of a hasher whose options are resolved."""
        assert self.training is not None
        return {"backbone": _named(self.backbone), **self._own_options(), **asdict(self.training)}

    def _options(self) -> dict[str, Any]:
        options = super()._options()
        if isinstance(self.training, Training):
            options["training"] = asdict(self.training)
        options |= {"backbone": _named(self.backbone), "device": str(self.device)}
        return {name: value for name, value in options.items() if value is not None}

    def _export(self) -> tuple[dict[str, NDArray], dict[str, Any]]:
        arrays = {name: value.cpu().numpy() for name, value in self.net_.state_dict().items()}
        return arrays, {
            "trunk": self.net_.trunk.describe(),
            "input_shape": list(self.input_shape_),
            "classes": self.classes_,
            "label_names": self.label_names_,
            "settings": self.settings_,
        }

    def _restore(self, arrays: dict[str, NDArray], fitted: dict[str, Any]) -> None:
        # Allocate nothing before the shapes are checked.
        with torch.device("meta"), Uninitialized():
            described = self._described(fitted).state_dict()
        # Counters are stored as arrays with one element.
        claimed = {name: tuple(value.shape) or (1,) for name, value in described.items()}
        for name in claimed | arrays:
            found = arrays[name].shape if name in arrays else None
            if found != claimed.get(name):
                raise ValueError(f"{name} has shape {found}, not {claimed.get(name)}")
        with Uninitialized():
            net = self._described(fitted)
        net.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
        # Models of versions without recipes store all settings as options.
        self.settings_ = fitted.get("settings") or self._settings()
        self.training_ = Training(
            **{n: self.settings_[n] for n in TRAINING_OPTIONS if n in self.settings_}
        )
        self.net_ = _place(net, pick_device(self.device), self.training_)
        self._fitted_bits = self.bits
        self.input_shape_ = tuple(fitted["input_shape"])
        self.classes_ = fitted["classes"]
        self.label_names_ = fitted["label_names"]

    def _described(self, fitted: dict[str, Any]) -> HashNetwork:
        if isinstance(self.backbone, nn.Module):
            trunk = create_trunk(self.backbone, input_shape=tuple(fitted["input_shape"]))
        else:
            trunk = restore_trunk(fitted["trunk"])
        return HashNetwork(trunk, self.make_head(trunk.out_features, fitted["classes"]))


def gaussian_linear(features: int, outputs: int) -> nn.Linear:
    """Return a linear layer with weights and biases from N(0, 0.01^2)."""
    layer = nn.Linear(features, outputs)
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.normal_(layer.bias, std=0.01)
    return layer


def check_weights(*, zero: bool = False, **weights: float) -> None:
    """Raise a ValueError unless all weights are finite and > 0, or >= 0 if `zero`."""
    for name, value in weights.items():
        if (
            not isinstance(value, Real)
            or not math.isfinite(value)
            or value < 0
            or (value == 0 and not zero)
        ):
            bound = ">=" if zero else ">"
            raise ValueError(f"{name} must be a number {bound} 0, got {value!r}")


def training_state(labels: NDArray, device: torch.device, batch_size: int) -> State:
    """Return the state of a training set for a loss.

    Parameters
    ----------
    labels : ndarray, shape (N,) or (N, c)
    device : device
    batch_size : int
        Nominal batch size, see `State`.
    """
    classes = class_matrix(labels)
    return State(
        labels=torch.from_numpy(labels if labels.ndim == 1 else classes).to(device),
        classes=torch.from_numpy(classes).to(device),
        batch_size=batch_size,
    )


def _place(net: HashNetwork, device: torch.device, training: Training) -> HashNetwork:
    automatic = training.precision == "auto" and device.type == "cuda"
    net.mixed = automatic or training.precision == "bfloat16"
    net.mirror = training.mirror
    skipped = [layer for layer in net.modules() if isinstance(layer, StochasticDepth)]
    if training.drop_blocks and not skipped:
        raise ValueError(f"{net.trunk.name} has no blocks to skip: drop_blocks must be 0")
    for layer in skipped:
        layer.dropout.p = training.drop_blocks
    noisy = [layer for layer in net.modules() if isinstance(layer, GaussianNoise)]
    if training.noise and not noisy:
        raise ValueError(f"noise works with the backbone mlp, not with {net.trunk.name}")
    for noise in noisy:
        noise.std = training.noise
    net.to(device)
    for module in net.modules():
        if isinstance(module, nn.Conv2d) and net.trunk.optimized:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net


def _standardize(net: HashNetwork, source: Source) -> None:
    """Let a network over features standardize them by the mean and scale of its training set."""
    if not isinstance(net.trunk, MLP) or isinstance(source, ImageSet):
        raise ValueError(f"standardize works with the backbone mlp, not with {net.trunk.name}")
    device = next(net.parameters()).device
    net.trunk.standardize(*feature_scale(source))
    net.trunk.preprocess.to(device)


def _identifying(training: Training) -> dict[str, Any]:
    """Fields of a training that identify a run.

    Those that earlier versions lack are left out where they have the default value, so that runs
    which those versions began resume.
    """
    new = {"standardize": False, "noise": 0.0}
    return {
        name: value
        for name, value in asdict(training).items()
        if name not in new or value != new[name]
    }


def _named(backbone: Any) -> Any:
    return module_name(backbone) if isinstance(backbone, nn.Module) else backbone


def _label_names(source: Source, labels: ArrayLike | None) -> list[str] | None:
    """Return the class names: those of the labels if they are names, else those of the images."""
    names = None if labels is None else class_names(labels)
    if names is not None or not isinstance(source, ImageSet) or source.label_names is None:
        return names
    return list(source.label_names)
