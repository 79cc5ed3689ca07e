"""Two pools of a plan, replayed whole."""

import math

import numpy as np

from infer_jax.engines import ENGINES
from infer_jax.errors import InputError
from infer_jax.launch import budget
from infer_jax.planning import Choice, pools_of
from infer_jax.replays import Requests, serve_pools
from infer_jax.verbs.plan_launch import service_of
from infer_jax.verbs.plan_search import ConsideredSystem, Plans, Question
from infer_jax.verbs.replay_cluster import Pair, PoolSplit, crossing, pair_of, pools_in
from infer_jax.verbs.replay_requests import Arriving, of_plan
from infer_jax.verbs.replay_server import Sizes


def pair_or_why(
    question: Question, plans: Plans, choice: Choice, pools: list[ConsideredSystem]
) -> Pair | str:
    """Both pools as servers, or why they are not replayed."""
    prefill, decode = (dict(x) for x in pools_of(choice.degrees))
    first, last = pools[0].side, pools[-1].side
    if first is not last:
        return "pools of two systems"
    engine = first.serving.engine_name
    if not ENGINES[engine].pools:
        names = " or ".join(name for name, one in ENGINES.items() if one.pools)
        return f"pools of another engine than {names}"
    for name, what in (
        ("attention_dp", "attention groups that wait for each other"),
        ("ep", "experts that are dealt to GPUs, in pools"),
    ):
        if max(prefill.get(name, 1.0), decode.get(name, 1.0)) > 1:
            return what
    service, work = service_of(choice, question, plans), question.requests.work
    sizes = [
        Sizes(float(x.group_requests), float(budget(x, service, engine)), None, None)
        for x in service.instances
    ]
    split = PoolSplit(prefill["tp"], prefill["instances"], decode["tp"], decode["instances"])
    try:
        return pair_of(
            split, engine, first.serving, pools[0].given.model.architecture, first.hardware,
            (sizes[0], sizes[1]), float(work.isl + work.osl),
            of_plan(question.drafts, decode.get("drafts", 0.0)),
        )  # fmt: skip
    except InputError as error:
        return f"{error.field} {error.value}, where allowed is {error.allowed}"


def in_flight(choice: Choice) -> int:
    """Requests in both pools: those that decode, and by Little's law those before."""
    decoding = choice.batch * pools_of(choice.degrees)[1]["instances"]
    return max(math.ceil(decoding + choice.requests_per_s * choice.ttft), 1)


def seconds_of(
    pair: Pair, asked: Arriving, cached: np.ndarray, loop: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arrivals, first and last tokens of all requests.

    Raises:
        InputError: a request that an instance never holds.
    """
    requests = Requests.of(*asked[:3], cached, asked.drafts)

    def between(prompt: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        return crossing(pair, prompt, seconds)

    done = serve_pools(*pools_in(pair), requests, between, concurrency=loop)
    return done.arrival - pair.prefill.front, done.first, done.last
