"""Bytes of weights, activations and caches, and where they lie: chip, host or disk."""
