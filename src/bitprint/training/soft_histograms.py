"""Soft histograms of Hamming distances, which have a gradient with respect to the outputs."""

from __future__ import annotations

import torch
from torch import Tensor


def soft_histograms(
    outputs: Tensor, similar: Tensor, bins: int | None = None
) -> tuple[Tensor, Tensor]:
    """Count the other images of a batch by their relaxed Hamming distance to each image.

    The distance is ``(K - z_i . z_j) / 2`` with ``z = tanh(h)``. The bins are centered at 0, K /
    bins, ..., K, and a distance between two centers counts for both of them, linearly (triangular
    bins). With K bins and codes of -1 and +1 these are the histograms of Hamming distances.

    Parameters
    ----------
    outputs : Tensor, shape (n, K)
        Network outputs of the batch.
    similar : Tensor of bool, shape (n, n)
        Which images are similar. No image is counted for itself.
    bins : int, optional
        Number of intervals; K by default.

    Returns
    -------
    similar, dissimilar : Tensor, shape (n, bins + 1)
        Histograms of the similar and of the dissimilar images.

    Examples
    --------
    >>> outputs = 50 * torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    >>> same_class = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    >>> similar, dissimilar = soft_histograms(outputs, same_class)
    >>> similar[0].tolist(), dissimilar[0].tolist()
    ([0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    """
    count, bits = outputs.shape
    bins = bits if bins is None else bins
    relaxed = torch.tanh(outputs)
    places = (bits - relaxed @ relaxed.t()) * (bins / (2 * bits))
    centers = torch.arange(bins + 1, device=outputs.device)
    shares = (1 - (places[:, :, None] - centers).abs()).relu()
    others = ~torch.eye(count, dtype=torch.bool, device=outputs.device)
    kinds = torch.stack([similar & others, ~similar & others]).to(outputs.dtype)
    found = torch.einsum("kij,ijb->kib", kinds, shares)
    return found[0], found[1]
