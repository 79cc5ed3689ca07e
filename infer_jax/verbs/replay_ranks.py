"""The attention ranks of a replay: their router, and one run of all of them on one clock."""

from typing import NamedTuple

import jax
import numpy as np

from infer_jax.errors import InputError
from infer_jax.replays import Log, serve_ranks
from infer_jax.replays.routers import ROUTERS
from infer_jax.specs import Plan
from infer_jax.verbs.checks import one_of
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.replay_drafts import ReplayDrafts
from infer_jax.verbs.replay_requests import Arriving, loop_of_one
from infer_jax.verbs.replay_runs import Gaps, ReplayRun, gaps_of
from infer_jax.verbs.replay_server import OPTIONS, ReplayedInstance, series_of

# as engines route by themselves: vLLM and SGLang; TensorRT-LLM (tensorrt_llm/_torch/pyexecutor/
# executor_request_queue.py, _balance_requests_across_ranks) fills the ranks with the fewest tokens
USUAL = {"vllm": "weighted_queue", "sglang": "round_robin", "trtllm": "minimum_tokens"}


class RankRouting(NamedTuple):
    """Attention ranks of an instance, and how requests are routed to them."""

    ranks: int
    router: str


def routing_of(
    plan: Plan, router: str | None, engine: str, drafts: ReplayDrafts | None, *, caching: bool
) -> RankRouting | None:
    """The ranks that options ask for; None where there is one.

    Raises:
        InputError: a router without ranks, or an unknown one; ranks with a prefix cache, or with
            drafts of another model.
    """
    ep = float(plan.ep)
    if ep <= 1:
        if router is not None:
            raise refuse("--router", router, "with --ep: copies are dealt requests in turn")
        return None
    one_of("--router", router, ROUTERS)
    if caching:
        raise refuse("--ep", ep, "1 with --enable-prefix-caching: ranks' caches are not replayed")
    if drafts is not None and drafts.model is not None:
        allowed = "1 with --draft: on ranks the model's own heads draft (--heads)"
        raise refuse("--ep", ep, allowed)
    return RankRouting(int(ep), router or USUAL[engine])


def run_ranks(
    server: ReplayedInstance,
    routing: RankRouting,
    requests: Arriving,
    copies: int,
    concurrency: float | None,
    counted: np.ndarray,
) -> ReplayRun:
    """One run: requests are dealt to the copies in turn, and routed to the ranks of each.

    Raises:
        InputError: a request that a rank never holds.
    """
    count = len(requests.prompt)
    names = ("arrival", "admitted", "first", "last", "preempted")
    table = {name: np.zeros(count) for name in names}
    where, gaps, series = np.zeros(count, int), [], []
    for copy in range(copies):
        mine = np.arange(copy, count, copies)
        own, loop = requests.of_one(copy, copies), loop_of_one(concurrency, copy, copies)
        given = own.requests(server.rules)
        try:
            log = serve_ranks(server.shared_step, server.rules, given, *routing, loop)
        except InputError as error:
            option = OPTIONS.get(error.field, error.field)
            raise refuse(option, error.value, error.allowed) from None
        rank = np.asarray(log.rank)[: len(mine)]
        where[mine] = copy * routing.ranks + rank
        for name, column in table.items():
            column[mine] = np.asarray(log.of(name))[: len(mine)]
        logs: Log = jax.device_get(log.logs)
        for k in range(routing.ranks):
            one = jax.tree.map(lambda x, k=k: x[k], logs)
            gaps.append(gaps_of(one, counted[mine[rank == k]]))
            series.append(series_of(server, one))
    table["arrival"] = table["arrival"] - server.front
    return ReplayRun(
        **table,
        prompt=requests.prompt,
        output=requests.output,
        cached=np.zeros(count),
        copy=where,
        counted=counted,
        gaps=Gaps(*(np.concatenate(x) for x in zip(*gaps, strict=True))),
        series=tuple(series),
    )
