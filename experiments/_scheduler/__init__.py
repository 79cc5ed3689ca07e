"""Closed forms of a closed loop beside the replay of vLLM's scheduler."""
