"""``ij.layout``: the fastest layout of a dense model by chips, batch and phase."""

from typing import Annotated

from infer_jax import verbs
from infer_jax.results import option
from infer_jax.results.problems import ask, refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option
from infer_jax.verbs.progress import busy

PHASES = ("prefill", "decode")
WEIGHTS = {  # what the names of layouts say
    "ws_1d": "weights stay, cut once",
    "ws_2d": "weights stay, cut twice",
    "wg_x": "weights gathered over x",
    "wg_xy": "weights gathered over x, y",
    "wg_xyz": "weights gathered over x, y, z",
}
LAYOUT = Option(f"One of {', '.join(WEIGHTS)}; all where not given.", "NAME")


@verb
def layout(
    config: opt.Config,
    hardware: opt.System,
    *,
    total_gpus: opt.TotalGpus = None,
    batch: opt.Batch = 1.0,
    phase: Annotated[str, Option.of("PHASE")] = "prefill",
    isl: opt.Isl = 2048,
    prefix: opt.Prefix = 0,
    layout: Annotated[str | None, LAYOUT] = None,  # the option's name
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    set: opt.Changes = None,
) -> "verbs.LayoutResult":
    """Which weight and attention layout is fastest on a slice, and where that changes.

    A prefill is of ``isl`` tokens of which ``prefix`` are cached, a decode is after them.

    Args:
        total_gpus: chips of one instance.
        phase: prefill: the prompt; decode: one token.
        layout: one of ws_1d, ws_2d, wg_x, wg_xy, wg_xyz; all where not given.

    Raises:
        InputError: a model that is not dense, no such slice, layout or phase.

    >>> import infer_jax as ij
    >>> best = ij.layout("palm-540b-padded", "tpu_v4", total_gpus=64, batch=512)
    >>> best.fastest["layout"], best.fastest["attention"]
    ('wg_xyz', 'batch')
    """
    from infer_jax.estimators.partitioning.model import evaluate_layouts
    from infer_jax.verbs import inputs, layout_result as own

    if phase not in PHASES:
        raise refuse("phase", phase, " or ".join(PHASES))
    if total_gpus is None:
        raise ask("total_gpus", "How many chips has one instance?", option("total_gpus"))
    if batch is None:
        raise refuse("batch", "missing", "sequences of one pass")
    codes = own.layout_codes(layout, phase)
    setup = inputs.setup(config, hardware, quant, kv_dtype, None, set)
    arch = setup.model.architecture
    own.check_dense(arch)
    if phase == "prefill" and prefix >= isl:
        raise refuse("prefix", prefix, f"below {option('isl')}, {isl:.12g} tokens")
    new, cached = (isl - prefix, prefix) if phase == "prefill" else (1.0, isl)
    estimator = inputs.estimator(own.ESTIMATOR, setup)
    with busy("compiling and evaluating"):
        parts = estimator, arch, setup.hardware, (new, cached), codes
        passes = evaluate_layouts(*parts, total_gpus, batch)
    asked, layouts = (setup, phase, total_gpus, batch, new, cached), passes.at(total_gpus, batch)
    by_gpus, by_batch = (passes.changes(axis, total_gpus, batch) for axis in (0, 1))
    return own.LayoutResult(*asked, layouts, by_batch, by_gpus)
