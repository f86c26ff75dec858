"""Experiments: tables of models to train and evaluate, which can be resumed."""
