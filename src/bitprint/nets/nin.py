"""NIN: Network in Network, in which a 1 x 1 convolution follows each convolution."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from torch import Tensor, nn

from bitprint.nets.preprocess import Preprocess
from bitprint.nets.trunk import Trunk, he_init, register_backbone


@register_backbone("nin")
class NIN(Trunk):
    """The backbone of NINH: four pairs of convolutions and a global mean, for 256 x 256 pixels.

    Lin, Chen and Yan, "Network in Network", ICLR 2014, with the layers of Lai et al., CVPR 2015.
    There are no pretrained weights. The number of outputs can follow the name: ``nin:600``.

    Parameters
    ----------
    outputs : int
        Channels of the last 1 x 1 convolution, which is the number of features.

    Examples
    --------
    >>> from bitprint.nets import create_trunk
    >>> create_trunk("nin-small:600", input_shape=(32, 32, 3)).out_features
    600
    """

    in_paper: ClassVar[bool] = True
    takes_source: ClassVar[bool] = True
    size: ClassVar[int] = 256
    # Kernel, stride and padding of the first convolution.
    first: ClassVar[tuple[int, int, int]] = (11, 4, 0)

    def __init__(self, outputs: int = 1000) -> None:
        super().__init__()
        if outputs < 1:
            raise ValueError(f"a Network in Network needs at least 1 output, got {outputs}")
        self.outputs = self.out_features = outputs
        self.preprocess = Preprocess(self.size, mean=127.5, std=127.5)
        self.layers = nn.Sequential(
            *_pair(3, 96, 96, *self.first),
            nn.MaxPool2d(3, stride=2),
            *_pair(96, 256, 256, 5, 1, 2),
            nn.MaxPool2d(3, stride=2),
            *_pair(256, 384, 384, 3, 1, 1),
            nn.MaxPool2d(3, stride=2),
            *_pair(384, 1024, outputs, 3, 1, 1),
        )
        he_init(self)

    @classmethod
    def create(cls, input_shape: tuple[int, ...], source: str, pretrained: bool) -> Self:
        """Build the network; `source` is the number of outputs, or empty for 1000."""
        if not source:
            return cls()
        if not source.isdecimal():
            raise ValueError(
                f"backbone {cls.name} takes its number of outputs after the colon, "
                f"as in {cls.name}:600, got {source!r}"
            )
        return cls(int(source))

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, 3, size, size) -> (n, outputs), nonnegative."""
        features: Tensor = self.layers(inputs)
        return features.mean(dim=(2, 3))

    def describe(self) -> dict[str, Any]:
        """Return the name and the number of outputs."""
        return {"name": self.name, "outputs": self.outputs}


@register_backbone("nin-small")
class NINSmall(NIN):
    """The same network for 32 x 32 pixels: its first convolution is 5 x 5 with stride 1."""

    size: ClassVar[int] = 32
    first: ClassVar[tuple[int, int, int]] = (5, 1, 2)


def _pair(
    before: int, between: int, after: int, kernel: int, stride: int, padding: int
) -> list[nn.Module]:
    return [
        nn.Conv2d(before, between, kernel, stride, padding),
        nn.ReLU(inplace=True),
        nn.Conv2d(between, after, 1),
        nn.ReLU(inplace=True),
    ]
