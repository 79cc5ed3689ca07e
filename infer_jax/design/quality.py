"""Scaling laws of the loss of a model, each with the range it was fitted on.

Without a law of quality an optimiser gains speed by emptying the model. A law maps an architecture
and the tokens it is trained on to a predicted loss in nats a token; losses of different laws do not
compare, since each has its own data and tokeniser. Constants are the papers' where we could verify
them; the laws whose constants we could not verify take them from the user.
"""

from collections.abc import Iterator
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from infer_jax.errors import InputError
from infer_jax.physics import attention as att, decoder, feedforward as ffn, matmul
from infer_jax.physics.decoder import total
from infer_jax.specs import Architecture, Block, Experts, Spec, number, spec


class Law(Spec):
    """Base class of laws: the range they were fitted on, and warnings outside it."""

    RANGE: ClassVar[dict[str, tuple[float, float]]] = {}
    SOURCE: ClassVar[str] = ""

    def loss(self, arch: Architecture, tokens: Array) -> Array:
        """Predicted loss, nats a token."""
        raise NotImplementedError

    def warnings(self, arch: Architecture, tokens: ArrayLike) -> Iterator[str]:
        """One sentence for every quantity outside the range that the law was fitted on."""
        with jax.enable_x64(True):  # counts of parameters need it
            counts = jax.jit(measures)(arch, np.asarray(tokens, np.float64))
        measured = {name: float(x) for name, x in counts.items()}
        for name, (low, high) in self.RANGE.items():
            if not low <= measured[name] <= high:
                yield (
                    f"{type(self).__name__}: {name} {measured[name]:.3g} is outside the range that "
                    f"the law was fitted on, {low:.3g} to {high:.3g} ({self.SOURCE})"
                )


def depth(arch: Architecture) -> Array:
    """Layers of attention; the width is compared with them."""
    return total(b.count for b in arch.blocks if b.attention is not None)


def measures(arch: Architecture, tokens: Array) -> dict[str, Array]:
    """The inputs of laws: parameters, tokens, experts, sparsity and shape of a model."""
    counts = decoder.parameters(arch)
    size, active = total(counts.values()), decoder.active_parameters(arch)
    body = size - counts["embedding"] - counts["head"]
    routed = [b.feedforward for b in arch.blocks if isinstance(b.feedforward, Experts)]
    experts = jnp.asarray(1.0)
    spread = jnp.asarray(1.0)
    for mixture in routed:
        # experts as large as all that a token visits: granularity 1
        experts = jnp.maximum(experts, mixture.experts / jnp.maximum(mixture.active, 1.0))
        spread = jnp.maximum(spread, ffn.sparsity(mixture))
    attention = total(
        b.count * matmul.elements(att.of(b.attention).matrices(arch.width))
        for b in arch.blocks
        if b.attention is not None
    )
    channel = body - attention
    return {
        "parameters": size,
        "active parameters": active,
        "body parameters": body,
        "tokens": tokens,
        "experts": experts,
        "sparsity": 1.0 - 1.0 / spread,
        "aspect ratio": arch.width / depth(arch),
        "width ratio": arch.width / jnp.sqrt(body),
        "feedforward ratio": channel / attention,
    }


@spec
class Chinchilla(Law):
    """L = E + A / N^alpha + B / D^beta, N all parameters and D training tokens.

    Constants of Besiroglu et al. 2024 (arXiv 2404.10102), who corrected the fit of Hoffmann et
    al. 2022 (arXiv 2203.15556); the range is that of the latter's runs. N is the parameters a
    token meets, so that a mixture of experts counts as the dense model of its arithmetic.
    """

    RANGE: ClassVar = {"parameters": (70e6, 16e9), "tokens": (5e9, 500e9), "experts": (1.0, 1.0)}
    SOURCE: ClassVar = "arXiv 2404.10102 on the runs of arXiv 2203.15556"

    floor: Array = number("loss of no end of parameters and tokens", kind="size", default=1.8172)
    a: Array = number("weight of parameters", kind="size", default=482.01)
    b: Array = number("weight of tokens", kind="size", default=2085.43)
    alpha: Array = number("exponent of parameters", kind="size", default=0.3478)
    beta: Array = number("exponent of tokens", kind="size", default=0.3658)

    def loss(self, arch: Architecture, tokens: Array) -> Array:
        """Predicted loss, nats a token."""
        return self.of_size(decoder.active_parameters(arch), tokens)

    def of_size(self, size: Array, tokens: Array) -> Array:
        """Predicted loss at a number of parameters."""
        return self.floor + self.a * size**-self.alpha + self.b * tokens**-self.beta


