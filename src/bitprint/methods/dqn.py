"""DQN: a deep quantization network whose codes are codebook entries."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bitprint.data.feed import Feed
from bitprint.data.inputs import Data
from bitprint.methods._deep import (
    ENCODE_BATCH,
    Common,
    DeepHasher,
    Tuned,
    check_weights,
    gaussian_linear,
)
from bitprint.methods._registry import register_method
from bitprint.methods.product import assign, lloyd, random_codebooks, reconstruct
from bitprint.nets.network import HashNetwork
from bitprint.quantised import QuantisedCodes
from bitprint.supervision import similarity
from bitprint.training.plan import Training
from bitprint.training.state import State

_LLOYD_ITERATIONS = 10
_MOST_BITS_OF_A_BOOK = 8
_MIN_LENGTH = 1e-3  # smallest length in the cosine, as its gradient diverges for short outputs


class Bottleneck(nn.Module):
    """R tanh units and the codebooks of their product quantizer, stored with the weights."""

    codebooks: Tensor

    def __init__(self, features: int, books: int, entries: int, width: int) -> None:
        super().__init__()
        self.linear = gaussian_linear(features, books * width)
        self.register_buffer("codebooks", torch.zeros(books, entries, width))

    def forward(self, features: Tensor) -> Tensor:
        """Return z, shape (n, R)."""
        return torch.tanh(self.linear(features))


@register_method
class DQN(DeepHasher):
    """Deep quantization network (Cao, Long, Wang, Zhu and Wen, AAAI 2016).

    The codes are not compared by Hamming distance. The outputs z of R tanh units are divided into M
    parts, and each part is replaced by the nearest of the n entries of a codebook, which gives
    K = M log2(n) bits. The network minimizes a cosine loss of the pairs in the batch and the
    quantization error::

        min  mean_ij ( s_ij - cos(z_i, z_j) )^2 + lambda mean_i ||z_i - C h_i||^2

    with s in {-1, +1}. Between epochs, k-means on the last outputs of all images updates the
    codebooks C, and the entries h of all images are assigned again. After training, this is
    repeated with the outputs of the trained network.

    `encode` returns `QuantisedCodes` and `encode_queries` returns real-valued outputs. A ranking
    uses the asymmetric quantizer distance ``||z_q - C h_i||^2``, as in `bitprint.evaluate`. These
    codes cannot be stored in an index.

    As in the paper: both losses, n = 256 if 8 divides K (24, 32 and 48 bits), an update of the
    codebooks every second epoch and lambda = 0 before the first update, batches of 256, momentum
    0.9 and ten times the rate for the last layer. R = 300 and lambda = 1e-4 are from later code of
    the authors. The following parts are our choices: two codebooks of 64 entries for 12 bits, and
    in general the largest codebooks that divide K into equal parts; exact k-means, initialized with
    random outputs; no pairs of an image with itself; the rates, and a cosine schedule instead of
    halving every 500 steps.

    Parameters
    ----------
    bits : int
        K. Each codebook has the largest number of bits up to 8 that divides K.
    quantisation : float
        lambda.
    width : int
        R, rounded up to a multiple of M.
    cycle : int
        Number of epochs between two updates of the codebooks.
    **common
        As in `DeepHasher`.

    Notes
    -----
    After each update of the codebooks, `metrics.csv` contains the mean squared error of the codes
    as `quantisation_error`.

    Examples
    --------
    >>> import numpy as np
    >>> features, labels = np.eye(6), [0, 0, 0, 1, 1, 1]
    >>> hasher = DQN(bits=12, epochs=2).fit(features, labels)
    >>> hasher.encode(features)
    QuantisedCodes(6 x 12 bits, 2 codebooks of 64)
    >>> hasher.encode(features).distances(hasher.encode_queries(features[:2])).shape
    (2, 6)
    """

    name = "dqn"
    reference = "Cao, Long, Wang, Zhu and Wen, AAAI 2016"
    default_training = Training(
        epochs=150,
        batch_size=256,
        lr=1e-2,
        trunk_lr=1e-3,
        schedule="cosine",
        momentum=0.9,
        weight_decay=5e-4,
    )
    tuned: ClassVar[Tuned] = {"recommended few pretrained": {"lr": 1e-4}}

    def __init__(
        self,
        bits: int,
        *,
        quantisation: float = 1e-4,
        width: int = 300,
        cycle: int = 2,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.quantisation = quantisation
        self.width = width
        self.cycle = cycle

    def quantiser_shape(self) -> tuple[int, int, int]:
        """Return M codebooks, n entries per codebook and the length d of an entry.

        Examples
        --------
        >>> DQN(bits=24).quantiser_shape(), DQN(bits=12).quantiser_shape()
        ((3, 256, 100), (2, 64, 150))
        """
        bits_of_a_book = max(b for b in range(1, _MOST_BITS_OF_A_BOOK + 1) if self.bits % b == 0)
        books = self.bits // bits_of_a_book
        return books, 2**bits_of_a_book, -(-self.width // books)

    def encode(self, data: Data) -> QuantisedCodes:  # type: ignore[override]
        """Return the codebook entries of images or features as `QuantisedCodes`."""
        vectors = torch.from_numpy(self.project(data))
        codebooks = self._head().codebooks.cpu()
        return QuantisedCodes(assign(vectors, codebooks).numpy(), codebooks.numpy())

    def encode_queries(self, data: Data) -> NDArray:  # type: ignore[override]
        """Return outputs z, shape (Q, R), to be compared with the codes of `encode`."""
        return self.project(data)

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return R tanh units with codebooks."""
        return Bottleneck(features, *self.quantiser_shape())

    def prepare(self, state: State) -> None:
        """Create Z, the last outputs, C, the codebooks, and h, the entries of all images."""
        books, entries, width = self.quantiser_shape()
        device = state.device
        state.tensors["Z"] = torch.zeros(len(state), books * width, device=device)
        state.tensors["C"] = torch.zeros(books, entries, width, device=device)
        state.tensors["h"] = torch.zeros(len(state), books, dtype=torch.int64, device=device)
        state.tensors["quantised"] = torch.zeros((), device=device)  # 0 disables lambda
        state.tensors["epochs"] = torch.zeros((), dtype=torch.int64, device=device)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the cosine loss of the pairs in the batch and the quantization error."""
        state.tensors["Z"][rows] = outputs.detach()
        labels = state.labels[rows]
        size = min(state.batch_size, len(state))
        codes = reconstruct(state.tensors["h"][rows], state.tensors["C"])
        weight = self.quantisation * state.tensors["quantised"] / size
        return {
            "pair": cosine_loss(outputs, similarity(labels, labels)) / max(1, size * (size - 1)),
            "quantisation": weight * (outputs - codes).square().sum(),
        }

    def after_epoch(self, state: State) -> dict[str, float]:
        """Update the codebooks at the end of a cycle."""
        state.tensors["epochs"] += 1
        if int(state.tensors["epochs"]) % self.cycle:
            return {}
        return {"quantisation_error": self._update_codebooks(state)}

    def finish(self, net: HashNetwork, state: State, feed: Feed) -> None:
        """Update the codebooks and store them with the network.

        The buffered outputs are from a network in training and from augmented images. The codebooks
        must match the outputs of the trained network.
        """
        state.tensors["Z"] = torch.cat(list(feed.outputs(net, ENCODE_BATCH)))
        self._update_codebooks(state)
        head = net.head
        assert isinstance(head, Bottleneck)
        head.codebooks.copy_(state.tensors["C"])

    def _update_codebooks(self, state: State) -> float:
        """Run k-means on the last outputs and return the mean squared error."""
        vectors, codebooks = state.tensors["Z"], state.tensors["C"]
        if not state.tensors["quantised"]:
            books, entries, _ = codebooks.shape
            generator = torch.Generator().manual_seed(int(self.seed))
            codebooks = random_codebooks(vectors, books, entries, generator)
            state.tensors["quantised"] = torch.ones_like(state.tensors["quantised"])
        state.tensors["C"] = codebooks = lloyd(vectors, codebooks, _LLOYD_ITERATIONS)
        state.tensors["h"] = indices = assign(vectors, codebooks)
        return float((vectors - reconstruct(indices, codebooks)).square().sum() / len(vectors))

    def _output_width(self) -> int:
        books, _, width = self.quantiser_shape()
        return books * width

    def _head(self) -> Bottleneck:
        head = self.net_.head
        assert isinstance(head, Bottleneck)
        return head

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(quantisation=self.quantisation, zero=True)
        for name in ("width", "cycle"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


def cosine_loss(outputs: Tensor, similar: Tensor) -> Tensor:
    """Return ``sum_{i != j} (s_ij - cos(z_i, z_j))^2``, s = +1 for similar pairs, else -1.

    Parameters
    ----------
    outputs : Tensor, shape (n, R)
    similar : Tensor of bool, shape (n, n)

    Examples
    --------
    >>> outputs = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    >>> cosine_loss(outputs, torch.eye(2, dtype=torch.bool))
    tensor(2.)
    """
    directions = functional.normalize(outputs, dim=1, eps=_MIN_LENGTH)
    signs = torch.where(similar, 1.0, -1.0)
    errors = (signs - directions @ directions.t()).square()
    return errors.sum() - errors.diagonal().sum()
