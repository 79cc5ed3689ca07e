"""`infer-jax plan`: which system, layout and concurrency serve a model within limits for least."""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from infer_jax.catalog import System, load_model
from infer_jax.cli import inputs, options as opt, show
from infer_jax.cli.starting import busy, prepare
from infer_jax.estimators.serving import ENGINES, Deployment
from infer_jax.planning import (
    Asked,
    Choice,
    Layout,
    Side,
    Table,
    arriving,
    choices,
    layouts,
    shares,
    splits,
    table,
)
from infer_jax.specs import Hierarchy

MODES = ("aggregated", "disaggregated")
TIMES = (("ttft", "TTFT"), ("p99_ttft", "p99 of TTFT"), ("tpot", "TPOT"))
LARGEST = 64.0  # chips of one instance that are tried where no total is given


def plan(
    config: opt.Config,
    hardware: Annotated[
        list[str],
        typer.Option(
            "--hardware", metavar="NAME|FILE", help="A profile to consider; repeat to compare."
        ),
    ],
    total_gpus: opt.TotalGpus = None,
    concurrency: opt.Concurrency = None,
    request_rate: Annotated[
        float | None,
        typer.Option(
            parser=opt.real("a rate above 0", 0.0),
            metavar="REQ/S",
            help="Requests per second to carry: the fewest GPUs are found.",
        ),
    ] = None,
    decode_hardware: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help="What the decoding pool of a disaggregated plan runs on."
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            parser=opt.one_of(MODES),
            metavar="MODE",
            help="aggregated or disaggregated; both where not given.",
        ),
    ] = None,
    isl: opt.Isl = 4096,  # pyright: ignore[reportArgumentType]
    osl: opt.Osl = 512,  # pyright: ignore[reportArgumentType]
    prefix: opt.Prefix = 0,  # pyright: ignore[reportArgumentType]
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    p99_ttft: Annotated[
        float | None,
        typer.Option(
            parser=opt.duration,
            metavar="TIME",
            help="Limit of the 99th percentile of TTFT, with --request-rate (Poisson arrivals).",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            parser=opt.one_of(ENGINES),
            metavar="NAME",
            help="vllm, sglang or trtllm; the profile's, else vllm.",
        ),
    ] = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    max_num_seqs: Annotated[
        float | None,
        typer.Option(parser=opt.count(1), metavar="N", help="Requests a group runs at most."),
    ] = None,
    price: opt.Price = None,
    currency: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="What --price is in, such as EUR; USD where not given."),
    ] = None,
    region_factor: Annotated[
        float,
        typer.Option(
            parser=opt.real("a factor above 0", 0.0),
            metavar="X",
            help="Rents of your region over those of the profile or of --price.",
        ),
    ] = 1.0,  # pyright: ignore[reportArgumentType]
    pue: Annotated[
        float | None,
        typer.Option(
            parser=opt.real("a number of at least 1", math.nextafter(1.0, 0.0)),
            metavar="X",
            help="Power of the building over power of its machines; 1.56 where not given.",
        ),
    ] = None,
    top: Annotated[
        float, typer.Option(parser=opt.count(1), metavar="N", help="Plans shown of each system.")
    ] = 3,
    as_json: opt.Json = False,
) -> None:
    """Which plans meet TTFT and TPOT for the fewest dollars per million tokens?"""
    prepare()
    _one_of(total_gpus, concurrency, request_rate)
    if p99_ttft is not None and request_rate is None:
        raise opt.refuse("--p99-ttft", p99_ttft, "with --request-rate: arrivals make waits random")
    if p99_ttft is not None and mode == "disaggregated":
        raise opt.refuse("--p99-ttft", p99_ttft, "--mode aggregated: pools know the mean wait only")
    if decode_hardware is not None and mode == "aggregated":
        raise opt.refuse("--decode-hardware", decode_hardware, "--mode disaggregated, or no mode")
    if currency is not None and price is None:
        raise opt.refuse("--currency", currency, "with --price: rents of profiles are in USD")
    alone = p99_ttft is not None and mode is None
    modes = (mode,) if mode else MODES[:1] if alone else MODES
    asked = Asked(
        ttft=ttft or np.inf,
        tpot=tpot or np.inf,
        p99_ttft=p99_ttft or np.inf,
        chips=total_gpus or np.inf,
        concurrency=concurrency,
        rate=request_rate,
    )
    work = inputs.workload(isl, osl, prefix)
    name = f"serving.{engine}" if engine else "serving"
    common = Deployment.of(**({} if max_num_seqs is None else {"max_sequences": max_num_seqs}))
    met: list[Choice] = []
    missed: list[Choice] = []
    notes: list[str] = []
    known: dict[str, System] = {}
    looked = 0
    paid = _Paid(price, region_factor, pue)
    for system in dict.fromkeys(hardware):
        pools = [_pool(config, system, name, quant, kv_dtype, paid, total_gpus)]
        if decode_hardware is not None:
            pools.append(_pool(config, decode_hardware, name, quant, kv_dtype, paid, total_gpus))
        for pool in pools:
            notes += pool.notes + inputs.too_long(pool.given.model, work)
            known[pool.side.name] = pool.given.system
        first, second = pools[0], pools[-1]
        arch = first.given.model.architecture
        sides, legal = (first.side, second.side), (first.legal, second.legal)
        # programs of one mode compile while those of the other are traced
        with busy(f"evaluating every layout on {first.side.name}"), ThreadPoolExecutor() as beside:
            if "disaggregated" in modes:
                pair = beside.submit(splits, sides, arch, work, legal, common, asked, int(top))
            if "aggregated" in modes:
                made = _table(first, work, common, asked)
                rent = float(first.side.hardware.price)
                good, near = choices(first.side.name, rent, made, asked, isl, osl, int(top))
                met, missed, looked = met + good, missed + near, looked + len(made.batch)
            if "disaggregated" in modes:
                found = pair.result()
                met, missed, looked = met + found.met, missed + found.missed, looked + found.looked
                if not found.met and not found.missed:
                    notes.append(f"No two pools of {first.side.name} fit what is asked.")
    met.sort(key=lambda c: c.rank)
    missed.sort(key=lambda c: c.rank)
    money = (currency or "USD").upper()
    report = {
        "model": load_model(config, quant=quant, kv_dtype=kv_dtype).name,
        "estimator": name,
        "isl_tokens": isl,
        "osl_tokens": osl,
        "prefix_tokens": prefix,
        "configurations": looked,
        "feasible": bool(met),
        "plans": [{**_row(c, money), **_bands(c, known)} for c in met],
        "near_misses": [] if met else [{**_row(c, money), **_bands(c, known)} for c in missed],
    }
    notes = [
        f"Estimator: {name}; every legal layout and batch, {looked} configurations, "
        f"{' and '.join(modes)}.",
        *(
            ["In brackets: what 80 % of measured runs are in, by the calibration of the profile."]
            if any("tpot_interval80_ms" in row for row in report["plans"] + report["near_misses"])
            else []
        ),
        *(["Pools are left out: only the mean of their wait is known."] if alone else []),
        f"{money} and joules are per million tokens: of both sides, blended, where not of input or "
        "output; a GPU is paid while it is rented.",
        *dict.fromkeys(note.replace(" USD/h", f" {money}/h") for note in notes),
    ]
    if as_json:
        show.as_json({**report, "notes": notes})
        return
    _print(report, met, missed[: int(top)], notes, "$" if money == "USD" else money)


