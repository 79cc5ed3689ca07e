"""What an estimator says of measured rows, all rows of one question in one program."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._validation.row import Row, system
from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.estimate import decode_context
from infer_jax.estimators.serving import ENGINES, Deployment, Pass, Serving, ServingWorkload, Shape
from infer_jax.footprint import Overheads
from infer_jax.physics.energy import Draw, power_at
from infer_jax.specs import Architecture, ForwardPass, Hardware, Hierarchy

# what servers of the rows were started with: 0.9 is the default of vLLM until 0.20, and what
# TensorRT-LLM and SGLang leave of the free memory is near it
AS_STARTED = {"usable_memory": 0.9, "overheads": Overheads.vllm_0_18()}


class Facts(NamedTuple):
    """What a row says of its server that an estimator holds as a leaf."""

    engine: Any
    generation: Any
    visible: Any
    acceptance: Any
    per: Any
    balanced: Any
    kept: Any
    metered: Any
    draw: Draw


class Loop(NamedTuple):
    """A row's inputs; every leaf has the rows' axis once stacked. ``arch`` is None but of pools."""

    facts: Facts
    shape: Shape
    hardware: Hardware
    work: ServingWorkload
    plan: Deployment | Pools
    arch: Architecture | None


Answers = dict[str, Array]


def inputs(row: Row, serving: Serving) -> Loop:
    """A row as the programs below take it."""
    profile = system(row.system)
    own = profile.coefficients.get("serving", {})
    facts = Facts(
        engine=float(ENGINES.index(row.engine)),
        generation=own.get("generation", 0.0),
        visible=own.get("visible", float(serving.visible)),
        acceptance=float(serving.acceptance) if row.acceptance is None else row.acceptance,
        per=row.per,
        balanced=row.balanced,
        kept=row.kept,
        metered=row.metered,
        draw=serving.fitted(own).draw,
    )
    assert row.served is not None and row.work is not None and row.plan is not None
    arch = row.served.architecture() if row.asked == "pools" else None
    return Loop(facts, row.served.shape(), _hardware(row), row.work, row.plan, arch)


def _hardware(row: Row) -> Hardware:
    """The row's system, with memory and links at other rates than the data sheet's if it says."""
    hardware = system(row.system).hardware
    if row.rates == (1.0, 1.0):
        return hardware
    chip, network = hardware.chip, hardware.network
    assert isinstance(network, Hierarchy)
    memory, link = row.rates
    return hardware.replace(
        chip=chip.replace(memory_bandwidth=np.asarray(chip.memory_bandwidth * memory)),
        network=network.replace(domain_bandwidth=np.asarray(network.domain_bandwidth * link)),
    )


def asked_of(model: Serving, facts: Facts) -> Serving:
    """The estimator for a row's server."""
    names = ("engine", "generation", "visible", "acceptance", "draw")
    chosen = {n: getattr(facts, n) for n in names}
    return model.replace(**chosen, skew=model.skew * (1.0 - facts.balanced))


def loop(model: Serving, given: Loop) -> Answers:
    """Requests kept in flight."""
    own = asked_of(model, given.facts)
    assert isinstance(given.plan, Deployment)
    found = own.serve(given.shape, given.hardware, given.work, given.plan)
    return {
        "tpot": found.tpot,
        "ttft": found.ttft,
        "e2e": found.latency,
        "throughput": found.throughput,
        "power": metered(found.power, own, given),
    }


def metered(power: Array, own: Serving, given: Loop) -> Array:
    """Watts that a meter shows that ran longer than the server was busy."""
    idle = given.hardware.power * own.draw.idle
    return given.facts.metered * power + (1.0 - given.facts.metered) * idle


def undrafted(plan: Deployment) -> Deployment:
    """The plan of a pass of prompts, in which nothing is drafted."""
    return plan.replace(drafts=jnp.zeros_like(plan.drafts))


