"""Vectors of any model: learn codes for them, search the codes, compare the best vectors again."""

from __future__ import annotations

from bitprint.vectors.index import Neighbors, VectorIndex
from bitprint.vectors.model import VectorModel
from bitprint.vectors.reading import Source, open_vectors

__all__ = ["Neighbors", "Source", "VectorIndex", "VectorModel", "open_vectors"]
