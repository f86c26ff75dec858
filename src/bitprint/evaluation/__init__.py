"""Retrieval metrics and curves from Hamming histograms; `plots` draws them."""

from bitprint.evaluation.curves import Curve
from bitprint.evaluation.metrics import Report, evaluate

__all__ = ["Curve", "Report", "evaluate"]
