"""What an option declares without JAX is what the library computes with."""

from inspect import signature

import infer_jax as ij
from infer_jax import planning
from infer_jax.engines import ENGINES
from infer_jax.sweeps import engine
from infer_jax.verbs.plan import USUAL_TTFT


def test_defaults_are_those_of_the_library():
    assert planning.USUAL_TTFT == USUAL_TTFT
    assert signature(ij.sweep).parameters["memory"].default == engine.MEMORY
    assert signature(ij.memory).parameters["block_size"].default == ENGINES["vllm"].block
