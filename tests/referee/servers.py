"""Random servers twice, as rules of the compiled replay and as an engine in plain Python.

``small`` draws servers, ``drawn`` their requests, ``vllm``, ``sglang`` and ``trtllm`` give one both
forms, ``replayed`` and ``served`` run them, ``compare`` holds every time of every request together.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from infer_jax.replays import (
    BlockReuse,
    Drafts,
    GuaranteedNoEvict,
    Log,
    Preempting,
    PrefillFirst,
    Prefixes,
    Requests,
    Rules,
    reference,
    replay,
)

from . import serving
from .serving import SHORT, Case, Machine, step_time

FEW = 90  # requests of a run
CLOSE = 1e-9  # of a time
FULL, ROOMY = (0.5, 3.0), (30.0, 40.0)  # requests that a cache holds: too few, and all
TIMES = ("arrival", "admitted", "first", "last", "preempted")


class Drawn(NamedTuple):
    """Requests of a case: seconds and tokens."""

    arrival: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    cached: np.ndarray | None = None
    drafts: Drafts | None = None
    prefixes: Prefixes | None = None

    def lengths(self) -> list[tuple[float, int, int, int]]:
        """(arrival, prompt, output, cached) of each, as the referee takes them."""
        cached = np.zeros(len(self.prompt)) if self.cached is None else self.cached
        tokens = (np.asarray(x).astype(int).tolist() for x in (self.prompt, self.output, cached))
        return list(zip(self.arrival.tolist(), *tokens, strict=True))


def drawn(case: Case, count: int, seed: int, *, capped: bool = False) -> Drawn:
    """Requests of a case, arriving at its share of a crude estimate of what it serves.

    Those of a closed loop come at 0; ``capped``: as others, of which some are held back.
    """
    rng = np.random.default_rng(seed)
    prompt, output = serving.lengths_of(case, rng, count)
    m = case.machine
    batch = min(case.engine.slots, case.engine.blocks * 16 / (prompt.mean() + output.mean()))
    seconds = m.fed * prompt.mean() + output.mean() * (m.host + m.weights) / max(batch, 1.0)
    gaps = rng.gamma(1 / case.variability, case.variability * seconds / case.load, count)
    waits = case.concurrency is None or capped
    return Drawn(np.cumsum(gaps) if waits else np.zeros(count), prompt, output)


def small(count: int, seed: int, blocks: tuple[float, float] = FULL) -> list[Case]:
    """Cases whose cache holds ``blocks`` requests: of ``FULL``, blocks run short."""
    rng, cases = np.random.default_rng(seed), []
    for case in serving.cases(count, seed):
        prompt, output = case.prompt / 8, case.output / 4 + 8
        slots = int(rng.integers(2, 33))
        held = rng.uniform(*blocks) * (prompt + output) / 16
        engine = case.engine._replace(
            slots=slots, blocks=int(held + 4 * (prompt + output) / 16) + 8,
            budget=int(rng.choice([64, 256, 1024])),
        )  # fmt: skip
        loop = None if case.concurrency is None else int(rng.integers(1, 2 * slots))
        cases.append(case._replace(engine=engine, prompt=prompt, output=output, concurrency=loop))
    return cases


class Server(NamedTuple):
    """The rules of a server, what makes an engine that has them, and tokens a request may have."""

    rules: Rules
    engine: Callable[[], Any]
    tokens: int

    def fitting(self, d: Drawn) -> Drawn:
        """The same requests, none larger than the cache."""
        prompt = np.minimum(d.prompt, self.tokens // 2)
        return d._replace(prompt=prompt, output=np.minimum(d.output, self.tokens - prompt - 2))


def _server(rules: type[Rules], plain: type, sizes: dict, own: dict, **more: Any) -> Server:
    """Both forms: ``own`` is of the engine alone, ``more`` of the rules."""
    numbers = {name: float(x) for name, x in (sizes | more).items()}
    tokens = (sizes["blocks"] - 2) * sizes["block"] - 4 * (1 + sizes["drafts"])
    return Server(rules.of(**numbers), partial(plain, **sizes, **own), tokens)


def _sizes(case: Case, *, drafts: int = 0, **options: Any) -> dict[str, Any]:
    """Those of the case; a pass has room for the drafts of all that run."""
    e = case.engine
    slots = min(e.slots, e.budget // (2 + 2 * drafts)) if drafts else e.slots
    sizes = {"budget": e.budget, "slots": slots, "blocks": e.blocks, "block": e.block}
    return sizes | {"drafts": drafts} | options


def vllm(case: Case, plain: type = reference.Vllm, **options: Any) -> Server:
    """vLLM's; ``options``: entire, watermark, poll, overlap, drafts, host, fetch."""
    return _server(Preempting, plain, _sizes(case, **options), {})


