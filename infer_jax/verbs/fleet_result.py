"""The answer of ``fleet``: replicas by hour, every policy beside the bound, and what breaks."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.arrivals import Traffic
from infer_jax.fleets import reserve
from infer_jax.plots.fleet import plot_fleet
from infer_jax.plots.style import Figure
from infer_jax.results import Column, Notes, Row, Rows, Section, percent, scaled_format
from infer_jax.results.numbers import digits, quantity
from infer_jax.verbs.fleet_policies import DAY, Fleet, Policy, why_broken
from infer_jax.verbs.pictures import EstimatorResult

HOUR = 3600.0
MOST_ROWS = 48  # periods that are printed one by one
PRICES = (0.4, 0.6, 0.8)  # of reserved replicas, over that on demand
milliseconds, kilo = scaled_format(1e3), scaled_format(1e-3)
POLICIES = (
    Column("policy", "", "policy", left=True),
    Column("", "", "detail", left=True),
    Column("cost", "$/day", "usd_per_day", lambda x: f"{x:,.0f}"),
    Column("waste", "%", "waste", lambda x: f"{100 * x:+.0f}"),
    Column("energy", "MJ/day", "joules_per_day", lambda x: f"{1e-6 * x:,.0f}", spare=True),
    Column("CO2", "kg/day", "grams_per_day", kilo, spare=True),
    Column("good", "%", "goodput", lambda x: f"{100 * x:.2f}"),
    Column("worst", "%", "worst_goodput", percent),
    Column("its TTFT", "ms", "worst_ttft_s", lambda x: f"{1e3 * x:,.0f}"),
)
BROKEN = (
    Column("policy", "", "policy", left=True),
    Column("", "", "detail", left=True),
    Column("broken", "periods", "periods_broken"),
    Column("worst at", "", "worst_at"),
    Column("good", "%", "worst_goodput", percent),
    Column("why", "", "why"),
)
HOURS = (
    Column("from", "", "at"),
    Column("rate", "requests/s", "rate"),
    Column("most", "", "most_rate"),
    Column("fewest replicas", "mean", "fewest"),
    Column("", "most", "most_fewest"),
    Column("best policy", "mean", "replicas"),
    Column("", "most", "most_replicas"),
    Column("its TTFT", "ms", "ttft_s", milliseconds),
)


@dataclass(frozen=True, repr=False)
class FleetResult(EstimatorResult):
    """Replicas over the periods of traffic under every policy, the bound first."""

    traffic: Traffic
    layout: str
    found: bool
    fleet: Fleet
    policies: list[Policy]
    reserved: float
    grid: float
    rows_key = "policies"

    @property
    def rates(self) -> np.ndarray:
        """Requests per second of each period."""
        return np.atleast_1d(np.asarray(self.traffic.rates))

    @property
    def wanted_share(self) -> float:
        """Share of the requests that is to be good."""
        return float(self.fleet.given.limits.goodput)

    @cached_property
    def best(self) -> Policy:
        """The cheapest policy that keeps the limits, without the bound; else the one that is best.

        Of autoscalers and schedules alike.
        """
        real = self.policies[1:]
        return max(real, key=lambda x: (self._keeps(x), -float(x.outcome.cost.usd)))

    def _keeps(self, policy: Policy) -> float:
        """The share of good requests of its worst period, up to the one that is wanted."""
        return min(float(np.min(policy.outcome.shares)), self.wanted_share)

    @property
    def fewest(self) -> np.ndarray:
        """The fewest replicas of each step, by period."""
        return self.fleet.least.reshape(-1, self.fleet.steps)

    def sections(self) -> Iterator[Section]:
        """The answer in a sentence, every policy, what breaks, hours, and what to reserve."""
        yield self._headline()
        yield self._carries()
        yield {**self.names, **self._facts()}
        mark = self.policies.index(self.best)
        yield Rows("policies", [self._row(x) for x in self.policies], POLICIES, mark=mark)
        yield ""
        yield self._answer()
        if broken := list(self._broken()):
            yield Rows("breaks", broken, BROKEN)
        yield Rows("periods", self._periods())
        yield Rows("hours", self._hours(), HOURS)
        yield ""
        yield self._reserve()
        yield Notes(self._notes())

    def _headline(self) -> str:
        limits, share = self.fleet.given.limits, 100 * self.wanted_share
        total, tpot = len(self.rates) * self.fleet.period, float(limits.tpot)
        long = quantity(total / DAY, "day") if total >= DAY else quantity(total / HOUR, "hour")
        kept = f"p{share:.4g} of TTFT within {1e3 * float(limits.ttft):,.4g} ms"
        kept += f", TPOT within {1e3 * tpot:.4g} ms" if tpot < HOUR else ""
        return (
            f"{self.setup.model.name} on {self.setup.system.name}: {long} of traffic, "
            f"{self.rates.mean():.4g} requests/s in the mean, {self.rates.max():.4g} in the "
            f"busiest period; {kept}."
        )

    def _carries(self) -> str:
        """What one replica carries, and which limit binds."""
        rate, by_tpot = self._rates
        most = float(self.fleet.given.replica.capacity)
        binds = "capacity" if rate >= 0.98 * most else "TPOT" if by_tpot <= rate else "TTFT"
        source = ", the cheapest plan for the busiest period" if self.found else ""
        return (
            f"A replica ({self.layout}{source}) carries {rate:.4g} requests/s within the limits, "
            f"bound by {binds}; {most:.4g} at most."
        )

    @cached_property
    def _rates(self) -> tuple[float, float]:
        """Requests/s of a replica within both limits, and within that of TPOT."""
        replica, limits = self.fleet.given.replica, self.fleet.given.limits
        with jax.enable_x64(True):
            slow = limits.replace(ttft=np.asarray(1e9))
            return float(replica.rate_within(limits)), float(replica.rate_within(slow))

    def _facts(self) -> dict[str, object]:
        replica, life = self.fleet.given.replica, self.fleet.given.life
        return {
            "layout": self.layout,
            "replica_rate_per_s": self._rates[0],
            "replica_capacity_per_s": replica.capacity,
            "replica_usd_per_hour": replica.usd_per_hour,
            "start_delay_s": life.start_delay,
            "departures_per_hour": life.departures,
            "best": f"{self.best.name}, {self.best.detail}",
            "reserved_replicas": self._reserved(self.reserved)[0],
        }

    def _row(self, policy: Policy) -> Row:
        found, bound = policy.outcome, self.policies[0].outcome
        return {
            "policy": policy.name,
            "detail": policy.detail,
            "usd_per_day": found.cost.usd,
            "waste": float(found.cost.usd) / float(bound.cost.usd) - 1.0,
            "joules_per_day": found.cost.joules,
            "grams_per_day": found.cost.grams,
            "goodput": found.goodput,
            "worst_goodput": np.min(found.shares),
            "worst_ttft_s": np.max(found.ttft),
            "replicas": np.asarray(found.wanted).tolist(),
        }

    def _answer(self) -> str:
        best, bound = self.best, float(self.policies[0].outcome.cost.usd)
        usd = float(best.outcome.cost.usd)
        cost = f"{best.name} ({best.detail}): ${usd:,.0f} a day, {100 * (usd / bound - 1):.0f} % "
        if self._keeps(best) >= self.wanted_share:
            kept = f"Cheapest that keeps the limits in every period: {cost}"
            return f"{kept}over the bound of ${bound:,.0f}."
        return (
            f"No policy keeps the limits for {100 * self.wanted_share:.4g} % of every period's "
            f"requests; nearest is {cost}over the bound of ${bound:,.0f}."
        )

    def _broken(self) -> Iterator[Row]:
        """Policies whose requests of some period break the limits, and why in the worst."""
        for policy in self.policies[1:]:
            shares = np.asarray(policy.outcome.shares)
            count = int(np.sum(shares < self.wanted_share))
            if not count:
                continue
            at = int(np.argmin(shares))
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

    def _periods(self) -> list[Row]:
        """Every period: its rate, the fewest replicas, and those of the best policy."""
        best = self.best.outcome
        return [
            {
                "at": self._time(i),
                "rate": rate,
                "fewest": self.fewest[i].mean(),
                "replicas": best.wanted[i],
                "ttft_s": best.ttft[i],
                "goodput": best.shares[i],
            }
            for i, rate in enumerate(self.rates)
        ]

    def _hours(self) -> list[Row]:
        """Periods one by one; of more than two days' hours, by the hour of the day."""
        count, best = len(self.rates), self.best.outcome
        begins = float(self.traffic.start) % DAY + np.arange(count) * self.fleet.period
        hour = (begins // HOUR % 24).astype(int)
        keys, group = [f"{h:02d}:00" for h in hour], hour
        if count <= MOST_ROWS and len(set(hour.tolist())) < count:
            keys, group = [self._time(i) for i in range(count)], np.arange(count)
        rows = list[Row]()
        for one in dict.fromkeys(sorted(group.tolist())):
            part = group == one
            wanted, ttft = np.asarray(best.wanted)[part], np.asarray(best.ttft)[part]
            rows.append({
                "at": keys[int(np.argmax(part))],
                "rate": self.rates[part].mean(),
                "most_rate": self.rates[part].max(),
                "fewest": self.fewest[part].mean(),
                "most_fewest": self.fewest[part].max(),
                "replicas": wanted.mean(),
                "most_replicas": wanted.max(),
                "ttft_s": ttft.max(),
            })  # fmt: skip
        return rows

    def _reserved(self, price: float) -> tuple[float, float]:
        """Replicas to reserve at a price, and the rent in all over that on demand."""
        with jax.enable_x64(True):
            wanted = jnp.asarray(self.best.outcome.course.wanted)
            found = reserve(wanted, jnp.asarray(price))
            return float(found.replicas), float(found.cost)

    def _reserve(self) -> str:
        """How many replicas are worth reserving, and at which price more or fewer."""
        count, cost = self._reserved(self.reserved)
        others = [f"{self._reserved(x)[0]:g} at {100 * x:.0f} %" for x in PRICES
                  if x != self.reserved]  # fmt: skip
        return (
            f"At {100 * self.reserved:g} % of the price on demand, it pays to reserve "
            f"{quantity(count, 'replica')} ({', '.join(others)}); the rent of the best policy is "
            f"then {digits(100 * cost)} % of that on demand."
        )

    def _notes(self) -> list[str]:
        life = self.fleet.given.life
        delay, away = float(life.start_delay), float(life.departures)
        notes = [
            f"Replicas serve {delay:.4g} s after they are wanted, and leave when their requests "
            "are done; requests are spread evenly, and wait in one queue.",
            "The bound knows the rate of every step, starts in no time and loses nothing. "
            f"Autoscalers follow their published rules, with {self.fleet.most:g} replicas at most; "
            "targets and headrooms that are not as published are the cheapest of those tried on "
            "this traffic, which tomorrow's may differ from.",
            "Waste: cost over that of the bound. Worst: the period with the fewest good requests, "
            f"and with the longest p{100 * self.wanted_share:.4g} of TTFT. "
            f"CO2 at {self.grid:g} kg for a kWh.",
        ]
        if away:
            share = 100 * float(life.serving)
            notes.append(f"Replicas are lost {away:g} times an hour: {share:.3g} % of them serve.")
        return [*notes, *self.setup.notes]

    def _figure(self) -> Figure:
        """Rates, replicas, TTFT and dollars of every policy over time."""
        limits = self.fleet.given.limits
        order = sorted(self.policies, key=lambda x: (self._keeps(x), -float(x.outcome.cost.usd)))
        best = {x.name: x for x in order}  # of each name the cheapest that keeps the limits
        chosen = {x.name: best[x.name] for x in self.policies}
        title = f"{self.setup.model.name} on {self.setup.system.name}: replicas and what they cost"
        return plot_fleet(
            self.rates,
            {
                name: (
                    np.asarray(x.outcome.wanted),
                    np.asarray(x.outcome.ttft),
                    float(x.outcome.cost.usd),
                )
                for name, x in chosen.items()
            },
            self.fleet.period,
            float(self.traffic.start),
            limit=float(limits.ttft),
            share=self.wanted_share,
            usd_per_hour=float(self.fleet.given.replica.usd_per_hour),
            best=self.best.name,
            title=title,
            caption=self.caption(self.traffic.workload(1.0), self._answer()),
        )