class _Paid(NamedTuple):
    """What the command line says of rent and power."""

    price: float | None
    region: float
    pue: float | None


class _Pool(NamedTuple):
    """A system that is considered, its layouts, and what was assumed."""

    given: inputs.Given
    side: Side
    legal: list[Layout]
    notes: list[str]


def _pool(
    config: str,
    system: str,
    name: str,
    quant: str | None,
    kv_dtype: str | None,
    paid: _Paid,
    total: float | None,
) -> _Pool:
    given = inputs.given(config, system, quant, kv_dtype, paid.price)
    serving, hardware = inputs.estimator(name, given.system), given.hardware
    if paid.pue is not None:
        serving = serving.replace(draw=serving.draw.but(pue=paid.pue))
    hardware = hardware.but(price=float(hardware.price) * paid.region)
    side = Side(given.system.name, hardware, serving)
    most = _most(given.hardware, total)
    notes = given.notes + inputs.borrowed(name, given.system)
    if paid.region != 1.0:
        notes.append(f"{side.name}: rents are {paid.region:g} times those, by --region-factor.")
    if total is not None and most < total:
        notes.append(f"{side.name}: an instance has at most {most:g} GPUs.")
    return _Pool(given, side, layouts(given.model.architecture, int(most)), notes)


def _table(pool: _Pool, work: Any, common: Deployment, asked: Asked) -> Table:
    """Every layout at every batch, share of the concurrency, or number of replicas."""
    world = (pool.side.serving, pool.given.model.architecture, pool.side.hardware, work)
    tried = None if asked.concurrency is None else shares(asked.concurrency)
    made = table(*world, pool.legal, common, tried)
    return made if asked.rate is None else arriving(*world, made, common, asked.rate)


def _one_of(total: float | None, concurrency: float | None, rate: float | None) -> None:
    if concurrency is not None and rate is not None:
        raise opt.refuse("--request-rate", rate, "--concurrency or --request-rate, not both")
    if total is None and concurrency is None and rate is None:
        raise opt.refuse("--total-gpus", "missing", "--total-gpus, --concurrency or --request-rate")


def _most(hardware: Any, total: float | None) -> float:
    """Chips of the largest instance that is tried: all there are, else some domains."""
    if total is not None:
        return min(total, 4.0 * LARGEST)
    network = hardware.network
    return max(LARGEST, float(network.domain)) if isinstance(network, Hierarchy) else LARGEST


