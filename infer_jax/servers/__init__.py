"""Servers as they are replayed: an engine's rules at an estimator's prices, and their requests."""
