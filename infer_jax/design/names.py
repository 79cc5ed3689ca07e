"""The numbers that a design may change: their names, and the steps that suit hardware.

A name stands for one leaf, or for the same leaf of all blocks, which then advance together.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jax import Array

from infer_jax.catalog import load_model
from infer_jax.errors import InputError
from infer_jax.physics import attention as att, decoder
from infer_jax.specs import Architecture, Block, Experts
from infer_jax.sweeps.axis import MAX_VALUES, Axis
from infer_jax.sweeps.constraint import Constraint
from infer_jax.sweeps.paths import Point, Tree, by_path

STEPS = {
    "width": 128,
    "depth": 1,
    "heads": 8,
    "head_width": 64,
    "feedforward_width": 128,
    "expert_width": 128,
    "shared_width": 128,
    "kv_rank": 64,
    "query_rank": 64,
    "nope_width": 64,
    "rope_width": 32,
    "latent_value_width": 64,
    "window": 512,
    "experts": 8,
    "active": 1,
    "draft_depth": 1,
}
SHAPE = ("heads", "kv_heads", "kv_rank", "experts", "active", "expert_width")
FALL, RISE = 4.0, 2.0  # a number of the model may fall to a quarter and double
SIZE_BAND = 0.02  # total and active parameters stay within this share: a model of the same class
DOUBLING = ("tp", "pp", "ep", "dp", "chips", "kv_heads", "batch")
Reader = Callable[[Tree], Array]  # a block, whose layers it knows -> a width
OF_EXPERTS = {"experts": "experts", "active": "active", "expert_width": "width"}
OF_THE_PLAN = {
    "tp": "plan.tp",
    "pp": "plan.pp",
    "ep": "plan.ep",
    "dp": "plan.dp",
    "chips": "plan.tp",
    "batch": "workload.batch",
    "tokens": "estimator.tokens",
}


def paths(arch: Architecture) -> dict[str, tuple[str, ...]]:
    """Every name that this model has, with the leaves it stands for."""
    deepest = int(np.argmax([float(b.count) for b in arch.blocks]))
    names: dict[str, list[str]] = {
        "width": ["arch.width"],
        "draft_depth": ["arch.draft_layers"],
        "depth": [f"arch.blocks.{deepest}.count"],
    }
    for i, block in enumerate(arch.blocks):
        leaves: dict[str, list[str]] = {}
        if block.attention is not None:
            layer, head = att.of(block.attention), f"arch.blocks.{i}.attention"
            head = head if layer.softmax is block.attention else f"{head}.base"
            leaves = {
                name: [f"{head}.{f}" for f in own] for name, own in layer.design_fields.items()
            }
        tail, layer = f"arch.blocks.{i}.feedforward", block.feedforward
        if isinstance(layer, Experts):
            leaves |= {name: [f"{tail}.{field}"] for name, field in OF_EXPERTS.items()}
            if float(layer.shared.width) > 0:
                leaves["shared_width"] = [f"{tail}.shared.width"]
        elif layer is not None:
            leaves["feedforward_width"] = [f"{tail}.width"]
        for name, own in leaves.items():
            names.setdefault(name, []).extend(own)
    of_plan = {name: (leaf,) for name, leaf in OF_THE_PLAN.items()}
    return {name: tuple(own) for name, own in names.items()} | of_plan


def free_axis(name: str, low: float, high: float) -> Axis:
    """The values from ``low`` to ``high`` that suit hardware for a name.

    Degrees, key-value heads and batches: powers of two, and one and a half times them for
    batches; the rest: multiples of a step, 128 for widths.
    """
    if name in DOUBLING:
        powers = 2.0 ** np.arange(0, 41)
        steps = np.sort(np.r_[powers, 3.0 * powers]) if name == "batch" else powers
        spacing = "a power of two"
    else:
        step = STEPS[name]
        if high - low > MAX_VALUES * step:
            raise InputError("codesign", name, (low, high), f"at most {MAX_VALUES} steps of {step}")
        steps = step * np.arange(np.ceil(low / step), np.floor(high / step) + 1)
        spacing = f"a multiple of {step}"
    steps = steps[(steps >= low) & (steps <= high) & (steps > 0)]
    if not len(steps):
        raise InputError("codesign", name, (low, high), f"bounds with {spacing} between them")
    return Axis.values(*steps.tolist())


def hardware_constraints(arch: Architecture, free: Sequence[str]) -> list[Constraint]:
    """Constraints of hardware and frameworks on a design in which these leaves are free.

    Key-value heads and tensor ranks divide the query heads, expert ranks divide the experts, a
    token visits at most the experts there are, stages are no more than layers.
    """
    known, moving = paths(arch), set(free)
    constraints: list[Constraint] = []
    for heads in known.get("heads", ()):
        constraints.append(Constraint(value="plan.tp", divides=heads))
        kv = heads.replace("query_heads", "kv_heads")
        if kv in known.get("kv_heads", ()):
            constraints.append(Constraint(value=kv, divides=heads))
    for experts in known.get("experts", ()):
        active = experts.replace("experts", "active")
        constraints.append(Constraint(value="plan.ep", divides=experts))
        constraints.append(Constraint(value=active, at_most=experts))
    constraints.append(Constraint(value="plan.pp", at_most=known["depth"][0]))
    return [c for c in constraints if moving & {c.value, c.divides, c.at_most}]


def dependent_axes(arch: Architecture) -> dict[str, Axis]:
    """Dependent axes: numbers of the model that change with those that a design varies.

    Of the numbers in norms and biases (``vectors``), whole multiples of the width follow the width,
    and those of latent ranks and of experts' balancing biases follow these; the rest stays. A
    shared expert as wide as a whole number of routed ones keeps that ratio.
    """
    axes: dict[str, Axis] = {}
    if float(arch.vectors) == float(arch.width):
        axes["arch.vectors"] = Axis.dependent(lambda _, point: point.arch.width)
    for i, block in enumerate(arch.blocks):
        left, followed = float(block.vectors), list[Reader]()
        for read in _vectors(block):
            if float(read(block)) <= float(block.vectors):
                followed.append(read)
                left -= float(read(block))
        widths = left // float(arch.width)
        rest = left - widths * float(arch.width)

        def rule(_: object, point: Point, i=i, n=widths, rest=rest, reads=tuple(followed)) -> Array:
            own = point.arch.blocks[i]
            return n * point.arch.width + rest + sum(read(own) for read in reads)

        axes[f"arch.blocks.{i}.vectors"] = Axis.dependent(rule)
        layer = block.feedforward
        if not isinstance(layer, Experts) or float(layer.shared.width) == 0.0:
            continue
        ratio = float(layer.shared.width) / float(layer.width)
        if ratio.is_integer():

            def shared(_: object, point: Point, i=i, ratio=ratio) -> Array:
                experts: Tree = point.arch.blocks[i].feedforward
                return ratio * experts.width

            axes[f"arch.blocks.{i}.feedforward.shared.width"] = Axis.dependent(shared)
    return axes


def _vectors(block: Block) -> list[Reader]:
    """Lengths of a block's norms and biases beside the width: latent ranks, experts."""
    normed = () if block.attention is None else att.of(block.attention).norm_fields
    parts: list[Reader] = [
        lambda b, name=name: getattr(att.of(b.attention).softmax, name) for name in normed
    ]
    if isinstance(block.feedforward, Experts):
        width = sum(float(read(block)) for read in parts)
        if float(block.vectors) - width >= float(block.feedforward.experts):
            left = float(block.vectors) - width - float(block.feedforward.experts)
            if normed and left >= 0:
                parts.append(lambda b: b.feedforward.experts)
    return parts


