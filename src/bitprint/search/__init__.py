"""Searching codes by Hamming distance."""
