"""What does a calibration answer? Errors, parameters, the worst runs, what to measure next."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infer_jax.cli import profile, show
from infer_jax.cli.runs import OUTPUTS, trends
from infer_jax.estimators.serving import ENGINES
from infer_jax.results import numbers
from infer_jax.verbs.inputs import Given

WORST = 5  # runs named as the worst predicted
TITLES = {
    "sheet": "data sheet alone",
    "before": "profile as it was",
    "after": "calibrated",
    "held_out": "calibrated, run left out",
}


def report(asked: Given, made: Any) -> dict[str, Any]:
    """A calibration for JSON, in SI units but for keys that say others."""
    predictions = {"sheet": made.sheet, "before": made.before, "after": made.after}
    if made.held is not None:
        predictions["held_out"] = made.held
    found, ends = made.fit.values, {share: made.interval(share) for share in (0.5, 0.8, 0.95)}
    before = profile.values(made.start)
    return {
        **asked.names,
        "engine": ENGINES[int(made.start.engine)],
        "runs": len(made.runs),
        "measured_times": int(np.isfinite(made.measured).sum()),
        "errors": {name: _errors(times, made.measured) for name, times in predictions.items()},
        "band80": {name: list(ends) for name, ends in zip(OUTPUTS, made.band(), strict=True)},
        "parameters": [
            {
                "name": one.name,
                "unit": before[one.name].unit,
                "before": before[one.name].value,
                "value": found[one.name],
                **{f"interval{100 * s:.0f}": list(e[one.name]) for s, e in ends.items()},
                "learnt": one.learnt,
                "verdict": one.verdict,
            }
            for one in made.identified.parameters
        ],
        "cannot_be_told_apart": [
            {"pair": [a, b], "correlation": r} for a, b, r in made.identified.pairs
        ],
        "worst": _worst(made),
        "next": [_proposal(one) for one in made.proposals],
    }


def _errors(times: np.ndarray, measured_times: np.ndarray) -> dict[str, Any]:
    """Median and worst |predicted / measured - 1| in percent, by output."""
    wrong = 100.0 * np.abs(times / measured_times - 1.0)
    return {
        name: None
        if np.isnan(row).all()
        else {"median_percent": np.nanmedian(row), "worst_percent": np.nanmax(row)}
        for name, row in zip(OUTPUTS, wrong, strict=True)
    }


def _worst(made: Any) -> list[dict[str, Any]]:
    """The runs that the fit on the others (or on all, if there is one) predicts worst."""
    wrong = np.abs(np.log(made.judged / made.measured))
    order = np.argsort(-np.nan_to_num(wrong).max(axis=0))[:WORST]
    return [
        {
            "run": made.runs[i].place,
            "concurrency": made.runs[i].concurrency,
            "isl_tokens": made.runs[i].isl,
            "osl_tokens": made.runs[i].osl,
            **{
                f"{name}_{kind}_ms": 1e3 * times[k, i]
                for k, name in enumerate(OUTPUTS)
                for kind, times in (("measured", made.measured), ("predicted", made.judged))
            },
            "error_percent": [100.0 * x for x in made.judged[:, i] / made.measured[:, i] - 1.0],
        }
        for i in map(int, order)
    ]


def _proposal(one: Any) -> dict[str, Any]:
    work, plan = one.load
    return {
        "concurrency": work.batch,
        "isl_tokens": work.isl,
        "osl_tokens": work.osl,
        "tp": plan.tp,
        "dp": plan.attention_dp,
        "bits": one.bits,
        "narrows_percent": 100.0 * one.narrows,
    }


def said(answer: dict[str, Any]) -> str:
    """How well the fit does, for the profile."""
    judged = "held_out" if "held_out" in answer["errors"] else "after"
    told = [
        f"{name.upper()} {row['median_percent']:.1f} %"
        for name, row in answer["errors"][judged].items()
        if row is not None
    ]
    return f"median error {' and '.join(told)} on {TITLES[judged]}"


def notes(made: Any) -> list[str]:
    """What the runs could not tell, and what the fit leaves unexplained, in sentences."""
    from infer_jax.calibration import predictive_checks
    from infer_jax.calibration.server import each_output

    silent = [one.name for one in made.identified.parameters if one.verdict != "identified"]
    notes = [
        s for s in made.identified.sentences if not s.startswith(tuple(f"{n}:" for n in silent))
    ]
    if silent:
        notes.append(
            f"Of {', '.join(silent)} these runs say little: what was believed before stands."
        )
    if any(run.loop == "open" for run in made.runs):
        notes.append(
            "Runs with arrivals: their TPOT is compared at the requests that were in flight, rate "
            "x latency; their TTFT is left out, as waits of arrivals follow another law."
        )
    if made.held is None:
        notes.append("One run cannot be left out: the errors are of the run that was fitted.")
    for name, one, scale, runs in each_output(made):
        checks = predictive_checks(one, made.covered, scale, trends(runs))
        notes += [
            f"{name.upper()}: the residuals' {c.name} is {c.measured:.2g}; it would be {c.low:.2g} "
            f"to {c.high:.2g} if the model were right and the errors ordinary."
            for c in checks
            # errors smaller than ordinary ones are no complaint
            if not c.passes and (c.measured > c.high or c.name.startswith("trend"))
        ]
    return notes


def tell(answer: dict[str, Any], sentences: Sequence[str]) -> None:
    """Print ``report``'s answer and what there is to say beside it."""
    show.say(
        f"{answer['model']} under {answer['engine']} on {answer['hardware']}: "
        f"{answer['measured_times']} times of {answer['runs']} run"
        f"{'s' if answer['runs'] > 1 else ''}",
        "",
    )
    heads = [show.Column(f"{n.upper()} {s}", "%") for n in OUTPUTS for s in ("error", "worst")]
    show.table(
        (show.Column("predicted by", left=True), *heads),
        [
            [TITLES[kind], *(cell for name in OUTPUTS for cell in _cells(told[name]))]
            for kind, told in answer["errors"].items()
        ],
    )
    show.say("")
    show.table(
        (
            show.Column("parameter", left=True),
            show.Column("unit", left=True),
            show.Column("before"),
            show.Column("fitted"),
            show.Column("80 % interval"),
            show.Column("these runs", left=True),
        ),
        [_row(p) for p in answer["parameters"]],
    )
    show.say("")
    show.table(
        (
            show.Column("worst predicted", left=True),
            show.Column("TPOT", "ms"),
            show.Column("off", "%"),
            show.Column("TTFT", "ms"),
            show.Column("off", "%"),
        ),
        [
            [
                _short(row["run"]),
                _time(row["tpot_measured_ms"]),
                _signed(row["error_percent"][0]),
                _time(row["ttft_measured_ms"]),
                _signed(row["error_percent"][1]),
            ]
            for row in answer["worst"]
        ],
    )
    if answer["next"]:
        show.say("")
        show.table(
            (
                show.Column("measure next", left=True),
                show.Column("isl", "tokens"),
                show.Column("osl", "tokens"),
                show.Column("tp"),
                show.Column("dp"),
                show.Column("narrows", "%"),
            ),
            [
                [
                    f"concurrency {float(row['concurrency']):g}",
                    *(f"{float(row[k]):.4g}" for k in ("isl_tokens", "osl_tokens", "tp", "dp")),
                    numbers.digits(row["narrows_percent"], 2),
                ]
                for row in answer["next"]
            ],
        )
    bands = [f"{n.upper()} {low:.2f} to {high:.2f}" for n, (low, high) in answer["band80"].items()]
    show.notes([f"80 % of new runs: measured over predicted is {', '.join(bands)}.", *sentences])


def _cells(row: dict[str, float] | None) -> tuple[str, str]:
    if row is None:
        return "-", "-"
    return numbers.digits(row["median_percent"]), numbers.digits(row["worst_percent"])


def _row(p: dict[str, Any]) -> list[str]:
    unit, factor = p["unit"].replace("1", ""), 1.0
    if unit == "s":
        unit, factor = ("us", 1e6) if p["before"] < 1e-3 else ("ms", 1e3)
    low, high = (numbers.digits(factor * x) for x in p["interval80"])
    return [
        p["name"],
        unit,
        numbers.digits(factor * p["before"]),
        numbers.digits(factor * p["value"]),
        f"{low} to {high}",
        "tell it" if p["verdict"] == "identified" else "do not tell it",
    ]


def _time(value: float) -> str:
    return "-" if np.isnan(value) else numbers.digits(value)


def _signed(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:+.1f}"


def _short(place: str) -> str:
    return Path(place).name if len(place) > 40 else place
