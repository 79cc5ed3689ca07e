"""`infer-jax frontier`: speed of a request against dollars per million tokens."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from infer_jax.cli import options as opt, parsers, picture, points, show
from infer_jax.cli.runtime import prepare
from infer_jax.estimators.estimate import decode_context
from infer_jax.results import numbers
from infer_jax.sweeps import Grid, frontier as best, preferred, thresholds
from infer_jax.verbs import inputs
from infer_jax.verbs.progress import busy

SHOWN = 25  # rows of the printed table


def frontier(
    config: opt.Config,
    hardware: opt.HardwareName,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.Isl = 4096,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 512,  # pyright: ignore[reportArgumentType]
    prefix: opt.Prefix = 0,  # pyright: ignore[reportArgumentType]
    total_gpus: opt.TotalGpus = None,
    price: opt.Price = None,
    tpot: opt.Tpot = None,
    demand: Annotated[
        float | None,
        typer.Option(
            parser=parsers.real("a rate above 0", 0.0),
            metavar="TOK/S",
            help="Keep points that serve at most this many tokens/s over all requests.",
        ),
    ] = None,
    preference: Annotated[
        float,
        typer.Option(
            parser=parsers.real("an exponent above 0, of 100 at most", 0.0, 100.0),
            metavar="X",
            help="The preferred point has the largest speed^X / cost.",
        ),
    ] = 3,
    estimator: opt.EstimatorName = None,
    draft: opt.Draft = None,
    acceptance: opt.Acceptance = None,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper",
            help="As the economics paper does it: economics.level4 (where --estimator is not "
            "given), its grid of 400 x 400 real numbers, its 1000 latency thresholds.",
        ),
    ] = False,
    real: Annotated[
        bool,
        typer.Option(
            "--real-degrees",
            help="TP, PP and EP as real numbers, the best that the estimator's search finds.",
        ),
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Print every row of the frontier.")] = False,
    out: Annotated[
        str,
        typer.Option("--out", metavar="FILE", help="The picture: .png, .svg or .pdf."),
    ] = picture.DEFAULT,
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Write no picture.")] = False,
    set: opt.Set = None,  # the name of the option
    as_json: opt.Json = False,
) -> None:
    """Which GPU counts and batches are worth choosing: tokens/s per request against $/Mtok."""
    prepare()
    if not no_picture:
        picture.check(out)
    asked = inputs.given(config, hardware, quant, kv_dtype, price, set)
    work = inputs.workload(isl, osl, prefix)
    whole = not (real or paper or estimator)
    name = estimator or ("economics.level4" if paper else inputs.SEARCHING)
    name = points.PLANNED if whole else name
    theory = inputs.estimator(name, asked)
    if not (whole or theory.searches):
        raise opt.refuse("--estimator", name, "one that searches the split, such as economics")
    trusted = inputs.trust(name, theory, asked)
    theory, said = inputs.speculative(theory, draft, acceptance, asked, paper=paper)
    if paper and total_gpus is not None:
        raise opt.refuse("--total-gpus", total_gpus, "none with --paper, whose grid goes to 2^18")
    with busy("compiling and evaluating"):
        if whole:
            splits, batches = points.whole(asked, total_gpus), points.BATCHES
        else:
            chips, batches = points.axes(asked, theory, paper, total_gpus)
            splits = points.real(chips)
        answer = points.evaluate(theory, asked, work, splits, batches)
    fits = bool(answer.grid.feasible.any())
    front = answer.grid.under(demand)
    if len(front.time):
        front = thresholds(front) if paper else best(front)
        front = front.take(np.unique(front.time, return_index=True)[1])
        front = front.take(front.time <= (tpot or np.inf))
    context = float(decode_context(work))
    report: dict[str, Any] = {
        **asked.names,
        "estimator": name,
        "trust": trusted.fields(),
        "isl_tokens": isl,
        "osl_tokens": osl,
        "prefix_tokens": prefix,
        "context_tokens": context,
        "points": len(answer.grid.time),
    }
    sentences = [
        *_searched(answer, (len(splits), len(batches)), context, (isl, osl), whole=whole),
        *said,
        *asked.notes,
        *inputs.too_long(asked.model, work),
    ]
    if prefix:
        sentences.append("The cached prefix shortens prefill alone; this frontier is of decode.")
    if not len(front.time):
        why = points.why_nothing(answer, fits, demand, tpot)
        _print(as_json, {**report, "rows": [], "preferred": None, "why": why}, sentences, why)
        return
    chosen = preferred(front, preference)
    whole = every or as_json
    shown = np.arange(len(front.time)) if whole else _spread(front, chosen)
    rows = [points.row(answer, front, int(i), i == chosen) for i in shown]
    report |= {"frontier_points": len(front.time), "rows": rows}
    report["preferred"] = next(row for row in rows if row["preferred"])
    if not no_picture:
        caption = _caption(asked, isl, osl, name, preference)
        title = f"{asked.model.name} on {asked.system.title}"
        picture_of = (front, chosen, out, title, "frontier", caption, _point(report["preferred"]))
        existed = Path(out).exists()
        report["picture"], note = picture.draw(*picture_of)
        sentences.append(_written(out, existed=existed) if report["picture"] else note)
    _print(as_json, report, sentences, None)


def _written(out: str, *, existed: bool) -> str:
    """That there is a new file, what it took the place of, and how to have none."""
    place = " in place of the earlier file" if existed else ""
    return f"Picture: {out} was written{place}; --out names another, --no-picture writes none."


def _searched(
    answer: points.Answer,
    sizes: tuple[int, int],
    context: float,
    lengths: tuple[float, float],
    *,
    whole: bool,
) -> list[str]:
    """What every point is of, and which points there are."""
    most, (isl, osl) = answer.grid.chips.max(), lengths
    splits = f"{sizes[0]} {'layouts' if whole else 'numbers of GPUs'}"
    return [
        f"Decode of one token at {context:.12g} tokens of context: isl + (osl - 1) / 2 "
        f"with isl {isl:.12g} and osl {osl:.12g}.",
        f"Over {splits} of up to {most:.12g} GPUs, each at {sizes[1]} batches; "
        "TP, PP and EP are "
        f"{'degrees that engines run' if whole else 'real numbers that its search finds'}.",
    ]


def _caption(asked: inputs.Given, isl: float, osl: float, name: str, preference: float) -> str:
    """What stands below the picture: lengths, format, price, and which dot is which."""
    return (
        f"{isl:,.12g} tokens in, {osl:,.12g} out; "
        f"{asked.model.quantisation}; ${float(asked.hardware.price):g} an hour and GPU; an ideal "
        f"server, by {name}. The dot has the largest speed^{preference:g} / cost."
    )


def _point(row: dict[str, Any]) -> str:
    """A point in two lines: its split, and what it answers."""
    degrees = {name.upper(): row.get(name, 1.0) for name in ("tp", "pp", "ep")}
    split = " ".join(f"{name}{numbers.digits(x)}" for name, x in degrees.items() if x > 1) or "TP1"
    return (
        f"{row['gpus']:g} GPUs ({split}), batch {row['batch']:g}\n"
        f"{numbers.digits(row['speed_tokens_per_s'])} tokens/s, "
        f"${numbers.digits(row['cost_per_mtok_usd'])}/Mtok"
    )


def _spread(front: Grid, chosen: int) -> np.ndarray:
    """At most ``SHOWN`` rows, even in log speed, with both ends and the chosen one."""
    wanted = np.geomspace(front.time[0], front.time[-1], SHOWN - 1)
    near = [int(np.abs(np.log(front.time / t)).argmin()) for t in wanted]
    return np.unique([0, *near, len(front.time) - 1, chosen])[:SHOWN]


COLUMNS = (
    show.Column(""),
    show.Column("speed", "tok/s"),
    show.Column("cost", "$/Mtok"),
    show.Column("GPUs"),
    show.Column("batch", "requests"),
    show.Column("TP"),
    show.Column("PP"),
    show.Column("EP"),
    show.Column("MFU", "%"),
    show.Column("binds", left=True),
)


def _print(as_json: bool, report: dict[str, Any], sentences: list[str], why: str | None) -> None:
    if as_json:
        show.as_json({**report, "notes": sentences})
        return
    show.say(f"{report['model']} on {report['hardware']}", report["trust"]["says"])
    if why:
        show.say("", why)
    else:
        cells = [
            [
                "*" if row["preferred"] else "",
                numbers.digits(row["speed_tokens_per_s"], 4),
                numbers.digits(row["cost_per_mtok_usd"]),
                numbers.digits(row["gpus"], 4),
                numbers.digits(row["batch"], 4),
                *(numbers.digits(row.get(name, 1.0)) for name in ("tp", "pp", "ep")),
                numbers.digits(100 * row["mfu"]),
                row["binds"],
            ]
            for row in report["rows"]
        ]
        marked = next(i for i, row in enumerate(report["rows"]) if row["preferred"])
        show.table(COLUMNS, cells, marked)
        some = f"{len(report['rows'])} of {report['frontier_points']} points of the frontier"
        show.say("", f"* the preferred point; {some}.")
    show.notes(sentences)
