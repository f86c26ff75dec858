"""Hub: vision models of transformers, by model id or from a local folder."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import torch
from safetensors import SafetensorError
from torch import Tensor

from bitprint.nets.preprocess import Preprocess
from bitprint.nets.trunk import Trunk, register_backbone

# Keys of a configuration that do not affect the architecture.
_NAMES = ("_name_or_path", "id2label", "label2id")
_PILLOW_BILINEAR = 2


@register_backbone("hub")
class Hub(Trunk):
    """A transformers model up to its pooled output.

    Parameters
    ----------
    config : dict
        Configuration of the model, as returned by `to_dict` of transformers.
    preprocessing : dict
        Arguments of `Preprocess`.
    pooler : bool
        Whether to keep the pooler of the model. Without it the features are the class token of a
        transformer, or the mean over all positions of a convolutional network.
    """

    takes_source: ClassVar[bool] = True

    def __init__(
        self, config: dict[str, Any], preprocessing: dict[str, Any], pooler: bool = True
    ) -> None:
        super().__init__()
        transformers = _import_transformers()
        self.config = {key: value for key, value in config.items() if key not in _NAMES}
        self.preprocessing = preprocessing
        self.pooler = pooler
        self.preprocess = Preprocess(**preprocessing)
        self.model = transformers.AutoModel.from_config(
            transformers.AutoConfig.for_model(**self.config), dtype=torch.float32
        )
        if not pooler:
            self.model.pooler = None
        self.out_features = self._count_features()

    @classmethod
    def create(cls, input_shape: tuple[int, ...], source: str, pretrained: bool) -> Self:
        """Build the model `source`, with its weights if `pretrained`."""
        if not source:
            raise ValueError("hub needs a model id or a folder, such as hub:microsoft/resnet-50")
        transformers = _import_transformers()
        try:
            config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
            # Use only the vision part of models such as CLIP.
            config = getattr(config, "vision_config", config)
            fields, _ = transformers.ImageProcessingMixin.get_image_processor_dict(source)
            weights, missing = _read_weights(source, config) if pretrained else (None, set())
        except (OSError, ValueError, RecursionError, SafetensorError) as error:
            reason = str(error).split("\n")[0]
            raise ValueError(f"{source}: transformers cannot load this model: {reason}") from error
        # The checkpoint of a classifier has no pooler: drop it rather than use random weights.
        pooler = {key for key in missing if key.startswith("pooler.")}
        if missing - pooler:
            names = ", ".join(sorted(missing - pooler))
            warnings.warn(f"{source}: missing {names}; these stay random", stacklevel=2)
        trunk = cls(config.to_dict(), _read_preprocessing(fields, source), pooler=not pooler)
        if weights is not None:
            trunk.model.load_state_dict({k: v for k, v in weights.items() if k not in pooler})
        return trunk

    @classmethod
    def pretrained(cls, source: str) -> bool:
        """Return True: hub models include their weights."""
        return True

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, 3, size, size) -> (n, out_features)."""
        outputs = self.model(pixel_values=inputs)
        pooled: Tensor | None = getattr(outputs, "pooler_output", None)
        if pooled is not None:
            return pooled.flatten(1)
        hidden: Tensor = outputs.last_hidden_state
        return hidden[:, 0] if hidden.ndim == 3 else hidden.mean(dim=(2, 3))

    def describe(self) -> dict[str, Any]:
        """Return the name, the model's configuration and the preprocessing."""
        return {
            "name": self.name,
            "config": self.config,
            "preprocessing": self.preprocessing,
            "pooler": self.pooler,
        }

    @torch.no_grad()
    def _count_features(self) -> int:
        """Return the number of features from a forward pass; configurations name it differently."""
        size = self.preprocessing["size"] or 224
        self.eval()
        width = self(torch.zeros(1, 3, size, size)).shape[1]
        self.train()
        return int(width)


def _import_transformers() -> Any:
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ValueError("hub backbones need transformers: pip install transformers") from error
    return transformers


def _read_weights(source: str, config: Any) -> tuple[dict[str, Tensor], set[str]]:
    """Return the state dict of the model and the names that are missing in the checkpoint."""
    model, report = _import_transformers().AutoModel.from_pretrained(
        source, config=config, dtype=torch.float32, output_loading_info=True
    )
    return model.state_dict(), set(report["missing_keys"])


def _read_preprocessing(fields: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the arguments of `Preprocess` from a preprocessor_config.json."""
    normalize = fields.get("do_normalize", True)
    if normalize and not ("image_mean" in fields and "image_std" in fields):
        raise ValueError(f"{source}: preprocessor_config.json needs image_mean and image_std")
    return {
        "size": _read_size(fields, source),
        "mean": list(fields["image_mean"]) if normalize else 0.0,
        "std": list(fields["image_std"]) if normalize else 1.0,
        "interpolation": "bilinear" if fields.get("resample") == _PILLOW_BILINEAR else "bicubic",
        "scale": fields.get("rescale_factor", 1 / 255) if fields.get("do_rescale", True) else 1.0,
    }


def _read_size(fields: dict[str, Any], source: str) -> int | None:
    """Return the side of the square input; None if images keep their size."""
    if fields.get("do_center_crop") and fields.get("crop_size"):
        size = fields["crop_size"]
    elif fields.get("do_resize", True):
        size = fields.get("size")
    else:
        return None
    sides = {size} if isinstance(size, int) else set((size or {}).values())
    if len(sides) != 1:
        raise ValueError(f"{source}: the input size must be square, got {size}")
    return int(sides.pop())