def leaves_named(where: str, name: str, arch: Architecture) -> tuple[str, ...]:
    """The leaves of a name.

    Raises:
        InputError: the model has no such thing.
    """
    known = paths(arch)
    if name not in known:
        raise InputError(where, f"free.{name}", "not in this model", ", ".join(known))
    return known[name]


def default_tables(
    model: str, hardware: str, estimator: str, isl: float, osl: float, limits: Mapping[str, float]
) -> dict[str, object]:
    """The tables of a SPEC.toml of least cost within limits on ``ttft``, ``tpot``, ``throughput``.

    A model's heads, experts, split and batch are free. The loop of InferSim's technical report
    (2025), Figure 5: choose a layout, compare with the limits on TTFT, TPOT and throughput, change
    the model, repeat. Here one search varies all of these at once.

    Raises:
        InputError: no such model.
    """
    arch = load_model(model).architecture
    flat = {f"arch.{path}": float(x) for path, x in by_path(arch).items()}
    known = paths(arch)
    free: dict[str, object] = {"tp": [1, 16], "batch": [1, 8192]}
    if "experts" in known:
        free["ep"] = [1, 256]
    for name in (*SHAPE, *(() if "experts" in known else ("feedforward_width",))):
        if name in known:  # around the model's own
            now = flat[known[name][0]]
            free[name] = [max(1.0, now // FALL), RISE * now]
    sizes = {
        "parameters": float(decoder.total(decoder.parameters(arch).values())),
        "active": float(decoder.active_parameters(arch)),
    }
    same_size = [
        {"value": name, "at_least": (1.0 - SIZE_BAND) * size, "at_most": (1.0 + SIZE_BAND) * size}
        for name, size in sizes.items()
    ]
    return {
        "estimator": estimator,
        "arch": {"model": model},
        "hardware": {"system": hardware},
        "workload": {"isl": isl, "osl": osl},
        "objective": {"best": "cost"},
        "limits": dict(limits),
        "free": free,
        "where": same_size,
    }
