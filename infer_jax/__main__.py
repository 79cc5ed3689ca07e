"""The program ``infer-jax``, as ``python -m infer_jax``."""

from infer_jax.cli import main

main()
