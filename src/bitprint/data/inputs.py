"""Convert the input of `fit` and `encode` to an image set or to feature vectors."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from io import IOBase
from itertools import chain
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from bitprint.data.decoded import decode_files
from bitprint.data.decoding import convert_image, decode_image, resize_pixels
from bitprint.data.folder import load_folder
from bitprint.data.images import ImageSet
from bitprint.data.vectors import as_features

if TYPE_CHECKING:
    from torch.utils.data import DataLoader, Dataset

Source: TypeAlias = ImageSet | NDArray[np.float32]
"""Images, or feature vectors (N, d)."""

Data: TypeAlias = (
    "ImageSet | ArrayLike | os.PathLike[str] | Sequence[os.PathLike[str]] | Image.Image"
    " | Sequence[Image.Image] | Dataset[Any] | DataLoader[Any]"
)
"""Input types of `read_inputs`."""

Pixels = NDArray[np.uint8]
_Size = tuple[int, int]

_DEFAULT_SIZE = (256, 256)  # as `load_folder`
_BLOCK = 256  # images that are converted from float at a time
_FORMS = "(N, height, width, 3) or (N, 3, height, width)"
_EMPTY = "there are no items: pass at least one image or feature vector"


def read_inputs(
    data: Data, shape: Sequence[int] | None = None
) -> tuple[Source, NDArray | list[Any] | None]:
    """Convert data of any supported type to an image set or to feature vectors.

    ==================================  ==========================================================
    data                                is read as
    ==================================  ==========================================================
    `ImageSet`                          itself, at its own size
    numbers (N, d)                      feature vectors
    uint8 (N, height, width, 3)         RGB images
    float (N, height, width, 3)         RGB images in [0, 1], rounded to uint8
    (N, 3, height, width)               the same with channels first
    (N, height, width, 1), (N, 1, ...)  gray images
    uint8 (N, height, width)            gray images
    path of a file, `PIL.Image`         one image
    list of paths, PIL images, arrays   images, which may differ in size
    path of a folder                    its images, in the order of `load_folder`, and their labels
    torch `Dataset`                     its items: image, vector, (image, label) or (vector, label)
    torch `DataLoader`                  its dataset, in the order of the dataset
    ==================================  ==========================================================

    An array is anything that NumPy can convert, such as a pandas DataFrame, or a torch tensor on
    any device. Channels are last if the last axis has length 1 or 3, and first otherwise: shape
    (N, 3, height, 3) is read with channels last. The first axis is always N, except in a list or
    a `Dataset`, where each array is one item. An array (N, height, width) that could also be one
    image with channels raises a ValueError.

    Images that are not an `ImageSet` are resized to the size in `shape`. Without `shape`, files
    are resized to 256 x 256. Arrays and PIL images keep their size if all sizes are equal, and
    become 256 x 256 otherwise. All images are in memory as uint8, 196,608 bytes for 256 x 256,
    except files that need more than 1 GiB in total: these are decoded into a memory-mapped cache,
    see `bitprint.data.decoded.decode_files`. A `Dataset` is read once, so its random transforms
    are applied once.

    Parameters
    ----------
    data : ImageSet, array, path, PIL image, list of these, Dataset or DataLoader
    shape : sequence of int, optional
        Shape of the training items of a model: (height, width, 3) or (d,).

    Returns
    -------
    items : ImageSet or ndarray of float32, shape (N, d)
    labels : ndarray, list or None
        Labels of the image set, the folder or the dataset, not checked; None without labels.

    Examples
    --------
    >>> items, labels = read_inputs(np.full((2, 3, 30, 40), 0.5, np.float32))
    >>> items.pixels.shape, items.pixels.dtype, labels
    ((2, 30, 40, 3), dtype('uint8'), None)
    >>> items, _ = read_inputs([Image.new("RGB", (40, 30)), Image.new("L", (8, 8))], (16, 16, 3))
    >>> items.pixels.shape
    (2, 16, 16, 3)
    """
    given: Any = data
    if isinstance(given, ImageSet):
        return given, given.labels
    if isinstance(given, str | os.PathLike):
        return _read_path(given, shape)
    if isinstance(given, Image.Image):
        return _read_items([given], shape), None
    _check_kind(given)
    given = _without_loader(given)
    if _is_dataset(given):
        return _read_dataset(given, shape)
    if isinstance(given, Sequence):
        return _read_list(given, shape), None
    array = _as_array(given)
    if array.ndim == 1 and array.dtype.kind in "OU":  # such as a column of file names
        return _read_list(array.tolist(), shape), None
    return _read_array(array, shape), None


def _check_kind(data: Any) -> None:
    """Raise a ValueError for common types without an ordered sequence of items."""
    kind = type(data).__name__
    if data is None:
        raise ValueError("there is no data: pass images or features, got None")
    if isinstance(data, Mapping) and not hasattr(data, "toarray"):  # some sparse arrays are both
        raise ValueError(f"got a {kind}: pass its images or features, such as x['image']")
    if isinstance(data, bytes | bytearray | memoryview | IOBase):
        raise ValueError(
            f"got {kind}: pass the path of an image, or PIL.Image.open(file) for an open file"
        )
    if isinstance(data, Iterator | Set):
        raise ValueError(f"got a {kind}: pass a list of its items, list(x)")


# ---- files and folders


def _read_path(
    path: str | os.PathLike[str], shape: Sequence[int] | None
) -> tuple[ImageSet, NDArray | None]:
    if not _exists(path, Path.is_dir):
        return _read_files([path], shape), None
    images = load_folder(Path(path).expanduser(), size=_size_for(shape) or _DEFAULT_SIZE)
    if images.skipped:
        name, reason = images.skipped[0]
        warnings.warn(
            f"{path}: skipped {len(images.skipped)} images that cannot be read; the first, "
            f"{name}: {reason}",
            stacklevel=4,
        )
    return images, images.labels


def _read_files(paths: Sequence[str | os.PathLike[str]], shape: Sequence[int] | None) -> ImageSet:
    size = _size_for(shape) or _DEFAULT_SIZE
    files = [str(_check_file(path)) for path in paths]
    pixels, _, skipped = decode_files(Path(), files, size)
    if skipped:
        name, reason = skipped[0]
        raise ValueError(f"{name}: not a readable image ({reason})")
    return ImageSet(pixels)


def _check_file(path: str | os.PathLike[str]) -> Path:
    if _exists(path, Path.is_dir):
        raise ValueError(f"{path} is a folder: pass a single folder, or a list of image files")
    if not _exists(path, Path.is_file):
        raise FileNotFoundError(
            f"{str(path)[:200]!r}: no such file or folder; pass the path of an image or of a "
            "folder of images"
        )
    return Path(path).expanduser()


def _exists(path: str | os.PathLike[str], check: Callable[[Path], bool]) -> bool:
    try:
        return check(Path(path).expanduser())
    except (OSError, ValueError, RuntimeError):  # not a valid file name
        return False


# ---- datasets and lists


def _without_loader(data: Any) -> Any:
    """Return the dataset of a DataLoader, or other data unchanged."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is None or not isinstance(data, torch_data.DataLoader):
        return data
    if isinstance(data.dataset, torch_data.IterableDataset):
        return data.dataset
    sampler = getattr(data.batch_sampler, "sampler", None) or data.sampler
    in_full = (
        torch_data.SequentialSampler,
        torch_data.RandomSampler,
        torch_data.DistributedSampler,
    )
    if not isinstance(sampler, in_full):
        raise ValueError(
            f"this DataLoader selects items by a {type(sampler).__name__}: pass a dataset of the "
            "selected items, torch.utils.data.Subset(dataset, rows)"
        )
    return data.dataset


