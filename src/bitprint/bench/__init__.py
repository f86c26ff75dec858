"""Search benchmark: Bitprint compared with other engines in one run."""