@spec
class JointMixture(Law):
    """Loss of a mixture of E experts of which one is visited, beside the dense model (E = 1).

    L = a e^delta N^(alpha + gamma ln e) + b e^omega D^(beta + zeta ln e) + c, with N the active
    parameters and 1/e = 1 / (E - 1 + 1/(1/start - 1/most)) + 1/most.
    Source: Ludziejewski et al. 2025 (arXiv 2502.05172), Eq. 6 and Table 3; e by Clark et al.
    2022 (arXiv 2202.01169). The printed constants give its Table 4 within 0.3 %.
    """

    RANGE: ClassVar = {
        "active parameters": (79e6, 2.7e9),
        "parameters": (79e6, 5.0e9),
        "tokens": (0.5e9, 80e9),
        "experts": (1.0, 32.0),
    }
    SOURCE: ClassVar = "arXiv 2502.05172, Appendix E"

    a: Array = number("weight of parameters", kind="size", default=35.91)
    alpha: Array = number("exponent of parameters", kind="size", low=-9, default=-0.1889)
    delta: Array = number("experts in that weight", kind="size", low=-9, default=-0.2285)
    gamma: Array = number("experts in that exponent", kind="size", low=-9, default=0.0098)
    b: Array = number("weight of tokens", kind="size", default=35.98)
    beta: Array = number("exponent of tokens", kind="size", low=-9, default=-0.1775)
    omega: Array = number("experts in that weight", kind="size", low=-9, default=0.5529)
    zeta: Array = number("experts in that exponent", kind="size", low=-9, default=-0.0259)
    start: Array = number("effective experts of a dense model", kind="size", default=2.0732)
    most: Array = number("effective experts of no end of them", kind="size", default=290.4521)
    floor: Array = number("loss of no end of both", kind="size", default=1.3637)

    def effective(self, experts: Array) -> Array:
        """Effective experts e: saturates at both ends."""
        begin = 1.0 / (1.0 / self.start - 1.0 / self.most)
        return 1.0 / (1.0 / (experts - 1.0 + begin) + 1.0 / self.most)

    def coefficients_at(self, experts: Array) -> tuple[Array, Array, Array, Array]:
        """(m, mu, n, nu) of L = m N^mu + n D^nu + c at a number of experts: its Table 4."""
        e = self.effective(experts)
        scale = jnp.log(e)
        size = self.a * e**self.delta, self.alpha + self.gamma * scale
        return (*size, self.b * e**self.omega, self.beta + self.zeta * scale)

    def loss(self, arch: Architecture, tokens: Array) -> Array:
        """Predicted loss, nats a token."""
        measured = measures(arch, tokens)
        m, mu, n, nu = self.coefficients_at(measured["experts"])
        return m * measured["active parameters"] ** mu + n * tokens**nu + self.floor