def _is_dataset(data: Any) -> bool:
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(data, torch_data.Dataset):
        return True
    has_items = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return has_items and not isinstance(data, Sequence) and not _is_array(data)


def _is_array(data: Any) -> bool:
    forms = ("__array__", "__array_interface__", "__dlpack__", "toarray", "detach")
    return any(hasattr(data, form) for form in forms)


def _read_dataset(
    dataset: Any, shape: Sequence[int] | None
) -> tuple[Source, NDArray | list[Any] | None]:
    labels: list[Any] = []

    def first_parts() -> Iterator[Any]:
        for item in _items_of(dataset):
            part, label = _split(item)
            labels.append(label)
            yield part

    items = _read_items(first_parts(), shape)
    if all(label is None for label in labels):
        return items, None
    return items, _join_labels(labels)


def _items_of(dataset: Any) -> Iterator[Any]:
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(dataset, torch_data.IterableDataset):
        return iter(dataset)
    if not hasattr(dataset, "__len__"):
        raise ValueError(f"{type(dataset).__name__} has no length: define __len__")
    return (dataset[row] for row in range(len(dataset)))


def _split(item: Any) -> tuple[Any, Any]:
    """Return the image or vector, and the label or None, of one item of a dataset."""
    if isinstance(item, Mapping):
        raise ValueError(
            f"the items of this dataset have type {type(item).__name__}: pass a dataset of "
            "images or of tuples (image, label)"
        )
    if isinstance(item, tuple | list) and item and not isinstance(item[0], Number):
        return item[0], item[1] if len(item) > 1 else None
    return item, None


