"""Feedforward layers of a config.json: spec, matrices and vectors, and which layers hold experts.

A reader of a family takes the facts and returns the feedforward of layer i.
"""

from collections.abc import Callable
from functools import cache

from infer_jax.catalog.huggingface.attention import Piece
from infer_jax.catalog.huggingface.facts import LAYERS, Facts
from infer_jax.specs import Dense, Experts

GATED = ("gate_proj", "up_proj", "down_proj")
PLAIN = ("up_proj", "down_proj")
COUNT = ("n_routed_experts", "num_routed_experts", "num_experts", "num_local_experts")
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token")
SHARED = ("n_shared_experts", "num_shared_experts")
ByLayer = Callable[[int], Piece]


def dense(
    width: int, hidden: int, *, gated: bool = True, bias: bool = False, module: str = "mlp"
) -> Piece:
    """A feedforward of ``hidden`` units: gated with two matrices in, plain with one."""
    names = GATED if gated else PLAIN
    matrices = {f"{module}.{name}": width * hidden for name in names}
    vectors = bias * (len(names) - 1) * hidden + bias * width
    return Piece(Dense.of(width=hidden, inward=2 if gated else 1), matrices, vectors)


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
    matrices = {f"{module}.0.{name}": size for name in (GATED if gated else PLAIN)}
    return Piece(spec, matrices, vectors + (shared.vectors if shared else 0), shared)


def dense_layers(facts: Facts, biased: bool = False) -> ByLayer:
    """One gated feedforward on every layer; ``biased``: with biases where ``mlp_bias`` is true."""
    width, hidden = facts.count("hidden_size"), facts.count("intermediate_size")
    piece = dense(width, hidden, bias=biased and facts.flag("mlp_bias", default=False))
    return lambda i: piece


def routed(
    facts: Facts,
    mixture: Piece,
    is_sparse: Callable[[int], bool] = lambda i: True,
    plain: Callable[[], Piece] | None = None,
) -> ByLayer:
    """``mixture`` where ``is_sparse(i)``, else the plain feedforward.

    By default that has ``intermediate_size`` units, a key which is read only where it is needed.
    """

    @cache
    def other() -> Piece:
        return plain() if plain is not None else dense_layers(facts)(0)

    return lambda i: mixture if is_sparse(i) else other()


def sparse_by_step(facts: Facts) -> Callable[[int], bool]:
    """Qwen's rule: experts on every ``decoder_sparse_step``-th layer not ``mlp_only_layers``."""
    step = facts.count("decoder_sparse_step", default=1, silent=True)
    plain = frozenset(facts.items("mlp_only_layers", allowed=range(LAYERS)) or [])
    return lambda i: i not in plain and (i + 1) % step == 0


def sparse_after_first(facts: Facts) -> Callable[[int], bool]:
    """DeepSeek's rule: dense layers first, then experts on every ``moe_layer_freq``-th layer.

    ``mlp_layer_types`` or a list under ``moe_layer_freq`` names every layer instead.
    """
    layers = facts.count("num_hidden_layers", high=LAYERS)
    kinds = facts.items("mlp_layer_types", length=layers, allowed=("dense", "sparse"))
    if kinds is not None:
        return lambda i: kinds[i] == "sparse"
    if isinstance(facts.values.get("moe_layer_freq"), list):
        flags = facts.items("moe_layer_freq", length=layers, allowed=(0, 1)) or []
        return lambda i: flags[i] == 1
    first = facts.count("first_k_dense_replace", low=0)
    step = facts.count("moe_layer_freq", default=1, silent=True)
    return lambda i: i >= first and i % step == 0


def qwen(facts: Facts, shared: bool) -> ByLayer:
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


def deepseek(facts: Facts, correction: bool = True, module: str = "mlp") -> ByLayer:
    """Dense layers first, then DeepSeek's experts."""
    return routed(facts, fine_grained(facts, correction, module), sparse_after_first(facts))


def mixtral(facts: Facts) -> ByLayer:
    """Experts on every layer, without shared ones."""
    hidden, count = facts.count("intermediate_size"), facts.count("num_local_experts")
    return routed(facts, experts(facts, hidden, count, module="block_sparse_moe.experts"))


def gpt_oss(facts: Facts) -> ByLayer:
    """Experts on every layer; router and experts have biases."""
    hidden, count = facts.count("intermediate_size"), facts.count("num_local_experts")
    biases = count * (1 + 2 * hidden + facts.count("hidden_size"))
    return routed(facts, experts(facts, hidden, count, vectors=biases))


def minimax(facts: Facts) -> ByLayer:
    """Experts on every layer with a bias that balances the load."""
    facts.items("attn_type_list", length=facts.count("num_hidden_layers"), allowed=(1,))
    if facts.count("shared_intermediate_size", default=0, low=0, silent=True):
        value = facts.values["shared_intermediate_size"]
        raise facts.error("shared_intermediate_size", value, "0: no shared expert")
    hidden, count = facts.count("intermediate_size"), facts.count("num_local_experts")
    bias = count * facts.flag("use_routing_bias", default=True)
    module = "block_sparse_moe.experts"
    return routed(facts, experts(facts, hidden, count, module=module, vectors=bias))


def llama4(facts: Facts) -> ByLayer:
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
    return routed(
        facts,
        mixture,
        lambda i: (i + 1) % step == 0 if chosen is None else i in chosen,
        lambda: dense(width, facts.count("intermediate_size_mlp"), module="feed_forward"),
    )


def jamba(facts: Facts) -> ByLayer:
    """Experts on every ``expert_layer_period``-th layer; none where there is a single expert."""
    step = facts.count("expert_layer_period", default=2)
    first = facts.count("expert_layer_offset", default=1, low=0)
    hidden, count = facts.count("intermediate_size"), facts.count("num_experts", default=16)
    plain = dense(facts.count("hidden_size"), hidden, module="feed_forward")
    if count == 1:
        return lambda i: plain
    active = facts.count("num_experts_per_tok", default=2)
    mixture = experts(facts, hidden, count, active=active, module="feed_forward.experts")
    return routed(facts, mixture, lambda i: i % step == first, lambda: plain)
