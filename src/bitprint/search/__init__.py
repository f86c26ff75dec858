"""Search for binary codes by Hamming distance."""
