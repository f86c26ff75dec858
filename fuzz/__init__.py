"""Fuzz tests of all parsers: `python -m fuzz TARGET --seconds N`."""
