"""Hasher, the base class of all methods: fit, encode and save."""

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

from bitprint.codes import Codes, check_bits
from bitprint.data.feed import item_shape
from bitprint.data.images import ImageSet
from bitprint.data.inputs import Data, Source, read_inputs
from bitprint.data.vectors import as_features
from bitprint.evaluation.leave_one_out import leave_one_out_map
from bitprint.methods._store import pack_files, to_files, write_model
from bitprint.supervision import check_labels, check_several_classes
from bitprint.utils.arguments import check_seed, plain

_BLOCK = 8192  # rows per call of _project


class Hasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Base class of methods that encode images or features as codes of K bits.

    A hasher is a scikit-learn transformer. The constructor only stores its arguments; attributes
    that `fit` sets end in an underscore.

    Attributes
    ----------
    name : str
        Name in the registry.
    supervision : {"none", "labels"}
        Whether `fit` needs labels.
    reference : str
        Paper that describes the method: authors, venue and year.
    title : str
        Name in headings; by default the name of the class.
    group : {"data-independent", "unsupervised", "supervised", "deep", "baseline"}
        Section in which the method is listed; by default according to `supervision`.
    year : int or None
        Year of the reference.

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
    title: ClassVar[str] = ""
    group: ClassVar[str] = ""
    year: ClassVar[int | None] = None

    bits: int

    _fitted_bits: int | None = None  # None if a subclass overrides `fit` without setting it

    @property
    def about(self) -> dict[str, Any]:
        """Facts about the training, such as the data set; saved with the model.

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
        """Fit the method to N images or features (N, d) and their labels.

        Parameters
        ----------
        X : ImageSet, array, path, list of PIL images, torch Dataset, ...
            Any input of `bitprint.data.inputs.read_inputs`.
        y : array_like, optional
            (N,) class numbers or names, or (N, c) zeros and ones; by default the labels of the
            image set, the folder or the dataset.
        labels : array_like, optional
            Deprecated: the former name of `y`.
        """

    @abstractmethod
    def project(self, data: Data) -> NDArray[np.float32]:
        """Return real-valued outputs, shape (N, K); their signs are the codes."""

    def encode(self, data: Data) -> Codes:
        """Return the codes of images or features: bit k is +1 if output k >= 0."""
        return Codes.from_signs(self.project(data) >= 0)

    def encode_queries(self, data: Data) -> Codes:
        """Return the codes of queries: those of `encode`, except in asymmetric methods."""
        return self.encode(data)

    def transform(self, X: Data) -> NDArray[np.int8]:
        """Return the codes as -1 and +1, shape (N, K), for scikit-learn pipelines."""
        codes = self.encode(X)
        if not isinstance(codes, Codes):
            raise ValueError(f"codes of {self.name} are not binary; use encode or project")
        return codes.signs()

    def score(self, X: Data, y: ArrayLike | None = None) -> float:
        """Return the mean average precision of each item as a query against all other items.

        A query is excluded from its own ranked list, and ties are averaged, as in
        `bitprint.evaluate`. Higher is better, so scikit-learn can select options by this score.

        Parameters
        ----------
        X : ImageSet, array, or any other input of `fit`
        y : array_like, optional
            (N,) class numbers or names, or (N, c) zeros and ones; by default the labels of X.
        """
        if y is None:
            X, y = read_inputs(X, getattr(self, "input_shape_", None))
        if y is None:
            raise ValueError("score needs labels; pass them as y")
        codes = self.encode(X)
        symmetric = type(self).encode_queries is Hasher.encode_queries
        return leave_one_out_map(codes, y, None if symmetric else self.encode_queries(X))

    def save(self, folder: str | os.PathLike[str], **about: Any) -> None:
        """Write `model.safetensors` and `model.json`; `bitprint.load` reads them.

        Parameters
        ----------
        folder : path
            Created if missing.
        **about
            Additional facts for `model.json`, such as the training data; JSON values.
        """
        write_model(folder, *self._describe(about))

    def to_bytes(self, **about: Any) -> bytes:
        """Return the model as bytes; `bitprint.load_bytes` reads them.

        The bytes are a safetensors file with the content of `save` and a checksum. Pickle is not
        used.

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
        """Return the description and the arrays that are stored."""
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
        """Return the constructor arguments as JSON values."""
        return {name: plain(value) for name, value in self.get_params(deep=False).items()}

    @abstractmethod
    def _export(self) -> tuple[dict[str, NDArray], dict[str, Any]]:
        """Return the fitted state as arrays and JSON values."""

    @abstractmethod
    def _restore(self, arrays: dict[str, NDArray], fitted: dict[str, Any]) -> None:
        """Set the fitted state from the values of `_export`."""

    def _check_numbers(self) -> None:
        """Raise a ValueError if `bits` or `seed` is invalid."""
        check_bits(self.bits)
        check_seed(getattr(self, "seed", 0))  # some methods have no seed

    def _check_fitted(self) -> None:
        """Raise if the hasher is not fitted, or fitted with another number of bits."""
        check_is_fitted(self)
        if self._fitted_bits not in (None, self.bits):
            raise ValueError(
                f"{self.name} was fitted with {self._fitted_bits} bits, and bits is now "
                f"{self.bits}; fit it again"
            )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self._uses_labels
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = []  # codes are int8 for any dtype of the features
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.bits

    @property
    def _uses_labels(self) -> bool:
        """Whether `fit` needs labels; a method can let its options decide."""
        return self.supervision == "labels"

    def _check_labels(self, data: Data, labels: ArrayLike | None, count: int) -> NDArray | None:
        """Return the given labels or those of the image set; raise if required ones are missing."""
        if not self._uses_labels:
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
    """Return the labels, passed as `y` or as `labels`.

    Examples
    --------
    >>> either([0, 1], None)
    [0, 1]
    """
    if y is not None and labels is not None:
        raise ValueError("labels are given twice, as y and as labels; pass only y")
    if labels is not None:
        message = "fit(..., labels=...) is deprecated; pass the labels as y"
        warnings.warn(message, DeprecationWarning, stacklevel=3)
    return labels if y is None else y