def batch(model: Serving, given: Loop) -> Answers:
    """One batch from start to end: a pass of all prompts, then a pass a token."""
    own, work = asked_of(model, given.facts), given.work
    one = jnp.ones_like(work.batch)
    prompts = ForwardPass(sequences=work.batch, new_tokens=work.isl, cached_tokens=0.0 * one)
    tokens = ForwardPass(
        sequences=work.batch, new_tokens=one, cached_tokens=work.isl + work.osl / 2.0
    )
    assert isinstance(given.plan, Deployment)
    first, each = (
        own.token(given.shape, given.hardware, x, p).time
        for x, p in ((prompts, undrafted(given.plan)), (tokens, given.plan))
    )
    return {"latency": first + (work.osl - 1.0) * each}


def one_pass(model: Serving, given: Loop) -> Answers:
    """Passes of ``batch`` sequences, one after the other: tokens fed, or gained, a second."""
    own, work = asked_of(model, given.facts), given.work
    new = work.isl - work.prefix
    forward = ForwardPass(sequences=work.batch, new_tokens=new, cached_tokens=work.prefix)
    assert isinstance(given.plan, Deployment)
    each = own.token(given.shape, given.hardware, forward, given.plan).time
    return {"throughput": given.facts.kept * work.batch * new / each / given.plan.instance}


def pools(model: Serving, given: Loop) -> Answers:
    """Two pools and requests kept in flight in all, by the slower of latency and capacity."""
    own, plan = asked_of(model, given.facts), given.plan
    assert isinstance(plan, Pools) and given.arch is not None
    scale = jnp.where(given.work.nominal > 0.5, own.drawn_length, 1.0)
    work = given.work.replace(isl=given.work.isl * scale, osl=given.work.osl * scale)
    one = jnp.ones_like(work.batch)
    prompt = ForwardPass(sequences=plan.prefill_batch, new_tokens=work.isl, cached_tokens=0.0 * one)
    both = Disaggregated.of(target=own)
    decoding = both.decoding(given.arch, given.hardware, work, plan)
    token = ForwardPass(sequences=decoding, new_tokens=one, cached_tokens=decode_context(work))
    # drafts are of decoding alone
    first = own.step(given.arch, given.hardware, prompt, plan.prefill)
    second = own.token(given.shape, given.hardware, token, plan.decode)
    assert isinstance(first, Pass)
    passes = work.replace(batch=decoding)
    found = both.joined(given.arch, given.hardware, passes, plan, (first, second))
    latency = found.ttft + (work.osl - 1.0) * found.tpot
    requests = work.batch * plan.decode_copies
    most = found.throughput * found.chips / work.osl
    rate = jnp.minimum(requests / latency, most)
    return {
        "tpot": found.tpot,
        "ttft": found.ttft,
        "e2e": requests / rate,
        "throughput": rate * work.osl / (found.chips * given.facts.per),
        "power": _pools_power(
            own, given, (first, second), (rate, rate * (work.osl - 1.0)), decoding
        ),
    }


def _pools_power(
    own: Serving, given: Loop, each: tuple[Pass, Pass], rates: tuple[Array, Array], decoding: Array
) -> Array:
    """Mean watts of a chip of two pools, by the passes of each that a second needs."""
    plan, total, chips = given.plan, jnp.asarray(0.0), jnp.asarray(0.0)
    assert isinstance(plan, Pools)
    pools = (
        (plan.prefill, plan.prefill_copies, plan.prefill_batch),
        (plan.decode, plan.decode_copies, decoding),
    )
    for (own_plan, copies, batch), phase, rate in zip(pools, each, rates, strict=True):
        number = copies * own_plan.instance
        watts = power_at(given.hardware.power, phase, rate / batch / copies, own.draw)
        total = total + number * watts
        chips = chips + number
    return total / chips


