"""Experiments as data: what to train and measure, and tables that can be resumed."""
