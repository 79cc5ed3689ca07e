"""The laws: one operation each, scalar in, scalar out, with equation and source."""
