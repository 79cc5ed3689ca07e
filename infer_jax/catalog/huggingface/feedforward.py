"""Feedforward layers of a config.json: spec, matrices and vectors, and which layers hold experts.

A reader of a family takes the facts and returns the feedforward of every layer.
"""

from collections.abc import Callable, Sequence

from infer_jax.catalog.huggingface.facts import LAYERS, Facts
from infer_jax.catalog.huggingface.layers import Piece, depth
from infer_jax.specs import Dense, Experts

GATED: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
PLAIN: tuple[str, ...] = ("up_proj", "down_proj")
COUNT = ("n_routed_experts", "num_routed_experts", "num_experts", "num_local_experts")
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token")
SHARED = ("n_shared_experts", "num_shared_experts")


def dense(
    width: int, hidden: int, *, gated: bool = True, bias: bool = False, module: str = "mlp"
) -> Piece:
    """A feedforward of ``hidden`` units: gated with two matrices in, plain with one."""
    matrices = dict.fromkeys(GATED if gated else PLAIN, width * hidden)
    vectors = bias * ((len(matrices) - 1) * hidden + width)
    return Piece(Dense.of(width=hidden, inward=2 if gated else 1), module, matrices, vectors)


def experts(
    facts: Facts,
    hidden: int,
    count: int,
    *,
    active: int | None = None,
    outer: int = 0,
    gated: bool = True,
    module: str = "mlp.experts",
    shared: Piece | None = None,
    vectors: int = 0,
) -> Piece:
    """``active`` of ``count`` experts of ``hidden`` units, beside the ``shared`` ones.

    Expert 0 stands for all routed ones when module names are matched. ``active``: by default of
    the keys ``ACTIVE``. ``outer`` is the width the experts read and write where it is not the
    model's.

    Raises:
        InputError: more active experts than there are.
    """
    active = facts.count(*ACTIVE) if active is None else active
    if active > count:
        raise facts.error("num_experts_per_tok", active, f"at most {count}, the experts there are")
    size = count * (outer or facts.count("hidden_size")) * hidden
    spec = Experts.of(
        experts=count,
        active=active,
        width=hidden,
        inward=2 if gated else 1,
        outer_width=outer,
        **({} if shared is None else {"shared": shared.spec}),
    )
    matrices = dict.fromkeys(GATED if gated else PLAIN, size)
    vectors += 0 if shared is None else shared.vectors
    return Piece(spec, f"{module}.0", matrices, vectors, shared)


def dense_layers(facts: Facts, biased: bool = False) -> list[Piece]:
    """One gated feedforward on every layer; ``biased``: with biases where ``mlp_bias`` is true."""
    width, hidden = facts.count("hidden_size"), facts.count("intermediate_size")
    bias = biased and facts.flag("mlp_bias", default=False)
    return [dense(width, hidden, bias=bias)] * depth(facts)


def routed(
    facts: Facts,
    mixture: Piece,
    is_sparse: Sequence[bool],
    plain: Callable[[], Piece] | None = None,
) -> list[Piece]:
    """``mixture`` on the layers that are sparse, else the plain feedforward.

    By default that has ``intermediate_size`` units, a key which is read only where it is needed.
    """
    if all(is_sparse):
        return [mixture] * len(is_sparse)
    other = dense_layers(facts)[0] if plain is None else plain()
    return [mixture if sparse else other for sparse in is_sparse]


def sparse_by_step(facts: Facts) -> list[bool]:
    """Qwen's rule: experts on every ``decoder_sparse_step``-th layer not ``mlp_only_layers``."""
    step = facts.count("decoder_sparse_step", default=1, silent=True)
    plain = frozenset(facts.items("mlp_only_layers", allowed=range(LAYERS)) or [])
    return [i not in plain and (i + 1) % step == 0 for i in range(depth(facts))]


def sparse_after_first(facts: Facts) -> list[bool]:
    """DeepSeek's rule: dense layers first, then experts on every ``moe_layer_freq``-th layer.

    ``mlp_layer_types`` or a list under ``moe_layer_freq`` names every layer instead.
    """
    layers = depth(facts)
    kinds = facts.items("mlp_layer_types", length=layers, allowed=("dense", "sparse"))
    if kinds is not None:
        return [kind == "sparse" for kind in kinds]
    if isinstance(facts.values.get("moe_layer_freq"), list):
        return list(map(bool, facts.items("moe_layer_freq", length=layers, allowed=(0, 1)) or []))
    first = facts.count("first_k_dense_replace", low=0)
    step = facts.count("moe_layer_freq", default=1, silent=True)
    return [i >= first and i % step == 0 for i in range(layers)]


