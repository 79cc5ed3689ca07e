"""Between which speeds and dollars 80 % of measured servers are that run a plan."""

from collections.abc import Mapping, Sequence

from infer_jax.catalog.measured_points import latency
from infer_jax.estimators import Estimator
from infer_jax.verbs import inputs
from infer_jax.verbs.inputs import Given


def intervals(
    estimator: str,
    fitted: Estimator,
    asked: Given,
    times: tuple[float, float],
    *,
    pools: bool,
    load: float | None = None,
) -> Mapping[str, Sequence[float]]:
    """What 80 % of measured servers are in, ms, by name; ``times``: TTFT and TPOT, s.

    ``load``: requests in flight of an instance.

    None of separate pools and of estimators of ideal servers, whose errors no fit knows.
    """
    if pools or not fitted.batches:
        return {}
    shipped = inputs.shipped_within(estimator, fitted, asked, load)
    return inputs.bands(asked.system, *times, shipped)


def ends(
    known: Mapping[str, Sequence[float]],
    times: tuple[float, float, float],
    worth: tuple[float, float],
    *,
    arriving: bool = False,
) -> dict[str, tuple[float, float]]:
    """The numbers of the fast and of the slow end of the band; none where errors are not known.

    ``known``: intervals of TTFT and TPOT, ms; ``times``: TTFT, TPOT, seconds, and output tokens;
    ``worth``: dollars and tokens/s; ``arriving``: whether requests arrive at a rate, which a slow
    server answers too. Otherwise its requests in flight are the same, so that throughput and
    dollars go by latency. Latency errs as TPOT does (its law holds of throughput, too); that of
    requests that mostly wait for their first token as if both times were at the same end.
    """
    if len(known) < 2:
        return {}
    ttft, tpot = known["ttft_interval80_ms"], known["tpot_interval80_ms"]
    if latency(*times) > 2.0 * times[0]:
        whole = [latency(*times) * end / (1e3 * times[1]) for end in tpot]
    else:
        whole = [latency(a / 1e3, b / 1e3, times[2]) for a, b in zip(ttft, tpot, strict=True)]
    fast, slow = (1.0 if arriving else end / latency(*times) for end in whole)
    usd, rate = worth
    return {
        "speed": (1e3 / tpot[0], 1e3 / tpot[1]),
        "tpot": (tpot[0], tpot[1]),
        "ttft": (ttft[0], ttft[1]),
        "latency": (whole[0], whole[1]),
        "usd": (usd * fast, usd * slow),
        "rate": (rate / fast, rate / slow),
    }
