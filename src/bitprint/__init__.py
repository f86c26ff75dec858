"""Bitprint: learn short binary codes for images and search them by Hamming distance."""

from bitprint.codes import Codes
from bitprint.data.images import ImageSet
from bitprint.evaluation import evaluate
from bitprint.methods import create, list_methods, load
from bitprint.training.plan import Training

__all__ = ["Codes", "ImageSet", "Training", "create", "evaluate", "list_methods", "load"]
