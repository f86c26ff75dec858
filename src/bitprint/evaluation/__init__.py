"""Retrieval metrics from Hamming histograms: MAP, precision, recall, curves and their plots."""

from bitprint.evaluation.curves import Curve
from bitprint.evaluation.metrics import Report, evaluate
from bitprint.evaluation.plots import plot_reports

__all__ = ["Curve", "Report", "evaluate", "plot_reports"]
