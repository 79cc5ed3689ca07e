"""Feedforward layers of a config.json: spec, matrices and vectors."""

from infer_jax.catalog.huggingface.attention import Piece
from infer_jax.catalog.huggingface.facts import Facts
from infer_jax.specs import Dense, Experts

GATED = ("gate_proj", "up_proj", "down_proj")
PLAIN = ("up_proj", "down_proj")


def dense(
    width: int,
    hidden: int,
    *,
    gated: bool = True,
    bias: bool = False,
    module: str = "mlp",
) -> Piece:
    """A feedforward of ``hidden`` units: gated with two matrices in, plain with one."""
    names = GATED if gated else PLAIN
    matrices = {f"{module}.{name}": width * hidden for name in names}
    vectors = bias * (len(names) - 1) * hidden + bias * width
    spec = Dense.of(width=hidden, inward=2 if gated else 1)
    return Piece(spec, matrices, vectors)


def experts(
    facts: Facts,
    width: int,
    hidden: int,
    *,
    count: int,
    active: int,
    outer: int = 0,
    gated: bool = True,
    module: str = "mlp.experts",
    shared: Piece | None = None,
    vectors: int = 0,
) -> Piece:
    """``active`` of ``count`` experts of ``hidden`` units, beside the ``shared`` ones.

    Expert 0 stands for all routed ones when module names are matched. ``outer`` is the width
    the experts read and write where it is not the model's.

    Raises:
        InputError: more active experts than there are.
    """
    if active > count:
        raise facts.error("num_experts_per_tok", active, f"at most {count}, the experts there are")
    names = GATED if gated else PLAIN
    matrices = {f"{module}.0.{name}": count * (outer or width) * hidden for name in names}
    values = {} if shared is None else {"shared": shared.spec}
    spec = Experts.of(
        experts=count,
        active=active,
        width=hidden,
        inward=2 if gated else 1,
        outer_width=outer,
        **values,
    )
    total = vectors + (shared.vectors if shared else 0)
    return Piece(spec, matrices, total, shared)
