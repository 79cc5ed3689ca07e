"""A step and an estimate of any estimator, compiled once for each structure by all tests."""

import jax

estimate = jax.jit(lambda estimator, *asked: estimator.estimate(*asked))
step = jax.jit(lambda estimator, *asked: estimator.step(*asked))
