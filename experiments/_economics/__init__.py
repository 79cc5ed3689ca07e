"""The parts of ``experiments/economics.py``: points, fronts, tables, figures, claims."""
