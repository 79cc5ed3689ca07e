"""Which plans of a model an engine runs, and the rule that another plan breaks.

Parallel ranks divide heads, experts, widths and blocks of scales: a table of numbers, one row for
the layers of a block, which the rules read. Rules are written with operators alone, so that a field
may be a number, an array (of any shape that broadcasts against the others) or a traced value. How
matrices may be cut follows vLLM 0.19: ``validate_fp8_block_shape`` in
vllm/model_executor/layers/quantization/utils/fp8_utils.py (slices of inputs, and of outputs of a
matrix that is not merged with others, are whole blocks), ``Fp8MoEMethod.create_weights`` in fp8.py
(expert slices are whole blocks both ways), awq.py, gptq.py and modelopt.py (slices of inputs are
whole groups), ``MoeWNA16Method`` in moe_wna16.py (groups of experts shrink with the slice, down to
32). SGLang's are the same but for the last.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple, Protocol

import numpy as np
from jax import Array

from infer_jax.errors import InputError
from infer_jax.physics import attention as att
from infer_jax.physics.attention import Cut
from infer_jax.specs import Architecture, Experts, Workload

Number = Array | np.ndarray | float  # operators alone are used
Truth = Array | np.ndarray | np.bool_ | bool
MIN_GROUP = 32.0  # the fewest columns of an expert that may share a scale
MAX_DIVISOR = 1024  # the largest divisor that an error message lists


class ExpertCut(NamedTuple):
    """Routed experts of a layer, the width of one, and the rows and columns that share a scale."""

    experts: Array
    width: Array
    rows: Array
    columns: Array


class Division(NamedTuple):
    """What ranks divide in one layer of a block; a part that the layer lacks is an empty tuple.

    ``heads``: query heads that tensor ranks deal out and KV heads that they deal out or copy, one
    pair; ``projections``: its matrices
    that tensor ranks cut; ``dense``: the feedforward that every token passes, or the shared
    experts; ``mixture``: the routed experts.
    """

    count: Array
    heads: tuple[tuple[Array, Array | float], ...] = ()
    projections: tuple[Cut, ...] = ()
    dense: tuple[Cut, ...] = ()
    mixture: tuple[ExpertCut, ...] = ()


def divisions(arch: Architecture) -> list[Division]:
    """What ranks divide in the layers of a model, one row for each of its blocks.

    Which kind of attention or feedforward a layer has is settled here, so that no rule has to ask.
    """
    rows: list[Division] = []
    for block in arch.blocks:
        row, dense = Division(block.count), block.feedforward
        if block.attention is not None:
            layer = att.of(block.attention)
            row = row._replace(heads=(layer.heads,), projections=layer.cuts)
        if isinstance(dense, Experts):
            stored = dense.weights
            mixture = ExpertCut(dense.experts, dense.width, stored.rows, stored.columns)
            row, dense = row._replace(mixture=(mixture,)), dense.shared
        if dense is not None:
            row = row._replace(dense=(Cut(dense.width, dense.weights.columns),))
        rows.append(row)
    return rows


class HasDegrees(Protocol):
    """Whatever has degrees: a plan of any estimator, or arrays of them."""

    @property
    def tp(self) -> Number: ...
    @property
    def ep(self) -> Number: ...
    @property
    def pp(self) -> Number: ...


class Rule(NamedTuple):
    """What a plan or workload must be: the field, where it holds, and what is allowed in words."""

    field: str
    value: Number
    holds: Truth
    allowed: Callable[[], str]


class Degrees(NamedTuple):
    """A plan's tensor ranks, attention groups, expert-parallel ranks and pipeline stages.

    A plan without ``attention_dp`` has as many groups as expert-parallel ranks.
    """

    tp: Number
    groups: Number
    ep: Number
    pp: Number

    @classmethod
    def of(cls, plan: HasDegrees) -> "Degrees":
        """The degrees of a plan, at least 1."""
        named = (plan.tp, getattr(plan, "attention_dp", plan.ep), plan.ep, plan.pp)
        return cls(*(x + (x < 1) * (1 - x) for x in named))

    @property
    def slices(self) -> Number:
        """Parts that each expert is cut into."""
        return self.tp * self.groups / self.ep


def holds(arch: Architecture, plan: HasDegrees, work: Workload | None = None) -> Truth:
    """Whether every rule holds: of one plan and workload, or of each of arrays of them."""
    return reduce(lambda a, b: a & b, (rule.holds for rule in rules(arch, plan, work)))


def broken(arch: Architecture, plan: HasDegrees, work: Workload | None = None) -> Rule | None:
    """The first rule that one plan, with its workload, breaks; None where an engine runs it."""
    return next((rule for rule in rules(arch, plan, work) if not rule.holds), None)


def check(
    arch: Architecture, plan: HasDegrees, work: Workload | None = None, where: str = "plan"
) -> None:
    """Do nothing where an engine runs one plan of a model.

    Raises:
        InputError: a rule is broken; ``where`` begins the sentence.
    """
    rule = broken(arch, plan, work)
    if rule is not None:
        raise InputError(where, rule.field, f"{float(rule.value):.12g}", rule.allowed())


def rules(arch: Architecture, plan: HasDegrees, work: Workload | None = None) -> list[Rule]:
    """Every rule, the simplest first."""
    layers, degrees = divisions(arch), Degrees.of(plan)
    spread, cut = _dealt(layers, degrees), _cut(layers, degrees)
    requests = [] if work is None else _workload_rules(arch, plan, work)
    return [*_whole_numbers(plan), *spread, *cut, *requests]


def _whole_numbers(plan: HasDegrees) -> Iterator[Rule]:
    for name in ("tp", "attention_dp", "ep", "pp", "dp", "drafts"):
        value, least = getattr(plan, name, None), 0 if name == "drafts" else 1
        if value is not None:
            good = (value % 1 == 0) & (value >= least)
            yield Rule(name, value, good, lambda n=least: f"a whole number of at least {n}")


def _dealt(layers: Sequence[Division], d: Degrees) -> Iterator[Rule]:
    """Heads, experts and layers over ranks."""
    for query, cached in (pair for layer in layers for pair in layer.heads):
        yield Rule("tp", d.tp, query % d.tp == 0, lambda q=query: _divisors(q, "query heads"))
        fits = (d.tp % cached == 0) | (cached % d.tp == 0)
        words = "that divide the {:g} KV heads, or are multiples of them"
        yield Rule("tp", d.tp, fits, lambda c=cached, w=words: f"degrees {w.format(float(c))}")
    depth = sum(layer.count for layer in layers)
    yield Rule("pp", d.pp, d.pp <= depth, lambda: f"at most the {float(depth):g} layers")
    counts = [mixture.experts for layer in layers for mixture in layer.mixture]
    if not counts:
        yield Rule("ep", d.ep, d.ep == 1, lambda: "1: no experts")
        yield Rule("attention_dp", d.groups, d.groups == 1, lambda: "1: no experts")
        return
    for count in counts:
        yield Rule("ep", d.ep, count % d.ep == 0, lambda n=count: _divisors(n, "experts"))
    chips = d.tp * d.groups
    yield Rule("ep", d.ep, chips % d.ep == 0, lambda: _divisors(chips, "GPUs of a stage"))


def _cut(layers: Sequence[Division], d: Degrees) -> Iterator[Rule]:
    """Matrices over ranks, in whole columns and whole blocks of their format."""
    for layer in layers:
        for cut in layer.projections:
            yield _slice("tp", d.tp, cut, "a projection")
        for mixture in layer.mixture:
            yield from _expert(d, mixture)
        for cut in layer.dense:
            yield _slice("tp", d.tp, cut, "a feedforward")


def _expert(d: Degrees, one: ExpertCut) -> Iterator[Rule]:
    """A scale for a block of rows and columns is fixed, one for a group of columns may shrink."""
    shrinks = (one.rows <= 1) & (one.width / d.slices % MIN_GROUP == 0)
    for block in (one.rows, one.columns):
        # the message names ep: a larger one cuts each expert less
        rule = _slice("ep", d.slices, Cut(one.width, block), "an expert", always=True)
        fits = rule.holds | ((block > 1) & shrinks)
        yield rule._replace(value=d.ep, holds=fits)


def _slice(field: str, parts: Number, cut: Cut, what: str, *, always: bool = False) -> Rule:
    """A width in ``parts`` of whole columns, each a multiple of its block where it is cut."""
    width, block = cut
    each = width / parts
    fits = (each % block == 0) & (each % 1 == 0)
    if not always:
        fits = fits | (parts <= 1)

    def allowed() -> str:
        blocks = f"blocks of {float(block):g}" if block > 1 else "columns"
        cut = f"not in {float(parts):g} slices of {float(each):g}"
        return f"degrees that cut {what} of {float(width):g} columns in whole {blocks}, {cut}"

    return Rule(field, parts, fits, allowed)


def context(arch: Architecture, work: Workload) -> Rule:
    """Prompt and output are within the model's longest context, where that is known.

    Engines refuse a longer request (vLLM: max_model_len, of the config's max_position_embeddings).
    """

    def allowed() -> str:
        longest, osl = (f"{float(x):.12g}" for x in (arch.max_positions, work.osl))
        return f"with osl {osl} at most {longest} tokens together, the model's longest context"

    return Rule("isl", work.isl, work.isl + work.osl <= arch.max_positions, allowed)


def _workload_rules(arch: Architecture, plan: HasDegrees, work: Workload) -> Iterator[Rule]:
    """Limits of the workload: cached prefix, longest context, batch."""
    fits = work.prefix <= work.isl
    yield Rule("prefix", work.prefix, fits, lambda: f"at most isl, {float(work.isl):.12g} tokens")
    yield context(arch, work)
    if work.arrivals is None:
        groups = getattr(plan, "attention_dp", 1.0)
        words = "at least {:g}: a request in each attention group"
        fits = work.batch >= groups
        yield Rule("batch", work.batch, fits, lambda: words.format(float(groups)))


def _divisors(count: Number, of: str) -> str:
    whole = int(count)
    divisors = [d for d in range(1, min(whole, MAX_DIVISOR) + 1) if whole % d == 0]
    more = " ..." if whole > MAX_DIVISOR else ""
    return f"{', '.join(map(str, divisors))}{more}, which divide the {of}"
