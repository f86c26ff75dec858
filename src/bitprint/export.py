"""Export to ONNX: a graph from uint8 images to outputs whose signs are the code."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bitprint.methods import DeepHasher, FeatureHasher
from bitprint.nets.preprocess import Preprocess
from bitprint.nets.trunk import Trunk
from bitprint.photos.encoder import Encoder
from bitprint.utils.files import write_atomically
from bitprint.version import __version__

NEAR_ZERO = 1e-4
"""Bits of outputs closer to zero than this may differ between runtimes."""


class Checked(NamedTuple):
    """Comparison of the bits of the exported model with those of Bitprint.

    Examples
    --------
    >>> checked = Checked(bits=1024, near_zero=2, different=1)
    >>> f"{checked.different} of {checked.bits} bits differ"
    '1 of 1024 bits differ'
    """

    bits: int
    """Number of compared bits."""
    near_zero: int
    """Number of bits whose output is within 1e-4 of zero."""
    different: int
    """Number of bits that differ; all of them are within 1e-4 of zero."""


def export_onnx(
    encoder: Encoder, path: str | os.PathLike[str], *, pictures: int = 16, seed: int = 0
) -> Checked:
    """Write a model as an ONNX file.

    First the codes of the exported model are compared with those of Bitprint on random images; if
    they differ, a ValueError is raised and nothing is written.

    The input of the graph is "images", uint8 of shape (n, size, size, 3) for any n. The output is
    "outputs", float32 of shape (n, K); a bit is 1 where the output is >= 0. The graph includes
    resizing to the input size of the network and normalization. The caller has to decode images and
    resize them to squares of `size`, as described in the metadata of the file.

    Parameters
    ----------
    encoder : Encoder
        A deep model, or a linear method on the features of a network.
    path : path
        The file to write.
    pictures : int
        Number of random images for the comparison.
    seed : int
        Seed of the random images.

    Returns
    -------
    Checked

    Examples
    --------
    >>> from bitprint.photos import Photos
    >>> with Photos.open("photos.bp") as photos:  # doctest: +SKIP
    ...     export_onnx(photos.encoder, "photos.onnx")
    Checked(bits=1024, near_zero=0, different=0)
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        if find_spec(package) is None:
            raise ValueError(f"{package} is not installed: pip install onnx onnxscript onnxruntime")
    module = _Outputs(encoder).eval()
    document = _convert(module, encoder)
    checked = _compare(document, encoder, pictures, seed)
    write_atomically(Path(path), document)
    return checked


class _Outputs(nn.Module):
    """Module from images to outputs that uses only operations of ONNX.

    Resizing from a fixed size is linear in rows and columns. It is computed as two matrix products,
    because the resize operation differs between runtimes.
    """

    resizing: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.trunk, self.head, self.mirror = _parts(encoder)
        self.bits = encoder.bits
        preprocess = self.trunk.preprocess
        assert isinstance(preprocess, Preprocess)
        target = preprocess.size or encoder.size
        rows = functional.interpolate(
            torch.eye(encoder.size)[None, None],
            (target, encoder.size),
            mode=preprocess.interpolation,
            antialias=True,
        )
        self.register_buffer("resizing", rows[0, 0])
        self.register_buffer("mean", preprocess.mean.cpu())
        self.register_buffer("std", preprocess.std.cpu())

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.float().permute(0, 3, 1, 2)
        pixels = self.resizing @ pixels @ self.resizing.t()
        inputs = (pixels - self.mean) / self.std
        outputs: Tensor = self.head(self.trunk(inputs))
        if self.mirror:
            outputs = (outputs + self.head(self.trunk(inputs.flip(3)))) / 2
        return outputs[:, : self.bits]


