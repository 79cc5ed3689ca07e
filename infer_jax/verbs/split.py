"""The layout of a verb's options, checked against what engines run."""

from infer_jax import legal
from infer_jax.estimators import Estimator
from infer_jax.specs import Architecture, Plan
from infer_jax.verbs import inputs
from infer_jax.verbs.option import either
from infer_jax.verbs.problems import ask, refuse


def plan_of(
    arch: Architecture,
    tp: float | None,
    pp: float | None,
    ep: float | None,
    dp: float,
    total: float | None,
    name: str | None,
) -> tuple[Plan, str]:
    """The plan and the estimator's name: of given degrees, or of GPUs to search a layout for."""
    if total is None:
        if tp is None and pp is None and ep is None:
            raise ask("--tp", "On how many GPUs?", "--tp (with --pp, --ep), or --total-gpus")
        tp, pp, ep = (either(degree, 1.0) for degree in (tp, pp, ep))
        check_split(arch, tp, pp, ep)
        plan = Plan.of(tp=tp, pp=pp, ep=ep, dp=dp)
        return plan, name or inputs.BEST
    if tp is not None or pp is not None or ep is not None:
        raise refuse("--total-gpus", total, "--total-gpus, or --tp, --pp and --ep, not both")
    if total % dp:
        raise refuse("--total-gpus", total, f"a multiple of --dp, {dp:g}")
    return Plan.of(tp=total / dp, dp=dp), name or inputs.SEARCHING


def check_split(arch: Architecture, tp: float, pp: float, ep: float) -> None:
    """Raise InputError unless an engine runs these degrees (``infer_jax.legal``)."""
    rule = legal.broken(arch, Plan.of(tp=tp, pp=pp, ep=ep))
    if rule is None:
        return
    plain = legal.broken(arch, Plan.of(tp=tp, pp=pp)) if rule.field == "ep" else None
    if plain is not None:  # not a matter of expert parallelism: TP alone slices an expert so
        raise refuse("--tp", tp, plain.allowed())
    raise refuse(f"--{rule.field}", float(rule.value), rule.allowed())


def check_search(estimator: Estimator, name: str, total: float | None) -> None:
    """Raise InputError where the estimator searches the split and one is given, or the reverse."""
    if total is None and estimator.searches:
        allowed = "one that takes a split, such as serving; or give --total-gpus"
        raise refuse("--estimator", name, allowed)
    if total is not None and not estimator.searches:
        raise refuse("--estimator", name, "one that searches the split; or give --tp")