def qwen(facts: Facts, shared: bool) -> list[Piece]:
    """Qwen's routed experts; beside them one ``shared`` expert behind a gate of one number."""
    is_sparse, width, always = sparse_by_step(facts), facts.count("hidden_size"), None
    if shared:
        hidden = facts.count("shared_expert_intermediate_size")
        always = dense(width, hidden, module="mlp.shared_expert")
    mixture = experts(
        facts,
        facts.count("moe_intermediate_size"),
        facts.count("num_experts", "num_local_experts"),
        shared=always,
        vectors=width * shared,
    )
    return routed(facts, mixture, is_sparse)


def fine_grained(facts: Facts, correction: bool = True, module: str = "mlp") -> Piece:
    """DeepSeek's fine-grained experts and shared ones (arXiv 2401.06066)."""
    width, hidden = facts.count("hidden_size"), facts.count("moe_intermediate_size")
    count = facts.count(*COUNT)
    shares = facts.count(*SHARED, default=0, low=0, silent=True)
    shared = dense(width, shares * hidden, module=f"{module}.shared_experts") if shares else None
    bias = correction * count  # that balances the load
    return experts(facts, hidden, count, module=f"{module}.experts", shared=shared, vectors=bias)


def deepseek(facts: Facts, correction: bool = True, module: str = "mlp") -> list[Piece]:
    """Dense layers first, then DeepSeek's experts."""
    return routed(facts, fine_grained(facts, correction, module), sparse_after_first(facts))


def mixtral(facts: Facts) -> list[Piece]:
    """Experts on every layer, without shared ones."""
    hidden, count = facts.count("intermediate_size"), facts.count("num_local_experts")
    return [experts(facts, hidden, count, module="block_sparse_moe.experts")] * depth(facts)


def gpt_oss(facts: Facts) -> list[Piece]:
    """Experts on every layer; router and experts have biases."""
    hidden, count = facts.count("intermediate_size"), facts.count("num_local_experts")
    biases = count * (1 + 2 * hidden + facts.count("hidden_size"))
    return [experts(facts, hidden, count, vectors=biases)] * depth(facts)


def minimax(facts: Facts) -> list[Piece]:
    """Experts on every layer with a bias that balances the load."""
    layers = depth(facts)
    facts.items("attn_type_list", length=layers, allowed=(1,))
    if facts.count("shared_intermediate_size", default=0, low=0, silent=True):
        value = facts.values["shared_intermediate_size"]
        raise facts.error("shared_intermediate_size", value, "0: no shared expert")
    hidden, count = facts.count("intermediate_size"), facts.count("num_local_experts")
    bias = count * facts.flag("use_routing_bias", default=True)
    module = "block_sparse_moe.experts"
    return [experts(facts, hidden, count, module=module, vectors=bias)] * layers


def llama4(facts: Facts) -> list[Piece]:
    """Experts beside a shared one on every ``interleave_moe_layer_step``-th layer."""
    width, hidden = facts.count("hidden_size"), facts.count("intermediate_size")
    step = facts.count("interleave_moe_layer_step")
    chosen = facts.items("moe_layers", allowed=range(LAYERS))
    mixture = experts(
        facts,
        hidden,
        facts.count("num_local_experts"),
        module="feed_forward.experts",
        shared=dense(width, hidden, module="feed_forward.shared_expert"),
    )
    every = range(depth(facts))
    return routed(
        facts,
        mixture,
        [(i + 1) % step == 0 if chosen is None else i in chosen for i in every],
        lambda: dense(width, facts.count("intermediate_size_mlp"), module="feed_forward"),
    )


def jamba(facts: Facts) -> list[Piece]:
    """Experts on every ``expert_layer_period``-th layer; none where there is a single expert."""
    step = facts.count("expert_layer_period", default=2)
    first = facts.count("expert_layer_offset", default=1, low=0)
    hidden, count = facts.count("intermediate_size"), facts.count("num_experts", default=16)
    plain, layers = dense(facts.count("hidden_size"), hidden, module="feed_forward"), depth(facts)
    if count == 1:
        return [plain] * layers
    active = facts.count("num_experts_per_tok", default=2)
    mixture = experts(facts, hidden, count, active=active, module="feed_forward.experts")
    return [mixture if i % step == first else plain for i in range(layers)]
