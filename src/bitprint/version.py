"""The version of the package, where every part of it finds it."""

__version__ = "0.1.0"
