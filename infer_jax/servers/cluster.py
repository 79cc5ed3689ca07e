"""What a replay runs: copies of a server, attention ranks behind a router, or two pools."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from infer_jax.catalog import System
from infer_jax.engines import ENGINES
from infer_jax.errors import InputError
from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.estimators.serving.price import experts_time, own_time
from infer_jax.estimators.speculative import Drafting
from infer_jax.physics import decoder, pipelining
from infer_jax.planning import PlanPool
from infer_jax.replays import (
    Log,
    Pool,
    Pooled,
    Requests,
    RoutedLog,
    SharedStep,
    serve,
    serve_copies,
    serve_pools,
    serve_ranks,
)
from infer_jax.replays.cluster import BY_LOAD, BY_PREFIX, ROUTERS
from infer_jax.replays.requests import ArrivingRequests
from infer_jax.replays.runs import Gaps, ReplayRun, Series, gaps_of
from infer_jax.results import Fact, option
from infer_jax.results.problems import check_name, refuse
from infer_jax.servers.instance import ReplayedInstance, Sizes, replayed_instance, with_host
from infer_jax.servers.stream import RequestStream
from infer_jax.specs import Architecture, Hardware

COLUMNS = ("arrival", "admitted", "first", "last", "preempted", "cached")  # of requests
# columns of all requests; logs of servers that decode, each with its requests; series of servers
Served = tuple[dict[str, np.ndarray], Sequence[tuple[Log, np.ndarray]], Sequence[Series]]


class ReplayedPools(NamedTuple):
    """A server of each pool, and what is between them."""

    pools: Sequence[PlanPool]  # one that prefills, one that decodes
    prefill: ReplayedInstance
    decode: ReplayedInstance
    arch: Architecture
    link: float  # bytes a second
    handover: float  # seconds that do not depend on the bytes

    def crossing(self, prompt: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        """Seconds from a prompt's last pass until the pool that decodes has its cache.

        The cache goes layer by layer while the prompt is computed, over the links of the instance
        with fewer GPUs (``Disaggregated``); hand-overs that share a link do not slow each other.
        """
        held = jax.vmap(lambda tokens: decoder.cache_bytes(self.arch, tokens))(jnp.asarray(prompt))
        layers = decoder.layers(self.arch)
        left = pipelining.exposed_time(held / self.link, jnp.asarray(seconds), layers)
        return np.asarray(left) + self.handover

    def serve(self, requests: Requests, concurrency: float | None) -> Pooled:
        """What happens to every request.

        Raises:
            InputError: a request that an instance never holds.
        """
        servers = zip((self.prefill, self.decode), self.pools, strict=True)
        first, last = (Pool(x.step, x.rules, int(pool.copies)) for x, pool in servers)
        loop = None if concurrency is None else int(concurrency)
        return serve_pools(first, last, requests, self.crossing, concurrency=loop)

    def served(self, requests: ArrivingRequests, concurrency: float | None) -> Served:
        """Prompts are dealt to prefill instances in turn, caches to those that decode."""
        count, (first, last) = len(requests.prompt), self.pools
        cached, copies = np.zeros(count), int(first.copies)
        for copy in range(min(copies, count)):
            mine = slice(copy, None, copies)
            cached[mine] = requests.of(mine).cached(self.prefill.tokens)
        done = self.serve(Requests.of(*requests[:3], cached, requests.drafts), concurrency)
        order = np.argsort(done.handed, kind="stable")
        mine = [order[done.decode[order] == i] for i in range(len(done.logs[1]))]
        series = [self.decode.series(log) for log in done.logs[1]]
        # watts are of a GPU of an instance that decodes: the others' GPUs in its number
        share = first.layout.tp / last.layout.tp
        for own in map(self.prefill.series, done.logs[0]):
            series.append(own._replace(power=own.power * share))
        columns = {name: np.array(getattr(done, name)) for name in COLUMNS[:-1]}
        columns["arrival"] -= self.prefill.front
        columns |= {"cached": cached, "copy": done.decode}
        return columns, [*zip(done.logs[1], mine, strict=True)], series


def pools_of(
    pools: Sequence[PlanPool],
    model: Serving,
    arch: Architecture,
    hardware: Hardware,
    sizes: Sequence[Sizes],
    mean_tokens: float,
    drafts: Drafting | None = None,
) -> ReplayedPools:
    """A server of each pool, of sizes of its own, and the link between them; the second drafts.

    Raises:
        InputError: an engine whose hand-over is not replayed, or an instance without room.
    """
    if not ENGINES[model.engine_name].pools:
        names = " or ".join(name for name, engine in ENGINES.items() if engine.pools)
        allowed = f"{names}: hand-overs of other engines are not replayed"
        raise refuse("engine", model.engine_name, allowed)
    degrees, copies = zip(*((pool.layout.tp, pool.copies) for pool in pools), strict=True)
    first, last = (
        replayed_instance(model, arch, hardware, {"tp": tp}, own, mean_tokens, drafted)
        for tp, own, drafted in zip(degrees, sizes, (None, drafts), strict=True)
    )
    names, plans = ("prefill", "decode"), [Deployment.of(tp=tp) for tp in degrees]
    split = dict(zip(names, plans, strict=True))
    split |= {f"{name}_copies": x for name, x in zip(names, copies, strict=True)}
    wrapper = Disaggregated.of(target=model)
    link = float(wrapper.link(hardware, hardware, Pools.of(**split))) * float(min(degrees))
    return ReplayedPools(pools, first, last, arch, link, float(wrapper.handover))


@dataclass(frozen=True)
class ReplayedCluster:
    """All servers of a plan: copies of an instance, its attention ranks, or two pools.

    It asks ``replays`` to serve their requests; a ``replays.cluster.ServerGroup`` is the loop over
    such copies or ranks.

    ``server``: an instance, or one of its ``ranks`` of attention; of pools the one that decodes.
    ``router``: how requests are routed to ranks or copies; copies get theirs in turn without one.
    """

    server: ReplayedInstance
    plan: Deployment  # of pools that of the one that decodes
    router: str | None = None
    pools: ReplayedPools | None = None

    @property
    def copies(self) -> int:
        """Instances, of pools those that decode."""
        return int(self.plan.dp)

    @property
    def ranks(self) -> int:
        """Attention ranks of an instance."""
        return int(self.plan.attention_dp)

    @property
    def dealt(self) -> bool:
        """Whether copies get requests in turn."""
        return self.pools is None and self.copies > 1 and (self.router is None or self.ranks > 1)

    def words(self, system: str) -> str:
        """GPUs of this ``system``, in words."""
        if self.pools is not None:
            layouts = " > ".join(map(str, self.pools.pools))
            return f"{layouts} {system}, prefill > decode"
        ranks = f", {self.ranks} attention ranks" if self.ranks > 1 else ""
        copies = f" x {self.copies} copies" if self.copies > 1 else ""
        return f"{float(self.plan.tp) * self.ranks:g} {system}{ranks}{copies}"

    def fields(self) -> dict[str, object]:
        """The servers for JSON."""
        plan, pools = self.plan, [] if self.pools is None else self.pools.pools
        roles = zip(("prefill", "decode"), pools, strict=False)
        return {
            "engine": self.server.engine.name,
            "tp": plan.tp,
            "copies": plan.dp,
            **({"ep": plan.ep} if plan.ep > 1 else {}),
            **({"attention_dp": plan.attention_dp} if self.ranks > 1 else {}),
            **({"router": self.router} if self.router else {}),
            **{role: {"tp": x.layout.tp, "instances": x.copies} for role, x in roles},
            "total_gpus": sum(x.layout.tp * x.copies for x in pools) if pools else plan.chips,
        }

    def routed(self, runs: Sequence[ReplayRun]) -> list[Fact]:
        """The requests that a router sends to each rank or copy, means over runs."""
        if self.router is None:
            return []
        servers = len(runs[0].series)
        counts = np.mean([np.bincount(run.copy, minlength=servers) for run in runs], axis=0)
        title = f"requests of a {'rank' if self.ranks > 1 else 'copy'}"
        return [
            Fact("requests_routed", counts.tolist()),
            Fact("", f"{min(counts):,.0f} to {max(counts):,.0f}", title, "in a run"),
        ]

    def run(
        self, requests: ArrivingRequests, concurrency: float | None, counted: np.ndarray
    ) -> ReplayRun:
        """One run; a request spends the time in front before the scheduler sees it.

        Raises:
            InputError: a request that a server never holds.
        """
        try:
            columns, logs, series = (self.pools or self).served(requests, concurrency)
        except InputError as error:  # by the option that sets what it is about
            names = {"slots": "max_num_seqs", "budget": "max_num_batched_tokens"}
            field = names.get(error.field, error.field)
            raise refuse(field, error.value, error.allowed) from None
        gaps = [gaps_of(log, counted[mine]) for log, mine in logs]
        return ReplayRun(
            **columns,
            prompt=requests.prompt,
            output=requests.output,
            counted=counted,
            gaps=Gaps(*(np.concatenate(x) for x in zip(*gaps, strict=True))),
            series=tuple(series),
        )

    def served(self, requests: ArrivingRequests, concurrency: float | None) -> Served:
        """Requests of copies in turn, or of servers behind a router."""
        server, count, logs = self.server, len(requests.prompt), list[tuple[Log, np.ndarray]]()
        groups = self.copies if self.ranks > 1 or self.router is None else 1
        for group in range(groups):
            own = requests.of(slice(group, None, groups)).requests(server.rules)
            loop = None
            if concurrency is not None:  # its share of those in flight
                loop = int(concurrency) // groups + (group < int(concurrency) % groups)
            mine = np.arange(group, count, groups)
            if self.router is None:
                logs.append((serve(server.step, server.rules, own, loop), mine))
            elif self.ranks > 1:
                laws = (Partial(law, server.pass_) for law in (own_time, experts_time))
                routing = server.rules, own, self.ranks, self.router, loop
                logs += _by_server(serve_ranks(SharedStep(*laws), *routing), mine)
            else:
                routing = server.rules, own, self.copies, self.router, loop
                logs += _by_server(serve_copies(server.step, *routing), mine)
        columns = {name: np.zeros(count) for name in COLUMNS} | {"copy": np.zeros(count, int)}
        for i, (log, mine) in enumerate(logs):
            columns["copy"][mine] = i
            for name in COLUMNS:
                if getattr(log, name) is not None:
                    columns[name][mine] = np.asarray(getattr(log, name))[: len(mine)]
        columns["arrival"] -= server.front
        return columns, logs, [server.series(log) for log, _ in logs]


def _by_server(routed: RoutedLog, mine: np.ndarray) -> list[tuple[Log, np.ndarray]]:
    """The log of each server behind a router, and which of the requests ``mine`` it had."""
    server = np.asarray(routed.server)[: len(mine)]
    return [(log, mine[server == k]) for k, log in enumerate(routed.servers())]


def cluster_of(
    model: Serving,
    arch: Architecture,
    system: System,
    hardware: Hardware,
    plan: Deployment,
    split: Sequence[PlanPool],
    router: str | None,
    sizes: Sizes,
    stream: RequestStream,
    drafts: Drafting | None,
) -> ReplayedCluster:
    """The servers of a plan: copies of an instance, of its attention ranks, or two pools.

    ``system``: of which ``hardware`` is, with what was changed; ``split``: the pools, if any.

    Raises:
        InputError: a router without ranks or copies, an unknown one, or one by prefix without
            prefixes; ranks with a prefix cache, or with drafts of another model; servers that are
            not replayed, or without room for a cache.
    """
    tokens, tp, ranks = stream.mean_tokens, float(plan.tp), float(plan.attention_dp)
    if router is not None and ranks <= 1 and (split or float(plan.dp) <= 1):
        allowed = f"with {option('ep')} or {option('dp')} of 2 and more: several servers, "
        raise refuse("router", router, f"{allowed}in one pool")
    if ranks > 1 and router in BY_PREFIX:
        allowed = f"with copies ({option('dp')}): ranks' caches are not replayed"
        raise refuse("router", router, allowed)
    check_name("router", router, BY_LOAD if ranks > 1 else ROUTERS)
    if router in BY_PREFIX and not stream.caching:
        raise refuse("router", router, f"with {option('enable_prefix_caching')}")
    if split:
        pools = pools_of(split, model, arch, hardware, (sizes, sizes), tokens, drafts)
        return ReplayedCluster(pools.decode, plan, router, pools)
    degrees = {"tp": tp, "ep": float(plan.ep), "attention_dp": ranks}
    if ranks > 1:
        if stream.caching:
            allowed = f"1 with {option('enable_prefix_caching')}: ranks' caches are not replayed"
            raise refuse("ep", ranks, allowed)
        if drafts is not None and drafts.draft is not None:
            heads = f"on ranks the model's own heads draft ({option('heads')})"
            raise refuse("ep", ranks, f"1 with {option('draft')}: {heads}")
        router = router or ENGINES[model.engine_name].router
    server = replayed_instance(model, arch, hardware, degrees, sizes, tokens, drafts)
    server = with_host(server, sizes.host, system.name, tp, tokens)
    return ReplayedCluster(server, plan, router)
