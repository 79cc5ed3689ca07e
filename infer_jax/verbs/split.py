"""The layout of a verb's options, in the words of a plan or of an engine; what engines run."""

from argparse import ArgumentError, ArgumentParser
from collections.abc import Mapping
from typing import NamedTuple

from infer_jax import legal
from infer_jax.estimators import VARIANTS, Estimator
from infer_jax.estimators.serving import Deployment
from infer_jax.planning import Layout, PlanPool, nearest_layouts, read_pools
from infer_jax.results import option
from infer_jax.results.numbers import quantity
from infer_jax.results.problems import ask, refuse
from infer_jax.specs import Architecture, Plan
from infer_jax.verbs import inputs, options as opt
from infer_jax.verbs.option import either

PRINTED = 'as `plan` prints it: "TP4 DP2 EP8" or "2 x TP4", or an engine\'s flags: "-tp 4"'
NAMES = {"attention_dp": "dp"}  # degrees as a layout has them


class LayoutOptions(NamedTuple):
    """The instances that options ask for, none where no degree is given, and copies of them.

    ``words``: the layout, where it was given as one.
    """

    pools: tuple[PlanPool, ...]
    copies: float = 1.0
    words: str = ""

    @classmethod
    def of(
        cls,
        layout: str | None,
        degrees: Mapping[str, float | None],
        expert_parallel: bool = False,
        dp_attention: bool = False,
    ) -> "LayoutOptions":
        """From a layout in words; tp, pp, ep and dp; or these as vLLM or SGLang mean them.

        Raises:
            InputError: two of these at once, no such layout, degrees that do not make one.
        """
        tp, pp, ep, dp = (degrees.get(name) for name in ("tp", "pp", "ep", "dp"))
        named = [x for x in degrees if degrees[x] is not None and (x, degrees[x]) != ("dp", 1)]
        flags = {"enable_expert_parallel": expert_parallel, "enable_dp_attention": dp_attention}
        named += [name for name, is_set in flags.items() if is_set]
        if layout is not None:
            if named:
                others = ", ".join(option(name) for name in named)
                raise refuse("layout", layout, f"alone, without {others}: it has every degree")
            if layout.lstrip().startswith("-"):
                read = cls.of(None, *_flags(layout))
                return read._replace(words=str(read))
            try:
                pools = read_pools(layout)
            except ValueError:
                raise refuse("layout", layout, PRINTED) from None
            return cls(pools, pools[-1].copies, layout)
        groups, copies = either(ep, 1.0), either(dp, 1.0)
        if expert_parallel or dp_attention:
            groups, copies, tp, ep = _of_engine(tp, ep, copies, expert_parallel, dp_attention)
        elif tp is None and pp is None and ep is None:
            return cls((), copies)
        one = Layout(*(either(x, 1.0) for x in (tp, groups, ep, pp)))
        words = str(one) if expert_parallel or dp_attention else ""
        return cls((PlanPool(one, copies, 1.0),), copies, words)

    def __str__(self) -> str:
        pool = self.pool
        return "" if pool is None else str(pool if pool.copies > 1 else pool.layout)

    @property
    def pool(self) -> PlanPool | None:
        """The instances of one kind; None where no degree is given.

        Raises:
            InputError: two pools.
        """
        if len(self.pools) > 1:
            allowed = f"one pool: `plan` with {option('mode', 'disaggregated')} answers two, "
            raise refuse("layout", self.words, f"{allowed}`replay` replays them")
        return self.pools[0] if self.pools else None

    def facts(self, degrees: Mapping[str, float | None]) -> dict[str, float | None]:
        """Degrees of measured runs, whose dp are groups of attention: ``degrees`` where given so.

        GPUs in all are said where there are copies.
        """
        if not self.words or (pool := self.pool) is None:
            return {**degrees}
        layout = pool.layout
        own = {"tp": layout.tp, "pp": layout.pp, "ep": layout.ep, "dp": layout.attention_dp}
        return {**own, **({"chips": pool.copies * layout.chips} if pool.copies > 1 else {})}

    def plan(self, arch: Architecture, name: str = "") -> Plan:
        """The plan of one kind of instances; a common one where that says it all.

        Raises:
            InputError: no engine runs it, there are two pools, or the estimator of that name
                takes common plans alone.
        """
        layout, copies, _ = self.pool or PlanPool(Layout(1.0, 1.0, 1.0, 1.0), self.copies, 1.0)
        check_split(arch, layout, self.words)
        if layout == layout.plain and layout.ep == layout.attention_dp:
            return Plan.of(tp=layout.tp, pp=layout.pp, ep=layout.ep, dp=copies)
        if name in VARIANTS and not VARIANTS[name].make().batches:
            allowed = f"as much DP as EP for {name}; {inputs.BEST} takes every layout"
            raise refuse("layout", self.words, allowed)
        return Deployment.of(**layout._asdict(), dp=copies)


