"""The measured runs that a calibrated profile keeps, each one point of a chart."""

import math
from typing import NamedTuple, cast

from infer_jax.errors import InputError

MILLI = 1e-3


def latency(ttft: float, tpot: float, osl: float) -> float:
    """Seconds of a whole request: TTFT and a TPOT for each later token."""
    return ttft + max(osl - 1.0, 0.0) * tpot


class MeasuredPoint(NamedTuple):
    """A measured run of a server: its model, GPUs, requests in flight, tokens, and times in s."""

    model: str
    gpus: float
    concurrency: float
    isl: float
    osl: float
    ttft: float
    tpot: float

    @property
    def latency(self) -> float:
        """Seconds of a whole request."""
        return latency(self.ttft, self.tpot, self.osl)


KEYS = {
    "gpus": 1.0,
    "concurrency": 1.0,
    "isl_tokens": 1.0,
    "osl_tokens": 1.0,
    "ttft_ms": MILLI,
    "tpot_ms": MILLI,
}


def read_measured(where: str, given: object) -> tuple[MeasuredPoint, ...]:
    """The runs of a profile's ``[[measured]]`` tables.

    Raises:
        InputError: a key that is missing, unknown or no number above 0.
    """
    if not isinstance(given, list):
        raise InputError(where, "measured", type(given).__name__, "[[measured]] tables, one a run")
    return tuple(_run(where, f"measured.{i}", row) for i, row in enumerate(given, 1))


def _run(where: str, place: str, row: object) -> MeasuredPoint:
    wanted = {"model", *KEYS}
    if not isinstance(row, dict) or set(row) != wanted:
        strange = sorted(set(row) ^ wanted) if isinstance(row, dict) else [type(row).__name__]
        allowed = f"model, {', '.join(KEYS)}, all of them"
        raise InputError(where, place, str(strange[0])[:80], allowed)
    fields = cast(dict[str, object], row)
    if not isinstance(fields["model"], str):
        raise InputError(where, f"{place}.model", fields["model"], "the name of a model")
    numbers: list[float] = []
    for key, factor in KEYS.items():
        value = fields[key]
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        number = float(value) if plain else math.nan  # pyright: ignore[reportArgumentType]
        if not 0.0 < number < math.inf:
            raise InputError(where, f"{place}.{key}", value, "a number above 0")
        numbers.append(factor * number)
    return MeasuredPoint(fields["model"], *numbers)


def entry(run: MeasuredPoint) -> list[str]:
    """The lines of a run in a profile."""
    values = zip(KEYS.items(), run[1:], strict=True)
    return [f"{key} = {value / factor:.6g}" for (key, factor), value in values]