def trtllm(
    case: Case, plain: type = reference.Trtllm, *, evicts: bool = False, **options: Any
) -> Server:
    """TensorRT-LLM's; ``options``: chunked, overlap, drafts, host, fetch."""
    sizes = _sizes(case, **options)
    unit = sizes["block"]
    if evicts:
        return _server(Preempting, plain, sizes, {"evicts": True}, unit=unit, hold=1)
    rules = GuaranteedNoEvict if plain is reference.Trtllm else BlockReuse
    return _server(rules, plain, sizes, {}, unit=unit)


def sglang(
    case: Case, plain: type = reference.Sglang, *, page: int = 1, ratio: float = 0.3,
    **options: Any,
) -> Server:  # fmt: skip
    """SGLang's; ``options``: overlap, drafts. The same cache in pages, a budget of whole ones."""
    sizes = _sizes(case, **options)
    sizes |= {"slots": case.engine.slots, "block": page, "ratio": ratio, "least": 0.05}
    sizes |= {"blocks": max(sizes["blocks"] * 16 // page, 4), "decay": 50.0}
    sizes["budget"] = max(sizes["budget"] // page * page, page)
    return _server(PrefillFirst, plain, sizes, {"now_ratio": ratio}, unit=page)


def machine_of(case: Case) -> Machine:
    return Machine(*map(jnp.asarray, case.machine))


def loop_of(count: int | None) -> Any:
    """Requests in flight, as a replay takes them."""
    return None if count is None else jnp.asarray(count, jnp.int32)


@partial(jax.jit, static_argnames=("width", "entries"), compiler_options=SHORT)
def _replayed(machine, rules, requests, concurrency, *, width, entries) -> Log:
    step = Partial(_verifying, rules.drafts, machine)
    return replay(step, rules, requests, concurrency, width=width, entries=entries)


def _verifying(drafts, machine, decoding, *rest):
    """A pass feeds every request that decodes a token and its drafts."""
    return step_time(machine, decoding * (1.0 + drafts), *rest)


def replayed(case: Case, rules: Rules, d: Drawn) -> Log:
    """The compiled replay of a case's requests."""
    requests, loop = Requests.of(*d[:5], prefixes=d.prefixes), loop_of(case.concurrency)
    log = _replayed(machine_of(case), rules, requests, loop, width=32, entries=8192)
    return jax.device_get(log)


def served(case: Case, engine: Any, d: Drawn, yields: Any = None) -> list[Any]:
    """The requests of a case, served by an engine in plain Python."""
    fed = 1 + getattr(engine, "drafts", 0)
    return reference.serve_plainly(
        lambda b, *rest: step_time(case.machine, fed * b, *rest), engine, d.lengths(),
        case.concurrency, yields or (lambda index: reference.one_token),
    )  # fmt: skip


def compare(log: Log, theirs: Any, where: str, names: tuple[str, ...] = TIMES) -> int:
    """Hold a log to the referee's requests; how many went back."""
    assert log.complete
    for name in names:
        expected = np.array([getattr(r, name) for r in theirs])
        ours = np.asarray(getattr(log, name))[: len(expected)]
        np.testing.assert_allclose(ours, expected, rtol=CLOSE, atol=1e-12, err_msg=where + name)
    return sum(r.preempted for r in theirs)
