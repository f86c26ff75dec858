"""Hasher: what all methods have in common. They fit, encode and save."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bitprint.arguments import check_seed, plain
from bitprint.codes import Codes, check_bits
from bitprint.data.images import ImageSet
from bitprint.data.vectors import Data, as_features
from bitprint.methods._store import write_model
from bitprint.supervision import check_labels, check_several_classes

_BLOCK = 8192  # rows that are projected at a time


class Hasher(BaseEstimator, ABC):
    """A method that turns images or features into codes of K bits.

    A constructor stores its arguments and nothing else; what `fit` learns ends in an underscore.

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
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hasher.save(folder, data="digits")
    ...     bp.load(folder).encode(digits) == codes
    True
    """

    name: ClassVar[str]
    supervision: ClassVar[Literal["none", "labels"]]
    reference: ClassVar[str]

    bits: int

    _fitted_bits: int | None = None  # of a method that writes its own `fit`

    @property
    def about(self) -> dict[str, Any]:
        """Facts about the training, such as its data, that are saved with the model."""
        facts: dict[str, Any] = vars(self).setdefault("_about", {})
        return facts

    @abstractmethod
    def fit(self, data: Data, labels: ArrayLike | None = None) -> Self:
        """Learn from N images (an `ImageSet`) or features (N, d), and their labels."""

    @abstractmethod
    def project(self, data: Data) -> NDArray[np.float32]:
        """Real-valued outputs, shape (N, K), whose signs are the codes."""

    def encode(self, data: Data) -> Codes:
        """Codes of images or features: bit k is +1 where output k is >= 0."""
        return Codes.from_signs(self.project(data) >= 0)

    def encode_queries(self, data: Data) -> Codes:
        """Codes to search with: those of `encode`, unless a method treats queries differently."""
        return self.encode(data)

    def save(self, folder: str | os.PathLike[str], **about: Any) -> None:
        """Write `model.safetensors` and `model.json`; `bitprint.load` reads them.

        Parameters
        ----------
        folder : path
            Made when missing.
        **about
            Further facts for `model.json`, such as the training data: values JSON can hold.
        """
        self._check_fitted()
        arrays, fitted = self._export()
        document = {
            "method": self.name,
            "options": self._options(),
            "fitted": fitted,
            "about": self.about | about,
        }
        write_model(folder, document, arrays)

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

    def _check_labels(self, data: Data, labels: ArrayLike | None, count: int) -> NDArray | None:
        """Labels as given, or those of the image set; an error where the method needs them."""
        if self.supervision == "none":
            return None
        if labels is None and isinstance(data, ImageSet):
            labels = data.labels
            _warn_of_unlabelled(data)
        if labels is None:
            raise ValueError(f"{self.name} learns from labels, and none were given")
        return check_labels(labels, count)


def _warn_of_unlabelled(images: ImageSet) -> None:
    # A row of zeros may be meant so, but pictures of a folder without a label seldom are.
    if images.labels is not None and (without := len(images) - len(images.labelled())):
        warnings.warn(
            f"{without} of {len(images)} images have no label, and are learned as unlike all "
            "others; images.labelled() leaves them out",
            stacklevel=4,
        )


class FeatureHasher(TransformerMixin, Hasher):
    """A method that learns from feature vectors; an `ImageSet` is read as its raw pixels.

    It is a scikit-learn transformer, from features to codes as numbers.

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

    def fit(self, data: Data, labels: ArrayLike | None = None) -> Self:
        """Learn from features (N, d), and labels where the method needs them."""
        self._check_numbers()
        features = as_features(data)
        if len(features) == 0:
            raise ValueError("there are no training items")
        labels = self._check_labels(data, labels, len(features))
        if labels is not None:
            check_several_classes(labels)
        self.check_width(features.shape[1])
        self.n_features_in_ = features.shape[1]
        self._fit(features, labels)
        self._fitted_bits = self.bits
        return self

    def project(self, data: Data) -> NDArray[np.float32]:
        """Real-valued outputs, shape (N, K), whose signs are the codes."""
        self._check_fitted()
        features = as_features(data)
        if features.shape[1] != self.n_features_in_:
            raise ValueError(
                f"{self.name} was fitted on {self.n_features_in_} features, got {features.shape[1]}"
            )
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

    def transform(self, data: Data) -> NDArray[np.int8]:
        """Codes as -1 and +1, shape (N, K), for use in a scikit-learn pipeline."""
        return self.encode(data).signs()

    @abstractmethod
    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None: ...

    @abstractmethod
    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]: ...

    def _export(self) -> tuple[dict[str, NDArray], dict[str, Any]]:
        learned = {name: value for name, value in vars(self).items() if name.endswith("_")}
        arrays = {name: value for name, value in learned.items() if isinstance(value, np.ndarray)}
        return arrays, {name: value for name, value in learned.items() if name not in arrays}

    def _restore(self, arrays: dict[str, NDArray], fitted: dict[str, Any]) -> None:
        learned = arrays | fitted
        if not all(name.endswith("_") and not name.startswith("_") for name in learned):
            raise ValueError(f"{', '.join(learned)} is not what {self.name} learns")
        for name, value in learned.items():
            setattr(self, name, value)
        width = self._project(np.zeros((1, self.n_features_in_), np.float32)).shape[1]
        if width != self.bits:
            raise ValueError(f"weights for {width} bits in a model of {self.bits}")
        self._fitted_bits = self.bits
