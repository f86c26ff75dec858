"""VectorModel: normalization and a learned linear map, whose signs are the code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as deserialize
from safetensors.numpy import save as serialize

from bitprint.codes import Codes
from bitprint.utils.arguments import check_whole
from bitprint.vectors.checking import METRICS, Vectors, as_vectors, check_metric, normalized
from bitprint.vectors.keeping import KINDS, Keeper, fit_keeper, restore_keeper

DESCRIPTION, WEIGHTS = "vectors/model.json", "vectors/model.safetensors"
"""Names of the two attachments of an index."""

_FORMAT = "bitprint.vectors"
_VERSION = 1
_BLOCK = 8192  # rows of one matrix product
_PAIRS = (256, 2048)  # queries and vectors of the sample whose similarities are compared
_DEVIATION = 1e-3  # largest deviation from a linear map, in standard deviations of the outputs


class Settings(NamedTuple):
    """What a model was learned with."""

    method: str
    """Name of the method in the registry."""
    title: str
    """Name of its class."""
    bits: int
    metric: str
    keep: str | None
    width: int
    """Length of the vectors."""
    learned_from: int
    """Number of vectors the model was learned from."""


@dataclass(frozen=True)
class VectorModel:
    """Normalization, a linear map whose signs are the code, and the form of kept vectors.

    ``VectorModel.learn`` fits a hashing method and stores it as a linear map, so that a search does
    not import the method, scikit-learn or torch.

    Parameters
    ----------
    settings : tuple
        Method, code length, metric, form of kept vectors, and length and number of the vectors.
    mean : ndarray of float32, shape (d,)
        Mean of the (normalized) sample.
    projections : ndarray of float32, shape (d, bits)
        The output of a vector x is ``(x - mean) @ projections + offsets``.
    offsets : ndarray of float32, shape (bits,)
    scale : float
        Inner product of two centered vectors divided by that of one's output and the other's code.
    spread : float
        Mean squared distance of the sample from `mean`.
    keeper : object or None
        Packs kept vectors.

    Examples
    --------
    >>> vectors = np.random.default_rng(0).normal(size=(200, 8))
    >>> model = VectorModel.learn(vectors, bits=8)
    >>> model.settings.metric, model.encode(model.prepare(vectors))
    ('cosine', Codes(200 x 8 bits))
    >>> model.identity
    'ITQ, 8 bits, on vectors of length 8, cosine (...)'

    Codes are ranked by their inner products with the outputs of a query. Multiples of these
    estimate similarities:

    >>> prepared = model.prepare(vectors)
    >>> scores = model.project(prepared[:1]) @ model.encode(prepared).signs().T
    >>> cosines = model.compare(prepared[np.zeros(200, int)], prepared)
    >>> bool(np.corrcoef(model.estimate(prepared[:1], scores)[0], cosines)[0, 1] > 0.7)
    True
    """

    settings: Settings
    mean: Vectors
    projections: Vectors
    offsets: Vectors
    scale: float
    spread: float
    keeper: Keeper | None

    @classmethod
    def learn(
        cls,
        vectors: Any,
        *,
        bits: int = 256,
        method: str | None = None,
        metric: str = "cosine",
        keep: str | None = "int8",
        place: str = "vectors",
        **options: Any,
    ) -> VectorModel:
        """Learn a model from vectors (N, d); the parameters are those of `VectorIndex.learn`."""
        from bitprint.methods import create
        from bitprint.methods._base import FeatureHasher

        bits = check_whole("bits", bits, 1)
        sample = as_vectors(vectors, place)
        if check_metric(metric) == "cosine":
            sample = normalized(sample, place)
        if len(sample) < 2:
            raise ValueError(f"{place}: learning needs at least 2 vectors, got {len(sample)}")
        keeper = fit_keeper(keep, sample)
        # The directions of SBLSH are orthogonal in blocks of d bits, which finds more neighbors
        # than independent directions.
        name = method or ("itq" if bits <= sample.shape[1] else "sblsh")
        hasher = create(name, bits, **options)
        if not isinstance(hasher, FeatureHasher) or hasher.supervision == "labels":
            raise ValueError(f"{name} does not learn from vectors without labels; use itq or sblsh")
        hasher.fit(sample)
        mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
        centered = sample - mean
        projections, offsets = _linear_map(hasher, sample, mean)
        settings = Settings(
            name, type(hasher).__name__, bits, metric, keep, sample.shape[1], len(sample)
        )
        spread = float(np.square(centered, dtype=np.float64).sum(axis=1).mean())
        model = cls(settings, mean, projections, offsets, 1.0, spread, keeper)
        return model._with_scale(sample)

    def prepare(self, vectors: Any, place: str = "vectors", first: int = 0) -> Vectors:
        """Check vectors (N, d), and normalize them if the metric is cosine.

        Raises
        ------
        ValueError
            For vectors of another length, with NaN or infinity, or of zeros.
        """
        checked = as_vectors(vectors, place, first)
        if checked.shape[1] != self.settings.width:
            raise ValueError(
                f"{place}: the model is for vectors of length {self.settings.width}, got length "
                f"{checked.shape[1]}"
            )
        return normalized(checked, place, first) if self.settings.metric == "cosine" else checked

    def encode(self, prepared: Vectors) -> Codes:
        """Return the codes of prepared vectors."""
        width = -(-self.settings.bits // 8)
        packed = np.empty((len(prepared), width), np.uint8)
        for start in range(0, len(prepared), _BLOCK):
            rows = slice(start, start + _BLOCK)
            outputs = (prepared[rows] - self.mean) @ self.projections + self.offsets
            packed[rows] = np.packbits(outputs >= 0, axis=1)
        return Codes(packed, self.settings.bits)

    def project(self, prepared: Vectors) -> Vectors:
        """Return the real-valued outputs of prepared queries, by which codes are ranked.

        With the metric ip, queries are not centered: the inner product with the mean is the same
        for all codes.
        """
        if self.settings.metric == "ip":
            projected: NDArray[Any] = prepared @ self.projections
        else:
            projected = (prepared - self.mean) @ self.projections + self.offsets
        return projected

    def estimate(self, prepared: Vectors, scores: NDArray[np.float32]) -> Vectors:
        """Estimate similarities (Q, k) from the scores of codes, which keep their order.

        Parameters
        ----------
        prepared : ndarray of float32, shape (Q, d)
            The queries.
        scores : ndarray of float32, shape (Q, k)
            Inner products of `project` and codes.
        """
        estimated = self.scale * scores.astype(np.float64)
        if self.settings.metric == "l2":
            away = np.square(prepared - self.mean, dtype=np.float64).sum(axis=1)[:, None]
            estimated = 2 * estimated - away - self.spread
        else:
            estimated += (prepared @ self.mean)[:, None]
        return estimated.astype(np.float32)

    def compare(self, prepared: Vectors, vectors: Vectors) -> Vectors:
        """Return the similarity of N pairs of a query and a vector, each (N, d)."""
        if self.settings.metric == "l2":
            distances: Vectors = -np.square(prepared - vectors).sum(axis=1)
            return distances
        products: Vectors = np.einsum("nd,nd->n", prepared, vectors)
        if self.settings.metric == "cosine":  # rounding changes the length of kept vectors
            products /= np.maximum(np.linalg.norm(vectors, axis=1), np.finfo(np.float32).tiny)
        return products

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The attachments that store the model in an index, by name."""
        arrays = {
            "mean": self.mean,
            "projections": self.projections,
            "offsets": self.offsets,
            **({} if self.keeper is None else self.keeper.arrays()),
        }
        weights = serialize({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            **self.settings._asdict(),
            "scale": self.scale,
            "spread": self.spread,
            "sha256": hashlib.sha256(weights).hexdigest(),
        }
        return {DESCRIPTION: (json.dumps(document, indent=2) + "\n").encode(), WEIGHTS: weights}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> VectorModel:
        """Read a model from its `files`.

        Examples
        --------
        >>> model = VectorModel.learn(np.eye(8), bits=4, metric="l2")
        >>> VectorModel.from_files(model.files).identity == model.identity
        True
        """
        try:
            document = json.loads(files[DESCRIPTION])
            found = document["format"], document["version"]
            if found != (_FORMAT, _VERSION):
                raise ValueError(f"format {found}, expected {(_FORMAT, _VERSION)}")
            if hashlib.sha256(files[WEIGHTS]).hexdigest() != document["sha256"]:
                raise ValueError("the checksum of the weights does not match")
            arrays = deserialize(files[WEIGHTS])
            settings = Settings(*(document[name] for name in Settings._fields))
            scale, spread = float(document["scale"]), float(document["spread"])
            _check(settings, arrays, scale, spread)
        except Exception as error:  # invalid values can raise almost any exception
            reason = " ".join(str(error).split())
            raise ValueError(f"the model is damaged ({type(error).__name__}: {reason})") from error
        mean, projections, offsets = (
            arrays.pop(name) for name in ("mean", "projections", "offsets")
        )
        keeper = restore_keeper(settings.keep, arrays)
        return cls(settings, mean, projections, offsets, scale, spread, keeper)

    @cached_property
    def identity(self) -> str:
        """Description and hash of the model."""
        parts = hashlib.sha256(self.files[DESCRIPTION])
        _, title, bits, metric, _, width, _ = self.settings
        about = f"{title}, {bits} bits, on vectors of length {width}, {metric}"
        return f"{about} ({parts.hexdigest()[:12]})"

    def _with_scale(self, sample: Vectors) -> VectorModel:
        """Return the model with the scale at which scores estimate similarities of the sample.

        It is the ratio whose inverse is the slope of scores by similarities. The slope of
        similarities by scores would be too small for the best of many scores.
        """
        rng = np.random.default_rng(0)
        queries, others = (sample[rng.integers(0, len(sample), count)] for count in _PAIRS)
        scores = self.project(queries) @ self.encode(others).signs().astype(np.float32).T
        origin = 0 if self.settings.metric == "ip" else self.mean
        products = ((queries - origin) @ (others - self.mean).T).astype(np.float64)
        together = float((scores * products).sum())
        scale = float(np.square(products).sum()) / together if together > 0 else 0.0
        return replace(self, scale=scale)


def _linear_map(hasher: Any, sample: Vectors, mean: Vectors) -> tuple[Vectors, Vectors]:
    """Return the projections and offsets that compute the outputs of a hasher.

    Raises
    ------
    ValueError
        If the outputs are not a linear map of the vectors.
    """
    offsets = hasher.project(mean[None])[0]
    size = max(float(np.abs(sample - mean).max()), float(np.finfo(np.float32).tiny))
    steps = mean + np.diag(np.full(len(mean), size, np.float32))
    projections = np.ascontiguousarray((hasher.project(steps) - offsets) / np.float32(size))
    outputs = hasher.project(sample[:_BLOCK])
    away = np.abs((sample[:_BLOCK] - mean) @ projections + offsets - outputs).max()
    if away > _DEVIATION * outputs.std():
        raise ValueError(
            f"{hasher.name} is not a linear map, which an index of vectors needs; use itq, pca-rr, "
            "sblsh or lsh"
        )
    return projections, offsets


def _check(settings: Settings, arrays: Mapping[str, NDArray], scale: float, spread: float) -> None:
    """Raise ValueError unless the parts of a stored model fit together."""
    method, title, bits, metric, keep, width, learned_from = settings
    if not all(type(number) is int and number > 0 for number in (bits, width, learned_from)):
        raise ValueError("invalid numbers")
    if (
        metric not in METRICS
        or keep not in (None, *KINDS)
        or not type(method) is type(title) is str
    ):
        raise ValueError("invalid settings")
    if not (np.isfinite(scale) and np.isfinite(spread)):
        raise ValueError("invalid scale")
    shapes = {"mean": (width,), "projections": (width, bits), "offsets": (bits,)}
    if keep == "int8":
        shapes |= {"center": (width,), "step": (width,)}
    if {name: array.shape for name, array in arrays.items()} != shapes:
        raise ValueError("invalid shapes")
    if not all(a.dtype == np.float32 and np.isfinite(a).all() for a in arrays.values()):
        raise ValueError("invalid weights")
