"""A step and an estimate of any estimator, compiled once for each structure by all tests."""

from functools import partial

import jax

from tests.unit.physics.derivatives import PROGRAM

quickly = partial(jax.jit, compiler_options=PROGRAM)
estimate = quickly(lambda estimator, *asked: estimator.estimate(*asked))
step = quickly(lambda estimator, *asked: estimator.step(*asked))
