"""``ij.sensitivity``: elasticities with respect to bandwidth, latency, heads, batch, price."""

from typing import Annotated

from infer_jax import verbs
from infer_jax.results import option
from infer_jax.results.problems import refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option, count, either
from infer_jax.verbs.progress import busy

HEADS = ("arch", "hardware", "estimator", "workload", "plan")  # what paths of ``set`` begin with
TOP = 12  # rows of each output's table
POINTS = count(2, 1000, ": each is a column of the table")  # along a frontier


@verb
def sensitivity(
    config: opt.Config,
    hardware: opt.System,
    *,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.Dp = 1,
    layout: opt.Layout = None,
    enable_expert_parallel: opt.ExpertParallel = False,
    enable_dp_attention: opt.DpAttention = False,
    total_gpus: opt.TotalGpus = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.Isl = 4096,
    osl: opt.Osl = 512,
    prefix: opt.Prefix = 0,
    batch: opt.Batch = None,
    price: opt.Prices = None,
    estimator: opt.EstimatorName = None,
    engine: opt.Engine = None,
    engine_version: opt.EngineVersion = None,
    along: Annotated[int | None, Option.of("N", POINTS)] = None,
    top: Annotated[float, Option.of("N", opt.WHOLE)] = TOP,
    coefficients: Annotated[bool, Option.of()] = False,
    second: Annotated[bool, Option.of()] = False,
    set: opt.Changes = None,
) -> "verbs.SensitivityResult":
    """What is 10 % more of anything worth: bandwidth, latency, heads, batch, the price?

    ``top``: printed rows of a table; ``coefficients``: print those of the estimator, too.

    Args:
        along: At N points of the frontier, not at one.
        top: Rows of a table.
        coefficients: Show those of the estimator, too.
        second: How the slopes move, too, and which numbers act on each other.

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
    from infer_jax.design.sensitivity import analyser, changed, outputs, what_if
    from infer_jax.design.what_ifs import curvatures_at, frontier_of, what_ifs
    from infer_jax.silicon.chips import SiliconSystem
    from infer_jax.silicon.on_silicon import OnSilicon
    from infer_jax.specs import Plan
    from infer_jax.sweeps.paths import Point
    from infer_jax.verbs import inputs, sensitivity_result as own
    from infer_jax.verbs.split import LayoutOptions, plan_of

    setup = inputs.setup(config, hardware, quant, kv_dtype, price, set, engine_version, HEADS)
    arch = setup.model.architecture
    degrees = {"tp": tp, "pp": pp, "ep": ep, "dp": dp}
    estimator = inputs.estimator_of_engine(estimator, engine)
    split = LayoutOptions.of(layout, degrees, enable_expert_parallel, enable_dp_attention)
    if along is None:
        plan, name, model = plan_of(setup, split, total_gpus, estimator)
    elif split.pools or total_gpus is not None or batch is not None:
        names = [option(x) for x in ("tp", "pp", "ep", "layout", "total_gpus")]
        raise refuse("along", along, f"no {', '.join(names)} or {option('batch')}")
    else:  # points of a frontier have their own plans
        plan, name = Plan.of(), estimator or inputs.SEARCHING
        model = inputs.estimator(name, setup)
    if second and along is not None:
        raise refuse("second", "given", f"no {option('along')}: of one point")
    trusted = inputs.trust(name, model, setup, plan if along is None else None)
    work = inputs.workload(isl, osl, prefix, either(batch, 1.0))
    point = Point(model, arch, setup.hardware, work, plan)
    if isinstance(setup.system, SiliconSystem):
        if price is not None or setup.changes.values("hardware"):
            wrong = "price" if price is not None else "set"
            allowed = f"numbers of {setup.system.path}, which hardware and rent follow from"
            raise refuse(wrong, "given with silicon", allowed)
        point = point._replace(estimator=OnSilicon.of(target=model), hardware=setup.system.tree)
    point = changed(point, setup.changes.values("workload", "plan"), option("set"))
    inputs.check_context(setup.model, point.workload)
    with busy("compiling and evaluating"):
        points = [point] if along is None else frontier_of(point, int(along))
        analyse = analyser(outputs, point)
        slopes = [own.PointSlopes(one, analyse(one)) for one in points]
        bent = curvatures_at(points[0], slopes[0].slopes) if second else ()
        ifs = what_if(outputs, point, what_ifs(point)) if along is None else {}
        chips = own.other_chips(point, setup, name) if along is None else []
    return own.SensitivityResult(
        setup, name, trusted, slopes, ifs, chips, along is not None, int(top), coefficients, bent
    )
