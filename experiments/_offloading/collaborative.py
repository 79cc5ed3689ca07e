"""Seconds of a job on a chain of distant GPUs, each holding some of the layers.

A collaborative pipeline (Petals: Borzunov et al. 2022, arXiv 2209.01188): nothing is offloaded,
one batch passes through all stages, and hidden states cross a slow link between any two.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

Number = Array | float  # an array or a plain number


class Chain(NamedTuple):
    """A chain of GPUs: its links and what each GPU attains."""

    stages: Number
    delay: Number  # seconds of a link
    bandwidth: Number  # bytes/s of a link
    flops: Number  # FLOP/s of a GPU
    memory_bandwidth: Number  # bytes/s of a GPU


class ModelSizes(NamedTuple):
    """The whole model and one sample: bytes of weights, FLOP a token, bytes of a hidden state."""

    weights: Number
    flops: Number
    hidden: Number


def step(chain: Chain, model: ModelSizes, samples: Number, tokens: Number) -> Number:
    """Seconds for ``tokens`` tokens of each sample to pass through all stages.

    max(FLOP, weights through memory) + stages (delay + hidden states / bandwidth): stages work
    one after the other on one batch, so that arithmetic adds up to that of one GPU.
    """
    work = samples * tokens * model.flops / chain.flops
    read = model.weights / chain.memory_bandwidth
    hop = chain.delay + samples * tokens * model.hidden / chain.bandwidth
    return jnp.maximum(work, read) + chain.stages * hop


def job(chain: Chain, model: ModelSizes, samples: Number, prompt: Number, tokens: Number) -> Number:
    """Seconds of a batch: its prompt, then every token after the first."""
    first = step(chain, model, samples, prompt)
    return first + (tokens - 1.0) * step(chain, model, samples, jnp.ones_like(tokens))
