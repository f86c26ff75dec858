"""Arbitrary bytes for every parser: `python -m fuzz TARGET --seconds N`."""