def ideal(model: Serving, given: Loop) -> Answers:
    """A plain roofline: the longer of reading everything and computing everything, pass by pass.

    ``model`` is ``Serving.roofline``: no collectives, launches, or other requests' prompts.
    """
    own, work = asked_of(model, given.facts), given.work
    scale = jnp.where(work.nominal > 0.5, own.drawn_length, 1.0)
    isl, osl = work.isl * scale, work.osl * scale
    one, plan = jnp.ones_like(work.batch), given.plan
    first, later, chips, copies = plan, plan, None, 1.0
    if isinstance(plan, Pools):
        first, later, copies = plan.prefill, plan.decode, plan.decode_copies
        chips = plan.chips * given.facts.per
    assert isinstance(first, Deployment) and isinstance(later, Deployment)
    first = undrafted(first)
    sizes = (
        (first, ForwardPass(sequences=one, new_tokens=isl, cached_tokens=0.0 * one)),
        (first, ForwardPass(sequences=work.batch, new_tokens=isl, cached_tokens=0.0 * one)),
        (later, ForwardPass(sequences=work.batch, new_tokens=one, cached_tokens=isl + osl / 2.0)),
    )
    passes = [own.token(given.shape, given.hardware, x, p) for p, x in sizes]
    prompt, prompts, token = (jnp.maximum(p.reading, p.computing) for p in passes)
    latency = prompt + (osl - 1.0) * token
    chips = later.instance if chips is None else chips
    return {
        "tpot": token,
        "ttft": prompt,
        "e2e": latency,
        "throughput": work.batch * copies * osl / latency / chips,
        "latency": prompts + (osl - 1.0) * token,
    }


Program = Callable[[Serving, Loop], Answers]
LAWS: dict[str, Program] = {"loop": loop, "batch": batch, "pass": one_pass, "pools": pools}
TRACES: list[str] = []  # a name for each program traced


def _vmapped(law: Program) -> Callable[[Serving, Loop], Answers]:
    def rows(model: Serving, given: Loop) -> Answers:
        TRACES.append(law.__name__)
        return jax.vmap(law, in_axes=(None, 0))(model, given)

    return jax.jit(rows)


PROGRAMS = {name: _vmapped(law) for name, law in (*LAWS.items(), ("ideal", ideal))}


def shipped() -> Serving:
    """The fit that the package carries, with servers started as those of the rows were."""
    return Serving.of().replace(**AS_STARTED)


def data_sheet() -> Serving:
    """Data-sheet rates and nothing else, as `infer-jax calibrate` compares with."""
    return Serving.roofline()


def stacked(rows: Sequence[Row], serving: Serving) -> list[tuple[np.ndarray, Loop]]:
    """Rows of one structure together, with their places."""
    made = {i: inputs(row, serving) for i, row in enumerate(rows) if row.asked != "replay"}
    kinds: dict[Any, list[int]] = {}
    for i, given in made.items():
        kinds.setdefault((rows[i].asked, jax.tree.structure(given)), []).append(i)
    return [
        (
            np.asarray(places),
            jax.tree.map(
                lambda *x: np.stack([np.asarray(v, float) for v in x]), *(made[i] for i in places)
            ),
        )
        for places in kinds.values()
    ]


def _replays(rows: Sequence[Row], model: Serving, found: dict[str, np.ndarray]) -> None:
    """Fill in what replays say; each run is replayed once."""
    done: dict[int, dict[str, np.ndarray]] = {}
    for i, row in enumerate(rows):
        if row.replayed is None:
            continue
        run = done.setdefault(id(row.replayed), {})
        if not run:
            run.update(row.replayed.answers(model))
        for metric, values in run.items():
            column = found.setdefault(metric, np.full(len(rows), np.nan))
            column[i] = values[row.place]


def _repeated(draw: Draw, count: int) -> Draw:
    return jax.tree.map(lambda x: np.full(count, float(x)), draw)


def answers(
    rows: Sequence[Row], model: Serving, law: str | None = None, draw: Draw | None = None
) -> dict[str, np.ndarray]:
    """Each metric of all rows by a model, NaN where the question has no such answer.

    ``law``: that of every row in place of the one that it asks, but of single passes. ``draw``:
    what every chip draws in place of what its generation does.
    """
    found: dict[str, np.ndarray] = {}
    for places, given in stacked(rows, shipped()):
        asked = rows[places[0]].asked
        name = asked if law is None or asked == "pass" else law
        if draw is not None:
            given = given._replace(facts=given.facts._replace(draw=_repeated(draw, len(places))))
        for metric, values in PROGRAMS[name](model, given).items():
            column = found.setdefault(metric, np.full(len(rows), np.nan))
            column[places] = np.asarray(values)
    if law is None:
        _replays(rows, model, found)
    for metric in ("ttft_mean", "ttft_median"):
        # closed loops have one estimate of TTFT, a mean; replays have both
        own = found.get(metric, np.full(len(rows), np.nan))
        found[metric] = np.where(np.isnan(own), found["ttft"], own) if "ttft" in found else own
    return found