def _warn_of_unlabelled(images: ImageSet) -> None:
    # A row of zeros can be intended, but in a folder it usually is a missing label.
    if images.labels is not None and (without := len(images) - len(images.labelled())):
        warnings.warn(
            f"{without} of {len(images)} images have no label and are treated as dissimilar to all "
            "others; images.labelled() excludes them",
            stacklevel=4,
        )


def _vectors(items: Source) -> NDArray[np.float32]:
    return as_features(items) if isinstance(items, ImageSet) else items


def _check_shape(shape: Any, features: int) -> None:
    """Raise a ValueError unless a stored `input_shape_` has this number of values."""
    if not (
        isinstance(shape, list | tuple)
        and len(shape) in (1, 3)
        and all(type(side) is int and side > 0 for side in shape)
        and math.prod(shape) == features
    ):
        raise ValueError(f"input_shape_ {shape} does not match {features} features")


class FeatureHasher(Hasher):
    """Base class of methods that learn from feature vectors or the raw pixels of an `ImageSet`.

    A subclass implements `_fit` and `_project` and stores the fitted state in attributes whose
    names end in an underscore: arrays, numbers and strings. This class validates the input, packs
    the codes and saves the model.

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
    >>> hasher.check_width(3)  # a subclass can raise a ValueError here
    """

    def fit(self, X: Data, y: ArrayLike | None = None, *, labels: ArrayLike | None = None) -> Self:
        """Fit the method to features (N, d) and, if it needs them, labels; see `Hasher.fit`.

        Parameters
        ----------
        X : array or data frame of shape (N, d), or any other input of `Hasher.fit`
        y : array_like, optional
            Labels; by default the labels of X.
        labels : array_like, optional
            Deprecated: the former name of `y`.
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
        """Return real-valued outputs, shape (N, K); their signs are the codes."""
        features = self._features(data)
        # In blocks, because a kernel matrix can be wider than the features.
        outputs = np.empty((len(features), self.bits), np.float32)
        for start in range(0, len(features), _BLOCK):
            rows = slice(start, start + _BLOCK)
            outputs[rows] = self._project(features[rows])
        return outputs

    def check_width(self, width: int) -> None:
        """Raise a ValueError if features of this length are too short.

        `fit` calls this method. Callers can use it before they compute features.
        """

    def _features(self, data: Data) -> NDArray[np.float32]:
        """Return the feature vectors of the input of a fitted hasher, shape (N, d)."""
        self._check_fitted()
        # Models of earlier versions have no input_shape_.
        shape = getattr(self, "input_shape_", (self.n_features_in_,))
        features = _vectors(read_inputs(data, shape)[0])
        self._check_columns(data, features, reset=False)
        return features

    def _check_columns(self, data: Data, features: NDArray[np.float32], *, reset: bool) -> None:
        """Store the number and names of the columns if `reset`, else compare with them."""
        named = data if hasattr(data, "columns") else features
        without_names = named is features and not hasattr(self, "feature_names_in_")
        if not reset and without_names and features.shape[1] == self.n_features_in_:
            return  # scikit-learn would import pandas to find out that an array has no names
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
            raise ValueError(f"unexpected fitted values for {self.name}: {', '.join(learned)}")
        for name, value in learned.items():
            setattr(self, name, value)
        if "feature_names_in_" in learned:
            self.feature_names_in_ = np.array(learned["feature_names_in_"], object)
        if "input_shape_" in learned:  # missing in models of earlier versions
            _check_shape(learned["input_shape_"], self.n_features_in_)
            self.input_shape_ = tuple(learned["input_shape_"])
        width = self._project(np.zeros((1, self.n_features_in_), np.float32)).shape[1]
        if width != self.bits:
            raise ValueError(f"the weights are for {width} bits, but bits is {self.bits}")
        self._fitted_bits = self.bits
