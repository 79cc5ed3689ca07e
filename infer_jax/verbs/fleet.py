"""``ij.fleet``: replicas hour by hour under traffic, what autoscalers cost, and what breaks."""

from typing import Annotated

from infer_jax import verbs
from infer_jax.results.problems import refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import (
    SHARE,
    Number,
    Option,
    Rents,
    above_zero,
    count,
    either,
    seconds_of,
)

START = 120.0  # s
TRIED, FEW = 6, 3  # layouts that are tried where none is given: of one system, of each of several
AVAILABLE = Rents(opt.GPUS, "40")
GOODPUT = Number(0.5, 0.9999, what="a share of the requests")


@verb
def fleet(
    config: opt.Config,
    hardware: opt.Systems,
    *,
    traffic: Annotated[opt.Place | None, Option.of("TOML|TRACE", required=True)] = None,
    period: Annotated[float, Option.of("SECONDS", Number(10.0, 86_400.0, what="seconds"))] = 3600.0,
    ttft: Annotated[float | str | None, Option.of("TIME", opt.TIME)] = None,
    tpot: opt.Tpot = None,
    goodput: Annotated[float, Option.of("SHARE", GOODPUT)] = 0.99,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    layout: opt.Layouts = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    engine: opt.Engine = None,
    engine_version: opt.EngineVersion = None,
    estimator: opt.EstimatorName = None,
    start_delay: Annotated[float | str | None, Option.of("TIME", opt.TIME)] = None,
    load_bandwidth: Annotated[float | None, Option.of("GB/S", above_zero())] = None,
    max_replicas: Annotated[float | None, Option.of("N", opt.WHOLE)] = None,
    departures: Annotated[float, Option.of("PER_HOUR", Number(0.0, 60.0))] = 0.0,
    price: opt.Prices = None,
    available: Annotated[opt.RentsLike, Option.of("GPUS", AVAILABLE, many=True)] = None,
    reserved: Annotated[float, Option.of("SHARE", SHARE)] = 0.6,
    pue: Annotated[float, Option.of("X", Number(1.0, 10.0))] = 1.0,
    grid: Annotated[float, Option.of("KG/KWH", Number(0.0, 2.0))] = 0.301,
    replay: Annotated[int, Option.of("N", count(0, 1000))] = 0,
    seed: Annotated[int, Option.of("N", opt.SEED)] = 0,
    out: Annotated[opt.Place | None, Option.of("FILE")] = None,
    set: opt.Changes = None,
) -> "verbs.FleetResult":
    """How many replicas keep the limits hour by hour, and what does each way of scaling cost?

    ``ttft`` is a limit that in every period the share ``goodput`` of the requests keeps, 0.99: the
    p99. Without a layout, replicas are those of the plans for the busiest period whose schedule
    costs least. Of several systems, or layouts, a fleet has replicas of each, layouts in the order
    of systems. Times are seconds, or texts with a unit such as "30ms".

    Args:
        traffic: What arrives: a description as `traffic` writes it, .toml, or a trace.
        period: Seconds of a period of a trace that has a rate of its own.
        ttft: Limit of the time to first token: 300ms, 0.3s; 2 s where not given.
        goodput: Share of the requests of every period that is to keep both limits.
        start_delay: Time from the wish for a replica to its first request; 120 s where not given.
        load_bandwidth: Adds to it the time that the weights take over this link.
        available: GPUs of a system that there are at most, such as h100_sxm=40; no limit where
            not given.
        max_replicas: That an autoscaler may have; twice as many as the busiest period needs where
            not given.
        departures: How often a replica is taken away in an hour, as spot instances are.
        reserved: Price of a reserved replica, as a share of that on demand.
        pue: Power of the building over that of its machines.
        grid: Emissions of the electricity, CO2; the world's where not given (ACT, ISCA 2022).
        replay: Periods of the best policy, the worst ones, that are replayed request by request;
            while they break a limit, those of the next one.
        seed: Of the surges of traffic, and of requests that are replayed.
        out: A picture: .png, .svg, .pdf or .html.

    Raises:
        InputError: a model, system or traffic that cannot be read, limits that an idle replica
            breaks, a plan that no engine runs or that does not fit, one that is not replayed.
    """
    from itertools import product

    import numpy as np

    from infer_jax.arrivals import read_traffic
    from infer_jax.fleets import Lifecycle
    from infer_jax.verbs import fleet_replica, inputs, pictures
    from infer_jax.verbs.fleet_policies import Fleet
    from infer_jax.verbs.fleet_replay import MARGINS, confirm, obstacle, replayed_server
    from infer_jax.verbs.fleet_result import FleetResult
    from infer_jax.verbs.progress import busy

    if traffic is None:
        raise refuse("traffic", "missing", "a trace, or a description as `traffic` writes it")
    if out is not None:
        pictures.check(out)
    systems, _ = inputs.systems_of(hardware, None)
    rents = inputs.rents_of(price, systems)
    setups = [
        inputs.setup(config, one, quant, kv_dtype, rents.get(one.name), set, engine_version)
        for one in systems
    ]
    name = inputs.estimator_of_engine(estimator, engine) or inputs.BEST
    limits = fleet_replica.limits_of(seconds_of(ttft), seconds_of(tpot), goodput)
    found = read_traffic(traffic, period)
    steps = fleet_replica.steps_of_traffic(found, seed)
    life = Lifecycle.of(start_delay=either(seconds_of(start_delay), START), departures=departures)
    gpus = inputs.rents_of(available, systems, "available")
    count = TRIED if len(setups) == 1 else FEW
    every = [
        fleet_replica.find_replicas(one, name, plan, found, limits, count, life, load_bandwidth,
                                    gpus.get(one.system.name, np.inf))
        for one, plan in fleet_replica.plans_of(setups, layout, {"tp": tp, "pp": pp, "ep": ep})
    ]  # fmt: skip
    if replay:
        every = [[x for x in each if not obstacle(x.layout)] or each for each in every]
    fleets = [
        Fleet.of(found, pools, limits, max_replicas, pue, grid, steps) for pools in product(*every)
    ]
    fleet = min(fleets, key=lambda x: x.usd_of_schedule)
    servers = [replayed_server(x, name, found) for x in fleet.pools if replay]
    with busy("running every policy"):
        policies = [*fleet.policies(), *fleet.schedules(*(MARGINS if replay else ()))]
    trust = inputs.trust(name, inputs.serving(name, setups[0]), setups[0])
    replays = confirm(servers, found, fleet, policies[1:], replay, seed) if replay else []
    result = FleetResult(setups[0], name, trust, found, fleet, fleets, policies, reserved, replays)
    if out is not None:
        result.draw(out)
    return result
