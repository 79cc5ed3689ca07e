"""``ij.traffic``: what arrives: rates over days, bursts, lengths, sessions; and a trace like it."""

from typing import Annotated

from infer_jax import verbs
from infer_jax.results.problems import refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Number, Option

PERIOD = Number(1.0, 7 * 86400.0, what="seconds")


@verb
def traffic(
    trace: Annotated[opt.Place, Option.of("TRACE|TOML|FOLDER", by_place=True)],
    *,
    period: Annotated[float, Option.of("SECONDS", PERIOD)] = 3600.0,
    draw: Annotated[opt.Place | None, Option.of("FILE")] = None,
    model: Annotated[opt.Place | None, Option.of("CONFIG")] = None,
    hardware: Annotated[opt.Place | None, Option.of("NAME|FILE")] = None,
    tp: opt.Tp = None,
    prompts: Annotated[float, Option.of("N", Number(2, 1e6, whole=True))] = 2000,
    seed: Annotated[int, Option.of("N", opt.SEED)] = 0,
    out: Annotated[opt.Place | None, Option.of("FILE")] = None,
) -> "verbs.TrafficResult":
    """What arrives: rates by hour, bursts, lengths, sessions; how like is a drawn trace?

    A trace, or the description that was made of one. The description has no prompts, and is a few
    kilobytes: rates of periods, quantiles of lengths, how they depend on each other.

    Args:
        trace: Requests as recorded, a description of them, .toml, or a folder of ServeGen.
        period: Seconds of a period that has a rate of its own.
        draw: Write a trace that is drawn from the description, .csv.
        model: Replay a model on the first requests of either trace, too, and compare TTFT.
        hardware: The system of that replay.
        prompts: Requests of that replay.
        seed: Of the drawn trace.
        out: A picture, .png, .svg, .pdf, .html, or the description, .toml.

    Raises:
        InputError: a file that is neither, a trace without times, a replay that is not possible.

    >>> import infer_jax as ij
    >>> from infer_jax.arrivals import LEVELS
    >>> found = ij.traffic("examples/traffic.toml")
    >>> len(found.traffic.prompts) == len(LEVELS), found.trace is None
    (True, True)
    """
    from pathlib import Path

    from infer_jax.results import option
    from infer_jax.verbs import pictures
    from infer_jax.verbs.traffic_result import TrafficResult, write_csv

    if out is not None:
        pictures.check(out, (*pictures.KINDS, ".toml"))
    if draw is not None and Path(draw).suffix != ".csv":
        raise refuse("draw", str(draw), "a .csv file")
    if (model is None) != (hardware is None):
        given, other = ("model", "hardware") if hardware is None else ("hardware", "model")
        raise refuse(given, "given", f"with {option(other)}, or without both")
    result = TrafficResult.of(trace, period, seed)
    if model is not None and hardware is not None:
        result = result.replayed(model, hardware, tp, int(prompts))
    if draw is not None:
        write_csv(draw, result.drawn)
    if out is not None:
        result.write(out)
    return result
