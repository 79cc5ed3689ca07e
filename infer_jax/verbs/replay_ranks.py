"""The routing of a replay: to attention ranks on one clock, or copies with clocks of their own."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from infer_jax.engines import ENGINES
from infer_jax.errors import InputError
from infer_jax.replays import Log, RoutedLog, serve_copies, serve_ranks
from infer_jax.replays.routers import BY_LOAD, BY_PREFIX, ROUTERS
from infer_jax.specs import Plan
from infer_jax.verbs.problems import check_name, refuse
from infer_jax.verbs.replay_drafts import ReplayDrafts
from infer_jax.verbs.replay_notes import COPIES, RANKS
from infer_jax.verbs.replay_pools import PoolSplit
from infer_jax.verbs.replay_requests import Arriving, loop_of_one
from infer_jax.verbs.replay_runs import Gaps, ReplayRun, Series, gaps_of
from infer_jax.verbs.replay_server import OPTIONS, ReplayedInstance, series_of


class ReplayRouting(NamedTuple):
    """Attention ranks of an instance, 1 where copies are routed to, and how requests are routed."""

    ranks: int
    router: str

    @property
    def words(self) -> str:
        """The ranks, after the GPUs of an instance."""
        return f", {self.ranks} attention ranks" if self.ranks > 1 else ""

    @property
    def note(self) -> str:
        """How requests are routed."""
        return RANKS.format(*self) if self.ranks > 1 else COPIES.format(self.router)

    def fields(self, plan: Plan, runs: Sequence[ReplayRun]) -> Mapping[str, object]:
        """The router, and the requests that it sends to each rank or copy, means over runs."""
        ranks = {"ep": plan.ep} if self.ranks > 1 else {}
        return {**ranks, "router": self.router, "requests_routed": self._spread(runs)}

    def row(self, runs: Sequence[ReplayRun]) -> tuple[str, str, str]:
        """The fewest and the most requests of a rank or copy."""
        counts = self._spread(runs)
        name = "rank" if self.ranks > 1 else "copy"
        return f"requests of a {name}", f"{min(counts):,.0f} to {max(counts):,.0f}", "in a run"

    def _spread(self, runs: Sequence[ReplayRun]) -> list[float]:
        servers = len(runs[0].series)
        return np.mean([np.bincount(run.copy, minlength=servers) for run in runs], axis=0).tolist()


def routing_of(
    plan: Plan,
    router: str | None,
    engine: str,
    drafts: ReplayDrafts | None,
    pools: PoolSplit | None,
    *,
    caching: bool,
) -> ReplayRouting | None:
    """The ranks or copies that requests are routed to; None where they are dealt in turn.

    Raises:
        InputError: a router without ranks or copies, an unknown one, or one by prefix without
            prefixes; ranks with a prefix cache, or with drafts of another model.
    """
    ep = float(plan.ep)
    if ep <= 1:
        if router is None:
            return None
        if pools is not None or float(plan.dp) <= 1:
            allowed = "with --ep or --dp of 2 and more: several servers, in one pool"
            raise refuse("--router", router, allowed)
        check_name("--router", router, ROUTERS)
        if router in BY_PREFIX and not caching:
            raise refuse("--router", router, "with --enable-prefix-caching")
        return ReplayRouting(1, router)
    if router in BY_PREFIX:
        raise refuse("--router", router, "with copies (--dp): ranks' caches are not replayed")
    check_name("--router", router, BY_LOAD)
    if caching:
        raise refuse("--ep", ep, "1 with --enable-prefix-caching: ranks' caches are not replayed")
    if drafts is not None and drafts.model is not None:
        allowed = "1 with --draft: on ranks the model's own heads draft (--heads)"
        raise refuse("--ep", ep, allowed)
    return ReplayRouting(int(ep), router or ENGINES[engine].router)


def run_ranks(
    server: ReplayedInstance,
    routing: ReplayRouting,
    requests: Arriving,
    copies: int,
    concurrency: float | None,
    counted: np.ndarray,
) -> ReplayRun:
    """One run: requests are dealt to the copies in turn, and routed to the ranks of each.

    Raises:
        InputError: a request that a rank never holds.
    """
    table = _Table(server, requests, counted)
    for copy in range(copies):
        mine = np.arange(copy, len(requests.prompt), copies)
        own, loop = requests.of_one(copy, copies), loop_of_one(concurrency, copy, copies)
        given = own.requests(server.rules)
        try:
            log = serve_ranks(server.shared_step, server.rules, given, *routing, loop)
        except InputError as error:
            raise _as_option(error) from None
        table.add(log, mine)
    return table.run()


def run_copies(
    server: ReplayedInstance,
    routing: ReplayRouting,
    requests: Arriving,
    copies: int,
    concurrency: float | None,
    counted: np.ndarray,
) -> ReplayRun:
    """One run: a router sends each request to a copy, by what the copies have.

    Raises:
        InputError: a request that a copy never holds.
    """
    given = requests.requests(server.rules)
    loop = None if concurrency is None else int(concurrency)
    try:
        log = serve_copies(server.step, server.rules, given, copies, routing.router, loop)
    except InputError as error:
        raise _as_option(error) from None
    table = _Table(server, requests, counted)
    table.add(log, np.arange(len(requests.prompt)))
    return table.run()


def _as_option(error: InputError) -> InputError:
    return refuse(OPTIONS.get(error.field, error.field), error.value, error.allowed)


class _Table:
    """The columns of a run, filled from the logs of servers behind a router."""

    def __init__(self, server: ReplayedInstance, requests: Arriving, counted: np.ndarray):
        self.server, self.requests, self.counted = server, requests, counted
        names = ("arrival", "admitted", "first", "last", "preempted", "cached")
        self.columns = {name: np.zeros(len(requests.prompt)) for name in names}
        self.copy = np.zeros(len(requests.prompt), int)
        self.gaps: list[Gaps] = []
        self.series: list[Series] = []

    def add(self, log: RoutedLog, mine: np.ndarray) -> None:
        """The servers of a log, which had the requests ``mine``."""
        rank = np.asarray(log.rank)[: len(mine)]
        self.copy[mine] = len(self.series) + rank
        for name, column in self.columns.items():
            if getattr(log.logs, name) is not None:
                column[mine] = np.asarray(log.of(name))[: len(mine)]
        logs: Log = jax.device_get(log.logs)
        for k in range(len(logs.turns)):
            one = jax.tree.map(lambda x, k=k: x[k], logs)
            self.gaps.append(gaps_of(one, self.counted[mine[rank == k]]))
            self.series.append(series_of(self.server, one))

    def run(self) -> ReplayRun:
        """The run, with the time in front of the scheduler."""
        self.columns["arrival"] = self.columns["arrival"] - self.server.front
        return ReplayRun(
            **self.columns,
            prompt=self.requests.prompt,
            output=self.requests.output,
            copy=self.copy,
            counted=self.counted,
            gaps=Gaps(*(np.concatenate(x) for x in zip(*self.gaps, strict=True))),
            series=tuple(self.series),
        )
