"""Retrieval metrics and curves from histograms of distances; `plots` draws them."""

from bitprint.evaluation.curves import Curve
from bitprint.evaluation.metrics import evaluate
from bitprint.evaluation.report import Report

__all__ = ["Curve", "Report", "evaluate"]
