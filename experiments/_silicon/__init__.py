"""The studies of ``experiments/silicon.py``, in one frame."""
