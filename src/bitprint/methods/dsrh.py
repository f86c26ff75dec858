"""DSRH: deep semantic ranking hashing, for images with several labels."""

from __future__ import annotations

import math
from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.supervision import shared_labels
from bitprint.training.plan import Training
from bitprint.training.state import State
from bitprint.training.triplets import draw, masked_mean
from bitprint.utils.arguments import check_whole


@register_method
class DSRH(DeepHasher):
    """Deep semantic ranking hashing (Zhao, Huang, Wang and Tan, CVPR 2015).

    An image that shares more labels with the query should have a smaller distance. The loss is a
    mean over triplets of a query q and two images i and j, where i shares more labels with q than
    j, r_i > r_j::

        min  mean  (2^r_i - 2^r_j) / Z  max(0, d(q, i) - d(q, j) + margin)
             + balance / 2  ||mean_q h_q||^2
        h = 2 sigmoid(.) - 1,   d(q, i) = (K - h_q . h_i) / 2

    The weights are those of NDCG: Z is the ideal gain of the list that contains i and j, so that
    errors at the top of the list have the largest weight. With one label per image, all weights
    are ln 2.

    Parameters
    ----------
    bits : int
        K.
    margin : float
        Margin in bits; 5 in the authors' release.
    balance : float
        Weight of the term for balanced bits, which are +1 as often as -1; 1 in the release.
    lists : int
        Number of lists per query; each image of a batch is a query. A list contains one image of
        the highest relevance in the batch, one of a lower nonzero relevance if there is one, and
        one of relevance zero. It gives up to three triplets.
    **common
        As in `DeepHasher`. The paper's network is ``alexnet-skip``, where the inputs of the hash
        layer are fc7 (with dropout) and fc6. With any other backbone, the inputs are the features
        of its last layer.

    Notes
    -----
    From the release: loss, lists and weights, margin, balance, momentum, weight decay and both
    learning rates. The release draws one list per image from the whole training set and repeats
    images with rare labels. Here the lists are drawn from the batch, where many lists cost little.
    The release also trains the fc6 part of the hash layer at a quarter of its rate, reduces that
    rate to a tenth halfway and multiplies the gradient of the balance term by the weight of a
    triplet. This implementation does none of these. Epochs and batch size are our choices.

    Examples
    --------
    >>> import numpy as np
    >>> labels = [[1, 1], [1, 1], [1, 0], [1, 0], [0, 1], [0, 1]]
    >>> hasher = DSRH(12, epochs=2)
    >>> hasher.fit(np.eye(6), labels).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "dsrh"
    reference = "Zhao, Huang, Wang and Tan, CVPR 2015"
    default_training: ClassVar[Training] = Training(
        lr=1e-3, trunk_lr=1e-4, schedule="constant", momentum=0.9
    )
    tuned: ClassVar[Tuned] = {"pretrained": {"lr": 1e-3}}

    def __init__(
        self,
        bits: int,
        *,
        margin: float = 5.0,
        balance: float = 1.0,
        lists: int = 10,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.margin = margin
        self.balance = balance
        self.lists = lists

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return a linear layer with weights from N(0, 1 / features).

        For its 8,192 features, the release uses a standard deviation of 0.01. If initial outputs
        are much smaller than 1, all bits often become copies or complements of one bit.
        """
        layer = nn.Linear(features, self.bits)
        nn.init.normal_(layer.weight, std=1 / math.sqrt(features))
        nn.init.zeros_(layer.bias)
        return layer

    def prepare(self, state: State) -> None:
        """Do nothing: lists are drawn within a batch."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the weighted hinge loss of the triplets and the balance term."""
        hashed = 2 * outputs.sigmoid() - 1
        labels = state.labels[rows]
        items, relevance, found = draw_lists(shared_labels(labels, labels), self.lists)
        distances = (self.bits - hashed @ hashed.t()) / 2
        distances = distances.gather(1, items.flatten(1)).view_as(relevance)
        nearer, farther = _pairs(distances)
        hinge = triplet_weights(relevance, found) * (nearer - farther + self.margin).relu()
        one, other = _pairs(found)
        share = len(rows) / state.batch_size
        return {
            "ranking": share * masked_mean(hinge, one & other),
            "balance": share * self.balance / 2 * hashed.mean(dim=0).square().sum(),
        }

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(margin=self.margin)
        check_weights(balance=self.balance, zero=True)
        check_whole("lists", self.lists, 1)


def draw_lists(relevance: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw ranked lists of three images from a batch: most relevant, less relevant, irrelevant.

    Parameters
    ----------
    relevance : Tensor, shape (n, n)
        Number of labels that two images share.
    count : int
        Lists per query.

    Returns
    -------
    items : Tensor of int64, shape (n, count, 3)
        Indices of images in the batch, never the query itself.
    relevance : Tensor, shape (n, count, 3)
        Relevance of these images to the query; 0 for a missing image.
    found : Tensor of bool, shape (n, count, 3)
        Whether the image exists.
    """
    others = ~torch.eye(len(relevance), dtype=torch.bool, device=relevance.device)
    highest = torch.where(others, relevance, 0).amax(dim=1, keepdim=True)
    kinds = [
        others & (relevance > 0) & (relevance == highest),
        others & (relevance > 0) & (relevance < highest),
        others & (relevance == 0),
    ]
    drawn = [draw(kind, count) for kind in kinds]
    items = torch.stack([columns for columns, _ in drawn], dim=2)
    found = torch.stack([some[:, None].expand(-1, count) for _, some in drawn], dim=2)
    theirs = relevance.gather(1, items.flatten(1)).view(items.shape)
    return items, torch.where(found, theirs, 0), found


def triplet_weights(relevance: Tensor, found: Tensor) -> Tensor:
    """Return the NDCG weights of the three triplets of each list, (2^r_i - 2^r_j) / Z.

    ``Z = (2^r_1 - 1) / ln 2 + (2^r_2 - 1) / ln 3`` is the list's ideal gain.

    Parameters
    ----------
    relevance : Tensor, shape (..., 3)
        r_1 > r_2 > r_3 = 0; 0 for a missing image.
    found : Tensor of bool, shape (..., 3)

    Returns
    -------
    Tensor, shape (..., 3)
        Weights of the triplets with images (1, 2), (1, 3) and (2, 3); undefined for missing
        images.

    Examples
    --------
    >>> triplet_weights(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([True, False, True]))[1]
    tensor(0.6931)
    """
    # Relative to 2^r_1, which can overflow for images that share many labels.
    gains = torch.exp2(relevance - relevance[..., :1])
    above_none = gains - torch.exp2(-relevance[..., :1])
    ideal = above_none[..., 0] / math.log(2) + above_none[..., 1] / math.log(3)
    ideal = torch.where(found[..., 0], ideal, 1)
    more, less = _pairs(gains)
    return (more - less) / ideal[..., None]


def _pairs(lists: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and the second elements of the pairs (1, 2), (1, 3) and (2, 3), (..., 3)."""
    first, second, third = lists.unbind(dim=-1)
    return torch.stack([first, first, second], -1), torch.stack([second, third, third], -1)
