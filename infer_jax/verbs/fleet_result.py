"""The answer of ``fleet``: replicas by hour, every policy beside the bound, and what breaks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.arrivals import Traffic
from infer_jax.fleets import reserve
from infer_jax.fleets.fluid import HOUR
from infer_jax.fleets.outcomes import ERROR, SURE, WINDOW
from infer_jax.plots.fleet import plot_fleet
from infer_jax.plots.style import Figure
from infer_jax.results import Column, Notes, Row, Rows, Section, option, percent, scaled_format
from infer_jax.results.numbers import amount, digits, duration, quantity, rounded_percent
from infer_jax.sweeps import SweepResult
from infer_jax.verbs.fleet_policies import Fleet, Policy, why_broken
from infer_jax.verbs.fleet_replay import REPLAYED, Replayed
from infer_jax.verbs.fleet_replica import traffic_notes
from infer_jax.verbs.fleet_sweep import sweep_autoscalers
from infer_jax.verbs.pictures import EstimatorResult, caption

MOST_LAYOUTS, MOST_ROWS = 6, 48  # layouts, and periods one by one, that are printed
NO_LIMIT = 1e9  # s
PRICES = (0.4, 0.6, 0.8)  # of reserved replicas, over that on demand
NAMES = Column("policy", "", "policy", left=True), Column("", "", "detail", left=True)
POLICIES = (
    *NAMES,
    Column("cost", "$/day", "usd_per_day", amount),
    Column("waste", "%", "waste", lambda x: f"{rounded_percent(x):+d}"),
    Column("energy", "MJ/day", "joules_per_day", lambda x: amount(1e-6 * x), spare=True),
    Column("CO2", "kg/day", "grams_per_day", scaled_format(1e-3), spare=True),
    Column("good", "%", "goodput", lambda x: f"{100 * x:.2f}"),
    Column("worst", "%", "worst_goodput", percent),
    Column("its TTFT", "ms", "worst_ttft_s", lambda x: f"{1e3 * x:,.0f}"),
)
BROKEN = (
    *NAMES,
    Column("broken", "periods", "periods_broken"),
    Column("worst at", "", "worst_at"),
    Column("good", "%", "worst_goodput", percent),
    Column("why", "", "why"),
)
POOLS = (
    Column("replica", "", "replica", left=True),
    Column("carries", "requests/s", "rate_per_s"),
    Column("bound by", "", "binds"),
    Column("rent", "$/h", "usd_per_hour"),
    Column("1,000 requests", "$", "usd_per_1000"),
    Column("there are", "GPUs", "available_gpus", "{:g}".format, if_any=True),
    Column("in the bound", "mean", "mean"),
    Column("", "most", "most_used", "{:g}".format),
    Column("without it", "%", "rise_without",
           lambda x: x if isinstance(x, str) else f"{rounded_percent(x):+d}"),
)  # fmt: skip
HOURS = (
    Column("from", "", "at"),
    Column("rate", "requests/s", "rate"),
    Column("most", "", "most_rate"),
    Column("fewest replicas", "mean", "fewest"),
    Column("", "most", "most_fewest"),
    Column("best policy", "mean", "replicas"),
    Column("", "most", "most_replicas"),
    Column("its TTFT", "ms", "ttft_s", scaled_format(1e3)),
    Column("", "at most", "most_ttft_s", scaled_format(1e3)),
)


@dataclass(frozen=True, repr=False)
class FleetResult(EstimatorResult):
    """Replicas over the periods of traffic under every policy, the bound first.

    ``fleets``: also of other layouts; ``replays``: of the cheapest policies, up to one that holds.
    """

    traffic: Traffic
    fleet: Fleet
    fleets: Sequence[Fleet]
    policies: list[Policy]
    reserved: float
    replays: list[Replayed]
    rows_key = "policies"

    @cached_property
    def best(self) -> Policy:
        """The cheapest policy that keeps the limits, without the bound; else the nearest one.

        Of those that were replayed the first that kept them in most periods.
        """
        if self.replays:
            return max(self.replays, key=lambda x: x.kept).policy
        return max(self.policies[1:], key=self.fleet.rank)

    @property
    def sweep(self) -> Callable[..., SweepResult]:
        """Which of many autoscalers pay: a function of one that has axes, ``sweep_autoscalers``."""
        return partial(sweep_autoscalers, self.fleet, self.traffic.workload(1.0))

    def sections(self) -> Iterator[Section]:
        """The answer in a sentence, every policy, what breaks, hours, and what to reserve."""
        fleet, rows = self.fleet, self._pools()
        given, several, first = fleet.given, len(rows) > 1, self.fleet.pools[0]
        yield self._headline()
        if not several:
            yield (
                f"A replica ({first.layout}) carries {digits(rows[0]['rate_per_s'], 4)} requests/s "
                f"within the limits, bound by {rows[0]['binds']}; "
                f"{digits(given.replica.capacity, 4)} at most."
            )
        yield from self._compared()
        yield {
            **self.names,
            "layout": str(first.layout),
            "replica_rate_per_s": rows[0]["rate_per_s"],
            "replica_capacity_per_s": given.replica.capacity,
            "replica_usd_per_hour": given.replica.usd_per_hour,
            "start_delay_s": given.life.start_delay,
            "departures_per_hour": given.life.departures,
            "best": f"{self.best.name}, {self.best.detail}",
            "periods_near_limit": self.fleet.count_open(self.best),
            "reserved_replicas": self._by_pool(self._reserve(self.reserved)[0]).tolist(),
        }
        if several:
            yield Rows("pools", rows, POOLS)
            base, at, *_ = fleet.scaling
            above = f" above {fleet.in_words(base)} that are always there" * bool(base.any())
            scales = f"Autoscalers scale {fleet.pools[at].name}{above}"
            scales = "No two of them serve all that comes: no autoscaler" if at < 0 else scales
            yield ""
            yield f"Without it: the rent of the bound, over that with all. {scales}."
        mark = self.policies.index(self.best)
        yield Rows("policies", [self._row(x) for x in self.policies], POLICIES, mark=mark)
        yield ""
        yield self._answer()
        if broken := list(self._broken()):
            yield Rows("breaks", broken, BROKEN)
        yield from self._over_time()
        yield from self._replayed()
        yield ""
        yield self._to_reserve()
        yield Notes([*self._notes()])

    def _compared(self) -> Iterator[Section]:
        if len(self.fleets) > 1:
            names = [" + ".join(str(x.layout) for x in fleet.pools) for fleet in self.fleets]
            costs = sorted(zip((x.usd_of_schedule for x in self.fleets), names, strict=True))
            yield Rows("layouts", [{"layout": x, "usd_per_day_of_schedule": y} for y, x in costs])
            each = ", ".join(f"{x} {usd:,.0f}" for usd, x in costs[:MOST_LAYOUTS] if usd < np.inf)
            yield f"Layouts of plans for the busiest period, by their schedule's $/day: {each}."

    @property
    def _systems(self) -> str:
        return " and ".join(dict.fromkeys(x.system for x in self.fleet.pools))

    def _headline(self) -> str:
        fleet, limits = self.fleet, self.fleet.given.limits
        kept = f"{fleet.p} of TTFT within {1e3 * limits.ttft:,.12g} ms"
        kept += f", TPOT within {1e3 * limits.tpot:,.12g} ms" if limits.tpot < HOUR else ""
        mean, peak = digits(fleet.rates.mean(), 4), digits(fleet.rates.max(), 4)
        most, step = digits(fleet.peaks.max(), 4), digits(fleet.given.seconds)
        return (
            f"{self.setup.model.name} on {self._systems}: {duration(self.traffic.seconds)} of "
            f"traffic, {mean} requests/s in the mean, {peak} in the busiest period, {most} in its "
            f"busiest {step} s; {kept}."
        )

    def _pools(self) -> list[Row]:
        """What a replica of each pool carries and costs, and what the bound has of it."""
        fleet, limits, used = self.fleet, self.fleet.given.limits, self.policies[0].replicas
        rows, bound = list[Row](), fleet.bound @ fleet.prices
        for i, (pool, price) in enumerate(zip(fleet.pools, fleet.prices, strict=True)):
            with jax.enable_x64(True):
                slow = limits.replace(ttft=np.asarray(NO_LIMIT))
                rate, by_tpot = (pool.rate_within(x) for x in (limits, slow))
                supply = fleet.supply(ideal=True).without(i)
                rest = fleet.cheapest(np.asarray(fleet.given.rates), supply)
            full = rate >= 0.98 * float(pool.replica.capacity)
            rise = (rest @ supply.prices).mean() / bound.mean() - 1.0
            rows.append({
                "replica": pool.name,
                "rate_per_s": rate,
                "binds": "capacity" if full else "TPOT" if by_tpot <= rate else "TTFT",
                "usd_per_hour": price,
                "usd_per_1000": price / rate / 3.6,
                "available_gpus": pool.gpus if np.isfinite(pool.gpus) else None,
                "mean": used[:, i].mean(),
                "most_used": used[:, i].max(),
                "rise_without": rise if np.isfinite(rise) else "too few",
            })  # fmt: skip
        return rows

    def _reserve(self, price: float) -> tuple[np.ndarray, np.ndarray]:
        """Replicas of each pool to reserve at a price, and how many on demand cost as much."""
        with jax.enable_x64(True):
            count, paid = reserve(jnp.asarray(self.best.replicas, float), price)
        return np.asarray(count), np.asarray(paid)

    def _to_reserve(self) -> str:
        (count, paid), prices = self._reserve(self.reserved), self.fleet.prices
        share = paid @ prices / (self.best.replicas.mean(axis=0) @ prices)
        others = [(x, self._reserve(x)[0]) for x in PRICES if x != self.reserved]
        in_words = self.fleet.in_words if len(count) > 1 else lambda n: f"{n[0]:g}"
        each = ", ".join(f"{in_words(n)} at {100 * x:.0f} %" for x, n in others)
        return (
            f"At {100 * self.reserved:g} % of the price on demand, it pays to reserve "
            f"{self.fleet.in_words(count)} ({each}); the rent of the best policy is then "
            f"{digits(100 * share)} % of that on demand."
        )

    def _by_pool(self, values: np.ndarray) -> np.ndarray:
        """Numbers by pool, [..., pools]; without pools where there is one."""
        return values[..., 0] if len(self.fleet.pools) == 1 else values

    def _row(self, policy: Policy) -> Row:
        found, bound = policy.outcome, self.policies[0].outcome
        return {
            "policy": policy.name,
            "detail": policy.detail,
            "usd_per_day": found.cost.usd,
            "waste": found.cost.usd / bound.cost.usd - 1.0,
            "joules_per_day": found.cost.joules,
            "grams_per_day": found.cost.grams,
            "goodput": found.goodput,
            "worst_goodput": np.min(found.shares),
            "worst_ttft_s": np.max(found.ttft),
            "replicas": self._by_pool(self.fleet.by_period(policy.replicas).mean(axis=1)).tolist(),
        }

    def _answer(self) -> str:
        best, bound = self.best, self.policies[0].outcome.cost.usd
        usd, wanted = best.outcome.cost.usd, float(self.fleet.given.limits.goodput)
        replayed = ", and in those that are replayed" * bool(self.replays)
        kept = f"Cheapest that keeps the limits in every period{replayed}:"
        if self.replays and not self.replays[-1].keeps:
            kept = "No policy keeps the limits in the periods that are replayed; nearest is"
        if self.fleet.rank(best)[0] < wanted:
            kept = f"No policy keeps the limits for {100 * wanted:.4g} % of every period's requests"
            kept += "; nearest is"
        cost = f"${amount(usd)} a day, {rounded_percent(usd / bound - 1.0)} %"
        answer = f"{kept} {best.title}: {cost} over the bound of ${amount(bound)}."
        if not (count := self.fleet.count_open(self.best)) or self.replays:
            return answer
        return (
            f"{answer} In {quantity(count, 'period')} chance decides whether its {self.fleet.p} of "
            f"TTFT is within the limit, which lies in the law's band: {option('replay')} looks."
        )

    def _broken(self) -> Iterator[Row]:
        """Policies whose requests of some period break the limits, and why in the worst."""
        for policy in self.policies[1:]:
            shares = np.asarray(policy.outcome.shares)
            at = int(np.argmin(shares))
            if count := int(np.sum(shares < float(self.fleet.given.limits.goodput))):
                yield {
                    "policy": policy.name,
                    "detail": policy.detail,
                    "periods_broken": count,
                    "worst_at": self._time(at),
                    "worst_goodput": shares[at],
                    "why": why_broken(self.fleet, policy, at),
                }

    def _time(self, at: int) -> str:
        """When a period begins: by the clock, else hours since the first."""
        start, seconds = float(self.traffic.start), at * self.fleet.period
        if start:
            return f"{datetime.fromtimestamp(start + seconds, UTC):%a %H:%M}"
        return f"{int(seconds // HOUR)} h {int(seconds % HOUR // 60):02d}"

    def _over_time(self) -> Iterator[Rows]:
        """Every period; printed where they are few, else by the hour of the day."""
        fleet, best, count = self.fleet, self.best.outcome, len(self.fleet.rates)
        used = fleet.bound, self.best.replicas
        bound, replicas = (self._by_pool(fleet.by_period(x)) for x in used)
        ttft, band = np.asarray(best.ttft), np.asarray(best.ttft_band)
        steps = {"rate": fleet.rates[:, None], "fewest": bound, "replicas": replicas}
        means = {name: x.mean(axis=1) for name, x in steps.items()}
        most = {f"most_{name}": x.max(axis=1) for name, x in steps.items()}
        most |= {"ttft_s": ttft, "most_ttft_s": band[1]}
        times = [*map(self._time, range(count))]
        every = means | {"ttft_s": ttft, "ttft_band_s": band.T, "goodput": np.asarray(best.shares)}
        yield Rows("periods", [
            {"at": at, **{name: x[i].tolist() for name, x in every.items()}}
            for i, at in enumerate(times)
        ])  # fmt: skip
        group = self.traffic.hours
        names = [f"{h:02d}:00" if self.traffic.start else f"{h} h" for h in group]
        if count <= MOST_ROWS and len(set(names)) < count:
            names, group = times, np.arange(count)
        parts = {names[int(np.argmax(group == x))]: group == x for x in np.unique(group)}
        yield Rows("hours", [
            {"at": at, **{name: x[part].mean(0).tolist() for name, x in means.items()},
             **{name: x[part].max(0).tolist() for name, x in most.items()}}
            for at, part in parts.items()
        ], self._columns())  # fmt: skip

    def _columns(self) -> Sequence[Column]:
        if len(self.fleet.pools) == 1:
            return HOURS
        pools = [
            Column(pool.name if key == "fewest" else "", word, lambda x, k=key, i=i: x[k][i])
            for i, pool in enumerate(self.fleet.pools)
            for key, word in (("fewest", "bound"), ("replicas", "best"))
        ]
        return (*HOURS[:3], *pools, *HOURS[-2:])

    def _replayed(self) -> Iterator[Section]:
        """Periods of the best policy by replay, and in how many each policy keeps the limits."""
        if not self.replays:
            return
        rows = [{"at": self._time(x["period"]), **x} for each in self.replays for x in each.rows]
        yield Rows("replays", rows)
        yield Rows("", [x for x in rows if (x["policy"], x["detail"]) == self.best[:2]], REPLAYED)
        counts = "; ".join(f"{x.policy.title} in {x.kept} of {len(x.rows)}" for x in self.replays)
        yield ""
        yield (
            "Worst periods replayed request by request keep the limits for "
            f"{100 * float(self.fleet.given.limits.goodput):.4g} % of the requests: {counts}."
        )

    def _notes(self) -> Iterator[str]:
        given = self.fleet.given
        yield (
            f"Replicas serve {float(given.life.start_delay):.4g} s after they are wanted, and "
            "leave when their requests are done; each request waits at the replica with the fewest."
        )
        yield (
            "Autoscalers follow their published rules, with "
            f"{self.fleet.scaling.most:g} replicas at most; targets and headrooms that are not as "
            "published are the cheapest of those tried on this traffic."
        )
        yield (
            f"TTFT at most: the end of the law's band, {100 * ERROR:g} % beyond what it says of "
            f"{SURE:g} standard errors more requests in {WINDOW / 60.0:g} minutes."
        )
        yield (
            "Waste: cost over that of the bound. Worst: the period with the fewest good requests, "
            f"and with the longest {self.fleet.p} of TTFT. CO2 at {given.grid:g} kg for a kWh."
        )
        if away := float(given.life.departures):
            share = 100 * float(given.life.serving)
            yield f"Replicas are lost {away:g} times an hour: {share:.3g} % of them serve."
        if self.replays:
            yield "Good of each: with the request's own TPOT in place of the mean of a step."
        yield from traffic_notes(self.traffic, float(self.setup.model.architecture.max_positions))
        for pool in self.fleet.pools:
            yield from pool.setup.notes

    def _figure(self) -> Figure:
        fleet, order = self.fleet, sorted(self.policies, key=self.fleet.rank)
        best = {x.name: x for x in [*order, self.best]}
        curves = {
            x.name: (fleet.by_period(x.replicas).mean(axis=1), x.outcome.ttft, x.outcome.cost.usd)
            for x in (best[x.name] for x in self.policies)
        }
        return plot_fleet(
            self.traffic,
            curves,
            {x.name: float(x.replica.usd_per_hour) for x in fleet.pools},
            self.best.name,
            np.asarray(self.best.outcome.ttft_band),
            limit=float(fleet.given.limits.ttft),
            limited=f"{fleet.p} TTFT, ms",
            title=f"{self.setup.model.name} on {self._systems}: replicas and what they cost",
            caption=caption([x.setup for x in fleet.pools], self.traffic.workload(1.0),
                            self.estimator, self._answer()),
        )  # fmt: skip
