"""Traffic: how often requests come over days, how they cluster, how long they are, who returns."""

from functools import cached_property, partial

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from infer_jax.specs import Arrivals, Workload
from infer_jax.specs.fields import Spec, number, part, spec
from infer_jax.specs.lengths import samples
from infer_jax.typed_jax import jit

# probabilities at which lengths are known; between them their logarithm is linear
LEVELS = (0.0, 0.01, 0.05, *(x / 10 for x in range(1, 10)), 0.95, 0.99, 0.999, 1.0)
POINTS = 4096  # requests that stand for all of them in a workload
MIDDLES = (np.arange(POINTS) + 0.5) / POINTS  # their levels of probability
GOLDEN = 0.5 * (5**0.5 - 1)

Levels = Float[np.ndarray, " levels"]  # values at ``LEVELS``
tokens = partial(number, unit="tokens", kind="count", low=1.0)
share = partial(number, kind="fraction", high=1.0, default=0.0)


@spec
class Sessions(Spec):
    """Conversations: a turn's prompt is all that was said before and some new tokens."""

    turns: Array = number("requests of a session, in the mean", kind="count", low=1.0)
    gaps: Levels = number("time from a turn to the next, at LEVELS", unit="s", kind="time")
    news: Levels = tokens("tokens that a turn adds to what was said, at LEVELS")
    branches: Array = number(
        "requests that a turn forks once it is answered, in the mean; they share all that was said",
        kind="count", default=0.0,
    )  # fmt: skip
    depth: Array = number(
        "turns before a turn, in the mean; 0: one less than turns, as of geometric numbers of them",
        kind="count", default=0.0,
    )  # fmt: skip

    @property
    def before(self) -> float:
        """Turns before a turn, in the mean; half of the others at least."""
        others = float(self.turns) - 1.0
        return max(float(self.depth), 0.5 * others) if float(self.depth) > 0.0 else others


@spec
class Traffic(Spec):
    """Requests over time: rates of equal periods, bursts within them, lengths and sessions."""

    rates: Float[Array, " n"] = number(
        "requests per second of each period", unit="1/s", kind="rate"
    )
    period: Array = number("a period", unit="s", kind="time", low=1.0)
    start: Array = number("when the first one begins, since 1970; 0: unknown", unit="s",
                          kind="time", default=0.0)  # fmt: skip
    variability: Array = number(
        "squared coefficient of variation of the time between arrivals of one rate: 1 is Poisson",
        kind="size", default=1.0,
    )  # fmt: skip
    surge: Array = share("how far the rate goes up and down in surges, as a share of its period's")
    sojourn: Array = number("mean time up, and down", unit="s", kind="time", default=60.0)
    prompts: Levels = tokens("prompt tokens at LEVELS")
    outputs: Levels = tokens("output tokens at LEVELS")
    dependence: Array = share("correlation of the normal scores of prompt and output", low=-1.0)
    reuse: Array = share("share of prompt tokens that earlier prompts began with")
    sessions: Sessions | None = part("conversations", default_factory=lambda: None)

    @property
    def seconds(self) -> float:
        """All periods, s."""
        return len(self.rates) * float(self.period)

    @property
    def hours(self) -> np.ndarray:
        """The hour of the day in which each period begins, UTC."""
        begins = float(self.start) + np.arange(len(self.rates)) * float(self.period)
        return (begins // 3600.0 % 24.0).astype(int)

    def dispersion(self, rate: Array | float, window: Array | float) -> Array:
        """Variance over mean of the requests in a window (s): 1 is Poisson.

            c^2 + 2 a^2 r (1 / g - (1 - exp(-g T)) / (g^2 T)),  g = 2 / sojourn

        c^2 the variability of gaps, which a window of many requests has in full (Cox, Renewal
        Theory, 1962, 4.2), a the surge, r the rate: the second term is of a rate that jumps
        between r (1 + a) and r (1 - a) (Fischer and Meier-Hellstern 1993, Performance Evaluation
        18, the Markov-modulated Poisson process).
        """
        return self.variability + self.surge**2 * surge_dispersion(rate, window, self.sojourn)

    def lengths_at(self, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Prompt and output tokens of requests at these two levels of probability each."""
        return quantile(self.prompts, levels[0]), quantile(self.outputs, levels[1])

    @property
    def output_variation(self) -> float:
        """The squared coefficient of variation of output tokens."""
        tokens = quantile(self.outputs, MIDDLES)
        return float(tokens.var() / tokens.mean() ** 2)

    @cached_property
    def requests(self) -> tuple[np.ndarray, np.ndarray]:
        """Prompt and output tokens of ``POINTS`` requests that stand for all, by prompt."""
        second = np.modf(0.5 + GOLDEN * np.arange(POINTS))[0]
        return self.lengths_at(correlated(MIDDLES, second, float(self.dependence)))

    @cached_property
    def lengths(self) -> dict[str, object]:
        """What a workload has of lengths: means, and how they spread and depend on each other."""
        isl, osl = self.requests
        shared = isl * float(self.reuse)
        means = {"isl": isl.mean(), "osl": osl.mean(), "prefix": shared.mean()}
        return {**means, "lengths": samples(isl, osl, shared)}

    def workload(self, rate: Array | float) -> Workload:
        """Requests of this traffic that arrive ``rate`` times a second at one server.

        A tracer passes as a rate, so that slopes exist.
        """
        arrivals = Arrivals(rate=jnp.asarray(rate), variability=jnp.asarray(self.variability))
        return Workload.of(**self.lengths, arrivals=arrivals)


@jit()
def surge_dispersion(rate: Array | float, window: Array | float, sojourn: Array | float) -> Array:
    """Variance over mean that full surges add in a window (s); ``Traffic.dispersion`` has the law.

    >>> float(surge_dispersion(3.0, 0.0, 60.0))
    0.0
    """
    steps = jnp.asarray(2.0 * window / sojourn)
    short = steps < 1e-3  # where the difference has no digits left
    safe = jnp.where(short, 1.0, steps)
    share = jnp.where(short, 0.5 - steps / 6.0, (safe + jnp.expm1(-safe)) / safe**2)
    return 2.0 * rate * window * share


def quantile(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The value at each level of probability, its logarithm linear between ``LEVELS``."""
    return np.exp(np.interp(levels, LEVELS, np.log(np.maximum(values, 1e-3))))


def mean_between(values: np.ndarray) -> float:
    """The mean of what has these ``values`` at ``LEVELS``, its logarithm linear between them.

    >>> round(mean_between(np.full(len(LEVELS), 5.0)), 9)
    5.0
    """
    return float(quantile(values, MIDDLES).mean())


def correlated(first: np.ndarray, second: np.ndarray, correlation: float) -> np.ndarray:
    """Two rows of levels whose normal scores are correlated, of two that are independent."""
    from scipy.special import ndtr, ndtri  # of jax's own requirements

    one, two = ndtri(first), ndtri(second)
    return np.stack([first, ndtr(correlation * one + (1 - correlation**2) ** 0.5 * two)])
