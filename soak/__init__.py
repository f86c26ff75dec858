"""Fault injection: `python -m soak` kills processes, damages files and checks for data loss."""
