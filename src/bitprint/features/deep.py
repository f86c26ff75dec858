"""Features of a backbone, such as a network pretrained on ImageNet."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bitprint.data.decoding import Progress
from bitprint.data.feed import Feed, item_shape
from bitprint.data.images import ImageSet
from bitprint.nets import Trunk, create_trunk
from bitprint.nets.network import HashNetwork
from bitprint.utils.devices import pick_device


def deep_features(
    images: ImageSet | NDArray[np.uint8],
    backbone: str | Trunk = "efficientnet-lite0",
    *,
    device: str = "auto",
    batch_size: int = 128,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Compute the features of a backbone for images, including its preprocessing.

    Parameters
    ----------
    images : ImageSet or ndarray of uint8, shape (N, height, width, 3)
    backbone : str or Trunk
        A name for `bitprint.nets.create_trunk`, or a network. Without pretrained weights, the
        weights are random but the same in every call.
    device : str
        "auto" uses a GPU if available. On a GPU the network runs in bfloat16, and its features
        agree with those of a CPU to two or three digits.
    batch_size : int
        Images per batch, at least 1.
    progress : callable, optional
        Called with the number of images done, and N.

    Returns
    -------
    ndarray of float32, shape (N, out_features)

    Examples
    --------
    >>> deep_features(np.zeros((3, 8, 8, 3), np.uint8), "small").shape
    (3, 256)
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1, got {batch_size}")
    if not isinstance(images, ImageSet):
        images = ImageSet(np.asarray(images))
    place = pick_device(device)
    trunk = trunk_for(images, backbone) if isinstance(backbone, str) else backbone
    if place.type == "cpu":
        trunk = trunk.frozen()
    net = HashNetwork(trunk, nn.Identity()).to(place).eval()
    net.mixed = place.type == "cuda"
    features = np.empty((len(images), trunk.out_features), np.float32)
    done = 0
    with torch.inference_mode():
        for found in Feed(images, place).outputs(net, batch_size):
            features[done : done + len(found)] = found.cpu().numpy()
            done += len(found)
            if progress is not None:
                progress(done, len(images))
    return features


def trunk_for(images: ImageSet, backbone: str) -> Trunk:
    """Build a backbone for the size of the images; random weights use a fixed seed.

    Examples
    --------
    >>> images = ImageSet(np.zeros((3, 8, 8, 3), np.uint8))
    >>> trunk_for(images, "small").out_features
    256
    """
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return create_trunk(backbone, input_shape=item_shape(images))


def trunk_digest(trunk: Trunk) -> str:
    """Return the SHA-256 of architecture, preprocessing and weights of a backbone.

    Examples
    --------
    >>> images = ImageSet(np.zeros((3, 8, 8, 3), np.uint8))
    >>> trunk_digest(trunk_for(images, "small")) == trunk_digest(trunk_for(images, "small"))
    True
    """
    digest = hashlib.sha256(json.dumps(trunk.describe(), sort_keys=True).encode())
    for name, tensor in trunk.state_dict().items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
    return digest.hexdigest()
