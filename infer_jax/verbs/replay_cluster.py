"""Several servers of a replay: copies, attention ranks behind a router, and two pools."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.engines import ENGINES
from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.physics import decoder, pipelining
from infer_jax.replays import (
    Log,
    Pool,
    Requests,
    RoutedLog,
    serve_copies,
    serve_pools,
    serve_ranks,
)
from infer_jax.replays.routers import BY_LOAD, BY_PREFIX, ROUTERS
from infer_jax.specs import Architecture, Hardware, Plan
from infer_jax.verbs.option import either
from infer_jax.verbs.problems import ask, check_name, refuse
from infer_jax.verbs.replay_notes import COPIES, RANKS
from infer_jax.verbs.replay_requests import Arriving, ReplayDrafts, loop_of_one
from infer_jax.verbs.replay_runs import Gaps, ReplayRun, Series, gaps_of
from infer_jax.verbs.replay_server import (
    ReplayedInstance,
    Sizes,
    named_by_option,
    series_of,
    server_of,
)


class PoolSplit(NamedTuple):
    """GPUs of an instance of each pool, and instances."""

    prefill_tp: float
    prefill_instances: float
    decode_tp: float
    decode_instances: float

    @property
    def gpus(self) -> float:
        """GPUs of both pools."""
        return self.prefill_tp * self.prefill_instances + self.decode_tp * self.decode_instances

    def __str__(self) -> str:
        first = f"{self.prefill_instances:g} x TP{self.prefill_tp:g}"
        return f"{first} > {self.decode_instances:g} x TP{self.decode_tp:g}"

    def fields(self) -> dict[str, object]:
        """The pools for JSON, as ``plan`` has them."""
        return {
            "prefill": {"tp": self.prefill_tp, "instances": self.prefill_instances},
            "decode": {"tp": self.decode_tp, "instances": self.decode_instances},
        }


class Pair(NamedTuple):
    """A server of each pool, and what is between them."""

    split: PoolSplit
    prefill: ReplayedInstance
    decode: ReplayedInstance
    arch: Architecture
    link: float  # bytes a second
    handover: float  # seconds beside the bytes


def split_of(
    prefill: tuple[float | None, float | None],
    decode: tuple[float | None, float | None],
    others: tuple[float | None, float],
) -> PoolSplit | None:
    """The pools that options ask for, as (GPUs, instances) of each; ``others``: tp and dp.

    Raises:
        InputError: one pool without the other, or a single one besides.
    """
    named = (("--prefill-tp", prefill[0]), ("--decode-tp", decode[0]),
             ("--prefill-instances", prefill[1]), ("--decode-instances", decode[1]))  # fmt: skip
    if all(value is None for _, value in named):
        return None
    for option, value in named[:2]:
        if value is None:
            raise ask(option, "On how many GPUs is an instance of each pool?", option)
    for option, value in (("--tp", others[0]), ("--dp", others[1] if others[1] > 1 else None)):
        if value is not None:
            raise refuse(option, value, "without --prefill-tp and --decode-tp, which are two pools")
    assert prefill[0] is not None and decode[0] is not None
    return PoolSplit(prefill[0], either(prefill[1], 1.0), decode[0], either(decode[1], 1.0))


def pair_of(
    split: PoolSplit,
    engine: str,
    model: Serving,
    arch: Architecture,
    hardware: Hardware,
    sizes: tuple[Sizes, Sizes],
    mean_tokens: float,
    drafts: ReplayDrafts | None = None,
) -> Pair:
    """A server of each pool, of sizes of its own, and the link between them; the second drafts.

    Raises:
        InputError: an engine whose hand-over is not replayed, or an instance without room.
    """
    if not ENGINES[engine].pools:
        names = " or ".join(name for name, one in ENGINES.items() if one.pools)
        raise refuse("--engine", engine, f"{names}: hand-overs of other engines are not replayed")
    both = (split.prefill_tp, split.decode_tp)
    first, second = (
        server_of(engine, model, arch, hardware, {"tp": tp}, own, mean_tokens, drafted)
        for tp, own, drafted in zip(both, sizes, (None, drafts), strict=True)
    )
    plans = [Deployment.of(tp=tp) for tp in both]
    copies = {"prefill_copies": split.prefill_instances, "decode_copies": split.decode_instances}
    wrapper = Disaggregated.of(target=model)
    link = wrapper.link(hardware, hardware, Pools.of(prefill=plans[0], decode=plans[1], **copies))
    streams = float(min(both))
    return Pair(split, first, second, arch, float(link) * streams, float(wrapper.handover))


def crossing(pair: Pair, prompt: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Seconds from a prompt's last pass until the pool that decodes has its cache.

    The cache goes layer by layer while the prompt is computed, over the links of the instance with
    fewer GPUs (``Disaggregated``); hand-overs that share a link do not slow each other.
    """
    held = jax.vmap(lambda tokens: decoder.cache_bytes(pair.arch, tokens))(jnp.asarray(prompt))
    layers = decoder.layers(pair.arch)
    left = pipelining.exposed(held / pair.link, jnp.asarray(seconds), layers)
    return np.asarray(left) + pair.handover


def pools_in(pair: Pair) -> tuple[Pool, Pool]:
    """Both pools as the replay takes them."""
    split = pair.split
    first, second = (
        Pool(server.step, server.rules, int(copies))
        for server, copies in (
            (pair.prefill, split.prefill_instances),
            (pair.decode, split.decode_instances),
        )
    )
    return first, second


