"""A plan with all that is known of it, the requirements on plans, and where they are sought."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from infer_jax.catalog.published import Within
from infer_jax.estimators import Trust, measured_within
from infer_jax.estimators.known_errors import measured_intervals
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.physics.pareto import frontier_rows
from infer_jax.planning.layout import Column, Layout
from infer_jax.specs import UNBOUNDED, Architecture, Hardware, Output, Workload

HOUR, MILLION = 3600.0, 1e6
MODES = ("aggregated", "disaggregated")
COPIES = re.compile(r"^\s*([\d.e+]+)\s*[xX×]\s*")  # 2 x TP4, 2xTP4
# seconds, where no limit of TTFT is given: without one the cheapest plans have a TTFT of many
USUAL_TTFT = 2.0
# parallel degrees and counts by name; for two pools one such mapping for "prefill" and "decode"
Degrees = Mapping[str, float | Mapping[str, float]]


@dataclass(frozen=True)
class Requirements:
    """The requirements of a plan: limits in seconds, chips in all, and the load.

    ``concurrency``: requests in flight over all replicas, in rows of ``shares``; or
    ``rate``: requests per second; or neither, and the chips are filled. ``frontier``: find all
    plans that no other beats in both TPOT and dollars, not only the cheapest. ``usual_ttft``:
    without a limit of TTFT, keep it within ``USUAL_TTFT`` if any plan does. ``slower``: factors
    on a predicted TPOT and TTFT at numbers of requests in flight of an instance that are held
    against the limits; None: 1.
    """

    ttft: float = np.inf
    tpot: float = np.inf
    p95_ttft: float = np.inf
    p99_ttft: float = np.inf
    chips: float = np.inf
    concurrency: float | None = None
    rate: float | None = None
    frontier: bool = False
    usual_ttft: bool = False
    slower: Callable[[Column], tuple[Column, Column]] | None = None

    @classmethod
    def of(cls, *, frontier: bool = False, **limits: float | str | None) -> "Requirements":
        """With the usual limit of TTFT where none is given of it; None: no limit."""
        known = {name: float(limit) for name, limit in limits.items() if limit is not None}
        usual = not {"ttft", "p95_ttft", "p99_ttft"} & {*known}
        return replace(cls(frontier=frontier, usual_ttft=usual), **known)

    @property
    def tails(self) -> dict[str, float]:
        """The limits of percentiles of TTFT, by the names of the percentiles."""
        return {"p95": self.p95_ttft, "p99": self.p99_ttft}

    @property
    def limits(self) -> dict[str, float]:
        """The limits on times by the names of the times, s; infinite where there are none."""
        tails = {f"{name}_ttft": limit for name, limit in self.tails.items()}
        return {"ttft": self.ttft, **tails, "tpot": self.tpot}

    @property
    def of_ttft(self) -> float:
        """The tightest limit of TTFT or a percentile of it, infinite where there is none."""
        return min(self.ttft, *self.tails.values())

    def factors(self, load: Column | float) -> tuple[Column, Column]:
        """Factors on TPOT and TTFT at numbers of requests in flight, as ``slower`` has them."""
        load = np.asarray(load, float)
        return (
            (np.ones_like(load), np.ones_like(load)) if self.slower is None else self.slower(load)
        )


class Side(NamedTuple):
    """A system, the estimator of it, and the chips of one machine: 1 where that is not known.

    ``starts``: whether the engine starts a layout by itself ("") or as a "prefill" or "decode"
    pool; None: every legal one.
    """

    name: str
    hardware: Hardware
    serving: Serving
    machine: int = 1
    starts: Callable[[Layout, str], bool] | None = None

    def startable(self, legal: list[Layout], role: str = "") -> list[Layout]:
        """The layouts that the engine starts in a role.

        Every legal one where it starts no instance of one kind either: not on this chip.
        """
        starts = self.starts
        if starts is None:
            return legal
        found = [layout for layout in legal if starts(layout, role)]
        elsewhere = bool(role) and any(starts(layout, "") for layout in legal)
        return found if found or elsewhere else legal


class PlanSpace(NamedTuple):
    """The plans of a search: systems, model, requests, requirements, and what is varied.

    Instances of one kind run on the first of ``sides`` with each of ``chunks`` and ``drafts``;
    pools prefill on the first and decode on the last, with each of ``drafts``. ``common``: the rest
    of their settings; ``draft``: the draft model, None for the model's own heads; ``top``: plans
    to find.
    """

    sides: Sequence[Side]
    arch: Architecture
    work: Workload
    requirements: Requirements
    common: Deployment = Deployment.of()
    draft: Architecture | None = None
    modes: Sequence[str] = MODES
    chunks: Sequence[float] = (UNBOUNDED,)
    drafts: Sequence[float] = (0.0,)
    top: int = 3


class PlanPool(NamedTuple):
    """Instances of one kind: their layout, how many, and the requests in flight in one.

    Of a pool that prefills ``batch`` is the prompts of a pass.
    """

    layout: Layout
    copies: float
    batch: float

    def __str__(self) -> str:
        return f"{self.copies:.12g} x {self.layout}"

    @classmethod
    def of(cls, words: str) -> "PlanPool":
        """The instances that are printed so: one of them where no number is said.

        Raises:
            ValueError: other words.
        """
        copies, times, layout = COPIES.sub(r"\1 x ", words).partition(" x ")
        count = float(copies) if times else 1.0
        if not (count >= 1.0 and count % 1.0 == 0.0):
            raise ValueError(words)
        return cls(Layout.of(layout if times else copies), count, 1.0)


class ReplayTimes(NamedTuple):
    """Means and percentiles of a replay, s.

    ``within``: share of the requests that keep the limits of TTFT and TPOT both; ``tails``: the
    TTFT and TPOT that the required share of requests keeps, the means where none is required.
    """

    ttft: float
    p99_ttft: float
    tpot: float
    p99_tpot: float
    within: float = 1.0
    tails: Mapping[str, float] = {}
    p95_ttft: float = 0.0


class Replay(NamedTuple):
    """The times of a plan by its engine's scheduler, or why there are none.

    ``excess``: by limit, the share by which they exceed it; ``demotes``: the plan stands below
    others whose replay keeps the limits, because it has no times.
    """

    times: ReplayTimes | None
    why: str = ""
    excess: Mapping[str, float] = {}
    demotes: bool = False


@dataclass(frozen=True, repr=False)
class Choice:
    """One plan with its latencies, throughput and cost.

    ``pools``: its instances, of one kind or a pool that prefills and one that decodes; ``ttft``,
    ``tpot``: seconds to the first token, and per token after it; ``throughput``: output tokens per
    second and chip; ``outputs``: the other outputs of its estimate that plans show, in their
    declared units, NaN where one needs an unknown power; ``binds``: the longest term of a token;
    ``gaps``: the share of its time that launch gaps and the host take; ``memory``: bytes of a chip,
    needed and available; ``tiers``: the same of host and disk; ``p95_ttft``, ``p99_ttft``:
    percentiles of TTFT, None where not known, or not asked for; ``excess``: by limit, the share by
    which it is exceeded, empty where all are met; ``spare``: the request rate that it carries over
    the one that arrives; ``blended``: USD per million tokens, in and out, where they are not its
    rent over its requests.

    A verb adds ``label`` and ``formats``: the search that it is of, and the model's formats;
    ``trusts``: the known errors on its one or two systems; ``holds``: the probability that all
    limits hold; ``obstacle``: why no command of the engine starts it, "" where one does; ``slow``:
    a factor on its dollars by which it is ranked; ``replay``: its replay, if any.
    """

    system: str
    pools: tuple[PlanPool, ...]
    ttft: float
    tpot: float
    requests_per_s: float
    throughput: float
    usd_per_hour: float
    isl: float
    osl: float
    outputs: Mapping[Output, float]
    binds: str
    memory: tuple[float, float]
    tiers: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    p95_ttft: float | None = None
    p99_ttft: float | None = None
    excess: Mapping[str, float] = field(default_factory=dict[str, float])
    spare: float = float("inf")
    gaps: float = 0.0
    blended: float | None = None
    label: str = ""
    formats: str = ""
    trusts: Sequence[Trust] = field(default=(), compare=False)
    holds: float | None = None
    obstacle: str = ""
    slow: float = 1.0
    replay: Replay | None = None

    def __repr__(self) -> str:
        wait, token = 1e3 * self.ttft, 1e3 * self.tpot
        return (
            f"<{self.layout} on {self.system}, {self.mode}: {self.batch:g} requests in flight in "
            f"each, TTFT {wait:.4g} ms, TPOT {token:.4g} ms, {self.usd_per_mtok:.4g}/Mtok>"
        )

    @property
    def mode(self) -> str:
        """Which of ``MODES``."""
        return MODES[len(self.pools) - 1]

    @property
    def layout(self) -> str:
        """Number and layout of the instances, in words."""
        return " > ".join(map(str, self.pools))

    @property
    def degrees(self) -> Degrees:
        """Number and degrees of the instances, of two pools by their roles."""
        return self._degrees([pool.layout.degrees for pool in self.pools])

    @property
    def all_degrees(self) -> Degrees:
        """The same, also of degrees at their defaults."""
        return self._degrees([pool.layout._asdict() for pool in self.pools])

    def _degrees(self, layouts: Sequence[Mapping[str, float]]) -> Degrees:
        first, last = self.pools[0], self.pools[-1]
        if len(layouts) == 1:
            return {**layouts[0], "replicas": first.copies}
        return {
            "prefill": {**layouts[0], "instances": first.copies, "batch": first.batch},
            "decode": {**layouts[1], "instances": last.copies},
        }

    @property
    def batch(self) -> float:
        """Requests in flight in an instance, of two pools in one that decodes."""
        return self.pools[-1].batch

    @property
    def chips(self) -> float:
        """Chips of all instances."""
        return float(sum(pool.copies * pool.layout.chips for pool in self.pools))

    @property
    def engine(self) -> str:
        """The engine that its numbers are of."""
        return self.trusts[0].engine or "vllm"

    @property
    def borrowed_from(self) -> str | None:
        """The generations whose coefficients are used for chips that have none of their own."""
        lenders = dict.fromkeys(trust.borrowed_from for trust in self.trusts)
        return " and ".join(name for name in lenders if name) or None

    @cached_property
    def within(self) -> Within:
        """Factors of its times between which shares of measured servers are, by output."""
        lengths, layout = (self.isl, self.osl), self.pools[0].layout
        pools, gaps = len(self.pools) > 1, self.gaps
        return measured_within(
            self.trusts, self.batch, lengths, pools=pools, gaps=gaps, layout=layout
        )

    @property
    def intervals(self) -> Mapping[str, Sequence[float]]:
        """What 80 % of measured servers are in, ms, by name; none where errors are not known."""
        if not (self.trusts and all(trust.known for trust in self.trusts)):
            return {}
        others = {x.name: value for x, value in self.outputs.items() if x.banded}
        return measured_intervals(self.within, {"ttft": self.ttft, "tpot": self.tpot, **others})

    @property
    def calibrated_intervals(self) -> Mapping[str, Sequence[float]]:
        """``intervals`` by the calibration of the profile; none where there is no calibration."""
        return self.intervals if len(self.pools) == 1 and self.trusts[0].calibrated else {}

    def printed(self, name: str) -> float | None:
        """The output of that name in the unit that is printed; None where it is not known."""
        value = next(output.factor * x for output, x in self.outputs.items() if output.name == name)
        return None if np.isnan(value) else value

    @property
    def usd_per_mtok(self) -> float:
        """USD per million tokens, input and output alike (blended)."""
        if self.blended is not None:
            return self.blended
        per_second = self.usd_per_hour / HOUR
        return MILLION * per_second / (self.requests_per_s * (self.isl + self.osl))

    @property
    def rank(self) -> tuple[float, int, float, float, float, float]:
        """Sort key, least first: excess, replay and obstacle, dollars, odds, TPOT, TTFT.

        Plans that were not replayed come after those whose replay keeps the limits, and before
        those that have an obstacle or a broken replay. Dollars are times ``slow``, which says how
        much more it may well cost. In single precision, so that rounding does not decide between
        plans that tie, such as pairs of pools limited by the same pool.
        """
        times = self.usd_per_mtok * self.slow, self.tpot, self.ttft
        excess = max(self.excess.values(), default=0.0)
        usd, tpot, ttft = (float(x) for x in np.asarray(times, np.float32))
        broken = bool(self.obstacle) or bool(self.replay and self.replay.excess)
        demoted = self.replay is not None and self.replay.demotes
        return excess, 2 if broken else int(demoted), usd, -(self.holds or 0.0), tpot, ttft


class PlanCandidates(NamedTuple):
    """Plans within the limits, else the nearest misses; how many rows were evaluated.

    ``pooled``: whether some pair of pools fits the requirements, or pools were not asked for;
    ``usual``: whether plans were limited to ``USUAL_TTFT`` because no limit was given. Of plans
    with a required probability, ``rivals``: those that a measurement could make the choice;
    ``by_mean``: the choice without uncertainty; ``reached``: the highest probability of any plan,
    where none has the required one; ``space``: what was searched, with its limits.
    """

    met: list[Choice]
    missed: list[Choice]
    configurations: int
    pooled: bool = True
    usual: bool = False
    rivals: Sequence[Choice] = ()
    by_mean: Choice | None = None
    reached: float | None = None
    space: PlanSpace | None = None


def read_pools(words: str) -> tuple[PlanPool, ...]:
    """The pools of a plan as ``Choice.layout`` prints them.

    Raises:
        ValueError: other words, or more than two pools.

    >>> [str(pool) for pool in read_pools("TP4 DP2 EP8")], len(read_pools("2 x TP1 > 1 x TP4"))
    (['1 x TP4 DP2 EP8'], 2)
    """
    pools = tuple(PlanPool.of(pool) for pool in words.split(">"))
    if len(pools) > len(MODES):
        raise ValueError(words)
    return pools


def undominated_plans(tpot: Column | Sequence[float], cost: Column | Sequence[float]) -> list[int]:
    """Rows that no other beats in both time and cost, fastest first; one of a tie.

    Compared in single precision, so that of layouts that differ by rounding alone the first is
    taken.
    """
    return frontier_rows(np.asarray(tpot, np.float32), np.asarray(cost, np.float32)).tolist()


def front(plans: Iterable[Choice]) -> list[Choice]:
    """Those of ``plans`` that no other beats in both TPOT and dollars, fastest first."""
    plans = list(plans)
    rows = undominated_plans([c.tpot for c in plans], [c.usd_per_mtok for c in plans])
    return [plans[i] for i in rows]