def _row(c: Choice, money: str) -> dict[str, Any]:
    unit = money.lower()
    return {
        "mode": c.mode,
        "hardware": c.system,
        "layout": c.layout,
        "degrees": c.degrees,
        "gpus": c.chips,
        "concurrency_per_replica": c.batch,
        "ttft_ms": 1e3 * c.ttft,
        "p99_ttft_ms": None if c.p99_ttft is None else 1e3 * c.p99_ttft,
        "tpot_ms": 1e3 * c.tpot,
        "requests_per_s": c.requests_per_s,
        "throughput_per_gpu_tokens_per_s": c.throughput,
        f"blended_cost_per_mtok_{unit}": c.usd_per_mtok,
        f"input_cost_per_mtok_{unit}": c.input_usd,
        f"output_cost_per_mtok_{unit}": c.output_usd,
        f"cost_per_hour_{unit}": c.usd_per_hour,
        "blended_energy_per_mtok_j": c.joules,
        "input_energy_per_mtok_j": c.input_joules,
        "output_energy_per_mtok_j": c.output_joules,
        "memory_need_bytes": c.memory[0],
        "memory_capacity_bytes": c.memory[1],
        "tier_need_bytes": {name: need for name, (need, _) in c.tiers.items()},
        "binds": c.binds,
        "broken": dict(c.excess),
    }


def _bands(c: Choice, known: dict[str, System]) -> dict[str, list[float]]:
    """80 % intervals of a plan; calibrations are of whole servers, and say nothing of pools."""
    return {} if c.mode == "disaggregated" else inputs.bands(known[c.system], c.ttft, c.tpot)


def _print(
    report: dict[str, Any], met: list[Choice], missed: list[Choice], notes: list[str], sign: str
) -> None:
    lengths = f"{report['isl_tokens']:g} tokens in, {report['osl_tokens']:g} out"
    shown = met or missed
    systems = list(dict.fromkeys(c.system for c in shown))
    where = f" on {systems[0]}" if len(systems) == 1 else ""
    show.say(f"{report['model']}{where}, {lengths}", "")
    if not met:
        show.say("No plan meets every limit. The nearest, and what they break:", "")
    pools = any(c.mode == "disaggregated" for c in shown)
    several = len(systems) > 1
    told = (report["plans"] or report["near_misses"])[: len(shown)]
    times = [name for name, _ in TIMES if any(row.get(f"{name}_ms") for row in told)]
    columns = (
        show.Column("plan", "prefill > decode" if pools else "", left=True),
        *([show.Column("system", left=True)] if several else []),
        show.Column("GPUs"),
        show.Column("batch"),
        *(show.Column(title, "ms") for name, title in TIMES if name in times),
        show.Column("output", "tok/s/GPU"),
        show.Column("blended", f"{sign}/Mtok"),
        show.Column("binds" if met else "breaks", left=True),
    )
    rows = [
        [
            c.layout,
            *([c.system] if several else []),
            f"{c.chips:g}",
            show.digits(c.batch),
            *(_time(row, name) for name in times),
            show.digits(c.throughput),
            show.digits(c.usd_per_mtok),
            c.binds if met else _breaks(c),
        ]
        for c, row in zip(shown, told, strict=True)
    ]
    show.table(columns, rows, mark=0 if met else -1)
    prices = ("input", "output", "blended")
    columns = (
        show.Column("per million tokens", left=True),
        *(show.Column(side, sign) for side in prices),
        *(show.Column(side, "MJ") for side in prices),
        show.Column("memory", "GB of", left=True),
    )
    rows = [
        [
            c.layout,
            *(show.digits(x) for x in (c.input_usd, c.output_usd, c.usd_per_mtok)),
            *(show.digits(x / 1e6) for x in (c.input_joules, c.output_joules, c.joules)),
            _memory(c),
        ]
        for c in shown
    ]
    show.say("")
    show.table(columns, rows)
    show.notes(notes)


def _time(row: dict[str, Any], name: str) -> str:
    """Milliseconds, with the interval that 80 % of measured runs are in where that is known."""
    ends = row.get(f"{name}_interval80_ms")
    between = f" ({show.digits(ends[0])} to {show.digits(ends[1])})" if ends else ""
    return "" if row[f"{name}_ms"] is None else show.digits(row[f"{name}_ms"]) + between


def _memory(c: Choice) -> str:
    """GB needed of GB there on a GPU, and on what lies below it where that is used."""
    used = {"GPU": c.memory, **{name: x for name, x in c.tiers.items() if x[0] > 0.0}}
    told = {n: f"{a / 1e9:.0f} of {b / 1e9:.0f}" for n, (a, b) in used.items()}
    return ", ".join(f"{n} {x}" for n, x in told.items()) if len(told) > 1 else told["GPU"]


def _breaks(c: Choice) -> str:
    worst = sorted(c.excess.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} by {share:.1%}" for name, share in worst)
