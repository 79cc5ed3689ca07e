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
    names: dict[str, list[str]] = {"width": ["arch.width"], "draft_depth": ["arch.draft_layers"]}
    deepest = int(np.argmax([float(b.count) for b in arch.blocks]))
    names["depth"] = [f"arch.blocks.{deepest}.count"]
    for i, block in enumerate(arch.blocks):
        head = f"arch.blocks.{i}.attention"
        fields: dict[str, tuple[str, ...]] = {}
        if block.attention is not None:
            layer = att.of(block.attention)
            fields, inner = layer.designed, layer.softmax is not block.attention
            head = f"{head}.base" if inner else head
        for name, own in fields.items():
            names.setdefault(name, []).extend(f"{head}.{field}" for field in own)
        tail, layer = f"arch.blocks.{i}.feedforward", block.feedforward
        if isinstance(layer, Experts):
            for name, field in {
                "experts": "experts",
                "active": "active",
                "expert_width": "width",
            }.items():
                names.setdefault(name, []).append(f"{tail}.{field}")
            if float(layer.shared.width) > 0:
                names.setdefault("shared_width", []).append(f"{tail}.shared.width")
        elif layer is not None:
            names.setdefault("feedforward_width", []).append(f"{tail}.width")
    return {name: tuple(own) for name, own in names.items()} | {
        k: (v,) for k, v in OF_THE_PLAN.items()
    }


def free_axis(name: str, low: float, high: float) -> Axis:
    """The values from ``low`` to ``high`` that suit hardware for a name.

    Degrees, key-value heads and batches: powers of two, and one and a half times them for
    batches; the rest: multiples of a step, 128 for widths.
    """
    if name in DOUBLING:
        powers = 2.0 ** np.arange(0, 41)
        every = np.sort(np.r_[powers, 3.0 * powers]) if name == "batch" else powers
    else:
        step = STEPS[name]
        if high - low > MAX_VALUES * step:
            raise InputError("codesign", name, (low, high), f"at most {MAX_VALUES} steps of {step}")
        every = step * np.arange(np.ceil(low / step), np.floor(high / step) + 1)
    kept = every[(every >= low) & (every <= high) & (every > 0)]
    if not len(kept):
        wanted = "a power of two" if name in DOUBLING else f"a multiple of {STEPS[name]}"
        raise InputError("codesign", name, (low, high), f"bounds with {wanted} between them")
    return Axis.values(*kept.tolist())


def hardware_constraints(arch: Architecture, free: Sequence[str]) -> list[Constraint]:
    """Constraints of hardware and frameworks on a design in which these leaves are free.

    Key-value heads and tensor ranks divide the query heads, expert ranks divide the experts, a
    token visits at most the experts there are, stages are no more than layers.
    """
    known, moving = paths(arch), set(free)
    constraints: list[Constraint] = []

    def ask(constraint: Constraint, *leaves: str) -> None:
        if moving & set(leaves):
            constraints.append(constraint)

    for heads in known.get("heads", ()):
        ask(Constraint(value="plan.tp", divides=heads), "plan.tp", heads)
        kv = heads.replace("query_heads", "kv_heads")
        if kv in known.get("kv_heads", ()):
            ask(Constraint(value=kv, divides=heads), kv, heads)
    for experts in known.get("experts", ()):
        ask(Constraint(value="plan.ep", divides=experts), "plan.ep", experts)
        active = experts.replace("experts", "active")
        ask(Constraint(value=active, at_most=experts), active, experts)
    depth = known["depth"][0]
    ask(Constraint(value="plan.pp", at_most=depth), "plan.pp", depth)
    return constraints


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
        parts, left = _vectors(block), float(block.vectors)
        taken = [(read, float(read(block))) for read in parts if float(read(block)) <= left]
        left -= sum(x for _, x in taken)
        many = left // float(arch.width)
        rest = left - many * float(arch.width)

        def rule(_: object, point: Point, i=i, many=many, rest=rest, taken=tuple(taken)) -> Array:
            own = point.arch.blocks[i]
            return many * point.arch.width + rest + sum(read(own) for read, _ in taken)

        axes[f"arch.blocks.{i}.vectors"] = Axis.dependent(rule)
        layer = block.feedforward
        if not isinstance(layer, Experts) or float(layer.shared.width) == 0.0:
            continue
        many = float(layer.shared.width) / float(layer.width)
        if many.is_integer():

            def shared(_: object, point: Point, i=i, many=many) -> Array:
                experts: Tree = point.arch.blocks[i].feedforward
                return many * experts.width

            axes[f"arch.blocks.{i}.feedforward.shared.width"] = Axis.dependent(shared)
    return axes


def _vectors(block: Block) -> list[Reader]:
    """Lengths of a block's norms and biases beside the width: latent ranks, experts."""
    normed = () if block.attention is None else att.of(block.attention).normed
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
    known: Mapping[str, tuple[str, ...]] = paths(arch)
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
    return {
        "estimator": estimator,
        "arch": {"model": model},
        "hardware": {"system": hardware},
        "workload": {"isl": isl, "osl": osl},
        "objective": {"best": "cost"},
        "limits": dict(limits),
        "free": _free_ranges(arch),
        "where": _same_size(arch),
    }


def _free_ranges(arch: Architecture) -> dict[str, object]:
    """Ranges around the model's own attention and feedforward sizes; layout and batch."""
    flat = {f"arch.{path}": float(x) for path, x in by_path(arch).items()}
    known = paths(arch)
    mixture = "experts" in known
    free: dict[str, object] = {"tp": [1, 16], "batch": [1, 8192]}
    if mixture:
        free["ep"] = [1, 256]
    for name in (*SHAPE, *(() if mixture else ("feedforward_width",))):
        if name in known:
            now = flat[known[name][0]]
            free[name] = [max(1.0, now // FALL), RISE * now]
    return free


def _same_size(arch: Architecture) -> list[dict[str, object]]:
    """Total and active parameters within ``SIZE_BAND`` of the model's."""
    sizes = {
        "parameters": float(decoder.total(decoder.parameters(arch).values())),
        "active": float(decoder.active_parameters(arch)),
    }
    return [
        {"value": name, "at_least": (1.0 - SIZE_BAND) * size, "at_most": (1.0 + SIZE_BAND) * size}
        for name, size in sizes.items()
    ]
