"""Export to ONNX: from uint8 pictures to the outputs whose signs are the code."""

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

from bitprint.files import write_atomically
from bitprint.methods import DeepHasher, FeatureHasher
from bitprint.nets.preprocess import Preprocess
from bitprint.nets.trunk import Trunk
from bitprint.photos.encoder import Encoder
from bitprint.version import __version__

NEAR_ZERO = 1e-4
"""Outputs closer to zero than this may come out on the other side of it elsewhere."""


class Checked(NamedTuple):
    """How the exported model compares with ours on some pictures.

    Examples
    --------
    >>> checked = Checked(bits=1024, near_zero=2, different=1)
    >>> f"{checked.different} of {checked.bits} bits differ"
    '1 of 1024 bits differ'
    """

    bits: int
    """How many bits were compared."""
    near_zero: int
    """How many of them are of outputs within 1e-4 of zero."""
    different: int
    """How many of those came out differently; no others do."""


def export_onnx(
    encoder: Encoder, path: str | os.PathLike[str], *, pictures: int = 16, seed: int = 0
) -> Checked:
    """Write a model as an ONNX file, after comparing its codes with ours on random pictures.

    The file takes "images", uint8 of shape (n, size, size, 3) with any n, and gives "outputs",
    float32 of shape (n, K): a bit is set where they are at least 0. Resizing to what the network
    takes, and normalising, are inside. What is left to the caller, decoding and resizing to a
    square of `size`, is described in the file's metadata.

    Parameters
    ----------
    encoder : Encoder
        A deep model, or a linear method on the features of a network.
    path : path
        The file to write.
    pictures, seed : int
        How many random pictures to compare on, and their seed.

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
    """Pictures to outputs, in operations that ONNX has.

    Resizing is linear in rows and in columns, and the size is fixed: so it is two products with a
    matrix, and no operation whose details would differ elsewhere.
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
        wanted = preprocess.size or encoder.size
        rows = functional.interpolate(
            torch.eye(encoder.size)[None, None],
            (wanted, encoder.size),
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
    """The network below the outputs, what comes on top of it, and whether mirror images count.

    Both on the CPU.
    """
    hasher = encoder.hasher
    if encoder.features is None:
        assert isinstance(hasher, DeepHasher)
        net = hasher.net_.cpu()
        return net.trunk, net.head, net.mirror
    trunk = encoder.features.trunk
    if trunk is None:
        raise ValueError(
            f"this {hasher.name} model takes {encoder.features.name}, which is no network; only "
            "models on the features of a network can be exported"
        )
    if isinstance(hasher, DeepHasher):
        return trunk.cpu(), nn.Sequential(hasher.net_.trunk.cpu(), hasher.net_.head.cpu()), False
    assert isinstance(hasher, FeatureHasher)
    return trunk.cpu(), _as_linear(hasher, trunk.out_features), False


def _as_linear(hasher: FeatureHasher, inputs: int) -> nn.Linear:
    """A hasher whose outputs are linear in its features, as a layer."""
    origin = hasher.project(np.zeros((1, inputs), np.float32))
    weight = hasher.project(np.eye(inputs, dtype=np.float32)) - origin
    probe = np.random.default_rng(0).standard_normal((8, inputs)).astype(np.float32)
    expected = hasher.project(probe)
    if not np.allclose(probe @ weight + origin, expected, rtol=1e-3, atol=1e-3 * expected.std()):
        raise ValueError(
            f"the outputs of {hasher.name} are not linear in its features; linear methods, such as "
            "itq and lsh, and all deep ones can be exported"
        )
    layer = nn.Linear(inputs, hasher.bits)
    layer.weight.data = torch.from_numpy(np.ascontiguousarray(weight.T))
    layer.bias.data = torch.from_numpy(origin[0].copy())
    return layer


def _convert(module: _Outputs, encoder: Encoder) -> bytes:
    """The model as an ONNX document."""
    example = torch.zeros(2, encoder.size, encoder.size, 3, dtype=torch.uint8)
    with _without_remarks():
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
            "RGB pictures, turned as their EXIF orientation says, white where they are "
            "transparent, 16-bit grey divided by 257, resized to size x size without regard to "
            "their aspect (bicubic with antialiasing, as Pillow does it), uint8"
        ),
        "code": "bit k is set where output k >= 0; packed eight to a byte, the first bit highest",
    }
    for name, value in facts.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = f"bitprint.{name}", value
    document: bytes = model.SerializeToString()
    return document


@contextmanager
def _without_remarks() -> Iterator[None]:
    """Silence what PyTorch says of operators of torchvision, and of its own future."""
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
    """Run both models on random pictures; raise unless their codes are the same."""
    import onnxruntime

    session = onnxruntime.InferenceSession(document, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(seed)
    shape = (count, encoder.size, encoder.size, 3)
    # Blobs rather than noise: noise is alike to a network.
    coarse = torch.from_numpy(rng.uniform(0, 255, (count, 3, 5, 5)))
    smooth = functional.interpolate(coarse, shape[1:3], mode="bicubic").clamp(0, 255)
    images = smooth.permute(0, 2, 3, 1).numpy().astype(np.uint8)
    outputs: NDArray[np.float32] = session.run(None, {"images": images})[0]
    different = (outputs >= 0) != (encoder.encode_squares(images).signs() > 0)
    near = np.abs(outputs) < NEAR_ZERO
    if np.any(different & ~near):
        raise ValueError(
            f"{np.count_nonzero(different & ~near)} of {outputs.size} bits of the exported model "
            "differ from ours; nothing was written"
        )
    return Checked(outputs.size, int(near.sum()), int(different.sum()))
