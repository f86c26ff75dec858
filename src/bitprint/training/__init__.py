"""Training loop, training options and checkpoints of deep methods."""
