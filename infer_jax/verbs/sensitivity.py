"""``ij.sensitivity``: elasticities with respect to bandwidth, latency, heads, batch, price."""

import dataclasses
import re
from typing import Annotated

import numpy as np

from infer_jax.design.sensitivity import Change, analyser, changed, outputs, what_if
from infer_jax.estimators import Economics
from infer_jax.results import option
from infer_jax.specs import Hierarchy, Plan, leaves
from infer_jax.sweeps.paths import Point
from infer_jax.verbs import changes, frontier_points as grids, inputs, options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option, count, either
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.progress import busy
from infer_jax.verbs.sensitivity_result import PointSlopes, SensitivityResult
from infer_jax.verbs.split import plan_of

HEADS = (*changes.HEADS, "workload", "plan")  # what paths of ``set`` begin with
TOP = 12  # rows of each output's table
MAX_POINTS = 1000  # points along a frontier: each is a column of the table


@verb
def sensitivity(
    config: opt.Config,
    hardware: opt.System,
    *,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    total_gpus: opt.TotalGpus = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.Isl = 4096,
    osl: opt.Osl = 512,
    prefix: opt.Prefix = 0,
    batch: opt.Batch = None,
    price: opt.Price = None,
    estimator: opt.EstimatorName = None,
    along: Annotated[
        int | None,
        Option(
            "At N points of the frontier, not at one.",
            "N",
            count(2, MAX_POINTS, ": each is a column of the table"),
        ),
    ] = None,
    top: Annotated[float, Option("Rows of a table.", "N", opt.WHOLE)] = TOP,
    coefficients: Annotated[bool, Option("Show those of the estimator, too.")] = False,
    set: opt.Changes = None,
) -> SensitivityResult:
    """What is 10 % more of anything worth: bandwidth, latency, heads, batch, the price?

    ``top``: printed rows of a table; ``coefficients``: print those of the estimator, too.

    Raises:
        InputError: a model or system that cannot be read, a split that no engine runs, options
            that exclude each other.

    >>> import infer_jax as ij
    >>> slopes = ij.sensitivity(
    ...     "llama-3.1-8b", "h100_sxm", tp=1, batch=8, estimator="economics.planned"
    ... )
    >>> slopes.elasticity("hardware.price", "cost").slope
    1.0
    """
    asked = inputs.given(config, hardware, quant, kv_dtype, price, set, HEADS)
    arch = asked.model.architecture
    if along is None:
        plan, name = plan_of(arch, tp, pp, ep, 1.0, total_gpus, estimator)
    elif any(x is not None for x in (tp, pp, ep, total_gpus, batch)):
        names = [option(x) for x in ("tp", "pp", "ep", "total_gpus")]
        raise refuse("along", along, f"no {', '.join(names)} or {option('batch')}")
    else:  # points of a frontier have their own plans
        plan, name = Plan.of(), estimator or inputs.SEARCHING
    model = inputs.estimator(name, asked)
    trusted = inputs.trust(name, model, asked)
    work = inputs.workload(isl, osl, prefix, either(batch, 1.0))
    point = Point(model, arch, asked.hardware, work, plan)
    point = changed(point, asked.changes.values("workload", "plan"), option("set"))
    inputs.check_context(asked.model, point.workload)
    with busy("compiling and evaluating"):
        points = [point] if along is None else _frontier(point, asked, int(along))
        analyse = analyser(outputs, point)
        slopes = [PointSlopes(one, analyse(one)) for one in points]
        ifs = what_if(outputs, point, _questions(point)) if along is None else {}
    return SensitivityResult(
        asked, name, trusted, slopes, ifs, along is not None, int(top), coefficients
    )


def _questions(point: Point) -> dict[str, Change]:
    """The what-ifs: half the weights' bytes, a rack-wide fast domain, shorter launches."""
    weights = (path for path, _, _ in leaves(point.arch) if path.endswith("weights.bytes"))
    formats = {re.sub(r"\.\d+\.", ".*.", path) for path in weights}  # those of all blocks as one
    questions: dict[str, Change] = {
        "weights at half the bytes": {f"arch.{path}": _half for path in sorted(formats)}
    }
    if isinstance(point.hardware.network, Hierarchy):
        questions["fast domain of 72 chips"] = {"hardware.network.domain": 72.0}
    if isinstance(point.estimator, Economics):
        questions["kernel launch half as long"] = {"estimator.launch": _half}
    bandwidth = {"hardware.chip.memory_bandwidth": lambda x: 1.5 * x}
    return {**questions, "1.5 times the memory bandwidth": bandwidth}


def _half(x: float) -> float:
    return 0.5 * x


def _frontier(point: Point, asked: inputs.Given, count: int) -> list[Point]:
    """Points of the frontier of speed and cost of what was changed, evenly spaced in speed."""
    if not point.estimator.searches:
        raise refuse("along", count, "an estimator that searches the split: economics")
    model = dataclasses.replace(asked.model, architecture=point.arch)
    given = dataclasses.replace(asked, model=model, hardware=point.hardware)
    chips, batches = grids.gpu_axes(given, None)
    layouts = grids.searched_layouts(chips)
    grid = grids.evaluate(point.estimator, given, point.workload, layouts, batches)
    front = grid.frontier()
    if not len(front):
        raise refuse("along", count, "a model that fits on some number of these chips")
    wanted = np.linspace(front.speed[-1], front.speed[0], count)
    at = dict.fromkeys(int(np.argmin(np.abs(front.speed - x))) for x in wanted)
    return [
        point._replace(
            workload=point.workload.with_(batch=front.batch[i]), plan=Plan.of(tp=front.chips[i])
        )
        for i in at
    ]
