"""The load and layout of a measured run, as an estimator takes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax import engines
from infer_jax.calibration.problem import TreeModel
from infer_jax.catalog.measurements import Run
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator, Serving
from infer_jax.estimators.serving import ENGINES, Deployment, ServingWorkload, Shape, shape
from infer_jax.estimators.serving.server_coefficients import RUN_ERRORS
from infer_jax.specs import UNBOUNDED, Architecture, Hardware

OUTPUTS = ("tpot", "ttft")
SCALES = tuple(RUN_ERRORS[name] for name in OUTPUTS)  # typical log error of a run
CLIENTS = ("vllm", "sglang")  # clients whose synthetic requests are all of one length by default
NOMINAL = ("inferencex",)  # formats that give the largest length, not the mean
# mean ITL over mean TPOT from which on several tokens came at once: without drafts it is 1.000 to
# 1.003, with those of EAGLE3 2.1 to 2.6 (18 runs of gpt-oss-120b, inferencex-profiling @237385b)
SEVERAL = 1.5
INFERENCEX = 10.0  # requests for each one in flight: its benchmark_lib.sh at 8eec0d4


class InstanceLoad(NamedTuple):
    """Requests of one instance, how it is laid out, and whether its TTFT is a median (1)."""

    workload: ServingWorkload
    plan: Deployment
    median: float = 0.0


def engine_of(runs: Sequence[Run]) -> str:
    """The one engine of all runs.

    Raises:
        InputError: a run that names none, an unknown one, or two engines.
    """
    named: dict[str, Run] = {}
    for run in runs:
        run.require("engine")
        name = str(run.engine).lower()
        known = engines.ENGINES.values()
        engine = next((e.name for e in known if any(word in name for word in e.words)), None)
        if engine is None:
            allowed = f"{', '.join(ENGINES)}, which the option engine gives"
            raise InputError(run.place, "engine", run.engine, allowed)
        named.setdefault(engine, run)
    if len(named) > 1:
        first, second = list(named)[:2]
        allowed = f"{first}, as in {named[first].place}: one engine to a profile"
        raise InputError(named[second].place, "engine", second, allowed)
    return next(iter(named))


def drafting_runs(runs: Sequence[Run]) -> list[Run]:
    """The runs whose tokens arrived several at once, as those of drafts do.

    Clients count an ITL between arrivals and a TPOT between tokens.

    Raises:
        InputError: some of the runs and not others.
    """
    times = [(run.itl.mean, run.tpot.mean) for run in runs]
    several = [run for run, (itl, tpot) in zip(runs, times, strict=True)
               if itl and tpot and itl > SEVERAL * tpot]  # fmt: skip
    if 0 < len(several) < len(runs):
        run = several[0]
        allowed = (
            f"runs with drafts or runs without, not both: of {len(several)} of {len(runs)} runs, "
            "as of this one, several tokens came at once, as they do with drafts"
        )
        raise InputError(run.place, "itl", "much longer than tpot", allowed)
    return several


def load_of(run: Run) -> InstanceLoad:
    """The load and layout of one instance in a run, as a closed loop.

    Raises:
        InputError: a fact is missing, the run is disaggregated or drafts, or its chips and
            requests are no whole number of instances.
    """
    if run.pools:
        raise InputError(run.place, "pools", "disaggregated", "runs of servers of one pool")
    if run.speculation is not None:
        allowed = "runs without drafts: an offset must not stand for an acceptance"
        raise InputError(run.place, "speculation", run.speculation.method or "on", allowed)
    run.require("tp", "isl", "osl")
    tp, pp, dp, ep = (x or 1.0 for x in (run.tp, run.pp, run.dp, run.ep))
    if (tp * dp) % ep:
        raise InputError(run.place, "ep", ep, f"a divisor of tp x dp = {tp * dp:g}")
    copies = (run.chips or tp * pp * dp) / (tp * pp * dp)
    work = ServingWorkload.of(
        isl=run.isl,
        osl=max(run.osl or 1.0, 1.0),
        prefix=run.prefix or 0.0,
        batch=in_flight(run) / copies,
        fixed=float(has_equal_lengths(run)),
        nominal=float(run.source in NOMINAL),
        waves=waves(run),
    )
    turns = {"polling": run.polling or 1.0, "balance_timeout": run.balance_timeout or 0.0}
    plan = Deployment.of(tp=tp, pp=pp, attention_dp=dp, ep=ep, **turns)
    return InstanceLoad(work, plan, float(run.ttft.mean is None and run.ttft.at(50.0) is not None))


def in_flight(run: Run) -> float:
    """Requests in flight: the concurrency or, of an open loop, rate x latency by Little's law.

    Raises:
        InputError: all requests arrived at once, or the file has no latency.
    """
    if run.loop != "open":
        run.require("concurrency")
        return float(run.concurrency or 0.0)
    latency, ttft, tpot = run.e2el.typical, run.ttft.typical, run.tpot.typical
    if latency is None and ttft is not None and tpot is not None:
        latency = ttft + ((run.osl or 1.0) - 1.0) * tpot
    if latency is None:
        allowed = "a run with arrivals tells ttft and tpot, or the latency"
        raise InputError(run.place, "e2el", "not in the file", allowed)
    return float(run.request_rate or 0.0) * latency


def waves(run: Run) -> float:
    """Requests of a run over its concurrency: waves, of which the first arrives at once.

    Unbounded in an open loop, or where the file does not give the number of requests.
    """
    if run.loop == "open":
        return UNBOUNDED
    if run.completed and run.concurrency:
        return max(run.completed / run.concurrency, 1.0)
    return INFERENCEX if run.source in NOMINAL else UNBOUNDED


def has_equal_lengths(run: Run) -> bool:
    """Whether all requests of a run have the same lengths, so that they run in lockstep.

    Decided by the lengths if the file has them; else by the client, whose synthetic requests of
    one length have whole mean lengths.
    """
    if run.input_lens and run.output_lens:
        return len(set(run.input_lens)) == 1 and len(set(run.output_lens)) == 1
    integers = all(x is not None and float(x).is_integer() for x in (run.isl, run.osl))
    return run.source in CLIENTS and integers


def measured(runs: Sequence[Run]) -> np.ndarray:
    """TPOT and TTFT of runs in seconds, 2 x runs: means, else medians; NaN where not measured.

    TTFT of an open loop is left out, because arriving requests wait by another law.
    """
    typical = [[getattr(run, name).typical for run in runs] for name in OUTPUTS]
    times = np.asarray([[np.nan if x is None else x for x in row] for row in typical], float)
    times[1, [run.loop == "open" for run in runs]] = np.nan
    return np.where(times > 0.0, times, np.nan)  # no TPOT in a run of one token


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LoadPredictor(TreeModel):
    """TPOT of all loads, then TTFT of all loads, in seconds, as a function of an estimator.

    A measured median is predicted as one by an estimator that tells it from the mean.
    """

    arch: Architecture
    model: Shape  # of arch
    hardware: Hardware
    loads: InstanceLoad  # stacked

    @classmethod
    def of(
        cls, arch: Architecture, hardware: Hardware, loads: Sequence[InstanceLoad]
    ) -> "LoadPredictor":
        """Of loads of one server."""
        stacked = jax.tree.map(lambda *x: np.stack(x), *loads)
        return jax.tree.map(np.asarray, cls(arch, shape(arch), hardware, stacked))

    def __call__(self, estimator: Estimator) -> Array:
        """Seconds, 2 x loads in a row."""

        def times(load: InstanceLoad) -> Array:
            if estimator.batches:  # by the shape of the model, which is not traced again
                server = cast(Serving, estimator)
                estimate = server.estimate_shape(self.model, self.hardware, *load[:2])
            else:
                estimate = estimator.estimate(self.arch, self.hardware, *load[:2])
            middle = getattr(estimate, "ttft_median", estimate.ttft)
            first = jnp.where(load.median > 0.5, middle, estimate.ttft)
            return jnp.stack([estimate.tpot, first])

        return jax.vmap(times, out_axes=1)(self.loads).ravel()


def check_times(fitted: np.ndarray, names: Sequence[str]) -> None:
    """Raise InputError where fewer times are fitted than there are coefficients."""
    if fitted.sum() < len(names):
        allowed = f"at least {len(names)}, the number of parameters ({', '.join(names)})"
        raise InputError("calibrate", "measured times", int(fitted.sum()), allowed)
