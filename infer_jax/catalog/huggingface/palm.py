"""Reader of PaLM, which has no config.json of its own: the keys are those of transformers."""

from infer_jax.catalog.huggingface.attention import grouped_query, heads
from infer_jax.catalog.huggingface.dense import dense
from infer_jax.catalog.huggingface.facts import Facts
from infer_jax.catalog.huggingface.layers import ConfigLayer, Decoder, decoder, depth


def palm(facts: Facts) -> Decoder:
    """PaLM: one shared key-value head, SwiGLU beside attention, one norm, no biases, tied.

    Source: Chowdhery et al. 2022 (arXiv 2204.02311), Section 2.
    """
    width = facts.count("hidden_size")
    attention = grouped_query(width, heads(facts))
    layer = ConfigLayer(attention, dense(width, facts.count("intermediate_size")), width)
    return decoder(facts, [layer] * depth(facts), tied=True, parallel=True)
