"""What stays in the cache of prompts, by the rules of the engine: a pool of blocks, or a tree."""

import jax.numpy as jnp
from jax import Array

from infer_jax.replays import prefix_cache, radix_cache, radix_tree
from infer_jax.replays.prefix_cache import Found, PrefixCache
from infer_jax.replays.radix_tree import RadixTree
from infer_jax.replays.requests import Requests
from infer_jax.replays.rules import Feed, Rules
from infer_jax.replays.state import State


def opened(rules: Rules, s: State, requests: Requests, width: int) -> State:
    """A state with an empty cache of prompts, if requests have prefixes."""
    if requests.prefixes is None:
        return s
    opened = radix_tree.opened if rules.tree else prefix_cache.opened
    return opened(s, requests.prefixes, width)


def tried(rules: Rules, s: State, requests: Requests, waits: Array) -> State:
    """The state once the next request is looked up, if it ``waits`` and is tried for this pass."""
    if not isinstance(s.kept, RadixTree):
        return s
    return radix_cache.tried(rules, s, requests, waits & (s.part < 0) & rules.admits(s))


def look(rules: Rules, s: State, requests: Requests) -> Found | None:
    """What is in the cache of the request that comes next, if prompts are kept."""
    if isinstance(s.kept, RadixTree):
        return radix_cache.found(s.kept)
    return prefix_cache.look(rules, s, requests)


def looked(s: State, feed: Feed) -> State:
    """The state with whether a request waits for what another one computes."""
    if not isinstance(s.kept, PrefixCache) or feed.found is None:
        return s
    waits = feed.waits & ~feed.begun & feed.found.waits
    return s._replace(kept=s.kept._replace(waits=waits))


def waits(s: State) -> Array | bool:
    """Whether the request that comes next waits for what another one computes."""
    return s.kept.waits if isinstance(s.kept, PrefixCache) else False


def fed(
    rules: Rules, s: State, requests: Requests, feed: Feed, new: Array, once: Array
) -> PrefixCache | RadixTree | None:
    """The cache once a part of a prompt is in the pass, its first where ``new``."""
    if isinstance(s.kept, RadixTree):
        tree = radix_cache.admitted(s, new, once, rules.block)
        slot = jnp.minimum(s.free, s.who.shape[0] - 1)
        return radix_cache.fed(s, tree, slot, ~feed.cut, feed.out <= 1)
    return prefix_cache.admitted(rules, s, requests, feed.found, new, once)


def preempted(
    rules: Rules, requests: Requests, s: State, victim: Array, tokens: Array
) -> PrefixCache | RadixTree | None:
    """The cache once a request with ``tokens`` tokens in it has made room."""
    given = rules, requests, s, victim, tokens
    if isinstance(s.kept, RadixTree):
        return radix_cache.preempted(*given)
    return prefix_cache.preempted(*given)


def ended(
    rules: Rules, requests: Requests, s: State, after: State, go: Array, caught: Array
) -> State:
    """The state ``after`` passes, with what they took from the cache and left in it."""
    given = rules, requests, s, after, go, caught
    if isinstance(after.kept, RadixTree):
        return radix_cache.ended(*given)
    return prefix_cache.ended(*given)
