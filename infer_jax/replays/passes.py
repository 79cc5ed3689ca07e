"""What a pass feeds, and what is known of passes that ran."""

from typing import NamedTuple

from jax import Array


class FedBatch(NamedTuple):
    """What a pass feeds, and whether there is nothing to feed."""

    prompts: Array
    decoding: Array
    context: Array
    over: Array  # of those that decode, the ones that had their last token
    grows: Array  # tokens that the context of those that stay grows by in a pass
    idle: Array
    waits: Array  # idle, and what the pass that runs brings is not known yet


class Ran(NamedTuple):
    """Passes that ran, when they ended, and (from the begin, s) when arrivals were looked at."""

    steps: Array
    now: Array
    look: Array
    until: Array  # the request that ended a wait, or -1
