"""The two pools of a replay: what is asked of them, and one run through both."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.engines import ENGINES
from infer_jax.errors import InputError
from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.physics import decoder, pipelining
from infer_jax.replays import Pool, Pooled, Requests, serve_pools
from infer_jax.specs import Architecture, Hardware
from infer_jax.verbs.option import either
from infer_jax.verbs.problems import ask, refuse
from infer_jax.verbs.replay_drafts import ReplayDrafts
from infer_jax.verbs.replay_requests import Arriving
from infer_jax.verbs.replay_runs import Gaps, ReplayRun, gaps_of
from infer_jax.verbs.replay_server import OPTIONS, ReplayedInstance, Sizes, series_of, server_of


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


def run_pools(
    pair: Pair, requests: Arriving, concurrency: float | None, counted: np.ndarray
) -> ReplayRun:
    """One run: prompts are dealt to prefill instances in turn, caches to those that decode.

    Raises:
        InputError: a request that an instance never holds.
    """
    split, count = pair.split, len(requests.prompt)
    many = int(split.prefill_instances)
    cached = np.zeros(count)
    for copy in range(min(many, count)):
        cached[copy::many] = requests.of_one(copy, many).cached(pair.prefill.tokens)
    lengths = requests.arrival, requests.prompt, requests.output
    given = Requests.of(*lengths, cached, requests.drafts)
    loop = None if concurrency is None else int(concurrency)
    try:
        done = serve_pools(
            *pools_in(pair),
            given,
            lambda prompt, seconds: crossing(pair, prompt, seconds),
            concurrency=loop,
        )
    except InputError as error:
        raise refuse(OPTIONS.get(error.field, error.field), error.value, error.allowed) from None
    return _as_run(pair, requests, cached, done, counted)


def _as_run(
    pair: Pair, requests: Arriving, cached: np.ndarray, done: Pooled, counted: np.ndarray
) -> ReplayRun:
    order = np.argsort(done.handed, kind="stable")
    gaps = [gaps_of(log, counted[order[done.decode[order] == i]])
            for i, log in enumerate(done.logs[1])]  # fmt: skip
    series = [series_of(pair.decode, log) for log in done.logs[1]]
    # watts are of a GPU of an instance that decodes: the others' GPUs in its number
    share = pair.split.prefill_tp / pair.split.decode_tp
    for log in done.logs[0]:
        one = series_of(pair.prefill, log)
        series.append(one._replace(power=one.power * share))
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


def check_pools(split: PoolSplit, arch: Architecture) -> None:
    """Check that engines can split the model over the GPUs of an instance of each pool.

    Raises:
        InputError: a degree that the model is not cut by.
    """
    from infer_jax.verbs.split import check_split

    for tp in (split.prefill_tp, split.decode_tp):
        check_split(arch, tp, 1.0, 1.0)
