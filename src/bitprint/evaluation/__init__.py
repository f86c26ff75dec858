"""Retrieval metrics and curves, computed from histograms of distances, and plots of them."""

from bitprint.evaluation.curves import Curve
from bitprint.evaluation.metrics import evaluate
from bitprint.evaluation.report import Report

__all__ = ["Curve", "Report", "evaluate"]