@spec
class Sparsity(Law):
    """L = a / N^alpha + b / D^beta + c / (1-S)^lambda + d / ((1-S)^delta N^gamma) + e.

    N all parameters, S the share of experts that a token does not visit.
    Source: Abnar et al. 2025 (arXiv 2501.12370), Eq. 6 and Table 3. At a held-out sparsity of
    0.98 it explains 68 % of the variance only; the sparsities of the fit end below that.
    """

    RANGE: ClassVar = {"sparsity": (0.0, 0.98)}
    SOURCE: ClassVar = "arXiv 2501.12370"

    a: Array = number("weight of parameters", kind="size", default=16612.50)
    b: Array = number("weight of tokens", kind="size", default=5455.67)
    c: Array = number("weight of sparsity", kind="size", default=0.4598)
    d: Array = number("weight of both", kind="size", default=17.26)
    floor: Array = number("loss of no end of all", kind="size", default=0.94)
    alpha: Array = number("exponent of parameters", kind="size", default=0.5962)
    beta: Array = number("exponent of tokens", kind="size", default=0.3954)
    lam: Array = number("exponent of sparsity", kind="size", low=-9, default=-0.1666)
    delta: Array = number("exponent of sparsity with size", kind="size", default=0.1603)
    gamma: Array = number("exponent of size with sparsity", kind="size", default=0.1595)

    def loss(self, arch: Architecture, tokens: Array) -> Array:
        """Predicted loss, nats a token."""
        measured = measures(arch, tokens)
        size, dense = measured["parameters"], 1.0 - measured["sparsity"]
        alone = self.a * size**-self.alpha + self.b * tokens**-self.beta
        joint = self.d * dense**-self.delta * size**-self.gamma
        return alone + self.c * dense**-self.lam + joint + self.floor


@spec
class Aspect(Chinchilla):
    """L = (E + A / N^alpha + B / D^beta) (1 + epsilon R^gamma), R = width / layers.

    Source of the form: Bian et al. 2025 (arXiv 2501.18107), 63 models of 80M to 1B parameters.
    Its fitted constants we could not verify: epsilon and gamma are the user's to give; the rest
    are those of ``Chinchilla`` unless given.
    """

    RANGE: ClassVar = {"parameters": (80e6, 1e9), "tokens": (1.6e9, 30e9)}
    SOURCE: ClassVar = "arXiv 2501.18107"

    epsilon: Array = number("weight of the aspect ratio", kind="size", low=-9)
    gamma: Array = number("exponent of the aspect ratio", kind="size", low=-9)

    def loss(self, arch: Architecture, tokens: Array) -> Array:
        """Predicted loss, nats a token."""
        ratio = arch.width / depth(arch)
        return super().loss(arch, tokens) * (1.0 + self.epsilon * ratio**self.gamma)


@spec
class Conditional(Chinchilla):
    """L = L0(N, D) (a0 + a1 ln x + a2 / x) (b0 + b1 ln r + b2 / r): hidden size and MLP share.

    x = width / sqrt(N) and r = MLP over attention parameters, N without the tables. L0 is
    ``Chinchilla`` unless given. Source of the form: Bian et al. 2025 (arXiv 2510.18245), Eq. 3,
    over 200 models of 80M to 3B; r from 0.5 to 5 (Appendix G). The paper's coefficients shift
    with scale and we could not verify them: they are the user's to give.
    """

    RANGE: ClassVar = {
        "body parameters": (80e6, 3e9),
        "tokens": (8e9, 100e9),
        "feedforward ratio": (0.5, 5.0),
    }
    SOURCE: ClassVar = "arXiv 2510.18245"

    a0: Array = number("hidden size: constant", kind="size", low=-1e3)
    a1: Array = number("hidden size: logarithm", kind="size", low=-1e3)
    a2: Array = number("hidden size: inverse", kind="size", low=-1e3)
    b0: Array = number("MLP over attention: constant", kind="size", low=-1e3)
    b1: Array = number("MLP over attention: logarithm", kind="size", low=-1e3)
    b2: Array = number("MLP over attention: inverse", kind="size", low=-1e3)

    def loss(self, arch: Architecture, tokens: Array) -> Array:
        """Predicted loss, nats a token."""
        measured = measures(arch, tokens)
        x, r = measured["width ratio"], measured["feedforward ratio"]
        wide = self.a0 + self.a1 * jnp.log(x) + self.a2 / x
        deep = self.b0 + self.b1 * jnp.log(r) + self.b2 / r
        return super().loss(arch, tokens) * wide * deep


