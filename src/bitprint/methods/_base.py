"""Hasher: what all methods have in common. They fit, encode and save."""

from __future__ import annotations

import math
import os
import warnings
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from bitprint.arguments import check_seed, plain
from bitprint.codes import Codes, check_bits
from bitprint.data.feed import item_shape
from bitprint.data.images import ImageSet
from bitprint.data.inputs import Data, Source, read_inputs
from bitprint.data.vectors import as_features
from bitprint.evaluation.leave_one_out import leave_one_out_map
from bitprint.methods._store import pack_files, to_files, write_model
from bitprint.supervision import check_labels, check_several_classes

_BLOCK = 8192  # rows that are projected at a time


class Hasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """A method that turns images or features into codes of K bits.

    It is a scikit-learn transformer, from images or features to codes as numbers. A constructor
    stores its arguments and nothing else; what `fit` learns ends in an underscore.

    Attributes
    ----------
    name : str
        Its name in the registry.
    supervision : {"none", "labels"}
        What `fit` needs besides the data.
    reference : str
        The paper that describes it.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> from bitprint.data import load_digits
    >>> digits = load_digits()
    >>> hasher = bp.create("itq", bits=16).fit(digits.subset(range(1000)))
    >>> codes = hasher.encode(digits)
    >>> codes, bool(np.all((hasher.project(digits) >= 0) == (codes.signs() > 0)))
    (Codes(1797 x 16 bits), True)
    >>> hasher.encode_queries(digits.subset([7])).hamming(codes[:10]).argmin()
    np.int64(7)
    >>> hasher.transform(digits).shape, round(hasher.score(digits), 2)
    ((1797, 16), 0.62)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hasher.save(folder, data="digits")
    ...     bp.load(folder).encode(digits) == codes
    True
    """

    name: ClassVar[str]
    supervision: ClassVar[Literal["none", "labels"]]
    reference: ClassVar[str] = ""

    bits: int

    _fitted_bits: int | None = None  # of a method that writes its own `fit`

    @property
    def about(self) -> dict[str, Any]:
        """Facts about the training, such as its data, that are saved with the model.

        Examples
        --------
        >>> import bitprint as bp
        >>> hasher = bp.train(bp.open_images("digits"), method="itq", bits=8)
        >>> hasher.about["size"]
        8
        """
        facts: dict[str, Any] = self.__dict__.setdefault("_about", {})
        return facts

    @abstractmethod
    def fit(self, X: Data, y: ArrayLike | None = None, *, labels: ArrayLike | None = None) -> Self:
        """Learn from N images or features (N, d), and their labels.

        Parameters
        ----------
        X : ImageSet, array, path, list of PIL images, torch Dataset, ...
            All that `bitprint.data.inputs.read_inputs` reads.
        y : array_like, optional
            (N,) class numbers or names, or (N, c) zeros and ones; by default the labels of the
            image set, the folder or the dataset.
        labels : array_like, optional
            The former name of `y`.
        """

    @abstractmethod
    def project(self, data: Data) -> NDArray[np.float32]:
        """Real-valued outputs, shape (N, K), whose signs are the codes."""

    def encode(self, data: Data) -> Codes:
        """Codes of images or features: bit k is +1 where output k is >= 0."""
        return Codes.from_signs(self.project(data) >= 0)

    def encode_queries(self, data: Data) -> Codes:
        """Codes to search with: those of `encode`, unless a method treats queries differently."""
        return self.encode(data)

    def transform(self, X: Data) -> NDArray[np.int8]:
        """Codes as -1 and +1, shape (N, K), for use in a scikit-learn pipeline."""
        codes = self.encode(X)
        if not isinstance(codes, Codes):
            raise ValueError(f"codes of {self.name} are not signs; use encode, or project")
        return codes.signs()

    def score(self, X: Data, y: ArrayLike | None = None) -> float:
        """Mean average precision of every item as a query against all other items.

        An item is left out of its own ranked list, and ties count in expectation, as in
        `bitprint.evaluate`. Higher is better, so that scikit-learn can select options by it.

        Parameters
        ----------
        X : ImageSet, array, or any other data that `fit` takes
        y : array_like, optional
            (N,) class numbers or names, or (N, c) zeros and ones; by default those of the data.
        """
        if y is None:
            X, y = read_inputs(X, getattr(self, "input_shape_", None))
        if y is None:
            raise ValueError("score compares codes by labels: give them as y")
        codes = self.encode(X)
        symmetric = type(self).encode_queries is Hasher.encode_queries
        return leave_one_out_map(codes, y, None if symmetric else self.encode_queries(X))

    def save(self, folder: str | os.PathLike[str], **about: Any) -> None:
        """Write `model.safetensors` and `model.json`; `bitprint.load` reads them.

        Parameters
        ----------
        folder : path
            Made when missing.
        **about
            Further facts for `model.json`, such as the training data: values JSON can hold.
        """
        write_model(folder, *self._describe(about))

    def to_bytes(self, **about: Any) -> bytes:
        """Return the model as bytes, to store anywhere; `bitprint.load_bytes` reads them.

        They are a safetensors file of what `save` writes, with a checksum. Nothing is pickled.

        Examples
        --------
        >>> import bitprint as bp
        >>> features = np.random.default_rng(0).normal(size=(100, 8))
        >>> hasher = bp.create("itq", bits=4).fit(features)
        >>> bp.load_bytes(hasher.to_bytes()).encode(features) == hasher.encode(features)
        True
        """
        return pack_files(to_files(*self._describe(about)))

    def _describe(self, about: dict[str, Any]) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return what is stored of a fitted hasher: the description and the arrays."""
        self._check_fitted()
        arrays, fitted = self._export()
        document = {
            "method": self.name,
            "options": self._options(),
            "fitted": fitted,
            "about": self.about | about,
        }
        return document, arrays

    def _options(self) -> dict[str, Any]:
        """Constructor arguments as JSON values."""
        return {name: plain(value) for name, value in self.get_params(deep=False).items()}

    @abstractmethod
    def _export(self) -> tuple[dict[str, NDArray], dict[str, Any]]:
        """Fitted state: arrays, and plain JSON values."""

    @abstractmethod
    def _restore(self, arrays: dict[str, NDArray], fitted: dict[str, Any]) -> None:
        """Take the state that `_export` gave."""

    def _check_numbers(self) -> None:
        """Raise a ValueError unless the method can have this many bits, and this seed."""
        check_bits(self.bits)
        check_seed(getattr(self, "seed", 0))  # not every method draws

    def _check_fitted(self) -> None:
        """Raise unless there is something to encode with, and it is of this many bits."""
        check_is_fitted(self)
        if self._fitted_bits not in (None, self.bits):
            raise ValueError(
                f"{self.name} was fitted with {self._fitted_bits} bits, and bits is now "
                f"{self.bits}; fit it again"
            )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.supervision == "labels"
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = []  # codes are int8, whatever the features are
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.bits

    def _check_labels(self, data: Data, labels: ArrayLike | None, count: int) -> NDArray | None:
        """Labels as given, or those of the image set; an error where the method needs them."""
        if self.supervision == "none":
            return None
        if isinstance(data, ImageSet) and (labels is None or labels is data.labels):
            labels = data.labels
            _warn_of_unlabelled(data)
        if labels is None:
            raise ValueError(
                f"{self.name} learns from labels: it requires y to be passed, but the target y is "
                "None"
            )
        return check_labels(labels, count)


def either(y: ArrayLike | None, labels: ArrayLike | None) -> ArrayLike | None:
    """Return the labels, which a caller may give as `y` or as `labels`.

    Examples
    --------
    >>> either(None, [0, 1])
    [0, 1]
    """
    if y is not None and labels is not None:
        raise ValueError("labels are given twice, as y and as labels; give y alone")
    return labels if y is None else y


def _warn_of_unlabelled(images: ImageSet) -> None:
    # A row of zeros may be meant so, but pictures of a folder without a label seldom are.
    if images.labels is not None and (without := len(images) - len(images.labelled())):
        warnings.warn(
            f"{without} of {len(images)} images have no label, and are learned as unlike all "
            "others; images.labelled() leaves them out",
            stacklevel=4,
        )


def _vectors(items: Source) -> NDArray[np.float32]:
    return as_features(items) if isinstance(items, ImageSet) else items


def _check_shape(shape: Any, features: int) -> None:
    """Raise unless a stored `input_shape_` has this many numbers."""
    if not (
        isinstance(shape, list | tuple)
        and len(shape) in (1, 3)
        and all(type(side) is int and side > 0 for side in shape)
        and math.prod(shape) == features
    ):
        raise ValueError(f"input_shape_ is {shape}, which is not the shape of {features} features")


class FeatureHasher(Hasher):
    """A method that learns from feature vectors; an `ImageSet` is read as its raw pixels.

    A subclass writes `_fit` and `_project` and keeps what it learns in arrays, numbers and
    strings whose names end in an underscore; validation, packing and saving are done here.

    Examples
    --------
    >>> class AboveMean(FeatureHasher):
    ...     name, supervision = "above-mean", "none"
    ...
    ...     def __init__(self, bits):
    ...         self.bits = bits
    ...
    ...     def _fit(self, features, labels):
    ...         self.means_ = features[:, : self.bits].mean(axis=0)
    ...
    ...     def _project(self, features):
    ...         return features[:, : self.bits] - self.means_
    >>> hasher = AboveMean(bits=2).fit([[0.0, 4.0, 1.0], [2.0, 8.0, 1.0]])
    >>> hasher.transform([[5.0, 5.0, 5.0]]).tolist()
    [[1, -1]]
    >>> hasher.check_width(3)  # it could also refuse features that are too short
    """

    def fit(self, X: Data, y: ArrayLike | None = None, *, labels: ArrayLike | None = None) -> Self:
        """Learn from features (N, d), and labels where the method needs them; see `Hasher.fit`.

        Parameters
        ----------
        X : array or data frame of shape (N, d), or any other data
        y : array_like, optional
            Labels; by default those of the data.
        labels : array_like, optional
            The former name of `y`.
        """
        self._check_numbers()
        items, found = read_inputs(X)
        features = _vectors(items)
        if len(features) == 0:
            raise ValueError("there are no training items")
        y = either(y, labels)
        checked = self._check_labels(items, found if y is None else y, len(features))
        if checked is not None:
            check_several_classes(checked)
        self.check_width(features.shape[1])
        self._check_columns(X, features, reset=True)
        self.input_shape_ = item_shape(items)
        self._fit(features, checked)
        self._fitted_bits = self.bits
        return self

    def project(self, data: Data) -> NDArray[np.float32]:
        """Real-valued outputs, shape (N, K), whose signs are the codes."""
        self._check_fitted()
        # A model of an earlier version has no shape: its features may not have been pixels.
        shape = getattr(self, "input_shape_", (self.n_features_in_,))
        features = _vectors(read_inputs(data, shape)[0])
        self._check_columns(data, features, reset=False)
        # In blocks: a kernel against a thousand anchors is wider than the features themselves.
        outputs = np.empty((len(features), self.bits), np.float32)
        for start in range(0, len(features), _BLOCK):
            rows = slice(start, start + _BLOCK)
            outputs[rows] = self._project(features[rows])
        return outputs

    def check_width(self, width: int) -> None:
        """Raise a ValueError where features of this length are too short to learn from.

        `fit` asks; whoever has yet to compute the features can do so before.
        """

    def _check_columns(self, data: Data, features: NDArray[np.float32], *, reset: bool) -> None:
        """Store number and names of the columns when `reset`, else compare with those stored."""
        named = data if hasattr(data, "columns") else features
        validate_data(self, named, reset=reset, skip_check_array=True)

    @abstractmethod
    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None: ...

    @abstractmethod
    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]: ...

    def _export(self) -> tuple[dict[str, NDArray], dict[str, Any]]:
        learned = {name: value for name, value in vars(self).items() if name.endswith("_")}
        if "feature_names_in_" in learned:
            learned["feature_names_in_"] = self.feature_names_in_.tolist()
        arrays = {name: value for name, value in learned.items() if isinstance(value, np.ndarray)}
        return arrays, {name: value for name, value in learned.items() if name not in arrays}

    def _restore(self, arrays: dict[str, NDArray], fitted: dict[str, Any]) -> None:
        learned = arrays | fitted
        if not all(name.endswith("_") and not name.startswith("_") for name in learned):
            raise ValueError(f"{', '.join(learned)} is not what {self.name} learns")
        for name, value in learned.items():
            setattr(self, name, value)
        if "feature_names_in_" in learned:
            self.feature_names_in_ = np.array(learned["feature_names_in_"], object)
        if "input_shape_" in learned:  # models of earlier versions have none
            _check_shape(learned["input_shape_"], self.n_features_in_)
            self.input_shape_ = tuple(learned["input_shape_"])
        width = self._project(np.zeros((1, self.n_features_in_), np.float32)).shape[1]
        if width != self.bits:
            raise ValueError(f"weights for {width} bits in a model of {self.bits}")
        self._fitted_bits = self.bits
