"""The layout of a verb's options, checked against what engines run."""

from infer_jax import legal
from infer_jax.estimators import Estimator
from infer_jax.results import option
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
            degrees = f"{option('tp')} (with {option('pp')}, {option('ep')})"
            raise ask("tp", "On how many GPUs?", f"{degrees}, or {option('total_gpus')}")
        tp, pp, ep = (either(degree, 1.0) for degree in (tp, pp, ep))
        check_split(arch, tp, pp, ep)
        return Plan.of(tp=tp, pp=pp, ep=ep, dp=dp), name or inputs.BEST
    if tp is not None or pp is not None or ep is not None:
        degrees = f"{option('tp')}, {option('pp')} and {option('ep')}"
        raise refuse("total_gpus", total, f"{option('total_gpus')}, or {degrees}, not both")
    if total % dp:
        raise refuse("total_gpus", total, f"a multiple of {option('dp')}, {dp:g}")
    return Plan.of(tp=total / dp, dp=dp), name or inputs.SEARCHING


def check_split(arch: Architecture, tp: float, pp: float, ep: float) -> None:
    """Raise InputError unless an engine runs these degrees (``infer_jax.legal``)."""
    rule = legal.broken(arch, Plan.of(tp=tp, pp=pp, ep=ep))
    if rule is None:
        return
    plain = legal.broken(arch, Plan.of(tp=tp, pp=pp)) if rule.field == "ep" else None
    if plain is not None:  # not a matter of expert parallelism: TP alone slices an expert so
        raise refuse("tp", tp, plain.allowed())
    raise refuse(rule.field, float(rule.value), rule.allowed())


def check_search(estimator: Estimator, name: str, total: float | None) -> None:
    """Raise InputError where the estimator searches the split and one is given, or the reverse."""
    if total is None and estimator.searches:
        allowed = f"one that takes a split, such as serving; or give {option('total_gpus')}"
        raise refuse("estimator", name, allowed)
    if total is not None and not estimator.searches:
        allowed = f"one that searches the split; or give {option('tp')}"
        raise refuse("estimator", name, allowed)
