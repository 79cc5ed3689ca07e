"""What a replay runs: copies of a server, attention ranks behind a router, or two pools."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from infer_jax.engines import ENGINES
from infer_jax.errors import InputError
from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.estimators.serving.price import experts_time, own_time
from infer_jax.physics import decoder, pipelining
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
from infer_jax.results import Fact
from infer_jax.specs import Architecture, Hardware, Plan
from infer_jax.verbs.drafts import Drafting
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.replay_requests import ArrivingRequests
from infer_jax.verbs.replay_runs import Gaps, ReplayRun, gaps_of
from infer_jax.verbs.replay_server import ReplayedInstance, Sizes, server_of


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


class ReplayedPools(NamedTuple):
    """A server of each pool, and what is between them."""

    split: PoolSplit
    prefill: ReplayedInstance
    decode: ReplayedInstance
    arch: Architecture
    link: float  # bytes a second
    handover: float  # seconds beside the bytes

    def crossing(self, prompt: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        """Seconds from a prompt's last pass until the pool that decodes has its cache.

        The cache goes layer by layer while the prompt is computed, over the links of the instance
        with fewer GPUs (``Disaggregated``); hand-overs that share a link do not slow each other.
        """
        held = jax.vmap(lambda tokens: decoder.cache_bytes(self.arch, tokens))(jnp.asarray(prompt))
        layers = decoder.layers(self.arch)
        left = pipelining.exposed(held / self.link, jnp.asarray(seconds), layers)
        return np.asarray(left) + self.handover

    def serve(self, requests: Requests, concurrency: float | None) -> Pooled:
        """What happens to every request.

        Raises:
            InputError: a request that an instance never holds.
        """
        first, second = self.prefill, self.decode
        return serve_pools(
            Pool(first.step, first.rules, int(self.split.prefill_instances)),
            Pool(second.step, second.rules, int(self.split.decode_instances)),
            requests,
            self.crossing,
            concurrency=None if concurrency is None else int(concurrency),
        )

    def run(
        self, requests: ArrivingRequests, concurrency: float | None, counted: np.ndarray
    ) -> ReplayRun:
        """One run: prompts are dealt to prefill instances in turn, caches to those that decode."""
        instances = min(int(self.split.prefill_instances), len(counted))
        cached = np.zeros(len(counted))
        for copy in range(instances):
            mine = slice(copy, None, int(self.split.prefill_instances))
            cached[mine] = requests.of(mine).cached(self.prefill.tokens)
        asked = Requests.of(*requests[:3], cached, requests.drafts)
        done = self.serve(asked, concurrency)
        order = np.argsort(done.handed, kind="stable")
        decoded = list(enumerate(done.logs[1]))
        series = [self.decode.series(log) for log in done.logs[1]]
        # watts are of a GPU of an instance that decodes: the others' GPUs in its number
        share = self.split.prefill_tp / self.split.decode_tp
        for log in done.logs[0]:
            own = self.prefill.series(log)
            series.append(own._replace(power=own.power * share))
        return ReplayRun(
            arrival=done.arrival - self.prefill.front,
            admitted=done.admitted,
            first=done.first,
            last=done.last,
            preempted=done.preempted,
            cached=cached,
            prompt=requests.prompt,
            output=requests.output,
            copy=done.decode,
            counted=counted,
            gaps=_joined(
                [gaps_of(log, counted[order[done.decode[order] == i]]) for i, log in decoded]
            ),
            series=tuple(series),
        )


def pools_of(
    split: PoolSplit,
    model: Serving,
    arch: Architecture,
    hardware: Hardware,
    sizes: tuple[Sizes, Sizes],
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
    degrees = (split.prefill_tp, split.decode_tp)
    first, second = (
        server_of(model, arch, hardware, {"tp": tp}, own, mean_tokens, drafted)
        for tp, own, drafted in zip(degrees, sizes, (None, drafts), strict=True)
    )
    plans = [Deployment.of(tp=tp) for tp in degrees]
    copies = {"prefill_copies": split.prefill_instances, "decode_copies": split.decode_instances}
    wrapper = Disaggregated.of(target=model)
    link = wrapper.link(hardware, hardware, Pools.of(prefill=plans[0], decode=plans[1], **copies))
    bandwidth = float(link) * float(min(degrees))
    return ReplayedPools(split, first, second, arch, bandwidth, float(wrapper.handover))


@dataclass(frozen=True)
class ReplayedCluster:
    """What serves the requests: copies of one instance, of ranks or behind a router; or two pools.

    ``server``: an instance, or one of its ``ranks`` of attention; of pools the one that decodes.
    ``router``: how requests are routed to ranks or copies; copies get theirs in turn without one.
    """

    server: ReplayedInstance
    plan: Plan  # of pools that of the one that decodes
    router: str | None = None
    pools: ReplayedPools | None = None

    @property
    def copies(self) -> int:
        """Instances, of pools those that decode."""
        return int(self.plan.dp)

    @property
    def ranks(self) -> int:
        """Attention ranks of an instance."""
        return int(self.plan.ep)

    @property
    def dealt(self) -> bool:
        """Whether copies get requests in turn."""
        return self.pools is None and self.copies > 1 and (self.router is None or self.ranks > 1)

    def words(self, system: str) -> str:
        """GPUs of this ``system``, in words."""
        if self.pools is not None:
            return f"{self.pools.split} {system}, prefill > decode"
        ranks = f", {self.ranks} attention ranks" if self.ranks > 1 else ""
        copies = f" x {self.copies} copies" if self.copies > 1 else ""
        return f"{float(self.plan.tp) * self.ranks:g} {system}{ranks}{copies}"

    def fields(self) -> dict[str, object]:
        """The servers for JSON."""
        plan, pools = self.plan, self.pools
        return {
            "engine": self.server.engine.name,
            "tp": plan.tp,
            "copies": plan.dp,
            **({"ep": plan.ep} if self.ranks > 1 else {}),
            **({"router": self.router} if self.router else {}),
            **(pools.split.fields() if pools else {}),
            "total_gpus": pools.split.gpus if pools else plan.chips,
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
            if self.pools is not None:
                return self.pools.run(requests, concurrency, counted)
            served = self._serve(requests, concurrency)
        except InputError as error:  # by the option that sets what it is about
            names = {"slots": "max_num_seqs", "budget": "max_num_batched_tokens"}
            field = names.get(error.field, error.field)
            raise refuse(field, error.value, error.allowed) from None
        names = ("arrival", "admitted", "first", "last", "preempted", "cached")
        columns = {name: np.zeros(len(counted)) for name in names}
        copy = np.zeros(len(counted), int)
        for i, (log, mine) in enumerate(served):
            copy[mine] = i
            for name, column in columns.items():
                if getattr(log, name) is not None:
                    column[mine] = np.asarray(getattr(log, name))[: len(mine)]
        columns["arrival"] = columns["arrival"] - self.server.front
        return ReplayRun(
            **columns,
            prompt=requests.prompt,
            output=requests.output,
            copy=copy,
            counted=counted,
            gaps=_joined([gaps_of(log, counted[mine]) for log, mine in served]),
            series=tuple(self.server.series(log) for log, _ in served),
        )

    def _serve(
        self, requests: ArrivingRequests, concurrency: float | None
    ) -> list[tuple[Log, np.ndarray]]:
        """The log of each server and the requests that it had, in its order."""
        server, count, served = self.server, len(requests.prompt), []
        groups = self.copies if self.ranks > 1 or self.router is None else 1
        for group in range(groups):
            own = requests.of(slice(group, None, groups)).requests(server.rules)
            loop = None
            if concurrency is not None:  # its share of those in flight
                loop = int(concurrency) // groups + (group < int(concurrency) % groups)
            mine = np.arange(group, count, groups)
            if self.router is None:
                served.append((serve(server.step, server.rules, own, loop), mine))
                continue
            routing = server.rules, own, self.copies, self.router, loop
            if self.ranks > 1:
                routing = server.rules, own, self.ranks, self.router, loop
                shared = SharedStep(
                    Partial(own_time, server.pass_), Partial(experts_time, server.pass_)
                )
                served += _by_server(serve_ranks(shared, *routing), mine)
            else:
                served += _by_server(serve_copies(server.step, *routing), mine)
        return served


def _by_server(routed: RoutedLog, mine: np.ndarray) -> list[tuple[Log, np.ndarray]]:
    """The log of each server behind a router, and which of the requests ``mine`` it had."""
    rank = np.asarray(routed.rank)[: len(mine)]
    logs: Log = jax.device_get(routed.logs)
    return [
        (jax.tree.map(lambda x, k=k: x[k], logs), mine[rank == k]) for k in range(len(logs.turns))
    ]


def _joined(gaps: Sequence[Gaps]) -> Gaps:
    return Gaps(*(np.concatenate(x) for x in zip(*gaps, strict=True)))