def _parts(encoder: Encoder) -> tuple[Trunk, nn.Module, bool]:
    """Return trunk and head on the CPU, and whether to average with the mirrored image."""
    hasher = encoder.hasher
    if encoder.features is None:
        assert isinstance(hasher, DeepHasher)
        net = hasher.net_.cpu()
        return net.trunk, net.head, net.mirror
    trunk = encoder.features.trunk
    if trunk is None:
        raise ValueError(
            f"this {hasher.name} model uses {encoder.features.name} features, which are not "
            "computed by a network; only models on network features can be exported"
        )
    if isinstance(hasher, DeepHasher):
        net = hasher.net_.cpu()
        return trunk.cpu(), nn.Sequential(net.trunk.preprocess, net.trunk, net.head), False
    assert isinstance(hasher, FeatureHasher)
    return trunk.cpu(), _as_linear(hasher, trunk.out_features), False


def _as_linear(hasher: FeatureHasher, inputs: int) -> nn.Linear:
    """Return a linear layer equal to a hasher whose outputs are linear in its features."""
    origin = hasher.project(np.zeros((1, inputs), np.float32))
    weight = hasher.project(np.eye(inputs, dtype=np.float32)) - origin
    probe = np.random.default_rng(0).standard_normal((8, inputs)).astype(np.float32)
    expected = hasher.project(probe)
    if not np.allclose(probe @ weight + origin, expected, rtol=1e-3, atol=1e-3 * expected.std()):
        raise ValueError(
            f"the outputs of {hasher.name} are not linear in its features; only deep methods and "
            "linear methods such as itq and lsh can be exported"
        )
    layer = nn.Linear(inputs, hasher.bits)
    layer.weight.data = torch.from_numpy(np.ascontiguousarray(weight.T))
    layer.bias.data = torch.from_numpy(origin[0].copy())
    return layer


def _convert(module: _Outputs, encoder: Encoder) -> bytes:
    """Return the model as an ONNX document."""
    example = torch.zeros(2, encoder.size, encoder.size, 3, dtype=torch.uint8)
    with _without_export_warnings():
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            input_names=["images"],
            output_names=["outputs"],
            dynamic_shapes={"images": {0: torch.export.Dim("n")}},
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    facts = {
        "made_by": f"bitprint {__version__}",
        "model": encoder.identity,
        "bits": str(encoder.bits),
        "size": str(encoder.size),
        "input": (
            "RGB images, uint8: rotated by EXIF orientation, transparency on white, 16-bit gray "
            "divided by 257, resized to size x size without keeping the aspect ratio (bicubic "
            "with antialiasing, as in Pillow)"
        ),
        "code": "bit k is 1 if output k >= 0; packed into bytes, most significant bit first",
    }
    for name, value in facts.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = f"bitprint.{name}", value
    document: bytes = model.SerializeToString()
    return document


@contextmanager
def _without_export_warnings() -> Iterator[None]:
    """Suppress warnings about operators of torchvision and future versions of PyTorch."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.setLevel(level)


def _compare(document: bytes, encoder: Encoder, count: int, seed: int) -> Checked:
    """Run both models on random images; raise a ValueError if their codes differ."""
    import onnxruntime

    session = onnxruntime.InferenceSession(document, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(seed)
    shape = (count, encoder.size, encoder.size, 3)
    # Smooth images, because networks give similar outputs for all noise images.
    coarse = torch.from_numpy(rng.uniform(0, 255, (count, 3, 5, 5)))
    smooth = functional.interpolate(coarse, shape[1:3], mode="bicubic").clamp(0, 255)
    images = smooth.permute(0, 2, 3, 1).numpy().astype(np.uint8)
    outputs: NDArray[np.float32] = session.run(None, {"images": images})[0]
    different = (outputs >= 0) != (encoder.encode_squares(images).signs() > 0)
    near = np.abs(outputs) < NEAR_ZERO
    if np.any(different & ~near):
        raise ValueError(
            f"{np.count_nonzero(different & ~near)} of {outputs.size} bits of the exported model "
            "differ from Bitprint; nothing was written"
        )
    return Checked(outputs.size, int(near.sum()), int(different.sum()))