def check_pools(split: PoolSplit, arch: Architecture) -> None:
    """Check that engines can split the model over the GPUs of an instance of each pool.

    Raises:
        InputError: a degree that the model is not cut by.
    """
    from infer_jax.verbs.split import check_split

    for tp in (split.prefill_tp, split.decode_tp):
        check_split(arch, tp, 1.0, 1.0)


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


class RunTable:
    """A run: the columns of all requests, filled from the logs of servers."""

    def __init__(self, server: ReplayedInstance, requests: Arriving, counted: np.ndarray):
        self.server, self.requests, self.counted = server, requests, counted
        names = ("arrival", "admitted", "first", "last", "preempted", "cached")
        self.columns = {name: np.zeros(len(requests.prompt)) for name in names}
        self.copy = np.zeros(len(requests.prompt), int)
        self.gaps: list[Gaps] = []
        self.series: list[Series] = []

    def add(self, log: Log, own: Requests, mine: np.ndarray) -> None:
        """A server, which had the requests ``mine``, as ``own``."""
        self.copy[mine] = len(self.series)
        for name, column in self.columns.items():
            values = getattr(log, name)
            column[mine] = np.asarray(own.cached if values is None else values)[: len(mine)]
        self._add_server(log, mine)

    def add_routed(self, log: RoutedLog, mine: np.ndarray) -> None:
        """The servers behind a router, which had the requests ``mine``."""
        rank = np.asarray(log.rank)[: len(mine)]
        self.copy[mine] = len(self.series) + rank
        for name, column in self.columns.items():
            if getattr(log.logs, name) is not None:
                column[mine] = np.asarray(log.of(name))[: len(mine)]
        logs: Log = jax.device_get(log.logs)
        for k in range(len(logs.turns)):
            self._add_server(jax.tree.map(lambda x, k=k: x[k], logs), mine[rank == k])

    def _add_server(self, log: Log, mine: np.ndarray) -> None:
        self.gaps.append(gaps_of(log, self.counted[mine]))
        self.series.append(series_of(self.server, log))

    def run(self) -> ReplayRun:
        """The run: a request spends the time in front before the scheduler sees it."""
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


def run_in_turn(
    server: ReplayedInstance,
    requests: Arriving,
    copies: int,
    concurrency: float | None,
    counted: np.ndarray,
) -> ReplayRun:
    """One run: requests are dealt to the copies in turn, and each copy serves its own."""
    table = RunTable(server, requests, counted)
    for copy in range(copies):
        own = requests.of_one(copy, copies).requests(server.rules)
        log = server.serve(own, loop_of_one(concurrency, copy, copies))
        table.add(log, own, np.arange(copy, len(requests.prompt), copies))
    return table.run()


def run_routed(
    server: ReplayedInstance,
    routing: ReplayRouting,
    requests: Arriving,
    copies: int,
    concurrency: float | None,
    counted: np.ndarray,
) -> ReplayRun:
    """One run behind a router: to copies, or to the ranks of each copy, dealt to these in turn.

    Raises:
        InputError: a request that a copy or rank never holds.
    """
    table, count = RunTable(server, requests, counted), len(requests.prompt)
    if routing.ranks == 1:
        own, loop = requests.requests(server.rules), loop_of_one(concurrency, 0, 1)
        with named_by_option():
            log = serve_copies(server.step, server.rules, own, copies, routing.router, loop)
        table.add_routed(log, np.arange(count))
        return table.run()
    for copy in range(copies):
        own = requests.of_one(copy, copies).requests(server.rules)
        loop = loop_of_one(concurrency, copy, copies)
        with named_by_option():
            log = serve_ranks(server.shared_step, server.rules, own, *routing, loop)
        table.add_routed(log, np.arange(copy, count, copies))
    return table.run()


def run_pools(
    pair: Pair, requests: Arriving, concurrency: float | None, counted: np.ndarray
) -> ReplayRun:
    """One run: prompts are dealt to prefill instances in turn, caches to those that decode.

    Raises:
        InputError: a request that an instance never holds.
    """
    split, count = pair.split, len(requests.prompt)
    instances = int(split.prefill_instances)
    cached = np.zeros(count)
    for copy in range(min(instances, count)):
        own = requests.of_one(copy, instances)
        cached[copy::instances] = own.cached(pair.prefill.tokens)
    lengths = requests.arrival, requests.prompt, requests.output
    loop = None if concurrency is None else int(concurrency)
    with named_by_option():
        done = serve_pools(
            *pools_in(pair),
            Requests.of(*lengths, cached, requests.drafts),
            lambda prompt, seconds: crossing(pair, prompt, seconds),
            concurrency=loop,
        )
    order = np.argsort(done.handed, kind="stable")
    gaps = [gaps_of(log, counted[order[done.decode[order] == i]])
            for i, log in enumerate(done.logs[1])]  # fmt: skip
    series = [series_of(pair.decode, log) for log in done.logs[1]]
    # watts are of a GPU of an instance that decodes: the others' GPUs in its number
    share = pair.split.prefill_tp / pair.split.decode_tp
    for log in done.logs[0]:
        own = series_of(pair.prefill, log)
        series.append(own._replace(power=own.power * share))
    return ReplayRun(
        arrival=done.arrival - pair.prefill.front,
        admitted=done.admitted,
        first=done.first,
        last=done.last,
        preempted=done.preempted,
        cached=cached,
        prompt=requests.prompt,
        output=requests.output,
        copy=done.decode,
        counted=counted,
        gaps=Gaps(*(np.concatenate(x) for x in zip(*gaps, strict=True))),
        series=tuple(series),
    )
