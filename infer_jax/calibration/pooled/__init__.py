"""The default coefficients: one fit of the serving estimator to all measured rows at once.

Rows are read (`readers`), put in the estimator's terms (`rows`) and predicted (`answers`); the
`likelihood` compares them and solves the fit, `publishers` measures how wrong it is on what it
has not seen, and `shipping` writes the files that the package carries.
``python -m infer_jax.calibration.pooled`` is the command.
"""
