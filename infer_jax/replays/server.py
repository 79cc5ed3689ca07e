"""Replays a server from plain numbers: checks the input and chooses array sizes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.errors import InputError
from infer_jax.replays.log import Log
from infer_jax.replays.loops import replay
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Rules
from infer_jax.replays.stretch import LONGEST, StepTime


def serve(step: StepTime, rules: Rules, requests: Requests, concurrency: int | None = None) -> Log:
    """Serve all requests, as ``replay`` does, and see to it that none is too large to be served.

    ``step`` is a function, or a ``jax.tree_util.Partial`` of one and its coefficients: then neither
    they, nor sizes, nor lengths compile anew.

    >>> from jax.tree_util import Partial
    >>> from infer_jax.replays import Requests, serve, vllm
    >>> step = Partial(lambda c, decoding, context, new, pairs: c + 1e-6 * new, 0.01)
    >>> log = serve(step, vllm(blocks=100, slots=8), Requests.of([0.0, 0.005], [100, 100], [3, 3]))
    >>> [round(float(x), 4) for x in log.ttft[:2]]  # the second waits for two passes in flight
    [0.0101, 0.0252]

    Raises:
        InputError: a request that the cache or, whole, the budget never holds; more slots than
            tokens in a pass.
    """
    checked(rules, requests, concurrency)
    width, turns = sizes_of(rules, requests, concurrency)
    loop = None if concurrency is None else jnp.asarray(concurrency, jnp.int32)
    while True:
        log = _program(step, rules, requests, loop, width=width, turns=turns)
        if log.complete:
            return log
        turns *= 2  # preempted requests take more of them


@partial(jax.jit, static_argnames=("width", "turns"))
def _program(step, rules, requests, concurrency, *, width, turns):
    return replay(step, rules, requests, concurrency, width=width, turns=turns)


def sizes_of(rules: Rules, requests: Requests, concurrency: int | None = None) -> tuple[int, int]:
    """Slots and entries of the path that a program has room for, powers of two.

    No more slots than requests can be in flight: every turn looks through all of them.
    """
    most = min(float(rules.slots), float(requests.count), concurrency or float("inf"))
    return _power(most), _power(_turns(rules, requests))


def checked(rules: Rules, requests: Requests, concurrency: int | None) -> None:
    """Do nothing where every request can be served.

    Raises:
        InputError: as ``serve``.
    """
    if concurrency is not None and concurrency < 1:
        raise InputError("serve", "concurrency", concurrency, "a whole number of at least 1")
    room = float(rules.budget) / (1.0 + float(rules.drafts))
    if rules.beside and float(rules.slots) > room:
        allowed = f"at most budget, {room:g}: every running request decodes a token"
        if float(rules.drafts):
            allowed = f"at most {room:g}: each decodes a token and its drafts in budget"
        raise InputError("serve", "slots", float(rules.slots), allowed)
    if not rules.beside and float(rules.budget) % float(rules.block):
        allowed = f"a multiple of a block, {float(rules.block):g} tokens"
        raise InputError("serve", "budget", float(rules.budget), allowed)
    _check_drafts(rules, requests)
    if float(rules.overlap) and float(rules.poll) > 1:
        allowed = "no: rules that look for requests in some passes have no overlap"
        raise InputError("serve", "overlap", "yes", allowed)
    _check_prefixes(rules, requests)
    count = int(requests.count)
    prompt, output = requests.prompt[:count], requests.output[:count]
    needed = np.asarray(rules.whole().largest(jnp.asarray(prompt), jnp.asarray(output)))
    room = float(rules.blocks) - float(rules.watermark)
    if np.any(needed > room):
        worst = int(needed.argmax())
        sizes = f"{prompt[worst]} tokens in and {output[worst]} out"
        raise InputError("serve", f"request {worst}", sizes, f"what {room:g} blocks hold alone")
    whole = rules.preempts and rules.beside  # a preempted request computes its output, too
    longest = int((prompt + output * whole).max())
    if not float(rules.chunked) and longest > float(rules.budget):
        raise InputError(
            "serve", "budget", float(rules.budget), f"at least {longest}: whole prompts"
        )


def _check_drafts(rules: Rules, requests: Requests) -> None:
    """Do nothing where requests and rules both have drafts, or neither.

    Raises:
        InputError: one without the other, or rules that have none.
    """
    drafts = float(rules.drafts)
    if drafts and not rules.speculates:
        raise InputError("serve", "drafts", drafts, "0: these rules have no drafts")
    if (drafts > 0) != (requests.drafts is not None):
        allowed = "drafts of rules and of requests (drawn_drafts), or neither"
        raise InputError("serve", "drafts", drafts, allowed)


def keeps(rules: Rules) -> bool:
    """Whether these rules look prompts up in a cache of prefixes."""
    return rules.keeps and not float(getattr(rules, "hold", 0.0))


def _check_prefixes(rules: Rules, requests: Requests) -> None:
    """Do nothing where the rules can keep the prefixes that requests have, if they have any.

    Raises:
        InputError: rules that keep none, blocks of another size, or prompts said to be cached, too.
    """
    if requests.prefixes is None:
        return
    if not keeps(rules):
        raise InputError("serve", "prefixes", "given", "none: these rules keep no prompts")
    if int(requests.prefixes.block) != float(rules.block):
        allowed = f"the {float(rules.block):g} tokens of the rules"
        raise InputError("serve", "block of prefixes", int(requests.prefixes.block), allowed)
    if requests.drafts is not None:
        raise InputError("serve", "drafts", "given", "none where the scheduler looks prompts up")
    if np.any(np.asarray(requests.cached) > 0):
        raise InputError("serve", "cached", "given", "0 where the scheduler looks prompts up")


def _turns(rules: Rules, requests: Requests) -> float:
    """An upper bound on the entries of a path, if no request is preempted."""
    count = int(requests.count)
    spare = float(rules.slots) if rules.beside else 0.0
    room = max(float(rules.budget) - spare, float(rules.unit), 1.0)
    parts = np.ceil(requests.prompt[:count] / room).sum()
    return 4.0 * count + 2.0 * parts + requests.output[:count].sum() / LONGEST + 8.0


def _power(value: object) -> int:
    return 2 ** int(np.ceil(np.log2(max(float(np.asarray(value)), 2.0))))
