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
from infer_jax.verbs.fleet_policies import DAY, HOUR, Fleet, Policy, why_broken
from infer_jax.verbs.pictures import EstimatorResult

MOST_ROWS = 48  # periods that are printed one by one
PRICES = (0.4, 0.6, 0.8)  # of reserved replicas, over that on demand
NAMES = Column("policy", "", "policy", left=True), Column("", "", "detail", left=True)
POLICIES = (
    *NAMES,
    Column("cost", "$/day", "usd_per_day", lambda x: f"{x:,.0f}"),
    Column("waste", "%", "waste", lambda x: f"{100 * x:+.0f}"),
    Column("energy", "MJ/day", "joules_per_day", lambda x: f"{1e-6 * x:,.0f}", spare=True),
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
HOURS = (
    Column("from", "", "at"),
    Column("rate", "requests/s", "rate"),
    Column("most", "", "most_rate"),
    Column("fewest replicas", "mean", "fewest"),
    Column("", "most", "most_fewest"),
    Column("best policy", "mean", "replicas"),
    Column("", "most", "most_replicas"),
    Column("its TTFT", "ms", "ttft_s", scaled_format(1e3)),
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
    rows_key = "policies"

    @cached_property
    def best(self) -> Policy:
        """The cheapest policy that keeps the limits, without the bound; else the nearest one."""
        return max(self.policies[1:], key=self._rank)

    def _rank(self, policy: Policy) -> tuple[float, float]:
        """Good requests of the worst period, up to the share that is wanted, then cheapness."""
        share = float(np.min(policy.outcome.shares))
        wanted = float(self.fleet.given.limits.goodput)
        return min(share, wanted), -float(policy.outcome.cost.usd)

    def sections(self) -> Iterator[Section]:
        """The answer in a sentence, every policy, what breaks, hours, and what to reserve."""
        fleet, (rate, binds) = self.fleet, self._carries
        given, (count, share) = fleet.given, self._reserve(self.reserved)
        source = ", the cheapest plan for the busiest period" if self.found else ""
        yield self._headline()
        yield (
            f"A replica ({self.layout}{source}) carries {rate:.4g} requests/s within the limits, "
            f"bound by {binds}; {float(given.replica.capacity):.4g} at most."
        )
        yield {
            **self.names,
            "layout": self.layout,
            "replica_rate_per_s": rate,
            "replica_capacity_per_s": given.replica.capacity,
            "replica_usd_per_hour": given.replica.usd_per_hour,
            "start_delay_s": given.life.start_delay,
            "departures_per_hour": given.life.departures,
            "best": f"{self.best.name}, {self.best.detail}",
            "reserved_replicas": count,
        }
        mark = self.policies.index(self.best)
        yield Rows("policies", [self._row(x) for x in self.policies], POLICIES, mark=mark)
        yield ""
        yield self._answer()
        if broken := list(self._broken()):
            yield Rows("breaks", broken, BROKEN)
        yield from self._over_time()
        yield ""
        others = [f"{self._reserve(x)[0]:g} at {100 * x:.0f} %" for x in PRICES
                  if x != self.reserved]  # fmt: skip
        yield (
            f"At {100 * self.reserved:g} % of the price on demand, it pays to reserve "
            f"{quantity(count, 'replica')} ({', '.join(others)}); the rent of the best policy is "
            f"then {digits(100 * share)} % of that on demand."
        )
        yield Notes(self._notes())

    def _headline(self) -> str:
        fleet, limits = self.fleet, self.fleet.given.limits
        total, tpot = fleet.total, float(limits.tpot)
        long = quantity(total / DAY, "day") if total >= DAY else quantity(total / HOUR, "hour")
        kept = f"{fleet.p} of TTFT within {1e3 * float(limits.ttft):,.12g} ms"
        kept += f", TPOT within {1e3 * tpot:.4g} ms" if tpot < HOUR else ""
        return (
            f"{self.setup.model.name} on {self.setup.system.name}: {long} of traffic, "
            f"{fleet.rates.mean():.4g} requests/s in the mean, {fleet.rates.max():.4g} in the "
            f"busiest period; {kept}."
        )

    @cached_property
    def _carries(self) -> tuple[float, str]:
        """Requests/s of a replica within both limits, and what binds."""
        replica, limits = self.fleet.given.replica, self.fleet.given.limits
        with jax.enable_x64(True):
            slow = limits.replace(ttft=np.asarray(1e9))
            rate, by_tpot = (float(replica.rate_within(x)) for x in (limits, slow))
        full = rate >= 0.98 * float(replica.capacity)
        return rate, "capacity" if full else "TPOT" if by_tpot <= rate else "TTFT"

    def _reserve(self, price: float) -> tuple[float, float]:
        """Replicas to reserve at a price, and the rent in all over that on demand."""
        with jax.enable_x64(True):
            wanted = jnp.asarray(self.best.outcome.course.wanted)
            found = reserve(wanted, jnp.asarray(price))
            return float(found.replicas), float(found.cost)

    def _waste(self, policy: Policy) -> float:
        """Its cost over that of the bound, less 1."""
        return float(policy.outcome.cost.usd) / float(self.policies[0].outcome.cost.usd) - 1.0

    def _row(self, policy: Policy) -> Row:
        found = policy.outcome
        return {
            "policy": policy.name,
            "detail": policy.detail,
            "usd_per_day": found.cost.usd,
            "waste": self._waste(policy),
            "joules_per_day": found.cost.joules,
            "grams_per_day": found.cost.grams,
            "goodput": found.goodput,
            "worst_goodput": np.min(found.shares),
            "worst_ttft_s": np.max(found.ttft),
            "replicas": np.asarray(found.wanted).tolist(),
        }

    def _answer(self) -> str:
        best, bound = self.best, float(self.policies[0].outcome.cost.usd)
        share, wanted = self._rank(best)[0], float(self.fleet.given.limits.goodput)
        kept = "Cheapest that keeps the limits in every period:"
        if share < wanted:
            kept = f"No policy keeps the limits for {100 * wanted:.4g} % of every period's requests"
            kept += "; nearest is"
        cost = f"${float(best.outcome.cost.usd):,.0f} a day, {100 * self._waste(best):.0f} %"
        return f"{kept} {best.name} ({best.detail}): {cost} over the bound of ${bound:,.0f}."

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
        fleet, best = self.fleet, self.best.outcome
        fewest = fleet.least.reshape(-1, fleet.steps)
        columns = {"rate": fleet.rates, "fewest": fewest.mean(axis=1), "replicas": best.wanted,
                   "ttft_s": best.ttft, "goodput": best.shares}  # fmt: skip
        count = len(fleet.rates)
        times = [self._time(i) for i in range(count)]
        yield Rows("periods", [
            {"at": at, **{name: values[i] for name, values in columns.items()}}
            for i, at in enumerate(times)
        ])  # fmt: skip
        begins = float(self.traffic.start) % DAY + np.arange(count) * fleet.period
        group = (begins // HOUR % 24).astype(int)
        names = [f"{h:02d}:00" for h in group]
        if count <= MOST_ROWS and len(set(names)) < count:
            names, group = times, np.arange(count)
        most, rows = {**columns, "fewest": fewest.max(axis=1)}, list[Row]()
        for one in sorted(set(group.tolist())):
            part, row = group == one, dict[str, object]()
            for name in ("rate", "fewest", "replicas"):
                row[name] = np.asarray(columns[name])[part].mean()
                row[f"most_{name}"] = np.asarray(most[name])[part].max()
            ttft = np.asarray(best.ttft)[part].max()
            rows.append({"at": names[int(np.argmax(part))], **row, "ttft_s": ttft})
        yield Rows("hours", rows, HOURS)

    def _notes(self) -> list[str]:
        given = self.fleet.given
        delay, away = float(given.life.start_delay), float(given.life.departures)
        notes = [
            f"Replicas serve {delay:.4g} s after they are wanted, and leave when their requests "
            "are done; requests are spread evenly, and wait in one queue.",
            "The bound knows the rate of every step, starts in no time and loses nothing. "
            f"Autoscalers follow their published rules, with {self.fleet.most:g} replicas at most; "
            "targets and headrooms that are not as published are the cheapest of those tried on "
            "this traffic, which tomorrow's may differ from.",
            "Waste: cost over that of the bound. Worst: the period with the fewest good requests, "
            f"and with the longest {self.fleet.p} of TTFT. "
            f"CO2 at {float(given.grid):g} kg for a kWh.",
        ]
        if away:
            share = 100 * float(given.life.serving)
            notes.append(f"Replicas are lost {away:g} times an hour: {share:.3g} % of them serve.")
        return [*notes, *self.setup.notes]

    def _figure(self) -> Figure:
        """Rates, replicas, TTFT and dollars of every policy over time."""
        fleet, best = self.fleet, {x.name: x for x in sorted(self.policies, key=self._rank)}
        chosen = {x.name: best[x.name].outcome for x in self.policies}
        return plot_fleet(
            fleet.rates,
            {
                name: (np.asarray(x.wanted), np.asarray(x.ttft), float(x.cost.usd))
                for name, x in chosen.items()
            },
            fleet.period,
            float(self.traffic.start),
            limit=float(fleet.given.limits.ttft),
            limited=f"{fleet.p} TTFT, ms",
            usd_per_hour=float(fleet.given.replica.usd_per_hour),
            best=self.best.name,
            title=f"{self.setup.model.name} on {self.setup.system.name}: replicas and what they "
            "cost",
            caption=self.caption(self.traffic.workload(1.0), self._answer()),
        )
