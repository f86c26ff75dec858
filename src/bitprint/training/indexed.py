"""IndexedDataset: a dataset that adds the row number to each item."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset


class IndexedDataset(Dataset):
    """Add the row number to each item of a dataset: (x, y) becomes (x, y, row).

    The losses of deep methods use the rows to store an output for each training image. A row is
    the position of the item in `dataset`, even if a loader shuffles or samples the items.

    Parameters
    ----------
    dataset : map-style dataset
        A `torch.utils.data.Dataset`, or another object with `__len__` and `__getitem__`, whose
        items are tuples (x, y). To train on a part of a dataset, pass a
        `torch.utils.data.Subset`, so that rows are numbered from 0 to N - 1.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> pairs = TensorDataset(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> for x, y, rows in DataLoader(IndexedDataset(pairs), batch_size=3):
    ...     print(tuple(x.shape), y.tolist(), rows.tolist())
    (3, 4) [0, 0, 1] [0, 1, 2]
    (1, 4) [1] [3]
    """

    def __init__(self, dataset: Any) -> None:
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise ValueError(
                f"{type(dataset).__name__} has no rows: pass a map-style dataset with "
                "__len__ and __getitem__"
            )
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, Any, int]:
        row = range(len(self))[index]  # IndexError past the end; -1 is the last row
        item = self.dataset[row]
        if not (isinstance(item, tuple | list) and len(item) == 2):
            raise ValueError(
                f"items of the dataset must be tuples (x, y), got {type(item).__name__}: return "
                "(x, y) in its __getitem__"
            )
        return item[0], item[1], row