def _join_labels(labels: list[Any]) -> NDArray | list[Any]:
    """Return labels as one array, or as a list if they are not numbers of one shape."""
    found = [_as_array(label) if _is_array(label) else label for label in labels]
    try:
        array = np.array(found)
    except ValueError:
        return found
    return found if array.dtype == object else array


def _read_list(data: Sequence[Any], shape: Sequence[int] | None) -> Source:
    if len(data) == 0:
        raise ValueError(_EMPTY)
    if all(isinstance(item, str | os.PathLike) for item in data):
        return _read_files(data, shape)
    if any(_is_image(item) for item in data):
        return _read_items(data, shape)
    return _read_array(_stack_vectors(data), shape)


def _is_image(item: Any) -> bool:
    return isinstance(item, str | os.PathLike | Image.Image) or getattr(item, "ndim", 0) >= 2


def _read_items(items: Iterable[Any], shape: Sequence[int] | None) -> Source:
    """Read items of a stream, which must be all images or all vectors."""
    stream = iter(items)
    try:
        first = next(stream)
    except StopIteration:
        raise ValueError(_EMPTY) from None
    stream = chain([first], stream)
    if _is_image(first):
        return ImageSet(_stack_images(stream, _size_for(shape)))
    return _read_array(_stack_vectors(list(stream)), shape)


def _stack_vectors(items: Sequence[Any]) -> NDArray:
    try:
        return np.asarray([_as_array(item) if _is_array(item) else item for item in items])
    except ValueError:
        raise ValueError(
            "the items are neither images nor feature vectors of one length: pass an array (N, d), "
            "or a list of paths, PIL images or arrays (height, width, 3)"
        ) from None


def _stack_images(items: Iterable[Any], size: _Size | None) -> Pixels:
    """Stack images: at `size` if given, at their size if all are equal, at 256 x 256 otherwise."""
    images: list[Pixels] = []
    for row, item in enumerate(items):
        image = _read_image(item, row, size)
        if images and image.shape != images[0].shape:
            size = _DEFAULT_SIZE
            images = [resize_pixels(other, size) for other in images]
            image = resize_pixels(image, size)
        images.append(image)
    pixels = np.empty((len(images), *images[0].shape), np.uint8)
    for row in reversed(range(len(images))):
        pixels[row] = images.pop()  # frees memory while copying
    return pixels


def _read_image(item: Any, row: int, size: _Size | None) -> Pixels:
    """Read one image (height, width, 3), resized to `size` if given."""
    if isinstance(item, str | os.PathLike):
        return decode_image(_check_file(item), size or _DEFAULT_SIZE)
    try:
        if isinstance(item, Image.Image):
            return convert_image(item, size)
        image = _as_array(item)
        if image.ndim != 3 and (image.ndim != 2 or image.dtype != np.uint8):
            raise ValueError(
                f"one image must have shape (height, width, 3), got {image.dtype} of shape "
                f"{image.shape}; pass an array of many images without a list"
            )
        pixels = _to_rgb(image[None])[0]
    except ValueError as error:
        raise ValueError(f"item {row}: {error}") from error
    return pixels if size is None else resize_pixels(pixels, size)


