"""Faults on purpose: `python -m soak` kills, damages, fills and cuts, then looks for loss."""
