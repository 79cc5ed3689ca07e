"""Definitions of time per output token, converted to the one without the first token.

Three definitions are in use. vLLM, SGLang, AIPerf and MLPerf leave the first token out; GuideLLM
divides the whole latency by all tokens; InferenceX prints the reciprocal, tokens per second of
one user. Everything here is converted to the first.
"""

from infer_jax.catalog.measurements.run import Statistic

EXCLUDES, INCLUDES, INTERACTIVITY = "excludes_first", "includes_first", "interactivity"
DEFINITIONS = (EXCLUDES, INCLUDES, INTERACTIVITY)


def without_first(whole: float, ttft: float, osl: float) -> float:
    """TPOT without the first token (s), from latency over all tokens.

    (O T_all - TTFT) / (O - 1), for O > 1; exact for means where all outputs have O tokens.

    >>> without_first(whole=0.02, ttft=0.5, osl=101)
    0.0152
    """
    return (osl * whole - ttft) / (osl - 1.0)


def of_interactivity(speed: Statistic) -> Statistic:
    """TPOT (s) from interactivity (tokens/s): the reciprocal of every value.

    InferenceX names a percentile of interactivity after the percentile of TPOT it is the
    reciprocal of, and its mean after the mean; a deviation has no reciprocal.
    """
    ranks = tuple((rank, 1.0 / value) for rank, value in speed.percentiles if value > 0.0)
    return Statistic(1.0 / speed.mean if speed.mean else None, None, ranks)