# ---- arrays


def _as_array(data: Any) -> NDArray:
    if hasattr(data, "toarray"):
        raise ValueError("sparse features are not supported; use features.toarray()")
    if hasattr(data, "detach"):  # a torch tensor
        return _tensor_as_array(data)
    if not hasattr(data, "__array__") and hasattr(data, "__dlpack__"):
        return np.from_dlpack(data)
    array = np.asarray(data)
    if array.dtype == object and array.ndim == 0:
        wanted = "a list of its items, list(x)" if isinstance(data, Iterable) else "images"
        raise ValueError(f"got {type(data).__name__}: pass {wanted}")
    return array


def _tensor_as_array(tensor: Any) -> NDArray:
    if str(tensor.layout) != "torch.strided":
        raise ValueError("sparse tensors are not supported; use x.to_dense()")
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point():
        tensor = tensor.float()  # NumPy has no bfloat16
    array: NDArray = tensor.numpy()
    return array


def _read_array(array: NDArray, shape: Sequence[int] | None) -> Source:
    if array.ndim in (0, 1):
        raise ValueError(
            "Reshape your data: features must have shape (N, d); use x[None] for one vector, and "
            f"pass class numbers as labels; got {array.dtype} of shape {array.shape}"
        )
    if array.ndim == 2:
        return as_features(array)
    if array.ndim == 3:
        _check_gray(array)
    size = _size_for(shape)
    pixels = _to_rgb(array)
    if size is None or pixels.shape[1:3] == size:
        return ImageSet(pixels)
    resized = np.empty((len(pixels), *size, 3), np.uint8)
    for row, image in enumerate(pixels):
        resized[row] = resize_pixels(image, size)
    return ImageSet(resized)


def _check_gray(array: NDArray) -> None:
    """Raise unless (N, height, width) can only be N gray images."""
    one_image = array.shape[0] == 3 or array.shape[2] in (1, 3, 4)
    if array.dtype != np.uint8 or one_image:
        raise ValueError(
            f"got {array.dtype} of shape {array.shape}: use images[None] for one image, "
            "images[..., None] for N gray images, or x.reshape(len(x), -1) for features"
        )


def _to_rgb(array: NDArray) -> Pixels:
    """Convert gray or color images of uint8 or floats to uint8 RGB."""
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or not {1, 3} & {array.shape[1], array.shape[3]} or 0 in array.shape[1:]:
        raise ValueError(
            f"images must have shape {_FORMS}, got {array.dtype} of shape {array.shape}"
        )
    if array.shape[3] not in (1, 3):
        array = np.moveaxis(array, 1, 3)
    pixels = array if array.dtype == np.uint8 else _round_floats(array)
    return np.repeat(pixels, 3, axis=3) if pixels.shape[3] == 1 else pixels


def _round_floats(array: NDArray) -> Pixels:
    if array.dtype.kind != "f":
        raise ValueError(
            f"images must be uint8, or floats in [0, 1], got {array.dtype}: use "
            "images.astype(np.uint8) if the values are in 0..255"
        )
    pixels = np.empty(array.shape, np.uint8)
    for start in range(0, len(array), _BLOCK):
        block = array[start : start + _BLOCK]
        values = np.rint(block * np.float32(255))
        if np.isnan(values).any():
            raise ValueError("float images contain NaN; the values must be in [0, 1]")
        if values.min() < 0 or values.max() > 255:
            raise ValueError(
                f"float images must be in [0, 1], got values from {block.min():.4g} to "
                f"{block.max():.4g}: divide by 255, or omit the normalization, which Bitprint "
                "applies as the backbone requires"
            )
        pixels[start : start + _BLOCK] = values
    return pixels


def _size_for(shape: Sequence[int] | None) -> _Size | None:
    """Return height and width of a model's images, None if unknown; raise for vectors."""
    if shape is None:
        return None
    if len(shape) != 3:
        raise ValueError(
            f"this model was trained on feature vectors of length {shape[0]}, not on images: "
            f"pass features of shape (N, {shape[0]})"
        )
    return int(shape[0]), int(shape[1])