def _flags(words: str) -> tuple[dict[str, float | None], bool, bool]:
    """Degrees, expert parallelism and attention groups that an engine's flags in a text ask for.

    Raises:
        InputError: no flags of a layout.
    """
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("tp", "pp", "ep", "dp"):
        spelt = getattr(opt, f"{name.upper()}_FLAGS")
        parser.add_argument(*spelt, dest=name, type=lambda x: opt.WHOLE.check(opt.WHOLE.parse(x)))
    parser.add_argument("--enable-expert-parallel", "-ep", action="store_true")
    parser.add_argument("--enable-dp-attention", action="store_true")
    try:
        read, others = parser.parse_known_args(words.split())
    except ArgumentError:
        raise refuse("layout", words, PRINTED) from None
    degrees = {name: getattr(read, name) for name in ("tp", "pp", "ep", "dp")}
    flags = read.enable_expert_parallel, read.enable_dp_attention
    if others or not any((*degrees.values(), *flags)):
        raise refuse("layout", words, PRINTED)
    return degrees, *flags


def _of_engine(
    tp: float | None, ep: float | None, dp: float, expert_parallel: bool, dp_attention: bool
) -> tuple[float, float, float, float]:
    """Groups, copies, tp and ep of one instance by the engines' own words.

    vLLM 0.19 with --enable-expert-parallel places whole experts on its tp x dp GPUs (docs.vllm.ai,
    expert parallel deployment); SGLang 0.5 with --enable-dp-attention divides its tp GPUs into dp
    groups, and experts among ep of them (docs.sglang.ai, server arguments).
    """
    first = option("enable_expert_parallel")
    if tp is None:
        raise ask("tp", "On how many GPUs?", option("tp"))
    if expert_parallel and dp_attention:
        raise refuse("enable_dp_attention", "given", f"without {first}, which is vLLM's")
    if expert_parallel:
        if ep is not None:
            raise refuse("ep", ep, f"without {first}, which has as many as GPUs")
        return dp, 1.0, tp, tp * dp
    if tp % dp:
        raise refuse("dp", dp, f"a divisor of {option('tp')}, {tp:g}, as SGLang has it")
    return dp, 1.0, tp / dp, either(ep, 1.0)


def plan_of(
    setup: inputs.Setup, split: LayoutOptions, total: float | None, name: str | None
) -> tuple[Plan, str, Estimator]:
    """The plan, of given degrees or of GPUs to search a layout for; the estimator and its name.

    Raises:
        InputError: neither degrees nor GPUs, or both; an estimator that searches the split where
            one is given, or the reverse.
    """
    if total is None:
        if not split.pools:
            degrees = f"{option('tp')} (with {option('pp')}, {option('ep')}), {option('layout')}"
            raise ask("tp", "On how many GPUs?", f"{degrees} or {option('total_gpus')}")
        name = name or inputs.BEST
        plan = split.plan(setup.model.architecture, name)
    else:
        if split.pools:
            degrees = f"{option('tp')}, {option('pp')} and {option('ep')}"
            degrees = option("layout") if split.words else degrees
            raise refuse("total_gpus", total, f"{option('total_gpus')}, or {degrees}, not both")
        if total % split.copies:
            raise refuse("total_gpus", total, f"a multiple of {option('dp')}, {split.copies:g}")
        name = name or inputs.SEARCHING
        plan = Plan.of(tp=total / split.copies, dp=split.copies)
    estimator = inputs.estimator(name, setup)
    if estimator.searches != (total is not None):
        allowed = f"one that searches the split; or give {option('tp')}"
        if total is None:
            allowed = f"one that takes a split, such as serving; or give {option('total_gpus')}"
        raise refuse("estimator", name, allowed)
    return plan, name, estimator


def check_split(arch: Architecture, layout: Layout, words: str = "") -> None:
    """Raise InputError unless an engine runs this layout (``infer_jax.legal``)."""
    rule = legal.broken(arch, layout)
    if rule is None:
        return
    plain = None
    if rule.field == "ep" and layout.ep == layout.attention_dp:
        plain = legal.broken(arch, layout._replace(attention_dp=1.0, ep=1.0))
    if plain is not None:  # not a matter of expert parallelism: TP alone slices an expert so
        rule = plain._replace(field="tp", value=layout.tp)
    others = _others(arch, layout)
    if words or rule.field in NAMES:
        degree = NAMES.get(rule.field, rule.field).upper()
        raise refuse("layout", words or str(layout), f"{degree} of {rule.allowed()}{others}")
    raise refuse(rule.field, float(rule.value), f"{rule.allowed()}{others}")


def _others(arch: Architecture, layout: Layout) -> str:
    """Layouts that engines run, of as many GPUs or else of the nearest number, for a sentence."""
    nearest = nearest_layouts(arch, layout)
    if not nearest:
        return ""
    names, gpus = " or ".join(f'"{x}"' for x in nearest), nearest[0].chips
    where = "as many GPUs" if gpus == layout.chips else quantity(gpus, "GPU")
    copies = layout._replace(attention_dp=1.0, ep=1.0)
    if layout.attention_dp > 1.0 and layout.ep == 1.0 and not legal.broken(arch, copies):
        names += f' or "{layout.attention_dp:.12g} x {copies}", which is copies'
    return f"; on {where} {option('layout')} {names}"
