"""What a calibrated profile was measured on, and its runs, each one point of a chart."""

import math
from typing import NamedTuple

from infer_jax.errors import InputError

# numbers of a run in a profile, with the SI units of one
KEYS = {
    "gpus": 1.0,
    "concurrency": 1.0,
    "isl_tokens": 1.0,
    "osl_tokens": 1.0,
    "ttft_ms": 1e-3,
    "tpot_ms": 1e-3,
}


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

    @property
    def requests_per_s(self) -> float:
        """Requests that end in a second, by Little's law."""
        return self.concurrency / self.latency

    @property
    def throughput(self) -> float:
        """Output tokens per second and GPU."""
        return self.requests_per_s * self.osl / self.gpus

    def usd_per_mtok(self, price: float) -> float:
        """USD per million tokens, in and out, at a ``price`` of a GPU-hour."""
        return 1e6 * (self.gpus * price / 3600.0) / (self.requests_per_s * (self.isl + self.osl))


class Calibration(NamedTuple):
    """The servers that a profile was calibrated to: their model, its formats, their layouts."""

    model: str
    formats: str
    layouts: tuple[str, ...]


def read_calibration(where: str, body: object) -> Calibration:
    """The servers of a profile's ``[calibrated]`` table.

    Raises:
        InputError: anything else than a model, its formats and a list of layouts.
    """
    match body:
        case {"model": str(model), "formats": str(formats), "layouts": list(layouts), **rest}:
            if not rest and layouts and all(isinstance(name, str) for name in layouts):
                return Calibration(model, formats, tuple(layouts))
    allowed = "model, formats and layouts, two texts and a list of texts"
    raise InputError(where, "calibrated", type(body).__name__, allowed)


def read_measured(where: str, rows: object) -> tuple[MeasuredPoint, ...]:
    """The runs of a profile's ``[[measured]]`` tables.

    Raises:
        InputError: a key that is missing, unknown or no number above 0.
    """
    if not isinstance(rows, list):
        raise InputError(where, "measured", type(rows).__name__, "[[measured]] tables, one a run")
    points, keys = [], {"model", *KEYS}
    for i, row in enumerate(rows, 1):
        place = f"measured.{i}"
        if not isinstance(row, dict) or set(row) != keys:
            wrong = sorted(set(row) ^ keys) if isinstance(row, dict) else [type(row).__name__]
            allowed = f"model, {', '.join(KEYS)}, all of them"
            raise InputError(where, place, str(wrong[0])[:80], allowed)
        if not isinstance(row["model"], str):
            raise InputError(where, f"{place}.model", row["model"], "the name of a model")
        for key in KEYS:
            if type(row[key]) not in (int, float) or not 0.0 < row[key] < math.inf:
                raise InputError(where, f"{place}.{key}", row[key], "a number above 0")
        numbers = (factor * float(row[key]) for key, factor in KEYS.items())
        points.append(MeasuredPoint(row["model"], *numbers))
    return tuple(points)


def entry(run: MeasuredPoint) -> list[str]:
    """The lines of a run in a profile."""
    values = zip(KEYS.items(), run[1:], strict=True)
    return [f"{key} = {value / factor:.6g}" for (key, factor), value in values]
