"""LAWS: one operation each, scalar in, scalar out, equation and source cited."""
