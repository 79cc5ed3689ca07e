"""Autoscalers: how many replicas they want, by the rules that they publish.

A new one is a class here and a row of the tables of ``verbs/fleet_policies.py``.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from infer_jax.fleets.replica import Replica
from infer_jax.fleets.service import ServiceLimits
from infer_jax.physics.numerics import Smoothing, ceiling
from infer_jax.specs import Spec, number, part, spec

State = tuple[Array, ...]  # of an autoscaler
ROUNDING = 1e-9  # steps by which a time may miss a multiple of an interval
MOST = 1e6  # replicas


class Observed(NamedTuple):
    """What a fleet shows at the beginning of a step."""

    step: Array  # its number
    seconds: Array  # of a step
    rate: Array  # requests/s of the step before
    in_flight: Array  # requests sent and not answered
    waiting: Array  # those that wait to be scheduled
    ready: Array  # replicas that serve
    replicas: Array  # that are wanted so far: serving, and starting


def extreme(history: Array, count: Array, *, largest: bool) -> Array:
    """The largest or least of the first ``count`` >= 1 values; linear between whole counts."""
    ages, sign = jnp.arange(len(history)), 1.0 if largest else -1.0
    whole = jnp.floor(count)

    def of(first: Array) -> Array:
        return sign * jnp.max(jnp.where(ages < first, sign * history, -jnp.inf))

    here = of(whole)
    return here + (count - whole) * (of(whole + 1.0) - here)


def is_due(seen: Observed, interval: Array) -> Array:
    """Whether a multiple of ``interval`` s is reached in this step, and was not in the last."""
    at = jnp.floor(seen.step * seen.seconds / interval + ROUNDING)
    return at > jnp.floor((seen.step - 1.0) * seen.seconds / interval + ROUNDING)


@spec
class Autoscaler(Spec):
    """How many replicas are wanted, step by step. ``smoothing`` 1 makes them real numbers."""

    minimum: Array = number("replicas at least", kind="count", low=1, default=1.0)
    maximum: Array = number("replicas at most", kind="count", low=1, default=MOST)
    smoothing: Smoothing = part("width of steps of whole replicas", default_factory=lambda: None)

    def begin(self, wanted: Array, depth: int, replica: Replica, limits: ServiceLimits) -> State:
        """Its state after ``wanted`` replicas for long; ``depth``: steps that it can look back."""
        return ()

    def decide(self, state: State, seen: Observed) -> tuple[State, Array]:
        """Its next state, and the replicas that it wants.

        Raises:
            NotImplementedError: a subclass that does not say.
        """
        raise NotImplementedError(type(self).__name__)


@spec
class Schedule(Autoscaler):
    """A number of replicas for every step, decided beforehand."""

    replicas: Array = number("replicas of each step", kind="count", default=1.0)

    def decide(self, state: State, seen: Observed) -> tuple[State, Array]:
        """The number of this step."""
        return state, self.replicas[seen.step.astype(int)]


@spec
class Horizontal(Autoscaler):
    """Kubernetes' HorizontalPodAutoscaler on requests in flight of a pod, a metric of pods.

    ceil(sum of the metric / target), the replicas there are where that is within ``tolerance`` of
    the target. Replicas that load have no metric: they count as at the target where fewer are
    wanted, and as idle where more are; nothing changes where that turns the sign. Never fewer than
    what was recommended within ``stabilization`` s. At most ``pods`` or ``percent`` more in a sync.
    Source: kubernetes/kubernetes, pkg/controller/podautoscaler, replica_calculator.go
    (calcPlainMetricReplicas) and horizontal.go (stabilizeRecommendationWithBehaviors); defaults of
    kubernetes.io/docs, Horizontal Pod Autoscaling, configurable scaling behavior.
    """

    target: Array = number("mean of the metric that it aims at", kind="size", default=64.0)
    tolerance: Array = number("share of the target that is close enough", kind="fraction",
                              default=0.1)  # fmt: skip
    stabilization: Array = number("window of the largest recommendation", unit="s", kind="time",
                                  default=300.0)  # fmt: skip
    pods: Array = number("replicas that may be added in a sync", kind="count", default=4.0)
    percent: Array = number("the same, as a share of them", kind="size", default=1.0)
    sync: Array = number("time between decisions", unit="s", kind="time", low=1, default=15.0)

    def begin(self, wanted: Array, depth: int, replica: Replica, limits: ServiceLimits) -> State:
        """Recommendations, the newest first, and the metric as it was last read."""
        return jnp.full(depth, 1.0) * wanted, jnp.zeros_like(wanted)

    def metric(self, kept: Array, seen: Observed) -> Array:
        """The sum of the metric over replicas."""
        return seen.in_flight

    def recommendation(self, metric: Array, seen: Observed) -> Array:
        """Replicas before windows and bounds."""
        usage = metric / (self.target * seen.ready)
        missing = jnp.maximum(seen.replicas - seen.ready, 0.0)
        wanted = metric / self.target + jnp.where(usage < 1.0, missing, 0.0)
        ratio = wanted / seen.replicas
        turned = ((usage < 1.0) & (ratio > 1.0)) | ((usage > 1.0) & (ratio < 1.0))
        stays = (jnp.abs(1.0 - ratio) <= self.tolerance) | turned
        return jnp.where(stays, seen.replicas, ceiling(wanted, self.smoothing))

    def decide(self, state: State, seen: Observed) -> tuple[State, Array]:
        """The recommendation, stabilised and bounded, where a sync is due."""
        history, kept = state
        metric, due = self.metric(kept, seen), is_due(seen, self.sync)
        wanted = jnp.where(due, self.recommendation(metric, seen), 0.0)
        history = jnp.concatenate([wanted[None], history[:-1]])
        window = jnp.maximum(ceiling(self.stabilization / seen.seconds, self.smoothing), 1.0)
        highest = extreme(history, window, largest=True)
        stable = jnp.minimum(jnp.maximum(seen.replicas, wanted), highest)
        more = ceiling(seen.replicas * (1.0 + self.percent), self.smoothing)
        allowed = jnp.minimum(jnp.maximum(seen.replicas + self.pods, more), self.maximum)
        bounded = jnp.maximum(jnp.minimum(stable, allowed), self.minimum)
        return (history, metric), jnp.where(due, bounded, seen.replicas)


@spec
class EventDriven(Horizontal):
    """KEDA on the length of the queue: a HorizontalPodAutoscaler with an external metric.

    ceil(waiting requests / target) unless that is within the tolerance; replicas that load count.
    ``threshold`` 5 of vllm:num_requests_waiting is that of vLLM's production stack. To and from no
    replicas, which ``cooldownPeriod`` is for, KEDA scales by itself; here there is always one.
    Source: kubernetes/kubernetes, replica_calculator.go (GetExternalPerPodMetricReplicas);
    keda.sh/docs, ScaledObject specification; docs.vllm.ai/projects/production-stack, Autoscaling
    with KEDA.
    """

    target: Array = number("waiting requests of a replica to aim at", kind="size", default=5.0)
    polling: Array = number(
        "time for which the metric is kept, pollingInterval (30) with useCachedMetrics; 1: KEDA's "
        "default, which reads it at every sync", unit="s", kind="time", low=1, default=1.0,
    )  # fmt: skip

    def metric(self, kept: Array, seen: Observed) -> Array:
        """Requests that wait in all replicas, as last read."""
        return jnp.where(is_due(seen, self.polling), seen.waiting, kept)

    def recommendation(self, metric: Array, seen: Observed) -> Array:
        """Replicas before windows and bounds."""
        wanted = metric / self.target
        close = jnp.abs(1.0 - wanted / seen.replicas) <= self.tolerance
        return jnp.where(close, seen.replicas, ceiling(wanted, self.smoothing))


@spec
class Predictive(Autoscaler):
    """Dynamo's planner, scaling by throughput, for replicas that prefill and decode.

    max(ceil(predicted requests/s / requests/s of a replica), minimum) every ``interval`` s. The
    prediction is the rate of the last interval ("constant"), plus ``trend`` times its rise over
    the one before; ARIMA and Prophet, which see seasons, are between this and a schedule. A replica
    has the rate at which mean TTFT and ITL of its profile keep the limits; the limit of ITL is
    divided by the correction factor, measured over profiled ITL: ``profile_error``, of which the
    share ``correction`` is seen (0 with --no-correction).
    Source: ai-dynamo/dynamo, planner/core/throughput_scaling.py (_throughput_agg), Planner Design
    of docs.nvidia.com/dynamo; interval of its defaults, throughput_adjustment_interval_seconds.
    """

    interval: Array = number("time between decisions", unit="s", kind="time", low=1, default=180.0)
    trend: Array = number("share of the last rise that goes on; 0: constant", kind="size",
                          default=0.0)  # fmt: skip
    profile_error: Array = number("measured time per token over the profile's", kind="size",
                                  low=0.1, default=1.0)  # fmt: skip
    correction: Array = number("share of it that is corrected", kind="fraction", high=1, default=1)
    headroom: Array = number("factor on the predicted rate", kind="size", default=1.0)

    def begin(self, wanted: Array, depth: int, replica: Replica, limits: ServiceLimits) -> State:
        """Requests of this interval so far, the rate of the last one, a replica's requests/s."""
        tpot = limits.tpot * self.profile_error ** (1.0 - self.correction)
        rate = replica.mean_rate_within(limits.ttft, tpot)
        nothing = jnp.zeros_like(rate)
        return nothing, nothing, nothing - 1.0, jnp.where(rate > 0.0, rate, replica.capacity)

    def decide(self, state: State, seen: Observed) -> tuple[State, Array]:
        """The replicas for the predicted rate, where an interval is over."""
        arrived, steps, last, each = state
        begun = seen.step > 0
        arrived, steps = arrived + begun * seen.rate, steps + begun
        rate = arrived / jnp.maximum(steps, 1.0)
        due = is_due(seen, self.interval) & begun
        rise = jnp.where(last < 0.0, 0.0, rate - last)  # of the first interval nothing is known
        ahead = self.headroom * jnp.maximum(rate + self.trend * rise, 0.0)
        wanted = jnp.clip(ceiling(ahead / each, self.smoothing), self.minimum, self.maximum)
        kept = jnp.where(due, 0.0, arrived), jnp.where(due, 0.0, steps), jnp.where(due, rate, last)
        return (*kept, each), jnp.where(due, wanted, seen.replicas)