@spec
class OnDevice(Law):
    """L = kl l^al + kr rho^ar r^af d^b1 + kf r^af d^b2 + km m^am + floor, of small models.

    l layers, d width, m the width of keys (and of values) a token caches in a layer, r the
    feed-forward width that a token meets over d, rho active over all experts; no tokens, since all
    170 models of the fit read 10 billion. Source of the form: Sun et al. 2026 (arXiv 2602.10377),
    as its reviews print it. Of its constants we found none: they are the user's to give.
    """

    RANGE: ClassVar = {"tokens": (10e9, 10e9)}
    SOURCE: ClassVar = "arXiv 2602.10377"

    kl: Array = number("layers: weight", kind="size", low=-1e9)
    al: Array = number("layers: exponent", kind="size", low=-9)
    kr: Array = number("active experts: weight", kind="size", low=-1e9)
    ar: Array = number("active experts: exponent", kind="size", low=-9)
    af: Array = number("feed-forward ratio: exponent", kind="size", low=-9)
    b1: Array = number("width with active experts: exponent", kind="size", low=-9)
    kf: Array = number("width with the feed-forward ratio: weight", kind="size", low=-1e9)
    b2: Array = number("width with the feed-forward ratio: exponent", kind="size", low=-9)
    km: Array = number("cached width: weight", kind="size", low=-1e9)
    am: Array = number("cached width: exponent", kind="size", low=-9)
    floor: Array = number("loss of no end of all", kind="size")

    def loss(self, arch: Architecture, tokens: Array) -> Array:
        """Predicted loss, nats a token."""
        layers, width = depth(arch), arch.width
        one, two = (decoder.cache_bytes(arch, jnp.asarray(x)) for x in (1.0, 2.0))
        keys = jnp.maximum((two - one) / (2.0 * arch.cache.bytes * layers), 1.0)
        ratio = total(_met_width(b) for b in arch.blocks) / (layers * width)
        share = 1.0 - measures(arch, tokens)["sparsity"]
        wide = self.kr * share**self.ar * width**self.b1 + self.kf * width**self.b2
        deep = self.kl * layers**self.al + self.km * keys**self.am
        return deep + ratio**self.af * wide + self.floor


def _met_width(block: Block) -> Array:
    """Feed-forward width that a token meets in the layers of a block."""
    layer = block.feedforward
    if layer is None:
        return jnp.zeros_like(block.count)
    shared = layer.shared.width if isinstance(layer, Experts) else 0.0
    return block.count * (ffn.active_experts(layer) * layer.width + shared)


LAWS: dict[str, type[Law]] = {
    "chinchilla": Chinchilla,
    "joint-mixture": JointMixture,
    "sparsity": Sparsity,
    "aspect": Aspect,
    "conditional": Conditional,
    "on-device": OnDevice,
}


def law(name: str, where: str = "quality", **constants: float) -> Law:
    """The law of that name; constants we could not verify must be given.

    Raises:
        InputError: no such law, or a constant that is missing, unknown or no number.
    """
    if name not in LAWS:
        raise InputError(where, "law", name, ", ".join(LAWS))
    try:
        return LAWS[name].of(**constants)
    except InputError as error:
        raise InputError(where, f"{name}.{error.field}", error.value, error.allowed) from None


def compute_optimal(law: Chinchilla, flops: float) -> tuple[float, float]:
    """(parameters, tokens) of least loss at a training budget C = 6 N D FLOP.

    N = G (C / 6)^(beta / (alpha + beta)), G = (alpha A / (beta B))^(1 / (alpha + beta)).
    Source: Hoffmann et al. 2022 (arXiv 2203.15556), Eq. 4.
    """
    alpha, beta = float(law.alpha), float(law.beta)
    ratio = alpha * float(law.a) / (beta * float(law.b))
    size = ratio ** (1.0 / (alpha + beta)) * (flops / 6.0) ** (beta / (alpha + beta))
    return size, float(np.float64(flops) / 6.0 / size)
