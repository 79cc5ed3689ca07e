"""Replays an engine's scheduler: when each request is admitted, fed, decoded, preempted.

An iteration is read from ``Server.iterate`` (``server.py``) through ``Scheduler.compose``
(``scheduler.py``: ``admit``, ``feed``, ``make_room``) to ``Server.finish``. Both work on a
``State`` (``state.py``) by the rules of an engine (``rules.py``, ``decode_first.py``,
``prefill_first.py``). What a server may have beside is an object that they ask at the same moments:
its drafts (``drafts.py``), and its cache of prompts (``prefix_cache.py``, ``radix_cache.py``).

Several servers behind a router are in ``cluster.py``, ``copies.py``, ``ranks.py`` and ``pools.py``.
``loops.py`` runs servers, ``log.py`` says what happened, ``runs.py`` has its statistics.
"""

from collections.abc import Callable
from importlib import import_module

from infer_jax.replays.copies import replay_copies as replay_copies, serve_copies as serve_copies
from infer_jax.replays.decode_first import (
    BlockReuse as BlockReuse,
    GuaranteedNoEvict as GuaranteedNoEvict,
    Preempting as Preempting,
)
from infer_jax.replays.drafts import Drafts as Drafts, drawn_drafts as drawn_drafts
from infer_jax.replays.log import Log as Log, RoutedLog as RoutedLog, path_gradient as path_gradient
from infer_jax.replays.loops import (
    has_prefix_cache as has_prefix_cache,
    lanes as lanes,
    replay as replay,
    serve as serve,
    side_by_side as side_by_side,
)
from infer_jax.replays.pools import Pool as Pool, Pooled as Pooled, serve_pools as serve_pools
from infer_jax.replays.prefill_first import PrefillFirst as PrefillFirst
from infer_jax.replays.ranks import (
    SharedStep as SharedStep,
    replay_ranks as replay_ranks,
    serve_ranks as serve_ranks,
)
from infer_jax.replays.requests import Prefixes as Prefixes, Requests as Requests
from infer_jax.replays.rules import Rules as Rules

# names of before
WholeLife, retrace, keeps = GuaranteedNoEvict, path_gradient, has_prefix_cache


def __getattr__(name: str) -> Callable[..., Rules]:
    """The rules of the engines, which are in files of their own and import this package."""
    if name in ("vllm", "sglang", "trtllm"):
        return getattr(import_module(f"infer_jax.engines.{name}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
