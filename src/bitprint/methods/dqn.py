"""DQN: a deep quantisation network, whose codes are entries of codebooks."""

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
from bitprint.methods.product import assign, improve, random_codebooks, reconstruct
from bitprint.nets.network import HashNetwork
from bitprint.quantised import QuantisedCodes
from bitprint.supervision import similarity
from bitprint.training.plan import Training
from bitprint.training.state import State

_LLOYD_ITERATIONS = 10
_MOST_BITS_OF_A_BOOK = 8
_SHORT = 1e-3  # outputs shorter than this have no direction: its slope would throw the network off


class Bottleneck(nn.Module):
    """R tanh units, and the codebooks of their product quantiser, which travel with the weights."""

    codebooks: Tensor

    def __init__(self, features: int, books: int, entries: int, width: int) -> None:
        super().__init__()
        self.linear = gaussian_linear(features, books * width)
        self.register_buffer("codebooks", torch.zeros(books, entries, width))

    def forward(self, features: Tensor) -> Tensor:
        """z, shape (n, R)."""
        return torch.tanh(self.linear(features))


class DQN(DeepHasher):
    """Deep quantisation network (Cao, Long, Wang, Zhu and Wen, AAAI 2016).

    Not a Hamming method. Outputs z of R tanh units are cut into M parts, and each part is replaced
    by the nearest of n entries of a codebook, K = M log2(n) bits. The network learns the
    similarity of pairs in the batch by cosine, and to be near to its codes::

        min  mean_ij ( s_ij - cos(z_i, z_j) )^2 + lambda mean_i ||z_i - C h_i||^2

    with s in {-1, +1}; between epochs the codebooks C are improved by k-means on the last outputs
    of all images, and every image gets its entries h anew; in the end once more, on the outputs of
    the trained network. `encode` gives `QuantisedCodes`, and
    `encode_queries` the real outputs: a ranking is by asymmetric quantiser distance
    ``||z_q - C h_i||^2``, which `bitprint.evaluate` sees to. An index refuses such codes.

    The original's: both losses, n = 256 where 8 divides K (24, 32 and 48 bits), codebooks every
    second epoch and lambda = 0 until the first, batches of 256, momentum 0.9 and ten times the
    rate for the last layer; R of about 300 and lambda = 1e-4 are those of its authors' later code.
    Choices: at 12 bits two codebooks of 64, and in general the largest that divide K into equal
    parts; exact k-means, from random outputs; pairs of an image with itself are left out; the
    rates, and a cosine instead of halving every 500 steps.

    Parameters
    ----------
    bits : int
        K; each codebook has the largest number of bits up to 8 that divides it.
    quantisation : float
        lambda.
    width : int
        R, rounded up to a multiple of M.
    cycle : int
        Epochs between two improvements of the codebooks.
    **common
        As in `DeepHasher`.

    Notes
    -----
    `metrics.csv` shows the mean squared error of the codes, whenever the codebooks are improved,
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
        """M codebooks, n entries, and the length d of an entry.

        Examples
        --------
        >>> DQN(bits=24).quantiser_shape(), DQN(bits=12).quantiser_shape()
        ((3, 256, 100), (2, 64, 150))
        """
        bits_of_a_book = max(b for b in range(1, _MOST_BITS_OF_A_BOOK + 1) if self.bits % b == 0)
        books = self.bits // bits_of_a_book
        return books, 2**bits_of_a_book, -(-self.width // books)

    def encode(self, data: Data) -> QuantisedCodes:  # type: ignore[override]
        """Entries of the codebooks for images or features; not `Codes`, see `QuantisedCodes`."""
        vectors = torch.from_numpy(self.project(data))
        codebooks = self._head().codebooks.cpu()
        return QuantisedCodes(assign(vectors, codebooks).numpy(), codebooks.numpy())

    def encode_queries(self, data: Data) -> NDArray:  # type: ignore[override]
        """Outputs z of shape (Q, R), to be compared with the codes of `encode`."""
        return self.project(data)

    def make_head(self, features: int, classes: int) -> nn.Module:
        """R tanh units."""
        return Bottleneck(features, *self.quantiser_shape())

    def prepare(self, state: State) -> None:
        """Buffers: Z, the last outputs; C and h, codebooks and entries of all images."""
        books, entries, width = self.quantiser_shape()
        device = state.device
        state.tensors["Z"] = torch.zeros(len(state), books * width, device=device)
        state.tensors["C"] = torch.zeros(books, entries, width, device=device)
        state.tensors["h"] = torch.zeros(len(state), books, dtype=torch.int64, device=device)
        state.tensors["quantised"] = torch.zeros((), device=device)  # lambda is off until it is 1
        state.tensors["epochs"] = torch.zeros((), dtype=torch.int64, device=device)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Cosines of the pairs in the batch, and distance to the codes."""
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
        """Improve the codebooks at the end of a cycle."""
        state.tensors["epochs"] += 1
        if int(state.tensors["epochs"]) % self.cycle:
            return {}
        return {"quantisation_error": self._improve_codebooks(state)}

    def finish(self, net: HashNetwork, state: State, feed: Feed) -> None:
        """Improve the codebooks once more, and keep them with the network.

        Outputs of the last epoch are of a network that was still learning, from changed images;
        codes are made of what it gives now.
        """
        state.tensors["Z"] = torch.cat(list(feed.outputs(net, ENCODE_BATCH)))
        self._improve_codebooks(state)
        head = net.head
        assert isinstance(head, Bottleneck)
        head.codebooks.copy_(state.tensors["C"])

    def _improve_codebooks(self, state: State) -> float:
        """K-means on the last outputs; return the mean squared error."""
        vectors, codebooks = state.tensors["Z"], state.tensors["C"]
        if not state.tensors["quantised"]:
            books, entries, _ = codebooks.shape
            generator = torch.Generator().manual_seed(int(self.seed))
            codebooks = random_codebooks(vectors, books, entries, generator)
            state.tensors["quantised"] = torch.ones_like(state.tensors["quantised"])
        state.tensors["C"] = codebooks = improve(vectors, codebooks, _LLOYD_ITERATIONS)
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
    """``sum_{i != j} ( s_ij - cos(z_i, z_j) )^2`` with s = +1 for similar pairs, -1 for others.

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
    directions = functional.normalize(outputs, dim=1, eps=_SHORT)
    signs = torch.where(similar, 1.0, -1.0)
    errors = (signs - directions @ directions.t()).square()
    return errors.sum() - errors.diagonal().sum()
