"""Latency and throughput of requests in a server with continuous batching.

Every step feeds one token of each decoding request, and its drafts, and with what is left of its
token budget chunks of prompts in the order of arrival. The law of the server is one function,

    step(decoding, prompts, new, cached) -> seconds

of a step with ``decoding`` decoding requests and ``prompts`` others that feed ``new`` tokens each,
after ``cached`` ones; all arguments are real numbers, and 0 prompts are none. Everything else is
counting (Little's law) and waiting. To be read in this order:

``kinds``           requests, the limits of a server, its decode step, the service time of a prompt
``admission``       how many requests run: slots and cache
``closed``          a fixed number in flight: a cycle, counted in steps
``queueing``        waits before one queue, their tails and percentiles
``occupancy``       arrivals: how many requests are present, and the wait for a slot
``prefill_delay``   arrivals: the wait for steps and prompts, and what prompts cost decoding
``open``            arrivals: TTFT and TPOT, of the two before it
``interference``    closed loops of equal or mixed lengths by the rules of an engine's scheduler

The laws are approximations: how far they are from a simulation, event by event, is in the project's
tests (tests/referee). Derivation: docs/theories/chapter.md and scheduler.md.
"""

from infer_jax.physics.scheduling.admission import CacheLimit as CacheLimit, memory as memory
from infer_jax.physics.scheduling.closed import closed_loop as closed_loop
from infer_jax.physics.scheduling.kinds import (
    LEVELS as LEVELS,
    Kinds as Kinds,
    MeanService as MeanService,
    ServerLimits as ServerLimits,
    Step as Step,
    kinds_of as kinds_of,
    mean_context as mean_context,
    prompt_room as prompt_room,
)
from infer_jax.physics.scheduling.open import open_loop as open_loop
